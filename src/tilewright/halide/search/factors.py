"""The tunable factors of a schedule, and schedules with other factors.

A *knob* is the factor of a split: a tile size, a vector width, an unroll factor, or a number of
threads per block. The *structure* of a schedule is everything else: compute levels, the order of
loops and their mapping.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.halide.analysis.gpu_launches import launches, number, numbers
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, sized_nest
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule, Split, StageSchedule

# The new factor of a split, given the indices of its entry, stage and split, and the split.
Factor: TypeAlias = Callable[[int, int, int, Split], int]
MOST_KNOBS = 20
_UNROLLS = (1, 2, 3, 4, 6, 8)
_MOST_LANES = 128


@dataclass(frozen=True)
class Knob:
    """The factor of one split, with its possible values and the planned one.

    `entry`, `stage` and `split` are indices in the schedule's tuples. `kind` is the purpose of the
    split's inner loop: ``tile``, ``vector``, ``unroll``, ``block`` (several vectors, unrolled) or
    ``thread``.
    """

    name: str
    entry: int
    stage: int
    split: int
    kind: str
    planned: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Knobs:
    """The knobs of a structure and the constraints between their values.

    `constraints` are expressions for `tilewright.tuning.Space`. The factor of a nested split must
    divide the factor of the outer split if it did so in the plan; otherwise it must not be larger.
    """

    knobs: tuple[Knob, ...]
    constraints: tuple[str, ...]


def structure(schedule: Schedule) -> Schedule:
    """Return the structure of a schedule; it is equal for schedules that differ only in factors.

    The sizes for which its nests are specialised follow from the factors and are removed as well.
    """
    return _with_factors(exact_size(schedule), lambda entry, stage, split, change: 0)


def settings(schedule: Schedule, knobs: Knobs) -> dict[str, int]:
    """Return the values of the knobs in a schedule of the same structure."""
    found = {}
    for knob in knobs.knobs:
        change = schedule.funcs[knob.entry].stages[knob.stage].splits[knob.split]
        assert isinstance(change, Split)
        found[knob.name] = change.factor
    return found


def turned(schedule: Schedule, knobs: Knobs, values: Mapping[str, int]) -> Schedule:
    """Return the schedule with these values of the knobs."""
    places = {(k.entry, k.stage, k.split): int(values[k.name]) for k in knobs.knobs}
    return _with_factors(
        schedule,
        lambda entry, stage, split, change: places.get((entry, stage, split), change.factor),
    )


def find_knobs(
    planned: Sequence[PlannedSchedule], algorithm: Algorithm, most: int = MOST_KNOBS
) -> Knobs:
    """Return the knobs of schedules that share a structure.

    The possible values of a knob surround its values in the given schedules. If there are more
    than `most` knobs, outputs of groups take precedence over members, then expensive groups, then
    tiles over vectors and unrolls.
    """
    first = planned[0]
    algorithm = with_clones(algorithm, first.schedule.clones)
    found: list[Knob] = []
    guests = _guests(first.schedule)
    for e, entry in enumerate(first.schedule.funcs):
        if e in guests:
            continue
        func = algorithm.funcs[entry.func]
        for s, nest in enumerate(entry.stages):
            for i, change in enumerate(nest.splits):
                if not isinstance(change, Split):
                    continue
                kind, lanes = _kind(nest, change)
                used = {_factor(p.schedule, e, s, i) for p in planned}
                bound = _extent(algorithm, entry.func, nest, change)
                values = _values(kind, used, bound, lanes)
                if len(values) > 1 and not (bound is not None and used == {bound}):
                    name = _name(func.name, s, change.inner, found)
                    found.append(Knob(name, e, s, i, kind, change.factor, values))
    costs = _costs(first, algorithm)
    rank = {"tile": 0, "thread": 0, "block": 1, "vector": 2, "unroll": 3}
    root = [entry.compute.kind == "root" for entry in first.schedule.funcs]
    found.sort(key=lambda k: (not root[k.entry], -costs.get(k.entry, 0.0), rank[k.kind]))
    kept = sorted(found[:most], key=lambda k: (k.entry, k.stage, k.split))
    return Knobs(tuple(kept), tuple(_constraints(first.schedule, planned, kept)))


def replanned(
    planned: PlannedSchedule, schedule: Schedule, algorithm: Algorithm
) -> PlannedSchedule:
    """Return the plan with a schedule tuned from it, and with its tiles and launches updated.

    The costs and the predicted time are no longer valid and are removed.
    """
    nest = sized_nest(algorithm, schedule)
    made_of = launches(nest) if nest else ()
    launched = {(launch.func, launch.stage): launch for launch in made_of}
    algorithm = with_clones(algorithm, schedule.clones)
    entries = {entry.func: i for i, entry in enumerate(schedule.funcs)}
    groups = []
    for group in planned.groups:
        i = entries.get(algorithm.order[group.output])
        if i is None or schedule.funcs[i] == planned.schedule.funcs[i]:
            groups.append(group)
            continue
        before = planned.schedule.funcs[i].stages[group.stage]
        after = schedule.funcs[i].stages[group.stage]
        made = _regrouped(group, before, after)
        func = algorithm.order[group.output]
        launch = launched.get((func, group.stage))
        if launch is not None:
            made = replace(
                made,
                blocks=numbers(launch.grid),
                threads=numbers(launch.block),
                shared_bytes=number(launch.shared_bytes),
            )
        tasks = _tasks(nest, func, group.stage) if nest else 0
        groups.append(replace(made, parallel_tasks=tasks))
    return replace(planned, schedule=schedule, groups=tuple(groups), name="", seconds=None)


def _tasks(nest: ScheduledNest, func: int, stage: int) -> int:
    """Return the iterations of the parallel loops of a stage at root; 0 if there are none."""
    extents = [
        float(loop.extent)
        for loop in nest.loops
        if loop.stage == (func, stage) and loop.mapping == "parallel"
    ]
    return int(math.prod(extents)) if extents and math.isfinite(math.prod(extents)) else 0


def _regrouped(group: GroupReport, before: StageSchedule, after: StageSchedule) -> GroupReport:
    pairs = [
        (old, new)
        for old, new in zip(before.splits, after.splits, strict=True)
        if isinstance(old, Split) and isinstance(new, Split)
    ]

    def tuned(size: int, is_own: Callable[[Split], bool]) -> int:
        """Return the new factor of the first split with factor `size` that is the searched one."""
        for old, new in pairs:
            if old.factor == size and is_own(old):
                return new.factor
        return size

    vectors = {loop.name for loop in before.loops if loop.mapping == "vectorized"}
    return replace(
        group,
        tile=tuple(
            tuned(size, lambda split, d=d: dimension_of(split.old) == d)  # type: ignore[misc]
            for d, size in enumerate(group.tile)
        ),
        vector_width=tuned(group.vector_width, lambda split: split.inner in vectors),
        parallel_tasks=0,
        blocks=(),
        threads=(),
        occupancy=0.0,
        cost=math.inf,
        seconds=None,
        notes=(*group.notes, "tuned"),
    )


def _kind(nest: StageSchedule, change: Split) -> tuple[str, int]:
    """Return the purpose of a split, and the lanes of each vector in a ``block`` of vectors."""
    mapped = {loop.name: loop.mapping for loop in nest.loops}
    kinds = {"vectorized": "vector", "unrolled": "unroll", "gpu_thread": "thread"}
    if change.inner in mapped:
        return kinds.get(mapped[change.inner], "tile"), 1
    for inside in nest.splits:
        if isinstance(inside, Split) and inside.old == change.inner:
            parts = {mapped.get(inside.outer), mapped.get(inside.inner)}
            if parts == {"vectorized", "unrolled"}:
                return "block", inside.factor
    return "tile", 1


def _values(kind: str, used: set[int], bound: int | None, lanes: int = 1) -> tuple[int, ...]:
    """Return candidate values: the used ones times powers of two, and usual ones of the kind."""
    reach = {"tile": 3, "thread": 2, "vector": 1, "unroll": 1, "block": 1}[kind]
    values = set(used)
    for value in used:
        values |= {value << k for k in range(1, reach + 1)}
        values |= {value >> k for k in range(1, reach + 1) if value % (1 << k) == 0}
    low, high = min(values), max(values)
    if kind == "unroll":
        values |= set(_UNROLLS)
    elif kind == "block":
        values |= {lanes * n for n in range(1, 9) if lanes * n <= high}
    else:
        values |= {1 << k for k in range(24) if low <= 1 << k <= high}
    least = min(4, *used) if kind == "vector" else 1
    most = max(_MOST_LANES, *used) if kind == "vector" else high
    kept = {v for v in values if least <= v <= most and (bound is None or v <= bound)}
    return tuple(sorted(kept | used))


def _extent(algorithm: Algorithm, func: int, nest: StageSchedule, change: Split) -> int | None:
    """Return the total iterations of the split loop, if the estimates determine them."""
    origin = change.old
    for earlier in reversed(nest.splits):
        if isinstance(earlier, Split) and origin in (earlier.outer, earlier.inner):
            origin = earlier.old
    match = re.fullmatch(r"v(\d+)", origin)
    definition = algorithm.funcs[func]
    if match is None or definition.name not in algorithm.outputs:
        return None
    span = definition.estimates.get(definition.args[int(match.group(1))])
    return None if span is None else span.extent


def _constraints(
    schedule: Schedule, planned: Sequence[PlannedSchedule], knobs: Sequence[Knob]
) -> list[str]:
    names = {(k.entry, k.stage, k.split): k.name for k in knobs}
    found = []
    for e, s, j, i in _nested(schedule):
        factors = [(_factor(p.schedule, e, s, j), _factor(p.schedule, e, s, i)) for p in planned]
        if (e, s, j) not in names and (e, s, i) not in names:
            continue
        outer = names.get((e, s, j)) or str(factors[0][0])
        inner = names.get((e, s, i)) or str(factors[0][1])
        if all(whole % part == 0 for whole, part in factors):
            found.append(f"{outer} % {inner} == 0")
        elif all(part <= whole for whole, part in factors):
            found.append(f"{inner} <= {outer}")
    return found


def _nested(schedule: Schedule) -> Iterator[tuple[int, int, int, int]]:
    """Yield (entry, stage, i, j) where split j splits the inner loop of split i."""
    for e, entry in enumerate(schedule.funcs):
        for s, nest in enumerate(entry.stages):
            made = {c.inner: j for j, c in enumerate(nest.splits) if isinstance(c, Split)}
            for i, change in enumerate(nest.splits):
                if isinstance(change, Split) and change.old in made:
                    yield e, s, made[change.old], i


def _factor(schedule: Schedule, entry: int, stage: int, split: int) -> int:
    change = schedule.funcs[entry].stages[stage].splits[split]
    assert isinstance(change, Split)
    return change.factor


def _costs(planned: PlannedSchedule, algorithm: Algorithm) -> dict[int, float]:
    """Return the predicted cost of each schedule entry's group, by entry."""
    entries = {entry.func: i for i, entry in enumerate(planned.schedule.funcs)}
    return {
        entries[algorithm.order[name]]: group.cost
        for group in planned.groups
        for name in group.funcs
        if algorithm.order.get(name) in entries
    }


def _name(func: str, stage: int, loop: str, found: Sequence[Knob]) -> str:
    text = re.sub(r"\W", "_", f"{func}_{stage}_{loop}" if stage else f"{func}_{loop}")
    text = text if text.isidentifier() else f"f_{text}"
    taken = {k.name for k in found}
    while text in taken:
        text += "_"
    return text


def _with_factors(schedule: Schedule, factor: Factor) -> Schedule:
    funcs = []
    for e, entry in enumerate(schedule.funcs):
        stages = []
        for s, nest in enumerate(entry.stages):
            splits = tuple(
                replace(change, factor=factor(e, s, i, change))
                if isinstance(change, Split)
                else change
                for i, change in enumerate(nest.splits)
            )
            stages.append(replace(nest, splits=splits))
        funcs.append(replace(entry, stages=tuple(stages)))
    for e, host in _guests(schedule).items():
        nests = zip(funcs[e].stages, funcs[host].stages, strict=True)
        guest = tuple(replace(nest, splits=theirs.splits) for nest, theirs in nests)
        funcs[e] = replace(funcs[e], stages=guest)
    return replace(schedule, funcs=tuple(funcs))


def _guests(schedule: Schedule) -> dict[int, int]:
    """Map entries that share their loops with another entry of the same splits to that entry."""
    places = {entry.func: e for e, entry in enumerate(schedule.funcs)}
    found = {}
    for e, entry in enumerate(schedule.funcs):
        shared = [nest.compute_with for nest in entry.stages]
        hosts = {places.get(each.func) for each in shared if each is not None}
        host = hosts.pop() if len(hosts) == 1 and None not in shared else None
        if host is not None:
            theirs = schedule.funcs[host].stages
            if [nest.splits for nest in entry.stages] == [nest.splits for nest in theirs]:
                found[e] = host
    return found
