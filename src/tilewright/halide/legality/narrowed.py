"""Find Funcs of which Halide may compute less than the region of their accesses, for conditions.

If a Func is read only where a condition on loop variables holds (``select(x < 5, f(x), 0)``, or a
reduction domain with ``RDom.where``), Halide requires only the coordinates that meet the condition.
How many these are may depend on loops further out. Region inference here ignores conditions, so a
split that fits in the region it infers may still reach beyond the one that Halide requires.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from tilewright.halide.ir.algorithm import Algorithm, Call, Expr, Op, Stage, Variable, walk

Keys: TypeAlias = frozenset[int]

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq"})


@functools.lru_cache(maxsize=8)
def narrowed(algorithm: Algorithm) -> frozenset[int]:
    """Return the positions of the Funcs whose region a condition may narrow.

    These are Funcs that are read under a condition, unless the same stage also reads the same
    coordinates without it, and all that such Funcs read.
    """
    found: set[str] = set()
    for func in reversed(algorithm.funcs):
        for stage in func.stages:
            if func.name in found:
                found |= {call.name for call in stage.calls if call.name != func.name}
            else:
                found |= {name for name in _under_conditions(stage) if name != func.name}
    return frozenset(algorithm.order[name] for name in found if name in algorithm.order)


def _under_conditions(stage: Stage) -> set[str]:
    """Return the Funcs and images that a stage reads somewhere only if a condition holds."""
    loops = frozenset(loop.name for loop in stage.loops)
    if any(_narrows(predicate, loops) for predicate in stage.predicates):
        return {call.name for call in stage.calls}
    choices = [
        e
        for e in walk(*stage.values)
        if isinstance(e, Op | Call)
        and e.name in ("select", "if_then_else")
        and _narrows(e.args[0], loops)
    ]
    if not choices:
        return set()
    keys = _Keys()
    always = _read_always((*stage.values, *stage.args), {id(e) for e in choices}, keys)
    return {call.name for call in stage.calls if keys.of(call) not in always}


def _read_always(roots: Iterable[Expr], choices: set[int], keys: _Keys) -> Keys:
    """Return the reads that do not depend on a choice, and those in both of its branches."""
    found: set[int] = set()
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        e = pending.pop()
        if id(e) in seen or not isinstance(e, Op | Call):
            continue
        seen.add(id(e))
        if id(e) in choices:
            pending.append(e.args[0])
            found |= frozenset.intersection(
                *(_read_always([branch], choices, keys) for branch in e.args[1:])
            )
            continue
        if isinstance(e, Call):
            found.add(keys.of(e))
        pending.extend(e.args)
    return frozenset(found)


class _Keys:
    """Numbers expressions such that equal ones have the same number."""

    def __init__(self) -> None:
        self._by_id: dict[int, int] = {}
        self._by_parts: dict[object, int] = {}

    def of(self, e: Expr) -> int:
        """Return the number of an expression."""
        for node in walk(e):
            if id(node) not in self._by_id:
                self._by_id[id(node)] = self._by_parts.setdefault(
                    tuple(self._parts(node)), len(self._by_parts)
                )
        return self._by_id[id(e)]

    def _parts(self, e: Expr) -> Iterator[object]:
        yield type(e)
        if isinstance(e, Op | Call):
            yield e.name
            yield getattr(e, "value_index", 0)
            yield from (self._by_id[id(arg)] for arg in e.args)
        else:
            yield e.name if isinstance(e, Variable) else e.value


def _narrows(condition: Expr, loops: frozenset[str]) -> bool:
    """Return whether Halide may solve a condition for a loop variable.

    It does not do so for alternatives, nor for equality of remainders, by which the pixels of a
    Bayer pattern are told apart.
    """
    if isinstance(condition, Op) and condition.name == "and":
        return any(_narrows(arg, loops) for arg in condition.args)
    if not isinstance(condition, Op) or condition.name not in _COMPARISONS:
        return False
    remainders = condition.name == "eq"
    return any(_uses(arg, loops, remainders) for arg in condition.args)


def _uses(e: Expr, loops: frozenset[str], remainders: bool) -> bool:
    """Return whether an expression uses a loop variable, other than in values that are read.

    With `remainders`, uses in remainders do not count.
    """
    pending, seen = [e], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Variable) and node.name in loops:
            return True
        read = isinstance(node, Call) and node.kind != "intrinsic"
        apart = remainders and isinstance(node, Op) and node.name == "mod"
        if isinstance(node, Op | Call) and not read and not apart:
            pending.extend(node.args)
    return False
