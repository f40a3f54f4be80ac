"""Source lines of patterns, for error messages.

Patterns are interned, so a source line cannot be part of them: programs that contain equal patterns
share one node. A separate table keeps all expressions of the user's files that made a node. An
error takes one of them by the program that it is about: from the program inwards, each pattern is
looked for in the expression that made the pattern around it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from itertools import islice
from linecache import getline
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar
from weakref import WeakKeyDictionary

from tilewright.patterns.interned import InternedNode

_HERE = str(Path(__file__).parent)
_MOST_SITES = 10_000  # instructions whose places are kept
_LAST_COLUMN = 1 << 30

N = TypeVar("N", bound=InternedNode)


@dataclass(frozen=True, slots=True)
class Place:
    """An expression of a source file; positions are pairs of a line and a column."""

    file: str
    line: int
    start: tuple[int, int]
    end: tuple[int, int]

    def __str__(self) -> str:
        code = getline(self.file, self.line).strip()
        return f"{self.file}:{self.line}" + (f": {code}" if code else "")

    def holds(self, other: Place) -> bool:
        """Return whether another expression is this one or a part of it."""
        same = self.file == other.file
        return same and self.start <= other.start and other.end <= self.end


# Of each node, the expressions that made it, the latest last; True where the node is only a part of
# what the expression makes.
_PLACES: WeakKeyDictionary[InternedNode, dict[Place, bool]] = WeakKeyDictionary()
# Of a pipe, the expressions that made the pipes whose stages it has taken.
_JOINED: WeakKeyDictionary[InternedNode, tuple[Place, ...]] = WeakKeyDictionary()
_FILES: dict[str, dict[Place, Place]] = {}  # all expressions
_SITES: dict[tuple[int, int], tuple[CodeType, Place]] = {}  # by code object and instruction
_ABOUT: ContextVar[InternedNode | None] = ContextVar("_ABOUT", default=None)


def noted(node: N, *joined: InternedNode, part: bool = False) -> N:
    """Record the innermost expression outside this package as a place of the node; return the node.

    Args:
        node: a pattern that this expression makes.
        joined: patterns whose stages the node takes.
        part: whether the expression makes a larger pattern.
    """
    frame = sys._getframe(1)
    depth = 0
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        frame = frame.f_back
        depth += 1
    here = _site(frame)
    places = _PLACES.setdefault(node, {})
    only_part = places.pop(here, True) and (part or depth > 1)
    places[here] = only_part
    found = [p for other in joined for p in (place_of(other), *_JOINED.get(other, ()))]
    if others := [p for p in found if p is not None and not here.holds(p)]:
        _JOINED[node] = tuple(dict.fromkeys((*_JOINED.get(node, ()), *others)))
    return node


def _site(frame: FrameType) -> Place:
    """Return the expression that a frame executes."""
    code, key = frame.f_code, (id(frame.f_code), frame.f_lasti)
    known = _SITES.get(key)
    if known is not None:
        return known[1]
    line, start, end = frame.f_lineno, (frame.f_lineno, 0), (frame.f_lineno, _LAST_COLUMN)
    position = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    first, last, left, right = position
    if first is not None and last is not None and left is not None and right is not None:
        start, end = (first, left), (last, right)
    made = Place(code.co_filename, line, start, end)
    place = _FILES.setdefault(made.file, {}).setdefault(made, made)
    if len(_SITES) >= _MOST_SITES:
        _SITES.clear()
    _SITES[key] = (code, place)  # the code object stays, so that no other gets its id
    return place


def moved(new: N, old: InternedNode) -> N:
    """Give a node that replaces another the places of that one; return the node."""
    if new is not old and old in _PLACES:
        _PLACES[new] = {**_PLACES.get(new, {}), **_PLACES[old]}
        if old in _JOINED:
            _JOINED[new] = tuple(dict.fromkeys((*_JOINED.get(new, ()), *_JOINED[old])))
    return new


def place_of(node: InternedNode) -> Place | None:
    """Return the last place at which a user made the node; None if a rule made it.

    Places at which the node is only a part of a larger pattern count if there are no others.
    """
    places = _PLACES.get(node)
    if not places:
        return None
    return next((p for p in reversed(places) if not _is_part(node, p)), next(reversed(places)))


def _is_part(node: InternedNode, place: Place) -> bool:
    around = (p for p in _FILES[place.file] if p != place and p.holds(place))
    return _PLACES[node][place] or next(around, None) is not None


@contextmanager
def about(program: InternedNode) -> Iterator[None]:
    """Let `located` take the lines of this program, or of that of a call around this one."""
    token = _ABOUT.set(_ABOUT.get() or program)
    try:
        yield
    finally:
        _ABOUT.reset(token)


def located(message: str, node: InternedNode) -> str:
    """Return a message, followed by the line at which a user made the node, if any.

    The line is that of the node in the program of `about`.
    """
    program = _ABOUT.get()
    trail = [] if program is None else _trail(program, node)
    place = nearest_place(trail or [node])
    return f"{message}\n  at {place}" if place else message


def _trail(whole: InternedNode, node: InternedNode) -> list[InternedNode]:
    """Return the nodes from a node to one that contains it; empty if none does."""
    outer: dict[InternedNode, InternedNode | None] = {whole: None}
    todo = [whole]
    while todo and node not in outer:
        parent = todo.pop()
        for child in _parts(tuple(getattr(parent, f.name) for f in fields(parent))):
            if child not in outer:
                outer[child] = parent
                todo.append(child)
    found: list[InternedNode] = []
    at = node if node in outer else None
    while at is not None:
        found.append(at)
        at = outer[at]
    return found


def _parts(value: object) -> Iterator[InternedNode]:
    if isinstance(value, InternedNode):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _parts(item)


def nearest_place(trail: Sequence[InternedNode]) -> Place | None:
    """Return the place of the innermost node that was made in the program's file.

    Args:
        trail: nodes from inner to outer; the last one is the program.
    """
    place: Place | None = None
    joined: tuple[Place, ...] = ()
    for node in reversed(trail):
        place = place_of(node) if place is None else _within(node, place, joined) or place
        joined = _JOINED.get(node, ())
    return place


def _within(node: InternedNode, outer: Place, joined: Sequence[Place]) -> Place | None:
    """Return the place of a node that belongs to a program's place, in the same file.

    Args:
        node: the node.
        outer: the place of the pattern around it.
        joined: the places of the pipes whose stages that pattern has taken.
    """

    def order(p: Place) -> tuple[int, int]:
        away = abs(p.line - outer.line)
        if outer.holds(p) or any(q.holds(p) for q in joined):
            return 0, away
        return 1 + (p.line > outer.line) + 2 * _is_part(node, p), away

    inside = [p for p in reversed(_PLACES.get(node, {})) if p.file == outer.file]
    return min(inside, key=order, default=None)
