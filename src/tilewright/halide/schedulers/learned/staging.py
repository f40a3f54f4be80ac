"""The move `StageCopy`: a copy of what a Func reads, in the loops of that Func.

The copy (`in_`) holds the part that one iteration of a loop reads, in the order in which it is
read, so that vectors are loaded at once where they would be gathered from many rows, and values
that are read many times are close together::

    for tiles: for k: for x in lanes:      for tiles: w[k, x in tile] = a[k, x]
      out[x] += a[k, x] * b[k]               for k: for x in lanes: out[x] += w[k, x] * b[k]

Inputs can be copied if the pipeline reads them through a Func, as pipelines with an `ImageParam`
do in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.summaries import Analysis, Load, StageSummary
from tilewright.halide.ir.algorithm import Algorithm, Call, Func, Stage, Variable
from tilewright.halide.ir.clones import clone_problems
from tilewright.halide.ir.loops import origin
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.renumbering import number_of, with_added
from tilewright.halide.ir.schedule import (
    Clone,
    FuncSchedule,
    Level,
    Schedule,
    ScheduleError,
    StageSchedule,
)
from tilewright.halide.schedulers.learned.scene import MOST_FUNCS, Scene
from tilewright.halide.schedulers.learned.shape_choices import member_shapes
from tilewright.halide.schedulers.learned.shapes import NestShape, stages_in_loops


@dataclass(frozen=True, slots=True)
class StageCopy:
    """Copy what a Func reads of another one at one of its loops.

    Attributes:
        func: the position of the reader; one less than after the move.
        stage: the stage of the reader whose loop it is.
        loop: the loop.
        source: the position of the Func that is copied.
        inner: the dimension that is contiguous in the copy.
        shape: the loops of the copy.
    """

    func: int
    stage: int
    loop: str
    source: int
    inner: int
    shape: NestShape


def staging_moves(entry: FuncSchedule, schedule: Schedule, scene: Scene) -> Iterator[StageCopy]:
    """Yield the copies of what a Func reads repeatedly, or with other strides than it stores."""
    algorithm = scene.extended
    if entry.compute.kind == "inline" or len(algorithm.funcs) > MOST_FUNCS:
        return
    gone = frozenset(algorithm.funcs[i].name for i in inlined(schedule, algorithm))
    analysis = scene.analysis.with_inlined(gone)
    func = algorithm.funcs[entry.func]
    entries = {each.func: each for each in schedule.funcs}
    nests = stage_schedules(algorithm, entry)
    for (stage, nest), summary in zip(nests, analysis.summaries(func.name), strict=True):
        vector = _vectorised(func, stage, nest)
        sources: dict[int, int] = {}
        for load in summary.loads:
            source = _source(load, func.name, analysis)
            if source not in entries or entries[source].compute.kind == "at":
                continue
            stored = entries[source].storage_order or (analysis.contiguous.get(load.callee, 0),)
            if _strided(load, vector, stored[0]) or _repeated(load, summary):
                sources.setdefault(source, _dimension(load, vector))
        for source, inner in sources.items():
            if len(_strides(source, func.name, summary, analysis)) > 1:
                continue  # one box around all reads may be much larger than these
            copy = _copy(entry.func, source, schedule, scene, analysis)
            if copy is None or list(clone_problems(algorithm, (*schedule.clones, copy))):
                continue
            shape = next(member_shapes(algorithm.funcs[source], scene))
            for loop in _around(nest):
                yield StageCopy(entry.func, stage.index, loop, source, inner, shape)


def _source(load: Load, reader: str, analysis: Analysis) -> int:
    """Return the Func whose copy would serve a load; -1 if there is none."""
    algorithm = analysis.view.algorithm
    if load.indirect or load.callee == reader:
        return -1
    if load.kind == "func":
        func = algorithm.by_name[load.callee]
        return -1 if func.fixed or func.scheduled else algorithm.order[load.callee]
    for name in sorted(analysis.view.absorbed(reader)):
        if _passes(algorithm.by_name[name], load.callee):
            return algorithm.order[name]
    return -1


def _passes(func: Func, image: str) -> bool:
    """Return whether the values of a Func are those of an image at the same coordinates."""
    (value, *others) = func.stages[0].values
    if others or len(func.stages) > 1 or not isinstance(value, Call) or value.name != image:
        return False
    names = [arg.name if isinstance(arg, Variable) else "" for arg in value.args]
    return value.kind == "image" and names == list(func.args)


def _vectorised(func: Func, stage: Stage, nest: StageSchedule) -> str:
    """Return the variable of a stage along which its vectors lie; empty if it has none."""
    for loop in nest.loops:
        found = origin(loop.name)
        if loop.mapping == "vectorized" and found is not None:
            kind, number = found
            return func.args[number] if kind == "v" else stage.rvars[number].name
    return ""


def _dimension(load: Load, vector: str) -> int:
    """Return the storage dimension that a vector runs along, else the first one."""
    steps = load.strides.get(vector) or ()
    return next((d for d, step in enumerate(steps) if step), 0)


def _strided(load: Load, vector: str, inner: int) -> bool:
    """Return whether neighbouring lanes of a vector are apart, with `inner` contiguous."""
    if vector not in load.strides:
        return False
    steps = load.strides[vector]
    return steps is not None and any(abs(step) > (d == inner) for d, step in enumerate(steps))


def _repeated(load: Load, summary: StageSummary) -> bool:
    """Return whether all iterations of a loop read the same values."""
    return not {loop.name for loop in summary.loops} <= set(load.strides)


def _strides(
    source: int, reader: str, summary: StageSummary, analysis: Analysis
) -> set[tuple[tuple[str, tuple[float, ...] | None], ...]]:
    """Return the different strides of a stage's loads of a Func."""
    loads = (load for load in summary.loads if _source(load, reader, analysis) == source)
    return {tuple(sorted(load.strides.items())) for load in loads}


def _around(nest: StageSchedule) -> list[str]:
    """Return the loops of a nest outside its innermost block, innermost first."""
    loops = list(nest.loops)
    while loops and loops[0].mapping in ("vectorized", "unrolled"):
        loops.pop(0)
    return [loop.name for loop in loops]


def _copy(
    reader: int, source: int, schedule: Schedule, scene: Scene, analysis: Analysis
) -> Clone | None:
    """Return the copy of a Func for a reader and the Funcs inlined into it; None if none reads."""
    algorithm: Algorithm = scene.extended
    name = algorithm.funcs[reader].name
    inside = {name, *analysis.view.absorbed(name)}
    readers = [each for each in algorithm.consumers[algorithm.funcs[source].name] if each in inside]
    numbers = (number_of(algorithm.order[each], schedule, scene.algorithm) for each in readers)
    number = number_of(source, schedule, scene.algorithm)
    return Clone(number, tuple(sorted(numbers)), wrapper=True) if readers else None


def staged(schedule: Schedule, move: StageCopy, scene: Scene) -> Schedule:
    """Return the schedule after the move.

    Raises:
        ScheduleError: There is nothing to copy, or it cannot be copied.
    """
    algorithm = scene.extended
    gone = frozenset(algorithm.funcs[i].name for i in inlined(schedule, algorithm))
    analysis = scene.analysis.with_inlined(gone)
    copy = _copy(move.func, move.source, schedule, scene, analysis)
    if copy is None:
        name = algorithm.funcs[move.source].name
        raise ScheduleError(f"{algorithm.funcs[move.func].name} does not read {name}")
    bare, place = with_added(schedule, scene.algorithm, copy)
    level = Level("at", move.func + 1, move.stage, move.loop)
    extended = scene.of(bare).extended
    func = extended.funcs[place]
    dims = range(len(func.args))
    order = (move.inner, *(d for d in dims if d != move.inner)) if move.inner else ()
    stages = stages_in_loops(func, move.shape, extended)
    entry = FuncSchedule(place, level, level, stages=stages, storage_order=order)
    return replace(bare, funcs=tuple(sorted((*bare.funcs, entry), key=lambda each: each.func)))
