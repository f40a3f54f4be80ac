"""The mathematical complexity f(K, H): an expression of the parameters, never run as code.

The text is read with Python's parser and only an allow-list of its syntax tree is accepted.
The same tree computes columns of values and is printed as Python and as C by the exports.
"""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError

Array: TypeAlias = np.ndarray[Any, Any]

_BINARY: dict[type[ast.operator], tuple[Callable[[Any, Any], Any], str, str]] = {
    ast.Add: (np.add, "({} + {})", "({} + {})"),
    ast.Sub: (np.subtract, "({} - {})", "({} - {})"),
    ast.Mult: (np.multiply, "({} * {})", "({} * {})"),
    ast.Div: (np.divide, "({} / {})", "({} / {})"),
    ast.FloorDiv: (np.floor_divide, "({} // {})", "floor({} / {})"),
    ast.Mod: (np.mod, "({0} % {1})", "({0} - {1} * floor({0} / {1}))"),
    ast.Pow: (np.power, "pow({}, {})", "pow({}, {})"),
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "exp": np.exp,
    "floor": np.floor,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
}
_MANY = {"min": np.minimum, "max": np.maximum}
_LIMIT = 1000  # nodes of the syntax tree


@dataclass(frozen=True)
class Complexity:
    """An expression over named features.

    Args:
        text: such as ``"m*n*k"`` or ``"ceil(n/s) * ceil(m/s) * s**2"``. Allowed are numbers,
            names, ``+ - * / // % **``, ``min``, ``max``, ``abs``, ``ceil``, ``floor``, ``exp``,
            ``log``, ``log2`` and ``sqrt``.
        features: the names that may be used.

    Raises:
        PredictionError: a syntax error, an unknown name, or something that is not allowed.

    >>> Complexity("m*n + 1", ("m", "n"))(np.array([[2.0, 3.0]]))
    array([7.])
    """

    text: str
    features: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise PredictionError(f"complexity is {self.text!r}; give a text such as 'm*n*k'")
        _check(self._tree(), self)

    def _tree(self) -> ast.expr:
        return _parse(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the expression uses, in their order."""
        used = {node.id for node in ast.walk(self._tree()) if isinstance(node, ast.Name)}
        return tuple(name for name in self.features if name in used)

    def __call__(self, table: Array) -> Array:
        """Values of shape (n,) for a table of shape (n, features); infinite or NaN if undefined."""
        with np.errstate(all="ignore"):
            value = _evaluate(self._tree(), dict(zip(self.features, table.T, strict=True)))
        return np.broadcast_to(np.asarray(value, dtype=float), (len(table),))

    def python(self, variables: Sequence[str]) -> str:
        """As Python source, the features called ``variables``; functions come from ``math``."""
        return _print(self._tree(), dict(zip(self.features, variables, strict=True)), False)

    def c(self, variables: Sequence[str]) -> str:
        """As C source for doubles, the features called ``variables``; needs ``math.h``."""
        return _print(self._tree(), dict(zip(self.features, variables, strict=True)), True)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise PredictionError(
            f"complexity {_short(text)} is not an expression: {error}; write e.g. 'm*n*k'"
        ) from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:97]}...")


def _check(tree: ast.expr, whole: Complexity) -> None:
    """Raise PredictionError unless the tree is arithmetic on the features."""
    problem: tuple[str, str] | None = None
    if sum(1 for _ in ast.walk(tree)) > _LIMIT:
        problem = "the expression is too long", f"use at most {_LIMIT} operations"
    else:
        problems = (_problem(node, whole.features) for node in _expressions(tree))
        problem = next((p for p in problems if p is not None), None)
    if problem is not None:
        what, cure = problem
        raise PredictionError(f"complexity {_short(whole.text)}: {what}; {cure}")


def _problem(node: ast.expr, features: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong with a part of an expression and what to do about it; None if it is right."""
    if isinstance(node, ast.Constant):
        if type(node.value) in (int, float) and abs(node.value) <= 1e300:  # type: ignore[arg-type]
            return None
        return f"the constant {node.value!r} is not allowed", "use a finite number"
    if isinstance(node, ast.Name):
        if node.id in features:
            return None
        near = difflib.get_close_matches(node.id, features, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"the name {node.id!r} is unknown", f"the features are {', '.join(features)}{meant}"
    if isinstance(node, ast.BinOp):
        if type(node.op) in _BINARY:
            return None
        return f"the operator in {ast.unparse(node)!r} is not allowed", "use + - * / // % **"
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub | ast.UAdd):
            return None
        return f"{ast.unparse(node)!r} is not allowed", "use + or -"
    if isinstance(node, ast.Call):
        return _problem_of_call(node)
    return f"{ast.unparse(node)!r} is not allowed", "use arithmetic on the features"


def _problem_of_call(node: ast.Call) -> tuple[str, str] | None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in _UNARY and name not in _MANY:
        return f"the function {name!r} is unknown", f"use {', '.join([*_UNARY, *_MANY])}"
    count = len(node.args)
    if node.keywords or (count < 2 if name in _MANY else count != 1):
        return (
            f"{ast.unparse(node)!r} has the wrong number of arguments",
            "min and max take two or more, the others one",
        )
    return None


def _expressions(tree: ast.expr) -> list[ast.expr]:
    """The tree's expressions; of a call its arguments, not its function's name."""
    children: list[ast.expr] = []
    if isinstance(tree, ast.Call):
        children = list(tree.args)
    elif isinstance(tree, ast.BinOp):
        children = [tree.left, tree.right]
    elif isinstance(tree, ast.UnaryOp):
        children = [tree.operand]
    return [tree, *(node for child in children for node in _expressions(child))]


def _evaluate(tree: ast.expr, columns: Mapping[str, Array]) -> Any:
    if isinstance(tree, ast.Constant):
        return float(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.Name):
        return columns[tree.id]
    if isinstance(tree, ast.UnaryOp):
        inner = _evaluate(tree.operand, columns)
        return -inner if isinstance(tree.op, ast.USub) else inner
    if isinstance(tree, ast.BinOp):
        left, right = _evaluate(tree.left, columns), _evaluate(tree.right, columns)
        return _BINARY[type(tree.op)][0](left, right)
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Name)
    values = [_evaluate(argument, columns) for argument in tree.args]
    if tree.func.id in _UNARY:
        return _UNARY[tree.func.id](values[0])
    result = values[0]
    for value in values[1:]:
        result = _MANY[tree.func.id](result, value)
    return result


def _print(tree: ast.expr, variables: Mapping[str, str], c: bool) -> str:
    if isinstance(tree, ast.Constant):
        return repr(float(tree.value))  # type: ignore[arg-type]
    if isinstance(tree, ast.Name):
        return variables[tree.id]
    if isinstance(tree, ast.UnaryOp):
        inner = _print(tree.operand, variables, c)
        return f"(-{inner})" if isinstance(tree.op, ast.USub) else inner
    if isinstance(tree, ast.BinOp):
        left, right = _print(tree.left, variables, c), _print(tree.right, variables, c)
        _, python, as_c = _BINARY[type(tree.op)]
        product = _power(left, tree.right) if c and isinstance(tree.op, ast.Pow) else None
        return product or (as_c if c else python).format(left, right)
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Name)
    name = tree.func.id
    values = [_print(argument, variables, c) for argument in tree.args]
    if name in _MANY:
        if not c:
            return f"{name}({', '.join(values)})"
        text = values[0]
        for value in values[1:]:
            text = f"f{name}({text}, {value})"
        return text
    return f"{'fabs' if c and name == 'abs' else name}({values[0]})"


def _power(base: str, exponent: ast.expr) -> str | None:
    """Small whole powers of a variable in C as products: ``pow`` takes tens of nanoseconds."""
    if not isinstance(exponent, ast.Constant) or not base.isidentifier():
        return None
    return {2: f"({base} * {base})", 3: f"({base} * {base} * {base})"}.get(exponent.value)  # type: ignore[arg-type]
