"""Find Funcs with updates that would slide over a dimension whose last vector shifts inwards.

An iteration of a loop over which a Func slides may have nothing new to compute: because the region
does not move (Halide then computes it in the first iteration only), or because coordinates are
clamped. If the first stage has a split with `shift_inwards` in the dimension along which the Func
slides, Halide 21 extends the empty region to a whole split for the updates, but not for the first
stage. The updates are then applied again to values that were finished before.

Whether a region moves along a dimension is estimated from above: it is assumed to if a coordinate
depends on the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.analysis.paths import Paths, position
from tilewright.halide.ir.algorithm import Algorithm, Func, Variable, walk
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.nest import original_loops, scheduled_loops, stage_schedules
from tilewright.halide.ir.schedule import FuncSchedule, Schedule, Split, StageSchedule

Found = Iterator[tuple[str, str]]


def slid_update_problems(
    entry: FuncSchedule, schedule: Schedule, algorithm: Algorithm, paths: Paths
) -> Found:
    """Yield the dimensions along which updates of a Func may be applied twice."""
    func = algorithm.funcs[entry.func]
    if entry.compute == entry.store or len(func.stages) == 1 or not entry.stages:
        return
    shifted = {d for d in _shifted(entry.stages[0]) if _always_pure(func, d)}
    if not shifted:
        return
    entries = {other.func: other for other in schedule.funcs}
    for path in paths.prefixes.get(entry.func, ()):
        for node in path[position(path, entry.store) or 0 :]:
            moving = _moving(func, entries[node.func], node.loop, algorithm)
            for d in sorted(shifted & (moving or {len(func.args) - 1})):
                yield (
                    "store",
                    f"it slides over loop {node.loop} of {algorithm.funcs[node.func].name}, and "
                    f"its first stage shifts inwards along {func.args[d]}: Halide would apply its "
                    "updates twice where an iteration has nothing new; guard that split, or store "
                    "it where it is computed",
                )
                return


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


def _moving(func: Func, host: FuncSchedule, loop: str, algorithm: Algorithm) -> set[int]:
    """Return the dimensions of `func` in which its region may move along a loop of `host`."""
    around = algorithm.funcs[host.func]
    # The variables of each Func whose values depend on the loop.
    depend = {around.name: _iterated(around, host, loop, algorithm)}
    moving: dict[str, set[int]] = {}
    # From consumers to producers, through inlined Funcs as well.
    for producer in reversed(algorithm.funcs[: host.func]):
        found = moving[producer.name] = {
            d
            for reader in algorithm.consumers[producer.name]
            if reader in depend
            for stage in algorithm.by_name[reader].stages
            for call in stage.calls
            if call.kind == "func" and call.name == producer.name
            for d, at in enumerate(call.args)
            if any(isinstance(v, Variable) and v.name in depend[reader] for v in walk(at))
        }
        depend[producer.name] = {producer.args[d] for d in found}
    return moving.get(func.name, set())


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
