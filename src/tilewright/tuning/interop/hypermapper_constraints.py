"""Constraints of BaCO's scenario files (NumExpr's notation) as this package's expressions.

NumExpr writes ``&``, ``|`` and ``~`` for and, or and not, and has functions of its own. For a
permutation ``p``, a constraint of BaCO may name ``p_2``, the item at position 2, and ``p_i2``, the
position of item 2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from tilewright.arith import ExpressionError, parse_expression
from tilewright.tuning.errors import ConstraintError

_LOGARITHMS = {"log": "0.6931471805599453", "log10": "0.3010299956639812"}


def translate(text: str, permutations: Collection[str], names: Collection[str]) -> str:
    """Return the constraint in the syntax of `tilewright.tuning.space.expressions.parse`.

    Args:
        text: the constraint as written in the scenario.
        permutations: the names of the permutation parameters.
        names: the names of all parameters.

    Raises:
        ConstraintError: a syntax error, or a construct without counterpart.
    """
    try:
        tree = parse_expression(text)
    except ExpressionError as error:
        raise ConstraintError(f"constraint {text!r} {error}") from None
    changed = _Translator(text, permutations, names).visit(tree)
    return ast.unparse(ast.fix_missing_locations(changed))


class _Translator(ast.NodeTransformer):
    def __init__(self, text: str, permutations: Collection[str], names: Collection[str]) -> None:
        self.text = text
        self.permutations = permutations
        self.names = names

    def visit_BinOp(self, tree: ast.BinOp) -> ast.expr:
        self.generic_visit(tree)
        if isinstance(tree.op, ast.BitAnd | ast.BitOr):
            if not (_boolean(tree.left) and _boolean(tree.right)):
                raise ConstraintError(
                    f"constraint {self.text!r}: {ast.unparse(tree)!r} combines numbers, not "
                    "conditions; put the comparisons in parentheses"
                )
            op: ast.boolop = ast.And() if isinstance(tree.op, ast.BitAnd) else ast.Or()
            return ast.BoolOp(op, [tree.left, tree.right])
        if isinstance(tree.op, ast.LShift | ast.RShift):
            power = ast.BinOp(ast.Constant(2), ast.Pow(), tree.right)
            times: ast.operator = ast.Mult() if isinstance(tree.op, ast.LShift) else ast.FloorDiv()
            return ast.BinOp(tree.left, times, power)
        return tree

    def visit_UnaryOp(self, tree: ast.UnaryOp) -> ast.expr:
        self.generic_visit(tree)
        if isinstance(tree.op, ast.Invert) and _boolean(tree.operand):
            return ast.UnaryOp(ast.Not(), tree.operand)
        return tree

    def visit_Name(self, tree: ast.Name) -> ast.expr:
        if tree.id in self.names:
            return tree
        found = re.fullmatch(r"(.+)_(i?)(\d+)", tree.id)
        if found and found.group(1) in self.permutations:
            name, place = found.group(1), int(found.group(3))
            form = f"{name}.index({place})" if found.group(2) else f"{name}[{place}]"
            return ast.parse(form, mode="eval").body
        return tree

    def visit_Call(self, tree: ast.Call) -> ast.expr:
        name = tree.func.id if isinstance(tree.func, ast.Name) else ""
        tree.args = [self.visit(argument) for argument in tree.args]
        if name == "where" and len(tree.args) == 3:
            return ast.IfExp(*tree.args)
        if len(tree.args) == 1:
            inner = f"({ast.unparse(tree.args[0])})"
            forms = {
                "sqrt": f"{inner} ** 0.5",
                "floor": f"{inner} // 1",
                "ceil": f"-(-{inner} // 1)",
            }
            forms |= {log: f"log2{inner} * {factor}" for log, factor in _LOGARITHMS.items()}
            if name in forms:
                return ast.parse(forms[name], mode="eval").body
        return tree


def _boolean(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Compare | ast.BoolOp):
        return True
    if isinstance(tree, ast.Constant):
        return isinstance(tree.value, bool)
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
