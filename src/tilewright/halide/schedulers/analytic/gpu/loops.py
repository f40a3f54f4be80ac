"""From a planned kernel to loop nests (Sioutas 2020, Section 4.3).

Innermost come loops that are not threads (small ones unrolled), then threads, then blocks. Splits
guard their tails, so that the schedule is correct at every size. Only in kernels with members do
tiles shift inwards: Halide then knows the size of a block's shared memory, which it would otherwise
compute on the host, block by block, before every launch.

A parallel loop ``v`` of extent N with the tile T and R iterations per thread becomes:

| loop | made by | extent |
|---|---|---|
| ``v_b`` | the block, outermost | ceil(N / T) |
| ``v_t`` | the thread | T / R, or T where R = 1 |
| ``v_r`` | iterations of one thread, unrolled; only where R > 1 | R |
| ``v_s``, ``v_u`` | a serial loop, and its unrolled part | 1, N; N / U, U of reductions |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.loops import part_of, pure_loop
from tilewright.halide.ir.nest import default_stage, original_loops
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    Mapping,
    MemoryType,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan
from tilewright.halide.schedulers.analytic.gpu.tiling import grid_dimensions


@dataclass(frozen=True, slots=True)
class ScheduledStage:
    """A stage's schedule and the loops that producers can be computed at."""

    schedule: StageSchedule
    block_loop: str = ""
    thread_loop: str = ""


class _Budget:
    """The number of points of a stage that may still be unrolled; `room` with a reduction's."""

    def __init__(self, body: float, enabled: bool) -> None:
        self.room = SEARCH.most_body / max(body, 1.0) if enabled else 1.0
        self.left = min(SEARCH.most_unrolled_together, self.room)

    def take(self, extent: int, most: int = SEARCH.most_unrolled) -> bool:
        if not 1 < extent <= min(most, self.left):
            return False
        self.use(extent)
        return True

    def use(self, extent: int) -> None:
        self.left /= extent
        self.room /= extent


def output_tail(kernel: FusedKernel, any_size: bool) -> Tail:
    """Return how a kernel's tiles meet the end of a dimension.

    Shifting inwards needs a dimension to be at least as large as a tile, and is only possible
    in a pure definition.
    """
    if kernel.members and kernel.stage.index == 0 and not any_size:
        return "shift_inwards"
    return "guard_with_if"


def output_nest(plan: KernelPlan, *, unroll: bool = True, any_size: bool = False) -> ScheduledStage:
    """Return the nest of the stage that a kernel is made of."""
    kernel = plan.kernel
    untiled = _untiled(plan)
    if untiled is not None:
        return ScheduledStage(untiled)
    names = _canonical(kernel.func, kernel.stage)
    splits: list[Split | Fuse] = []
    unrolled: list[str] = []
    serial: list[str] = []
    threads: list[str] = []
    blocks: list[str] = []
    counts: list[int] = []
    tail = output_tail(kernel, any_size)
    budget = _Budget(max(kernel.summary.arithmetic, 1.0), unroll)
    for i in kernel.roles.threads:
        loop = names[kernel.loops[i].loop.name]
        tile, each = plan.tile[i], plan.registers[i]
        block, thread = part_of(loop, "_b"), part_of(loop, "_t")
        if each > 1:
            inside, registers = part_of(loop, "_i"), part_of(loop, "_r")
            splits.append(Split(loop, block, inside, tile, tail))
            splits.append(Split(inside, thread, registers, each, "guard_with_if"))
            unrolled.append(registers)
            budget.use(each)
        else:
            splits.append(Split(loop, block, thread, tile, tail))
        threads.append(thread)
        blocks.append(block)
        counts.append(-(-kernel.extents[i] // tile))
    for i in kernel.roles.others:
        loop = names[kernel.loops[i].loop.name]
        extent = kernel.extents[i]
        if plan.tile[i] == 1:
            blocks.append(loop)
            counts.append(extent)
        elif budget.take(extent):
            whole_loop, copies = part_of(loop, "_s"), part_of(loop, "_u")
            splits.append(Split(loop, whole_loop, copies, extent, "guard_with_if"))
            unrolled.append(copies)
            serial.append(whole_loop)
        else:
            serial.append(loop)
    taken = {loop.loop.name for loop in kernel.loops}
    parts, reductions = _reductions(kernel.func, kernel.stage, budget, taken, plan.steps)
    splits += parts
    whole = {names[loop.loop.name] for loop in kernel.loops}
    blocks = _fused(blocks, counts, splits, serial, whole if plan.nested else set())
    loops = (
        *(ScheduledLoop(name, "unrolled") for name in unrolled),
        *reductions,
        *(ScheduledLoop(name) for name in serial),
        *(ScheduledLoop(name, "gpu_thread") for name in threads),
        *(ScheduledLoop(name, "gpu_block") for name in blocks),
    )
    schedule = StageSchedule(tuple(splits), loops, atomic=kernel.atomic)
    return ScheduledStage(schedule, blocks[0] if blocks else "", threads[0] if threads else "")


def _untiled(plan: KernelPlan) -> StageSchedule | None:
    """Return the nest on the host, of nothing, or of one thread; None of kernels with a grid."""
    func, stage = plan.kernel.func, plan.kernel.stage
    if plan.kind == "host":
        return _host_stage(func, stage)
    if plan.kind == "nothing":
        return default_stage(func, stage)
    if plan.kind == "single_thread":
        nest = default_stage(func, stage)
        return StageSchedule(nest.splits, nest.loops, single_thread=True)
    return None


def _fused(
    blocks: list[str],
    counts: list[int],
    splits: list[Split | Fuse],
    serial: list[str],
    whole: set[str],
) -> list[str]:
    """Return the block loops after fusing those that the grid cannot hold, innermost first.

    `whole` are unsplit loops of kernels with values in registers: Halide 21 finds no constant size
    for these inside a fusion of two such loops.
    """
    result = []
    for places in grid_dimensions(counts):
        together = [blocks[place] for place in places]
        while len(together) > 1:
            outer = together.pop()
            inner = together.pop()
            if {inner, outer} <= whole:
                block, once = part_of(outer, "_b"), part_of(outer, "_o")
                splits.append(Split(outer, block, once, 1, "guard_with_if"))
                serial.append(once)
                outer = block
            fused = part_of(inner, "_f")
            splits.append(Fuse(inner, outer, fused))
            together.append(fused)
        result += together
    return result


def member_nest(
    plan: KernelPlan, name: str, stage: Stage, extents: Sequence[float], *, unroll: bool = True
) -> StageSchedule:
    """Return the nest of one stage of a member.

    `extents` are the sizes of its region: the largest of any block, or a thread's where it is
    inside one. If Halide cannot infer that the region has the same size in all blocks, thread
    loops are split by that size; otherwise it would launch as many threads as its bounds allow.
    A thread computes as many points of a member as of the output.
    """
    kernel = plan.kernel
    inside = name in plan.nested
    func = kernel.analysis.view.by_name[name]
    names = _canonical(func, stage)
    dims = () if inside else kernel.stage_threads(name, stage)
    pure = [pure_loop(d) for d in dims]
    threads: list[str] = []
    splits: list[Split | Fuse] = []
    outside: list[str] = []
    unrolled: list[str] = []
    serial: list[str] = []
    summary = kernel.analysis.summaries(name)[stage.index]
    budget = _Budget(max(summary.arithmetic, 1.0), unroll)
    for place, (d, whole) in enumerate(zip(dims, pure, strict=True)):
        each = points_along(plan, place)
        thread = member_thread(plan, name, d, place)
        inner = whole
        if name not in kernel.exact_members:
            inner = part_of(whole, "_i") if each > 1 else thread
            outside.append(part_of(whole, "_s"))
            splits.append(Split(whole, outside[-1], inner, int(extents[d]), "guard_with_if"))
        if each > 1:
            unrolled.append(part_of(whole, "_r"))
            splits.append(Split(inner, thread, unrolled[-1], each, "guard_with_if"))
            budget.use(each)
        threads.append(thread)
    most = SEARCH.most_unrolled_together if inside else SEARCH.most_unrolled
    for loop in stage.loops:
        if loop.kind != "pure":
            continue
        canonical = names[loop.name]
        if canonical in pure:
            continue
        extent = int(extents[func.args.index(loop.name)])
        if not budget.take(extent, most):
            serial.append(canonical)
        elif inside:
            # Halide bounds what registers hold, but not always what a split of it visits: it sees
            # no constant where a condition of the consumer narrows the region.
            unrolled.append(canonical)
        else:
            whole_loop, copies = part_of(canonical, "_s"), part_of(canonical, "_u")
            splits.append(Split(canonical, whole_loop, copies, extent, "guard_with_if"))
            unrolled.append(copies)
            serial.append(whole_loop)
    parts, reductions = _reductions(func, stage, budget, set(), plan.steps)
    loops = [*_marked(unrolled, "unrolled"), *reductions, *_marked(serial)]
    loops += [*_marked(threads, "gpu_thread"), *_marked(outside)]
    return StageSchedule((*splits, *parts), tuple(loops))


def _marked(names: Sequence[str], mapping: Mapping = "serial") -> Iterator[ScheduledLoop]:
    """Yield loops, innermost first, that are all run in the same way."""
    return (ScheduledLoop(name, mapping) for name in names)


def points_along(plan: KernelPlan, place: int) -> int:
    """Return the points that one thread computes along a thread dimension: 0 is x, 1 y, 2 z."""
    threads = plan.kernel.roles.threads
    return plan.registers[threads[place]] if place < len(threads) else 1


def member_thread(plan: KernelPlan, name: str, d: int, place: int) -> str:
    """Return the name of a member's thread loop made of dimension `d`, along x, y or z."""
    loop = pure_loop(d)
    split = name not in plan.kernel.exact_members or points_along(plan, place) > 1
    return part_of(loop, "_t") if split else loop


def member_schedule(
    plan: KernelPlan,
    name: str,
    nest: ScheduledStage,
    extents: Sequence[float],
    algorithm: Algorithm,
    *,
    unroll: bool = True,
) -> FuncSchedule:
    """Return where a member is computed and how, given the nest of the group's output."""
    kernel = plan.kernel
    anchor = plan.nested.get(name)
    order = algorithm.order
    if anchor is None:
        level = Level("at", order[kernel.output], kernel.stage.index, nest.block_loop)
    elif anchor == kernel.output:
        level = Level("at", order[kernel.output], kernel.stage.index, nest.thread_loop)
    else:
        level = Level(
            "at", order[anchor], 0, member_thread(plan, anchor, kernel.member_threads[anchor][0], 0)
        )
    stages = tuple(
        member_nest(plan, name, stage, extents, unroll=unroll)
        for stage in algorithm.by_name[name].stages
    )
    memory: MemoryType = "gpu_shared" if anchor is None else "register"
    return FuncSchedule(order[name], level, level, memory, stages)


def output_schedule(
    plans: Sequence[KernelPlan],
    algorithm: Algorithm,
    *,
    unroll: bool = True,
    any_size: bool = False,
) -> tuple[FuncSchedule, list[ScheduledStage]]:
    """Return the schedule of a group's output, from one plan per stage."""
    nests = [output_nest(plan, unroll=unroll, any_size=any_size) for plan in plans]
    func = algorithm.order[plans[0].kernel.output]
    return FuncSchedule(func, ROOT, ROOT, "auto", tuple(n.schedule for n in nests)), nests


def _canonical(func: Func, stage: Stage) -> dict[str, str]:
    """Return the canonical names of a stage's loops by their names in the pipeline."""
    loops = original_loops(func, stage)
    return {loop.name: nest.name for loop, nest in zip(stage.loops, loops, strict=True)}


def _reductions(
    func: Func, stage: Stage, budget: _Budget, taken: set[str], steps: int
) -> tuple[list[Split | Fuse], list[ScheduledLoop]]:
    """Return the reduction loops in their own order, and their splits.

    Small constant loops are unrolled from inside out. Of the first that is not, as many iterations
    are unrolled as divide its extent, up to `steps`: the loads of one are then under way together,
    and those of neighbours share an address.
    """
    splits: list[Split | Fuse] = []
    result = []
    unrolling = True
    for loop, nest in zip(stage.loops, original_loops(func, stage), strict=True):
        if loop.kind == "pure" or loop.name in taken:
            continue
        extent = nest.extent or 0
        if unrolling and budget.take(extent, SEARCH.most_unrolled_reduction):
            result.append(ScheduledLoop(nest.name, "unrolled"))
            continue
        most = int(min(steps, budget.room, extent)) if unrolling else 1
        unrolling = False
        together = max((n for n in range(2, most + 1) if extent % n == 0), default=1)
        if together == 1:
            result.append(ScheduledLoop(nest.name))
            continue
        copies, rest = part_of(nest.name, "_u"), part_of(nest.name, "_s")
        splits.append(Split(nest.name, rest, copies, together, "guard_with_if"))
        result += [ScheduledLoop(copies, "unrolled"), ScheduledLoop(rest)]
    return splits, result


def _host_stage(func: Func, stage: Stage) -> StageSchedule:
    """Return a stage on the host: its outermost pure loop in parallel."""
    nest = default_stage(func, stage)
    originals = original_loops(func, stage)
    if originals and originals[-1].kind == "pure":
        outer = nest.loops[-1]
        loops = (*nest.loops[:-1], ScheduledLoop(outer.name, "parallel"))
        return StageSchedule(nest.splits, loops)
    return nest
