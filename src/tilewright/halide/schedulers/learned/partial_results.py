"""The move `Factor`: a reduction in parts that run side by side, and their combination.

Each step of a reduction waits for the previous one. If its operator is associative, `rfactor`
makes a Func of partial results, which do not wait for each other: slices of the domain run in
parallel, and in each slice every lane of a vector has a result of its own::

    for r in 0..n: f += g(r)        parallel slices t: for r: for lanes u: p(u, t) += g(..)
                                    for t: for u: f += p(u, t)

Compared with a vectorised reduction (`moves.Steps`), vectors are folded once instead of at every
step, and more than one core works.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import Call, Func, Stage, Variable, walk
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.factored import factor_problem
from tilewright.halide.ir.loops import dimension_of, part_of
from tilewright.halide.ir.nest import original_loops, stage_schedules
from tilewright.halide.ir.renumbering import number_of, with_added
from tilewright.halide.ir.schedule import (
    ROOT,
    Factored,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.stages import is_associative
from tilewright.halide.schedulers.learned.scene import MOST_FUNCS, Scene
from tilewright.halide.schedulers.learned.shape_choices import TASKS_PER_CORE, blocks
from tilewright.halide.schedulers.learned.shapes import NestShape, stages_of

# Vectors of partial results side by side: one chain of additions, or as many as hide its latency.
VECTORS = (1, 4, 8)
# Minimum number of vectors that are added up in each lane.
LEAST_STEPS = 4


@dataclass(frozen=True, slots=True)
class Factor:
    """Split the reduction of an update into partial results, and combine them.

    Attributes:
        func: the position of the Func; that of the partial results after the move.
        stage: the update.
        lanes: partial results per vector; 1: the partial results are no vectors.
        vectors: vectors of partial results per slice.
        slices: contiguous parts of the domain, computed in parallel; 1: no parts.
    """

    func: int
    stage: int
    lanes: int
    vectors: int
    slices: int


def factor_moves(entry: FuncSchedule, scene: Scene) -> tuple[Factor, ...]:
    """Return the ways to split the reductions of a Func with few results."""
    if entry.compute.kind == "inline":
        return ()
    if entry.func not in scene.splits:
        scene.splits[entry.func] = tuple(_factor_moves(entry.func, scene))
    return scene.splits[entry.func]


def _factor_moves(place: int, scene: Scene) -> Iterator[Factor]:
    algorithm = scene.extended
    func = algorithm.funcs[place]
    added = {*algorithm.partials, *(copy.name for copy in algorithm.copies)}
    if func.name in added or len(algorithm.funcs) > MOST_FUNCS:
        return
    tasks = TASKS_PER_CORE * scene.machine.cores
    for stage in func.stages[1:]:
        operator = combiner(stage)
        if not isinstance(operator, Combiner) or not stage.rvars:
            continue
        if any(call.name in algorithm.partials for call in stage.calls):
            continue  # already split
        if any(loop.kind == "pure_rvar" for loop in stage.loops):
            continue  # its iterations can run in parallel as they are
        side_by_side = not (operator.ordered or _scatters(stage))
        lanes = scene.lanes(func) if side_by_side else ()
        if math.prod(_along(func, stage, scene).values()) >= tasks * max((*lanes, 1)):
            continue  # enough results to run in parallel and in vectors
        blocks = [(1, 1), *((each, vectors) for each in lanes for vectors in VECTORS)]
        for slices in dict.fromkeys((1, scene.machine.cores, tasks)):
            for each, vectors in blocks:
                yield from _legal(Factor(place, stage.index, each, vectors, slices), func, scene)


def _legal(move: Factor, func: Func, scene: Scene) -> Iterator[Factor]:
    parts = _parts(move, func, scene)
    if parts is not None and not factor_problem([func], Factored(0, move.stage, *parts)):
        yield move


def _along(func: Func, stage: Stage, scene: Scene) -> dict[int, float]:
    """Return the extents of a stage's pure loops by dimension."""
    extents = scene.extents[func.name]
    found = (dimension_of(loop.name) for loop in original_loops(func, stage))
    return {d: extents[d] for d in found if d is not None}


def _scatters(stage: Stage) -> bool:
    """Return whether an update stores at coordinates that depend on data or on its reduction."""
    names = {rvar.name for rvar in stage.rvars}
    return any(
        isinstance(node, Call) or (isinstance(node, Variable) and node.name in names)
        for node in walk(*stage.args)
    )


def _parts(
    move: Factor, func: Func, scene: Scene
) -> tuple[tuple[str, ...], tuple[Split, ...]] | None:
    """Return the loops that become dimensions, innermost first, and the splits that make them.

    Return None if the reduction is too short, or its operator needs another order.
    """
    stage = func.stages[move.stage]
    operator = combiner(stage)
    terms = scene.terms(stage)
    if not isinstance(operator, Combiner) or not terms or not all(map(math.isfinite, terms)):
        return None
    together = move.lanes * move.vectors
    splits: list[Split] = []
    kept: list[str] = []
    loop, extent = "r0", terms[0]  # the loop whose iterations lie side by side in lanes
    if move.slices > 1:
        # Slices of the outermost loop read memory in order, and find the first of equal extremes.
        loops = range(len(terms))[-1:] if operator.ordered else reversed(range(len(terms)))
        at = next((i for i in loops if terms[i] >= move.slices), None)
        if at is None:
            return None
        size = math.ceil(terms[at] / move.slices)
        if at == 0:
            size = math.ceil(size / together) * together
            loop, extent = "r0i", float(size)
        splits.append(Split(f"r{at}", f"r{at}o", f"r{at}i", size, "guard_with_if"))
        kept.append(f"r{at}o")
    if together > 1:
        if operator.ordered or extent < LEAST_STEPS * together:
            return None
        splits.append(Split(loop, f"{loop}o", f"{loop}i", together, "guard_with_if"))
        kept.insert(0, f"{loop}i")
    return (tuple(kept), tuple(splits)) if kept else None


def factored(schedule: Schedule, move: Factor, scene: Scene) -> Schedule:
    """Return the schedule after the move: both Funcs are at root.

    Raises:
        ScheduleError: The reduction cannot be split in this way.
    """
    func = scene.extended.funcs[move.func]
    parts = _parts(move, func, scene)
    if parts is None:
        raise ScheduleError(f"{func.name}: its reduction is too short to be split in this way")
    rvars, splits = parts
    number = number_of(move.func, schedule, scene.algorithm)
    added = Factored(number, move.stage, rvars, splits)
    bare, place = with_added(schedule, scene.algorithm, added)
    scene = scene.of(bare)
    entries = {entry.func: entry for entry in bare.funcs}
    combined = place + 1
    old = entries[combined]
    func = scene.extended.funcs[combined]
    nests = [nest for _, nest in stage_schedules(scene.extended, replace(old, stages=()))]
    nests = list(old.stages) or nests
    nests[move.stage] = _combining(func, move, scene)
    entries[combined] = replace(old, compute=ROOT, store=ROOT, hoist=None, stages=tuple(nests))
    made = entries[place] = _partial(place, move, scene)
    outer = made.stages[1].loops[-1].name
    gone = Level("at", combined, move.stage)
    for i, entry in entries.items():
        levels = (entry.compute, entry.store)
        if any(level.kind == "at" and replace(level, loop="") == gone for level in levels):
            inside = Level("at", place, 1, outer)
            entries[i] = replace(entry, compute=inside, store=inside)
    return replace(bare, funcs=tuple(entries[i] for i in sorted(entries)))


def _partial(place: int, move: Factor, scene: Scene) -> FuncSchedule:
    """Return the schedule of the partial results: slices in parallel, lanes in vectors."""
    func = scene.extended.funcs[place]
    dims = tuple(range(len(func.args)))
    slices = dims[-1:] if move.slices > 1 else ()
    lanes = dims[len(dims) - len(slices) - 1 :][:1] if move.lanes > 1 else ()
    own = tuple(d for d in dims if d not in (*slices, *lanes))
    if lanes:
        order = (*lanes, *own, *slices)
        shape = NestShape((), order, lanes[0], move.lanes, move.vectors)
        storage = order
    else:
        shape = next(blocks(func, scene))
        order = (*(d for d in shape.order if d not in slices), *slices)
        shape = replace(shape, order=order)
        storage = ()
    first, _ = stages_of(func, shape)
    _, update = stages_of(func, replace(shape, parallel=1 if slices or own else 0))
    return FuncSchedule(place, ROOT, ROOT, stages=(first, update), storage_order=storage)


def _combining(func: Func, move: Factor, scene: Scene) -> StageSchedule:
    """Return the nest that combines the partial results of a Func."""
    if move.lanes == 1:
        return stages_of(func, next(blocks(func, scene)))[move.stage]
    nest = stages_of(func, NestShape((), tuple(range(len(func.args)))))[move.stage]
    if not is_associative(func.stages[move.stage]):
        return nest
    # The lanes of a slice become one value.
    outer, inner = part_of("r0", "b", move.stage), part_of("r0", "u", move.stage)
    split = Split("r0", outer, inner, move.lanes * move.vectors, "guard_with_if")
    loops = [ScheduledLoop(outer) if x.name == "r0" else x for x in nest.loops]
    vector = ScheduledLoop(inner, "vectorized")
    return replace(nest, splits=(*nest.splits, split), loops=(vector, *loops), atomic=True)
