"""Convert between schedules for several sizes and plain schedules, and select by size.

`variant_schedule` converts a `SizeVariant` to a plain `Schedule`, so that code that checks, costs
or shows a schedule only has to handle one size.
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
    CallCondition,
    FuncSchedule,
    Fuse,
    KnownValue,
    Level,
    OutputExtent,
    OutputValue,
    Schedule,
    ScheduleError,
    SizeVariant,
    Split,
    StageSchedule,
)

Conditions = tuple[CallCondition, ...]


def fallback(schedule: Schedule) -> Schedule:
    """Return the plain schedule of the calls in which no variant's conditions hold."""
    return replace(schedule, variants=()) if schedule.variants else schedule


def variant_schedule(schedule: Schedule, variant: SizeVariant) -> Schedule:
    """Return the nests of a variant as a plain schedule.

    Raises:
        ScheduleError: The variant and the schedule have different numbers of Funcs.
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
    """Yield each variant's conditions and plain schedule, then `fallback` with no conditions."""
    for variant in schedule.variants:
        yield variant.sizes, variant_schedule(schedule, variant)
    yield (), fallback(schedule)


def running_at(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the plain schedule that runs at the algorithm's estimated sizes."""
    return chosen_at(schedule, algorithm)[1]


def chosen_at(schedule: Schedule, algorithm: Algorithm) -> tuple[Conditions, Schedule]:
    """Return the first variant whose conditions hold at the estimated sizes.

    Returns:
        The conditions, empty if no variant's hold, and the plain schedule.
    """
    extended = with_clones(algorithm, schedule.clones)
    return next(
        (conditions, plain)
        for conditions, plain in variant_schedules(schedule)
        if all(holds(condition, extended) for condition in conditions)
    )


def holds(condition: CallCondition, algorithm: Algorithm) -> bool:
    """Return whether a condition holds at the estimates of an algorithm with its clones.

    It does not hold if the output or parameter has no estimate.
    """
    if isinstance(condition, OutputExtent):
        func = algorithm.funcs[condition.func]
        span = func.estimates.get(func.args[condition.dimension])
        if span is None or span.min % condition.start:
            return False
        return satisfies(condition, span.extent)
    if isinstance(condition, OutputValue):
        func = algorithm.funcs[condition.func]
        first = ".0" if len(func.types) > 1 else ""  # of a Tuple, its first buffer
        symbol = f"{func.name}{first}.{condition.field}.{condition.dimension}"
        return algorithm.symbols.get(symbol) == condition.value
    parameter = algorithm.parameters[condition.parameter]
    suffix = "" if condition.field == "value" else f".{condition.field}.{condition.dimension}"
    value = algorithm.symbols.get(f"{parameter.name}{suffix}")
    if value is None:
        return False
    if condition.multiple:
        return value % condition.value == 0
    return value >= condition.value if condition.least else value == condition.value


def satisfies(condition: OutputExtent, extent: int) -> bool:
    """Return whether an extent fulfils the minimum and the multiple of a condition."""
    return extent >= condition.minimum and extent % condition.multiple == 0


def implied(condition: CallCondition, by: Conditions) -> bool:
    """Return whether a condition holds whenever all conditions of `by` hold."""
    if isinstance(condition, KnownValue):
        return any(isinstance(other, KnownValue) and _implies(other, condition) for other in by)
    if isinstance(condition, OutputValue):
        return condition in by
    return any(
        isinstance(other, OutputExtent)
        and (other.func, other.dimension) == (condition.func, condition.dimension)
        and other.minimum >= condition.minimum
        and other.multiple % condition.multiple == 0
        and other.start % condition.start == 0
        for other in by
    )


def _implies(other: KnownValue, condition: KnownValue) -> bool:
    """Return whether a condition on a number holds whenever `other` does."""
    same = replace(other, value=condition.value, least=condition.least, multiple=condition.multiple)
    if same != condition:
        return False
    if condition.multiple:
        return not other.least and other.value % condition.value == 0
    if condition.least:
        return not other.multiple and other.value >= condition.value
    return other == condition


def merged(*conditions: CallCondition) -> Conditions:
    """Return the conditions, omitting those that the others imply."""
    kept: list[CallCondition] = []
    for condition in conditions:
        if not implied(condition, tuple(kept)):
            kept = [other for other in kept if not implied(other, (condition,))]
            kept.append(condition)
    return tuple(kept)


def branches(
    schedule: Schedule, entry: FuncSchedule, stage: int
) -> list[tuple[Conditions, StageSchedule]]:
    """Return the conditions that a stage is specialised on, in order, each with its nest.

    A variant is omitted if it changes nothing here: all Funcs of the tree that contains `entry` (a
    Func at root and all Funcs computed in its loops) run the same nests without it.
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
    """Return the positions of all entries in the tree (a Func at root) that contains one entry."""
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
    """Return the schedule with loops renamed so that its levels equal those of `like`.

    Return None if the two differ in where a Func is computed or stored, or in its layout.
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
    """Return, per Func, the names in `like` of the loops at which other Funcs have a level.

    Return None if a Func's levels differ in more than the name of the loop.
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
    """Add the renaming of a loop to `names`; return whether it is possible."""
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
    """Return the nest with loops renamed.

    If a new name is already in use, the loop with that name gets the old name in exchange.
    """
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
    """Return whether `nest` is the same as `other` in calls in which `sizes` hold."""
    return replace(nest, sizes=()) == other and all(implied(c, sizes) for c in nest.sizes)


def conditions_text(conditions: Conditions, algorithm: Algorithm) -> str:
    """Return conditions in words: ``out.x at least 1000, out.y at least 64``.

    The text can stand in comments of Python and C++. `algorithm` has the schedule's clones.
    """
    parts = []
    for condition in conditions:
        if isinstance(condition, OutputExtent):
            func = algorithm.funcs[condition.func]
            axis = f"{readable(func.name)}.{readable(func.args[condition.dimension])}"
            needs = [f"at least {condition.minimum}"] if condition.minimum > 1 else []
            if condition.multiple > 1:
                needs.append(f"a multiple of {condition.multiple}")
            if condition.start > 1:
                needs.append(f"starting at a multiple of {condition.start}")
            parts.append(f"{axis} {' and '.join(needs)}")
            continue
        if isinstance(condition, OutputValue):
            func = algorithm.funcs[condition.func]
            field = f"{condition.field} {condition.dimension}"
            parts.append(f"{readable(func.name)} {field} {condition.value}")
            continue
        name = readable(algorithm.parameters[condition.parameter].name)
        if condition.field != "value":
            name += f" {condition.field} {condition.dimension}"
        words = "at least " if condition.least else "a multiple of " if condition.multiple else ""
        parts.append(f"{name} {words}{condition.value}")
    return ", ".join(parts)
