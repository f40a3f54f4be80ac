"""Add a Func to a schedule: the positions of all others change, and with them the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import Added, clone_problems, positions, with_clones
from tilewright.halide.ir.schedule import (
    CallCondition,
    Clone,
    Factored,
    FuncSchedule,
    KnownValue,
    Level,
    Schedule,
    ScheduleError,
    StageSchedule,
)


def number_of(func: int, schedule: Schedule, algorithm: Algorithm) -> int:
    """Return the number of a Func in `Schedule.clones`, given its position with the clones."""
    return positions(algorithm, schedule.clones).index(func)


def with_added(schedule: Schedule, algorithm: Algorithm, entry: Added) -> tuple[Schedule, int]:
    """Return a schedule with one more added Func, and the position of that Func.

    The new Func has no schedule yet. If a reduction is split, its partial results read the copies
    that its update has read. `entry` has the numbers of Funcs in `schedule.clones`
    (`number_of`). All positions in the result are those in the algorithm with all added Funcs.
    Variants are dropped.

    Raises:
        ScheduleError: The Func cannot be added (see `clone_problems`).
    """
    base = algorithm.original or algorithm
    factored = sum(isinstance(old, Factored) for old in schedule.clones)
    at = factored if isinstance(entry, Factored) else len(schedule.clones)
    new = len(base.funcs) + at

    def shifted(number: int) -> int:
        return number + (number >= new)

    clones: list[Added] = list(schedule.clones)
    for i, old in enumerate(schedule.clones):
        if isinstance(old, Clone):
            readers = [shifted(reader) for reader in old.readers]
            if isinstance(entry, Factored) and entry.func in old.readers:
                readers.remove(entry.func)
                readers += dict.fromkeys(_readers(old, schedule.clones, base, entry, new))
            clones[i] = replace(old, func=shifted(old.func), readers=tuple(readers))
    clones.insert(at, entry)
    problems = [f"{name}: {reason}" for name, reason in clone_problems(base, clones)]
    if problems:
        raise ScheduleError("; ".join(problems))
    after = positions(base, clones)
    before = positions(base, schedule.clones)
    moved = {place: after[shifted(number)] for number, place in enumerate(before)}
    funcs = [renumbered_entry(old, moved.__getitem__) for old in schedule.funcs]
    funcs.sort(key=lambda each: each.func)
    renumbered = replace(schedule, funcs=tuple(funcs), clones=tuple(clones), variants=())
    return renumbered, after[new]


def _readers(
    copy: Clone, clones: Sequence[Added], base: Algorithm, entry: Factored, partial: int
) -> Iterator[int]:
    """Yield who reads a copy if the reduction that reads it is split: it, or partial results."""
    factored = tuple(old for old in clones if isinstance(old, Factored))
    places = positions(base, factored)
    funcs = with_clones(base, factored).funcs
    source = copy.func
    while source >= len(places):
        source = clones[source - len(base.funcs)].func
    for stage in funcs[places[entry.func]].stages:
        if any(call.name == funcs[places[source]].name for call in stage.calls):
            yield partial if stage.index == entry.stage else entry.func


def renumbered_entry(entry: FuncSchedule, place: Callable[[int], int]) -> FuncSchedule:
    """Return an entry with the positions of Funcs replaced as `place` says."""
    return replace(
        entry,
        func=place(entry.func),
        compute=_level(entry.compute, place),
        store=_level(entry.store, place),
        hoist=None if entry.hoist is None else _level(entry.hoist, place),
        stages=tuple(_nest(nest, place) for nest in entry.stages),
    )


def _level(level: Level, place: Callable[[int], int]) -> Level:
    return replace(level, func=place(level.func)) if level.kind == "at" else level


def _nest(nest: StageSchedule, place: Callable[[int], int]) -> StageSchedule:
    def condition(each: CallCondition) -> CallCondition:
        return each if isinstance(each, KnownValue) else replace(each, func=place(each.func))

    shared = nest.compute_with
    if not (nest.specialize or nest.sizes or nest.prefetch or shared):
        return nest
    return replace(
        nest,
        specialize=tuple(map(condition, nest.specialize)),
        sizes=tuple(map(condition, nest.sizes)),
        prefetch=tuple(replace(each, func=place(each.func)) for each in nest.prefetch),
        compute_with=None if shared is None else replace(shared, func=place(shared.func)),
    )
