"""Parse and check expressions that users write; they are never run as code.

Python's parser reads an expression, and a `Grammar` defines which parts of it are allowed. Users
write expressions as constraints of a search space, as complexities of a kernel and as conditions in
scenario files. Evaluation depends on the use. Constraints are computed exactly with whole numbers
and may contain permutations. Complexities are computed in double precision and printed as Python
and C.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

LARGEST_CONSTANT = 1e300  # below the largest double, 1.8e308
MOST_NODES = 1000  # in a syntax tree, so that recursion over it stays far below Python's limit
# The number of arguments of each function; None for two or more.
FUNCTIONS: dict[str, int | None] = {
    "min": None,
    "max": None,
    "abs": 1,
    "ceil": 1,
    "exp": 1,
    "floor": 1,
    "log": 1,
    "log2": 1,
    "sqrt": 1,
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}


class ExpressionError(ValueError):
    """A text is not an expression; the message is the predicate of a sentence about the text."""


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression, without checking its parts.

    Raises:
        ExpressionError: The text is not an expression.
    """
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        where, why = "", str(error)
        if isinstance(error, SyntaxError):
            where, why = f" (at column {error.offset})", error.msg
        raise ExpressionError(f"is not an expression{where}: {why}") from None


@dataclass(frozen=True)
class Mistake:
    """A mistake in a part of an expression, with its cure."""

    what: str
    cure: str

    def __str__(self) -> str:
        """Return the mistake and its cure, as the end of a message."""
        return f"{self.what}; {self.cure}"


@dataclass(frozen=True)
class Grammar:
    """The allowed parts of an expression: numbers, names, arithmetic and calls of functions.

    Args:
        names: The allowed names.
        functions: The functions of `FUNCTIONS` that may be called.
        noun: The word for the names in messages, for example ``parameters``.
        words: Whether strings and truth values are allowed constants.
    """

    names: Collection[str]
    functions: Collection[str] = tuple(FUNCTIONS)
    noun: str = "features"
    words: bool = False

    def mistake(self, tree: ast.expr) -> Mistake | None:
        """Return the first mistake in an expression; None if there is none."""
        if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
            return Mistake("the expression is too long", f"use at most {MOST_NODES} operations")
        return next((m for node in operands(tree) if (m := self.mistake_at(node))), None)

    def mistake_at(self, node: ast.expr) -> Mistake | None:
        """Return the mistake in a node, ignoring its operands; None if there is none."""
        if isinstance(node, ast.Constant):
            return self._mistake_in_constant(node)
        if isinstance(node, ast.Name):
            return self.unknown_name(node.id)
        if isinstance(node, ast.BinOp):
            allowed = ", ".join(ARITHMETIC.values())
            what = f"the operator in {ast.unparse(node)!r} is not allowed"
            return None if type(node.op) in ARITHMETIC else Mistake(what, f"use {allowed}")
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.USub | ast.UAdd):
                return None
            return Mistake(f"{ast.unparse(node)!r} is not allowed", "use + or -")
        if isinstance(node, ast.Call):
            return self._mistake_in_call(node)
        return Mistake(
            f"{ast.unparse(node)!r} is not allowed", f"use arithmetic on the {self.noun}"
        )

    def unknown_name(self, name: str) -> Mistake | None:
        """Return the mistake for a name that is not in `names`; None if it is."""
        if name in self.names:
            return None
        near = get_close_matches(name, list(self.names), 1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        cure = f"the {self.noun} are {', '.join(self.names)}"
        return Mistake(f"the name {name!r} is unknown{meant}", cure)

    def _mistake_in_constant(self, node: ast.Constant) -> Mistake | None:
        value = node.value
        if self.words and isinstance(value, bool | int | float | str):
            return None
        if type(value) in (int, float) and abs(value) <= LARGEST_CONSTANT:  # type: ignore[arg-type]
            return None
        cure = "use a number or a string" if self.words else "use a finite number"
        return Mistake(f"the constant {value!r} is not allowed", cure)

    def _mistake_in_call(self, node: ast.Call) -> Mistake | None:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if name not in self.functions:
            return Mistake(f"the function {name!r} is unknown", f"use {', '.join(self.functions)}")
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            return Mistake(f"{ast.unparse(node)!r} is not allowed", "give plain arguments")
        count = FUNCTIONS[name]
        if len(node.args) < 2 if count is None else len(node.args) != count:
            what = f"{ast.unparse(node)!r} has the wrong number of arguments"
            wanted = "at least two arguments" if count is None else "one argument"
            return Mistake(what, f"give {name} {wanted}")
        return None


def operands(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield an expression and all its operands; those of a call are its arguments."""
    yield tree
    children: list[ast.expr] = []
    if isinstance(tree, ast.Call):
        children = list(tree.args)
    elif isinstance(tree, ast.BinOp):
        children = [tree.left, tree.right]
    elif isinstance(tree, ast.UnaryOp):
        children = [tree.operand]
    for child in children:
        yield from operands(child)
