"""Parse polynomials from text, and make sizes by name."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from tilewright.arith.atoms import Size
from tilewright.arith.expressions import ExpressionError, parse_expression
from tilewright.arith.polynomial import Poly
from tilewright.arith.substitution import boundary


def sizes(names: str) -> tuple[Poly, ...]:
    """Return the sizes with these names, which are separated by spaces or commas.

    >>> N, M = sizes("N M")
    """
    return tuple(Poly.of(Size(name)) for name in names.replace(",", " ").split())


def parse(text: str) -> Poly:
    """Return the polynomial that ``str`` printed; every name is a size.

    Raises:
        ValueError: The text is not of that form.
    """
    try:
        return _parsed(parse_expression(text))
    except (ExpressionError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not a size or an index: {error}") from None


def _parsed(node: ast.expr) -> Poly:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Poly.constant(node.value)
    if isinstance(node, ast.Name):
        return Poly.of(Size(node.id))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parsed(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_parsed(node.left), _parsed(node.right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        return boundary(node.func.id, _parsed(node.args[0]), _parsed(node.args[1]))
    raise ValueError(f"{ast.unparse(node)!r} is not part of a size or an index")


_OPERATORS: dict[type[ast.operator], Callable[[Poly, Poly], Poly]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
