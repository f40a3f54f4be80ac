"""Deliberate faults in numeric code, by syntax tree: which there are, and the text with one."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

FACTORS = (0.01, 0.5, 2.0, 100.0)
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
EXCHANGED = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum",
    "floor": "ceil", "ceil": "floor", "fmin": "fmax",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One fault: the expression at `line` of `path`, in `place`, is replaced."""

    path: str
    place: str
    line: int
    kind: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> str:
        """A name that does not depend on where the expression stands in the file."""
        words = f"{self.path} {self.place} {self.kind} {self.before} {self.after}"
        return hashlib.sha256(words.encode()).hexdigest()[:12]


def mutants(path: str, source: str, skipped_classes: frozenset[str]) -> Iterator[Mutant]:
    """Every fault of one module, in order.

    Left alone are annotations, decorators, default arguments, indices, texts and what is
    compared with a text or None: faults there are of another kind.
    """
    tree = ast.parse(source)
    for place, node in _expressions(tree, "", skipped_classes):
        for kind, replacement in _faults(node):
            before, after = ast.get_source_segment(source, node) or "", ast.unparse(replacement)
            text = _replaced(source, node, f"({after})")
            yield Mutant(path, place, node.lineno, kind, " ".join(before.split()), after, text)


def _expressions(
    node: ast.AST, place: str, skipped: frozenset[str]
) -> Iterator[tuple[str, ast.expr]]:
    """Expressions of function bodies and of classes' fields, with the name of where they are."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and child.name in skipped:
            continue
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            inner = f"{place}.{child.name}".lstrip(".")
            for statement in child.body:
                yield from _statement(statement, inner, skipped)


def _statement(
    node: ast.AST, place: str, skipped: frozenset[str]
) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield from _expressions(ast.Module([node], []), place, skipped)
        return
    if isinstance(node, ast.AnnAssign):
        target = node.target.id if isinstance(node.target, ast.Name) else ""
        if node.value is not None:
            yield from _statement(node.value, f"{place}.{target}", skipped)
        return
    if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield place, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "slice"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _statement(child, place, skipped)


def _faults(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    number = isinstance(node, ast.Constant) and node.value
    if isinstance(number, int | float) and not isinstance(number, bool) and number:
        for factor in FACTORS:
            scaled = number * factor
            yield (
                "scaled constant",
                ast.Constant(int(scaled) if isinstance(number, int) and factor > 1 else scaled),
            )
    if isinstance(node, ast.BinOp):
        exchanged = OPERATORS.get(type(node.op))
        if exchanged is not None:
            yield "swapped operator", ast.BinOp(node.left, exchanged(), node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            yield "dropped term", node.left
            if isinstance(node.op, ast.Add):
                yield "dropped term", node.right
        if isinstance(node.op, ast.Mult | ast.Div):
            yield "dropped factor", node.left
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        swapped = COMPARISONS.get(type(node.ops[0]))
        other = node.comparators[0]
        text = isinstance(other, ast.Constant) and not isinstance(other.value, int | float)
        if swapped is not None and not text:
            yield "swapped comparison", ast.Compare(node.left, [swapped()], node.comparators)
    if isinstance(node, ast.Name) and node.id in ("min", "max"):
        yield "exchanged min and max", ast.Name(EXCHANGED[node.id], ast.Load())
    if isinstance(node, ast.Attribute) and node.attr in EXCHANGED:
        yield "exchanged min and max", ast.Attribute(node.value, EXCHANGED[node.attr], ast.Load())


def _replaced(source: str, node: ast.expr, text: str) -> str:
    """The source with the node's text replaced."""
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    # Columns count bytes of UTF-8.
    start = lines[first].encode()[: node.col_offset].decode()
    end = lines[last].encode()[node.end_col_offset :].decode()
    return "".join([*lines[:first], start, text, end, *lines[last + 1 :]])
