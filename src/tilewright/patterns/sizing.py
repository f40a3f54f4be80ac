"""Substitution of numbers for the sizes of programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tilewright.arith import Poly, Size, poly, substitute
from tilewright.patterns import nodes as n
from tilewright.patterns.binding import check_names
from tilewright.patterns.check import requirements
from tilewright.patterns.errors import SizeError
from tilewright.patterns.places import about, moved
from tilewright.patterns.types import ArrayType, TupleType


def size_names(program: n.Pattern) -> tuple[str, ...]:
    """Return the names of a program's sizes, sorted.

    >>> from tilewright import patterns as tp
    >>> N, M = tp.sizes("N M")
    >>> size_names(tp.array("A", tp.f32[N, 2 * M]) >> tp.map(tp.slide(3, 1)))
    ('M', 'N')
    """
    found = {
        atom.name
        for p in n.walk(program)
        for f in fields(p)
        for length in _lengths(getattr(p, f.name))
        for atom in length.all_atoms()
        if isinstance(atom, Size)
    }
    # The index of a gather contains the internal size GATHER_LENGTH.
    return tuple(sorted(name for name in found if not name.startswith("_")))


def _lengths(value: Any) -> Iterator[Poly]:
    """Yield the polynomials in a field of a pattern, without those of nested patterns."""
    if isinstance(value, Poly):
        yield value
    elif isinstance(value, ArrayType):
        yield value.length
        yield from _lengths(value.item)
    elif isinstance(value, TupleType):
        yield from _lengths(value.items)
    elif isinstance(value, tuple):
        for item in value:
            yield from _lengths(item)


def with_sizes(program: n.Pattern, known: Mapping[str, int]) -> n.Pattern:
    """Return a program with some of its sizes replaced by numbers.

    Raises:
        PatternTypeError: the program is not well typed.
        PatternError: two inputs have the same name.
        SizeError: a size is less than 1, the program has no size of this name, or a pattern does
            not fit the sizes; the message has its line.
    """
    if not known:
        return program
    with about(program):
        needed = requirements(program)  # before the sizes: a wrong program is the first error
        check_names(n.inputs(program))
        _check_sizes(program, known)
        for requirement in needed:
            if requirement.sizes() <= set(known):
                requirement.check(known)
    fixed: n.Pattern = _fixed(program, known, {})
    return fixed


def _check_sizes(program: n.Pattern, known: Mapping[str, int]) -> None:
    there = size_names(program)
    for name, value in known.items():
        if name not in there:
            raise SizeError(f"the program has no size {name}; it has {', '.join(there) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SizeError(f"size {name} is {value!r}; give a whole number from 1")


def _fixed(value: Any, known: Mapping[str, int], made: dict[n.Pattern, n.Pattern]) -> Any:
    if isinstance(value, Poly):
        return substitute(
            value,
            lambda a: poly(known[a.name]) if isinstance(a, Size) and a.name in known else None,
        )
    if isinstance(value, ArrayType):
        return ArrayType(_fixed(value.item, known, made), _fixed(value.length, known, made))
    if isinstance(value, TupleType):
        return TupleType(_fixed(value.items, known, made))
    if isinstance(value, tuple):
        return tuple(_fixed(item, known, made) for item in value)
    if not isinstance(value, n.Pattern):
        return value
    if value not in made:
        parts = {f.name: _fixed(getattr(value, f.name), known, made) for f in fields(value)}
        made[value] = moved(type(value)(**parts), value)
    return made[value]
