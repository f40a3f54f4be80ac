"""Check the less common directives: hoisting, folding, bounds, prefetching, shared loops."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.analysis.paths import Paths, position
from tilewright.halide.ir.algorithm import Algorithm, Func
from tilewright.halide.ir.names import algorithm_names
from tilewright.halide.ir.nest import original_loops, scheduled_loops, stage_schedules
from tilewright.halide.ir.schedule import ComputeWith, FuncSchedule, Schedule, StageSchedule

Found = Iterator[tuple[str, str]]


def dimension_problems(entry: FuncSchedule, func: Func) -> Found:
    """Yield violations of `StorageDim`, `DimensionBounds` and `ring_buffer` entries."""
    for what, items in (("storage", entry.storage), ("bounds", entry.bounds)):
        said = [item.dimension for item in items]
        for dimension in said:
            if not 0 <= dimension < len(func.args):
                yield what, f"{what} names dimension {dimension}, which it does not have"
        if len(set(said)) < len(said):
            yield what, f"{what} has two entries for one dimension; merge them"
    for bounds in entry.bounds:
        remainder = bounds.remainder or 0
        if bounds.modulus < 1 or not 0 <= remainder < bounds.modulus or bounds.extent < 0:
            yield "bounds", "extent must be at least 0, modulus at least 1, and remainder in range"
    for dim in entry.storage:
        if dim.bound and dim.fold > dim.bound:
            yield "storage", f"storage is folded to {dim.fold} elements but bound to {dim.bound}"
    if entry.ring_buffer and entry.hoist is None:
        yield "storage", "a ring_buffer needs storage hoisted outside the loop it cycles over"


def hoist_problems(entry: FuncSchedule, paths: Paths) -> Found:
    """Yield hoist levels that are not outside the store level."""
    if entry.hoist is None or entry.hoist.kind == "root":
        return
    if entry.hoist.kind == "inline":
        yield "hoist", "its storage is hoisted to inline; name a loop or root"
        return
    for path in paths.prefixes.get(entry.func, ()):
        hoisted, stored = position(path, entry.hoist), position(path, entry.store)
        if hoisted is None or (stored is not None and hoisted > stored):
            yield (
                "hoist",
                f"its storage is hoisted to loop {entry.hoist.loop!r}, which is inside its store "
                "level; hoist it further out",
            )
            return


def prefetch_problems(entry: FuncSchedule, algorithm: Algorithm) -> Found:
    """Yield prefetches of unknown Funcs, at missing loops, or with loops in the wrong order."""
    func = algorithm.funcs[entry.func]
    for stage, nest in stage_schedules(algorithm, entry):
        names = [loop.name for loop in scheduled_loops(func, stage, nest)]
        for fetch in nest.prefetch:
            if not 0 <= fetch.func < len(algorithm.funcs):
                yield "prefetch", f"there is no Func {fetch.func} to prefetch"
                continue
            missing = [loop for loop in (fetch.at, fetch.along) if loop not in names]
            if missing:
                yield "prefetch", f"stage {stage.index} has no loop {missing[0]!r} to prefetch at"
            elif names.index(fetch.at) > names.index(fetch.along):
                # A prefetch for later iterations of a loop must be inside that loop.
                yield (
                    "prefetch",
                    f"loop {fetch.at!r} is outside loop {fetch.along!r}; prefetch inside it",
                )


def sharing_problems(entry: FuncSchedule, schedule: Schedule, algorithm: Algorithm) -> Found:
    """Yield ``compute_with`` directives for stages or loops that Halide cannot combine."""
    entries = {other.func: other for other in schedule.funcs}
    for index, nest in enumerate(entry.stages):
        shared = nest.compute_with
        if shared is None:
            continue
        other = entries.get(shared.func)
        if other is None or not 0 <= shared.stage < len(algorithm.funcs[shared.func].stages):
            yield "compute_with", "the stage it is computed with has no schedule"
            continue
        if shared.func == entry.func:
            yield "compute_with", "stages of one Func cannot share loops; name another Func"
            continue
        if (other.compute, other.store) != (entry.compute, entry.store):
            yield "compute_with", "both Funcs must have the same compute and store levels"
        reason = _unlike(entry.func, index, nest, other, shared, algorithm)
        if reason:
            yield "compute_with", reason


def _unlike(
    func: int,
    index: int,
    nest: StageSchedule,
    other: FuncSchedule,
    shared: ComputeWith,
    algorithm: Algorithm,
) -> str:
    """Return the reason why two stages cannot share their outer loops; empty if they can."""
    stages = stage_schedules(algorithm, other)
    theirs = [loop.name for loop in reversed(stages[shared.stage][1].loops)]
    if shared.loop not in theirs:
        return f"the other stage has no loop {shared.loop!r}; it has {', '.join(theirs)}"
    depth = theirs.index(shared.loop) + 1
    if depth > len(nest.loops):
        return f"{depth} loops are shared, but the stage has {len(nest.loops)}"
    own = _outer(func, index, nest, depth, algorithm)
    if own != _outer(shared.func, shared.stage, stages[shared.stage][1], depth, algorithm):
        return (
            "the shared loops, from the outermost on, must have the same names, splits and "
            "mappings in both stages"
        )
    loops = {loop.name for loop in nest.loops}
    unknown = [loop for loop, _ in shared.align if loop not in loops]
    return f"align names loop {unknown[0]!r}, which the stage does not have" if unknown else ""


def _outer(
    func: int, index: int, nest: StageSchedule, depth: int, algorithm: Algorithm
) -> list[object]:
    """Return the outermost loops as Halide compares them: names, kinds and mappings."""
    definition = algorithm.funcs[func]
    stage = definition.stages[index]
    names = algorithm_names(algorithm)[func]
    called = {
        loop.name: (names.args if loop.name[0] == "v" else names.rvars[index])[int(loop.name[1:])]
        for loop in original_loops(definition, stage)
    }
    loops = scheduled_loops(definition, stage, nest)
    described: list[object] = [
        (tuple(called[source] for source in loop.sources), loop.kind, loop.inside, mapped.mapping)
        for loop, mapped in zip(loops, nest.loops, strict=True)
    ]
    return described[::-1][:depth]
