"""Schedules with separate nests for several sizes, and which nests a call runs.

A `SizeVariant` is converted to a plain `Schedule`, so that code that checks, costs or shows a
schedule only has to handle one size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import repeat

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.loops import is_original
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Fuse,
    KnownValue,
    Level,
    OutputExtent,
    Schedule,
    ScheduleError,
    SizeVariant,
    Split,
    StageSchedule,
)

Conditions = tuple[OutputExtent | KnownValue, ...]


def fallback(schedule: Schedule) -> Schedule:
    """Return the schedule of the calls that no variant is for."""
    return replace(schedule, variants=()) if schedule.variants else schedule


def variant_schedule(schedule: Schedule, variant: SizeVariant) -> Schedule:
    """Return the nests of a variant as a schedule by themselves.

    Raises `ScheduleError` if they are not as many as the schedule's entries.
    """
    if len(variant.nests) != len(schedule.funcs):
        raise ScheduleError(
            f"a variant has nests of {len(variant.nests)} Funcs; the schedule has "
            f"{len(schedule.funcs)}"
        )
    pairs = zip(schedule.funcs, variant.nests, strict=True)
    funcs = tuple(replace(entry, stages=nests) for entry, nests in pairs)
    return replace(schedule, funcs=funcs, variants=())


def variant_schedules(schedule: Schedule) -> Iterator[tuple[Conditions, Schedule]]:
    """Yield each variant's conditions and schedule, and last the schedule of other calls."""
    for variant in schedule.variants:
        yield variant.sizes, variant_schedule(schedule, variant)
    yield (), fallback(schedule)


def running_at(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the nests that run at the algorithm's estimated sizes, as a schedule."""
    return chosen_at(schedule, algorithm)[1]


def chosen_at(schedule: Schedule, algorithm: Algorithm) -> tuple[Conditions, Schedule]:
    """Return the conditions that hold, and `running_at`; none for nests of other calls."""
    extended = with_clones(algorithm, schedule.clones)
    return next(
        (conditions, plain)
        for conditions, plain in variant_schedules(schedule)
        if all(holds(condition, extended) for condition in conditions)
    )


def holds(condition: OutputExtent | KnownValue, algorithm: Algorithm) -> bool:
    """Return whether a condition holds at the estimates of an algorithm with its clones.

    An output or parameter without an estimate does not meet a condition.
    """
    if isinstance(condition, OutputExtent):
        func = algorithm.funcs[condition.func]
        span = func.estimates.get(func.args[condition.dimension])
        return span is not None and satisfies(condition, span.extent)
    parameter = algorithm.parameters[condition.parameter]
    suffix = "" if condition.field == "value" else f".{condition.field}.{condition.dimension}"
    value = algorithm.symbols.get(f"{parameter.name}{suffix}")
    if value is None:
        return False
    return value >= condition.value if condition.least else value == condition.value


def satisfies(condition: OutputExtent, extent: int) -> bool:
    """Return whether an extent is large enough and a multiple, as the condition asks."""
    return extent >= condition.minimum and extent % condition.multiple == 0


def implied(condition: OutputExtent | KnownValue, by: Conditions) -> bool:
    """Return whether a condition holds wherever all of others do."""
    if isinstance(condition, KnownValue):
        return any(
            isinstance(other, KnownValue)
            and replace(other, value=0, least=False) == replace(condition, value=0, least=False)
            and (other.value >= condition.value if condition.least else other == condition)
            for other in by
        )
    return any(
        isinstance(other, OutputExtent)
        and (other.func, other.dimension) == (condition.func, condition.dimension)
        and other.minimum >= condition.minimum
        and other.multiple % condition.multiple == 0
        for other in by
    )


def merged(*conditions: OutputExtent | KnownValue) -> Conditions:
    """Return the conditions without those that the others imply."""
    kept: list[OutputExtent | KnownValue] = []
    for condition in conditions:
        if not implied(condition, tuple(kept)):
            kept = [other for other in kept if not implied(other, (condition,))]
            kept.append(condition)
    return tuple(kept)


def branches(
    schedule: Schedule, entry: FuncSchedule, stage: int
) -> list[tuple[Conditions, StageSchedule]]:
    """Return the conditions that a stage is specialised on, in order, each with its nest.

    A variant is left out if a tree of Funcs, one at root with all Funcs computed within its loops,
    runs the same nests without it.
    """
    place = schedule.funcs.index(entry)
    family = _family(schedule, place)
    found = []
    for variant in schedule.variants:
        same = all(
            len(schedule.funcs[i].stages) == len(variant.nests[i])
            and all(map(_alike, schedule.funcs[i].stages, variant.nests[i], repeat(variant.sizes)))
            for i in family
        )
        if not same and stage < len(variant.nests[place]):
            found.append((variant.sizes, variant.nests[place][stage]))
    return found


def _family(schedule: Schedule, place: int) -> list[int]:
    """Return the entries, by place, that are computed at root together with one."""
    entries: Mapping[int, FuncSchedule] = {entry.func: entry for entry in schedule.funcs}

    def root(entry: FuncSchedule) -> int:
        seen = {entry.func}
        while entry.compute.kind == "at" and entry.compute.func in entries:
            entry = entries[entry.compute.func]
            if entry.func in seen:  # an illegal schedule
                break
            seen.add(entry.func)
        return entry.func

    mine = root(schedule.funcs[place])
    return [i for i, entry in enumerate(schedule.funcs) if root(entry) == mine]


def aligned(schedule: Schedule, like: Schedule) -> Schedule | None:
    """Return the schedule with loops renamed so that its levels are equal to those of another.

    None where something is computed or stored elsewhere, or laid out in another way.
    """
    given = {entry.func: entry for entry in schedule.funcs}
    written = (nest for entry in schedule.funcs for nest in entry.stages)
    if any(nest.prefetch or nest.compute_with is not None for nest in written):
        return None
    if schedule.clones != like.clones or set(given) != {entry.func for entry in like.funcs}:
        return None
    names = _corresponding_loops(given, like)
    if names is None:
        return None
    funcs = tuple(
        replace(
            given[theirs.func],
            compute=theirs.compute,
            store=theirs.store,
            hoist=theirs.hoist if given[theirs.func].hoist is not None else None,
            stages=tuple(
                _renamed(nest, names.get(theirs.func, {})) for nest in given[theirs.func].stages
            ),
        )
        for theirs in like.funcs
    )
    same = all(
        replace(mine, stages=()) == replace(theirs, stages=())
        and len(mine.stages) == len(theirs.stages)
        for mine, theirs in zip(funcs, like.funcs, strict=True)
    )
    return replace(schedule, funcs=funcs, variants=()) if same else None


def _corresponding_loops(
    given: Mapping[int, FuncSchedule], like: Schedule
) -> dict[int, dict[str, str]] | None:
    """By Func, the names in `like` of the loops that others are computed or stored at.

    None where a Func's levels differ by more than the name of the loop.
    """
    names: dict[int, dict[str, str]] = {}
    for theirs in like.funcs:
        mine = given[theirs.func]
        pairs = [(mine.compute, theirs.compute), (mine.store, theirs.store)]
        if mine.hoist is not None and theirs.hoist is not None:
            pairs.append((mine.hoist, theirs.hoist))
        for one, other in pairs:
            if replace(one, loop="") != replace(other, loop=""):
                return None
            if one.kind == "at" and not _rename(names.setdefault(one.func, {}), one, other):
                return None
    return names


def _rename(names: dict[str, str], one: Level, other: Level) -> bool:
    """Note that a loop is to be called otherwise; false if it cannot be."""
    definition = [loop for loop in (one.loop, other.loop) if is_original(loop)]
    if one.loop != other.loop and definition:
        return False
    if names.get(one.loop, other.loop) != other.loop:
        return False
    if any(new == other.loop and old != one.loop for old, new in names.items()):
        return False
    names[one.loop] = other.loop
    return True


def _renamed(nest: StageSchedule, names: Mapping[str, str]) -> StageSchedule:
    """Return the nest with loops renamed; a loop in the way takes the freed name."""
    if all(old == new for old, new in names.items()):
        return nest
    before = {new: old for old, new in names.items()}

    def name(loop: str) -> str:
        if loop in names:
            return names[loop]
        while loop in before:
            loop = before[loop]
        return loop

    def changed(change: Split | Fuse) -> Split | Fuse:
        if isinstance(change, Split):
            old, outer, inner = name(change.old), name(change.outer), name(change.inner)
            return replace(change, old=old, outer=outer, inner=inner)
        inner, outer, fused = name(change.inner), name(change.outer), name(change.fused)
        return replace(change, inner=inner, outer=outer, fused=fused)

    return replace(
        nest,
        splits=tuple(changed(change) for change in nest.splits),
        loops=tuple(replace(loop, name=name(loop.name)) for loop in nest.loops),
    )


def _alike(nest: StageSchedule, other: StageSchedule, sizes: Conditions) -> bool:
    """Return whether calls in which `sizes` hold run the nest as `other`."""
    return replace(nest, sizes=()) == other and all(implied(c, sizes) for c in nest.sizes)


def conditions_text(conditions: Conditions, algorithm: Algorithm) -> str:
    """Conditions in words, ``out.x >= 1000, out.y >= 64``; `algorithm` has the schedule's clones.

    Comparisons are in words that both Python's and C++'s comments can hold.
    """
    parts = []
    for condition in conditions:
        if isinstance(condition, OutputExtent):
            func = algorithm.funcs[condition.func]
            axis = f"{readable(func.name)}.{readable(func.args[condition.dimension])}"
            needs = [f"at least {condition.minimum}"] if condition.minimum > 1 else []
            if condition.multiple > 1:
                needs.append(f"a multiple of {condition.multiple}")
            parts.append(f"{axis} {' and '.join(needs)}")
            continue
        name = readable(algorithm.parameters[condition.parameter].name)
        if condition.field != "value":
            name += f" {condition.field} {condition.dimension}"
        least = "at least " if condition.least else ""
        parts.append(f"{name} {least}{condition.value}")
    return ", ".join(parts)
