"""Find Funcs that slide in a way that Halide 21 compiles to wrong answers.

A Func slides over a serial loop if it is stored outside and computed inside: an iteration computes
only what is new (``SlidingWindow.cpp``). Three cases go wrong:

* An iteration may have nothing new, because the region does not move (Halide then computes it in
  the first iteration only) or because coordinates are clamped. If the first stage has a split with
  `shift_inwards` in the dimension along which the Func slides, the empty region is extended to a
  whole split for the updates, but not for the first stage. The updates are then applied again to
  values that were finished before.
* The region of one Func moves along a loop, and that of another does not. To fill the first window,
  the loop starts earlier. The other Func is meant to be computed in its first iteration only, but
  that is now one in which it is not needed, so it is never computed.
* Where the reader's last tile shifts inwards, an iteration has less that is new than a split of the
  Func's first stage. If that split shifts inwards in the dimension along which the Func slides,
  values of earlier iterations are computed again. What they read must still be there, but a Func
  that is stored and computed in the same loop holds only what the new values read.

Whether a region moves is judged by its coordinates: it does along a dimension if a coordinate
depends on the loop. Values that are read from Funcs and images do not count as a dependence in the
second case, because Halide only knows their type.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import lru_cache

from tilewright.halide.analysis.paths import Paths, find_paths, position
from tilewright.halide.ir.algorithm import Algorithm, Func, Variable
from tilewright.halide.ir.expressions import uses
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.nest import original_loops, scheduled_loops, stage_schedules
from tilewright.halide.ir.schedule import FuncSchedule, Schedule, Split, StageSchedule

# Results of `_moving` in its cache: a search checks hundreds of schedules of one pipeline.
KEPT = 256

Found = Iterator[tuple[str, str]]
Loop = tuple[int, str]  # a Func and one of its loops


class Sliding:
    """The Funcs of a schedule that slide, with the loops over which they do."""

    def __init__(self, schedule: Schedule, algorithm: Algorithm, paths: Paths) -> None:
        """Find the loops between each Func's storage and its computation."""
        self._algorithm = algorithm
        self._paths = paths
        self._entries = {entry.func: entry for entry in schedule.funcs}
        self._moving: dict[tuple[Loop, bool], Mapping[str, frozenset[int]]] = {}
        self._loops: dict[int, list[Loop]] = {}
        for entry in schedule.funcs:
            if entry.compute.kind == "at" and entry.compute != entry.store:
                self._loops[entry.func] = list(
                    dict.fromkeys(
                        (node.func, node.loop)
                        for path in paths.prefixes.get(entry.func, ())
                        for node in path[position(path, entry.store) or 0 :]
                    )
                )

    def problems(self, entry: FuncSchedule) -> Found:
        """Yield the reasons why a Func must not slide."""
        if entry.func in self._loops:
            yield from self._updated_twice(entry)
            yield from self._never_computed(entry)
            yield from self._read_too_early(entry)

    def _updated_twice(self, entry: FuncSchedule) -> Found:
        func = self._algorithm.funcs[entry.func]
        if len(func.stages) == 1 or not entry.stages:
            return
        shifted = {d for d in _shifted(entry.stages[0]) if _always_pure(func, d)}
        for loop in self._loops[entry.func] if shifted else ():
            moving = self._moves(entry.func, loop, read=True) or {len(func.args) - 1}
            for d in sorted(shifted & moving):
                yield (
                    "store",
                    f"it slides over {self._named(loop)}, and its first stage shifts inwards along "
                    f"{func.args[d]}: Halide would apply its updates twice where an iteration has "
                    "nothing new; guard that split, or store it where it is computed",
                )
                return

    def _never_computed(self, entry: FuncSchedule) -> Found:
        func = self._algorithm.funcs[entry.func]
        if not func.args or not _always_pure(func, len(func.args) - 1):
            return
        for loop in self._loops[entry.func]:
            if self._moves(entry.func, loop, read=False):
                continue
            for other, loops in self._loops.items():
                if other != entry.func and loop in loops and self._moves(other, loop, read=True):
                    yield (
                        "store",
                        f"it is the same in all iterations of {self._named(loop)}, over which "
                        f"{self._algorithm.funcs[other].name} slides: Halide would not compute it; "
                        "store it where it is computed, or compute it outside that loop",
                    )
                    return

    def _read_too_early(self, entry: FuncSchedule) -> Found:
        func = self._algorithm.funcs[entry.func]
        shifted = _shifted(entry.stages[0]) if entry.stages else set()
        for loop in self._loops[entry.func] if shifted else ():
            for d in sorted(shifted & self._moves(entry.func, loop, read=True)):
                for other in sorted(self._read_by(entry.func) & self._inside(loop, entry.func)):
                    if loop not in self._loops.get(other, ()):
                        yield (
                            "store",
                            f"it slides over {self._named(loop)}, its first stage shifts inwards "
                            f"along {func.args[d]}, and {self._algorithm.funcs[other].name}, which "
                            "it reads, keeps nothing of earlier iterations: Halide would compute "
                            "values again from what is gone; guard that split, or store it where "
                            "it is computed",
                        )
                        return

    def _read_by(self, func: int) -> set[int]:
        """Return the Funcs that a Func reads, directly or through inlined Funcs."""
        uses = self._paths.uses.items()
        return {other for other, readers in uses if any(reader == func for reader, _ in readers)}

    def partial_axes(self) -> set[tuple[int, int]]:
        """Return the dimensions in which an iteration may need less of a Func than a whole window.

        Each item is a Func's position and a dimension. These are Funcs that slide, and those that
        they read in the same loops.
        """
        order = self._algorithm.order
        found: set[tuple[int, int]] = set()
        for func, loops in self._loops.items():
            reached = {func}
            pending = [self._algorithm.funcs[func].name]
            while pending:
                read = {order[name] for name in self._algorithm.producers[pending.pop()]} - reached
                reached |= read
                pending += [self._algorithm.funcs[i].name for i in read]
            for loop in loops:
                for i in reached & self._inside(loop):
                    found |= {(i, d) for d in self._moves(i, loop, read=True)}
        return found

    def _inside(self, loop: Loop, outside: int | None = None) -> set[int]:
        """Return the Funcs that are computed inside a loop, but not in the loops of `outside`."""
        return {
            func
            for func, paths in self._paths.prefixes.items()
            if any(
                any((node.func, node.loop) == loop for node in path)
                and all(node.func != outside for node in path)
                for path in paths
            )
        }

    def _named(self, loop: Loop) -> str:
        return f"loop {loop[1]} of {self._algorithm.funcs[loop[0]].name}"

    def _moves(self, func: int, loop: Loop, *, read: bool) -> frozenset[int]:
        """Return the dimensions in which the region of a Func moves along a loop.

        With `read`, coordinates that are read from Funcs and images count as well.
        """
        key = loop, read
        if key not in self._moving:
            around = self._algorithm.funcs[loop[0]]
            iterated = _iterated(around, self._entries[loop[0]], loop[1], self._algorithm)
            self._moving[key] = _moving(loop[0], frozenset(iterated), self._algorithm, read)
        return self._moving[key].get(self._algorithm.funcs[func].name, frozenset())


def partial_axes(schedule: Schedule, algorithm: Algorithm) -> set[tuple[int, int]]:
    """Return `Sliding.partial_axes` of a schedule."""
    if all(entry.compute == entry.store for entry in schedule.funcs):
        return set()
    return Sliding(schedule, algorithm, find_paths(schedule, algorithm)).partial_axes()


def _shifted(nest: StageSchedule) -> set[int]:
    """Return the dimensions in which a nest has splits that shift inwards."""
    found = (
        dimension_of(change.old)
        for change in nest.splits
        if isinstance(change, Split) and change.tail == "shift_inwards"
    )
    return {d for d in found if d is not None}


def _always_pure(func: Func, d: int) -> bool:
    """Return whether every update stores at the dimension's own variable."""
    stored = (stage.args[d] for stage in func.stages[1:])
    return all(isinstance(at, Variable) and at.name == func.args[d] for at in stored)


@lru_cache(maxsize=KEPT)
def _moving(
    host: int, iterated: frozenset[str], algorithm: Algorithm, read: bool
) -> Mapping[str, frozenset[int]]:
    """Return the dimensions in which the region of each producer moves along a loop of a Func.

    The loop iterates over the variables `iterated` of the Func at position `host`. Producers that
    are not named do not move.
    """
    # The variables of each Func whose values depend on the loop.
    depend: dict[str, Container[str]] = {algorithm.funcs[host].name: iterated}
    moving: dict[str, frozenset[int]] = {}
    # From consumers to producers, through inlined Funcs as well.
    for producer in reversed(algorithm.funcs[:host]):
        found = frozenset(
            d
            for reader in algorithm.consumers[producer.name]
            if reader in depend
            for stage in algorithm.by_name[reader].stages
            for call in stage.calls
            if call.kind == "func" and call.name == producer.name
            for d, at in enumerate(call.args)
            if uses(at, depend[reader], reads=read)
        )
        if found:
            moving[producer.name] = found
            depend[producer.name] = {producer.args[d] for d in found}
    return moving


def _iterated(func: Func, entry: FuncSchedule, loop: str, algorithm: Algorithm) -> set[str]:
    """Return the names of a Func's variables that a loop of its schedule iterates over."""
    found = set()
    for stage, nest in stage_schedules(algorithm, entry):
        originals = zip(original_loops(func, stage), stage.loops, strict=True)
        names = {own.name: defined.name for own, defined in originals}
        for each in scheduled_loops(func, stage, nest):
            if each.name == loop:
                found |= {names[source] for source in each.sources}
    return found
