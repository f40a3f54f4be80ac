"""Make predicates of reduction domains read no further than without a schedule.

Loops at whose variable a predicate reads are split twice at root, and left whole elsewhere (see
`ir.masked_splits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.loops import dimension_of, pure_loop
from tilewright.halide.ir.masked_splits import reads_no_further, split_twice
from tilewright.halide.ir.nest import default_stage, scheduled_loops
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
)
from tilewright.halide.ir.schedule import Mapping as MappingKind
from tilewright.halide.legality.overreach import predicate_reads

# The mapping of a whole loop is the first of these that one of its parts has.
_OUTWARDS: tuple[MappingKind, ...] = ("gpu_block", "gpu_thread", "parallel")
# A part of a loop that is whole now: (Func, stage, its name).
_Part = tuple[int, int, str]


def with_exact_predicates(schedule: Schedule, algorithm: Algorithm) -> Schedule:
    """Return the schedule with predicates that read no further than without it.

    Where a split must go, the whole loop replaces the outermost of its parts. Funcs that are
    computed or stored at one of the parts are computed or stored at the whole loop.
    """
    extended = with_clones(algorithm, schedule.clones)
    reads = predicate_reads(extended)
    if not reads:
        return schedule
    moved: dict[_Part, str] = {}
    funcs = []
    for entry in schedule.funcs:
        func = extended.funcs[entry.func]
        stages = list(entry.stages)
        for index, nest in enumerate(stages):
            loops = [pure_loop(d) for d in range(len(func.args)) if (entry.func, index, d) in reads]
            stages[index], parts = _exact(
                func, func.stages[index], nest, loops, entry.compute.kind == "root"
            )
            moved |= {(entry.func, index, part): loop for part, loop in parts.items()}
        funcs.append(replace(entry, stages=tuple(stages)))
    return replace(schedule, funcs=tuple(_moved(entry, moved) for entry in funcs))


def _exact(
    func: Func, stage: Stage, nest: StageSchedule, loops: Sequence[str], at_root: bool
) -> tuple[StageSchedule, dict[str, str]]:
    """Return the nest with `loops` split twice or whole, and the loops that replace others.

    If a part is fused with another loop, all loops of the stage are whole.
    """
    found, parts = nest, dict[str, str]()
    for loop in loops:
        if at_root and reads_no_further(found, loop):
            continue
        twice = split_twice(found, loop) if at_root else None
        if twice is not None:
            left = {each.name for each in twice.loops}
            # Funcs computed at a loop that is gone are computed at the one around it.
            gone = [each.name for each in found.loops if each.name not in left]
            parts |= {name: _around(found, name) for name in gone}
            found = twice
            continue
        whole, own = _unsplit(found, loop)
        parts |= dict.fromkeys(own, loop)
        found = whole if own else found
    if found is nest:
        return nest, parts
    try:
        scheduled_loops(func, stage, found)
    except ScheduleError:
        default = default_stage(func, stage)
        outermost = default.loops[-1].name
        kept = {loop.name for loop in default.loops}
        parts = {loop.name: outermost for loop in nest.loops if loop.name not in kept}
        shared = (
            any(loop.mapping == "parallel" for loop in nest.loops)
            and dimension_of(outermost) is not None
        )
        last = ScheduledLoop(outermost, "parallel" if shared else "serial")
        found = replace(default, loops=(*default.loops[:-1], last))
    return found, parts


def _around(nest: StageSchedule, loop: str) -> str:
    """Return the loop around a loop of the nest."""
    names = [each.name for each in nest.loops]
    return names[names.index(loop) + 1]


def _unsplit(nest: StageSchedule, loop: str) -> tuple[StageSchedule, list[str]]:
    """Return the nest with one loop that is not split, and the parts that it replaces."""
    parts = [loop]
    splits = []
    for change in nest.splits:
        if isinstance(change, Split) and change.old in parts:
            parts += [change.outer, change.inner]
        else:
            splits.append(change)
    own = [each for each in nest.loops if each.name in parts]
    if not own:  # fused
        return replace(nest, splits=tuple(splits)), parts[1:]
    mappings = {each.mapping for each in own}
    mapping: MappingKind = next((kind for kind in _OUTWARDS if kind in mappings), "serial")
    whole = ScheduledLoop(loop, mapping, "never")
    loops = [
        whole if each is own[-1] else each
        for each in nest.loops
        if each.name not in parts or each is own[-1]
    ]
    return replace(nest, splits=tuple(splits), loops=tuple(loops)), parts[1:]


def _moved(entry: FuncSchedule, moved: Mapping[_Part, str]) -> FuncSchedule:
    """Return the Func's schedule with levels at whole loops instead of their parts."""

    def at(level: Level) -> Level:
        return replace(level, loop=moved.get((level.func, level.stage, level.loop), level.loop))

    return replace(entry, compute=at(entry.compute), store=at(entry.store))
