"""The mathematical complexity f(K, H): an expression of the parameters, never run as code.

A `tilewright.arith.Grammar` says what it may consist of. The same tree computes columns of values
and is printed as Python and as C by the exports.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import ExpressionError, Grammar, parse_expression
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
        mistake = Grammar(self.features).mistake(self._tree())
        if mistake is not None:
            raise PredictionError(f"complexity {_short(self.text)}: {mistake}")

    def _tree(self) -> ast.expr:
        return _parse(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The features that the expression uses, in their order."""
        used = {node.id for node in ast.walk(self._tree()) if isinstance(node, ast.Name)}
        return tuple(name for name in self.features if name in used)

    def __call__(self, table: Array) -> Array:
        """Return values (n,) for a table (n, features); infinite or NaN if undefined."""
        with np.errstate(all="ignore"):
            value = _evaluate(self._tree(), dict(zip(self.features, table.T, strict=True)))
        return np.broadcast_to(np.asarray(value, dtype=float), (len(table),))

    def column(self, table: Array, what: str = "the expression") -> Array:
        """Return values (n,) for a table (n, features).

        Raises:
            PredictionError: a value is not finite; `what` names the expression in the message.
        """
        values = self(table)
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise PredictionError(
                f"{what} {self.text!r} is {values[row]} in row {row}; write one that is finite "
                "there"
            )
        return values

    def python(self, variables: Sequence[str]) -> str:
        """Return Python source, the features called ``variables``; functions come from ``math``."""
        return _print(self._tree(), dict(zip(self.features, variables, strict=True)), False)

    def c(self, variables: Sequence[str]) -> str:
        """Return C source for doubles, the features called ``variables``; it needs ``math.h``."""
        return _print(self._tree(), dict(zip(self.features, variables, strict=True)), True)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> ast.expr:
    try:
        return parse_expression(text)
    except ExpressionError as error:
        raise PredictionError(f"complexity {_short(text)} {error}; write e.g. 'm*n*k'") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:97]}...")


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
    """Return small powers of a variable in C as products: ``pow`` takes tens of nanoseconds."""
    if not isinstance(exponent, ast.Constant) or not base.isidentifier():
        return None
    return {2: f"({base} * {base})", 3: f"({base} * {base} * {base})"}.get(exponent.value)  # type: ignore[arg-type]
