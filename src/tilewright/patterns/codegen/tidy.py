"""Simplification of code: inlining of values used once, and naming of repeated index parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewright.arith import Atom, Boundary, Div, LoopVariable, Mod, Poly
from tilewright.patterns.codegen.code import (
    Assign,
    Block,
    Declare,
    Name,
    Store,
    all_values,
    indices_of,
    statements,
    values_of,
)
from tilewright.patterns.codegen.code import ForLoop as LoopStatement


def inlined(block: Block) -> Block:
    """Return a block in which variables that only the next statement uses are inlined."""
    uses: Counter[str] = Counter()
    for s in statements(block):
        for v in values_of(s):
            uses.update(part.name for part in all_values(v) if isinstance(part, Name))
    return _inlined(block, uses)


def _inlined(block: Block, uses: Counter[str]) -> Block:
    made: Block = []
    for s in block:
        last = made[-1] if made else None
        if (
            isinstance(s, Assign | Store)
            and isinstance(s.value, Name)
            and isinstance(last, Declare)
            and last.name == s.value.name
            and uses[last.name] == 1
            and not last.changes
        ):
            made.pop()
            s.value = last.value
        if isinstance(s, LoopStatement):
            s.body = _inlined(s.body, uses)
        made.append(s)
    return made


@dataclass(slots=True)
class IndexNames:
    """Names for parts of indices: each part is computed once, in the outermost possible block.

    Args:
        reserved: names that must not be used.
        at: per block (by ``id``), the parts to define at its start, in order.
        names: the name of each part.
    """

    reserved: frozenset[str]
    at: dict[int, list[Atom]] = field(default_factory=dict)
    names: dict[Atom, str] = field(default_factory=dict)

    def fresh(self) -> str:
        """Return an unused name."""
        taken = self.reserved | set(self.names.values())
        number = len(self.names)
        while f"k{number}" in taken:
            number += 1
        return f"k{number}"


def index_names(block: Block, reserved: frozenset[str] = frozenset()) -> IndexNames:
    """Return names, none of them reserved, for divisions, remainders and boundaries in indices."""
    found = IndexNames(reserved)
    _name_block(block, frozenset(), found)
    return found


def _name_block(block: Block, scope: frozenset[Atom], found: IndexNames) -> None:
    here = found.at.setdefault(id(block), [])
    for index in _indices(block):
        for atom in index.all_atoms():
            open_ = isinstance(atom, Div | Mod | Boundary) and atom not in found.names
            if open_ and _loops(atom) <= scope:
                found.names[atom] = found.fresh()
                here.append(atom)
    for s in block:
        if isinstance(s, LoopStatement):
            _name_block(s.body, scope | {s.variable}, found)


def _indices(block: Block) -> list[Poly]:
    return [index for s in statements(block) for index in indices_of(s)]


def _loops(atom: Atom) -> frozenset[Atom]:
    """Return the loop variables that the value of an atom depends on."""
    inside = [a for part in atom.parts() for a in part.all_atoms()]
    return frozenset(a for a in inside if isinstance(a, LoopVariable))
