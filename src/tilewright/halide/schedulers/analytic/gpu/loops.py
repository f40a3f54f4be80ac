"""Convert a planned kernel to loop nests (Sioutas 2020, Section 4.3).

The innermost loops are those without threads (small ones are unrolled), then come the thread loops,
then the block loops. Splits guard their tails, so that the schedule is correct at every size.
Kernels with members are the exception: their tiles shift inwards. Halide then knows the size of a
block's shared memory, which it would otherwise compute on the host, block by block, before every
launch.

A parallel loop ``v`` of extent N with the tile T and R iterations per thread becomes:

| loop | made by | extent |
|---|---|---|
| ``v_b`` | the block, outermost | ceil(N / T) |
| ``v_w`` | serial steps of P planes (z only), along which members slide; only where P > 0 | T / P |
| ``v_t`` | the thread | T / R, P / R |
| ``v_r`` | iterations of one thread, unrolled; only where R > 1 | R |
| ``v_s``, ``v_u`` | a serial loop, and its unrolled part | 1, N; N / U, U of reductions |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.loops import part_of, pure_loop
from tilewright.halide.ir.nest import NestLoop, default_stage, original_loops
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
    """A stage's schedule, and the loops at which members can be computed.

    They are the innermost loops over blocks and threads, and the serial loop along z.
    """

    schedule: StageSchedule
    block_loop: str = ""
    thread_loop: str = ""
    walk_loop: str = ""


class _Budget:
    """The number of copies of a stage's body that further unrolling may make.

    `left` is the limit for most loops. `room` is the limit by the size of the body alone, which
    applies to the unrolled steps of a reduction.
    """

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
    """Return the tail strategy of a kernel's tiles.

    Shifting inwards requires a pure definition, and an output at least as large as a tile.
    """
    if kernel.members and kernel.stage.index == 0 and not any_size:
        return "shift_inwards"
    return "guard_with_if"


def output_nest(
    plan: KernelPlan, *, unroll: bool = True, any_size: bool = False, scanned: bool = False
) -> ScheduledStage:
    """Return the nest of the output's stage in a kernel.

    `unroll`, `any_size` and `scanned` are those of `Options`.
    """
    kernel = plan.kernel
    untiled = _untiled(plan)
    if untiled is not None:
        return ScheduledStage(untiled)
    names = _canonical(kernel.func, kernel.stage)
    splits: list[Split | Fuse] = []
    unrolled: list[str] = []
    serial: list[str] = []
    threads: list[str] = []
    walk: list[str] = []
    blocks: list[str] = []
    counts: list[int] = []
    tail = output_tail(kernel, any_size)
    budget = _Budget(max(kernel.summary.arithmetic, 1.0), unroll)
    for i in kernel.roles.threads:
        loop = names[kernel.loops[i].loop.name]
        tile, each = plan.tile[i], plan.registers[i]
        planes = plan.planes if i == kernel.roles.threads[-1] else 0
        splits += _tile_splits(loop, tile, planes, each, tail)
        if each > 1:
            unrolled.append(part_of(loop, "_r"))
            budget.use(each)
        if planes:
            walk.append(part_of(loop, "_w"))
        threads.append(part_of(loop, "_t"))
        blocks.append(part_of(loop, "_b"))
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
    parts, reductions = _inner_reductions(plan, budget, scanned)
    splits += parts
    whole = {names[loop.loop.name] for loop in kernel.loops}
    blocks = _fused(blocks, counts, splits, serial, whole if plan.nested else set())
    loops = [*_marked(unrolled, "unrolled"), *reductions, *_marked(serial)]
    loops += [*_marked(threads, "gpu_thread"), *_marked(walk), *_marked(blocks, "gpu_block")]
    loops += _marked([names[name] for name in kernel.rounds])
    schedule = StageSchedule(
        tuple(splits), tuple(loops), atomic=kernel.atomic, allow_races=kernel.in_rounds
    )
    return ScheduledStage(schedule, *("".join(names[:1]) for names in (blocks, threads, walk)))


def _tile_splits(loop: str, tile: int, planes: int, each: int, tail: Tail) -> list[Split | Fuse]:
    """Return the splits of a tiled loop with `each` points per thread.

    With `planes`, a serial loop walks the tile in steps of as many iterations.
    """
    made: list[Split | Fuse] = []
    steps: list[tuple[str, int, Tail]] = [("_b", tile, tail)]
    steps += [("_w", planes, "guard_with_if")] if planes else []
    steps += [("_t", each, "guard_with_if")] if each > 1 else []
    inside = (["_p"] if planes else []) + (["_i", "_r"] if each > 1 else ["_t"])
    old = loop
    for (outer, factor, how), inner in zip(steps, inside, strict=True):
        made.append(Split(old, part_of(loop, outer), part_of(loop, inner), factor, how))
        old = part_of(loop, inner)
    return made


def _untiled(plan: KernelPlan) -> StageSchedule | None:
    """Return the nest of a stage that does not run in parallel on the GPU; None if it does."""
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
    """Return the block loops, innermost first, after fusing those that exceed the grid.

    `whole` names the loops of the definition if members are kept in registers. If two of these
    were fused without a split, Halide 21 would not find a constant size for the registers. So one
    of them is split by 1 first.
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

    `extents` are those of its region: in a thread if it is nested, else the largest in any block. A
    thread computes as many points of a member as of the output. If Halide cannot infer that the
    region has the same size in all blocks, thread loops are split by that size. Without the split,
    Halide would launch as many threads as its looser bounds allow. Along z, this is so for members
    that slide, because they need more planes at a time if the output is smaller than a tile.
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
        inner, thread = whole, member_thread(plan, name, d, place)
        walked = walks(plan, name, d)
        if walked or name not in kernel.exact_members:
            inner = part_of(whole, "_i") if each > 1 else thread
            outside.append(part_of(whole, "_s"))
            size = plan.planes if walked else int(extents[d])
            splits.append(Split(whole, outside[-1], inner, size, "guard_with_if"))
        if each > 1:
            unrolled.append(part_of(whole, "_r"))
            splits.append(Split(inner, thread, unrolled[-1], each, "guard_with_if"))
            budget.use(each)
        threads.append(thread)
    most = SEARCH.most_unrolled_together if inside else SEARCH.most_unrolled
    for loop in stage.loops:
        canonical = names[loop.name]
        if loop.kind != "pure" or canonical in pure:
            continue
        extent = int(extents[func.args.index(loop.name)])
        if not budget.take(extent, most):
            serial.append(canonical)
        elif inside:
            # Do not split: if a condition of the consumer narrows the region, Halide finds a
            # constant bound for the registers, but not for the loops of a split.
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
    """Return the named loops, innermost first, all with the same mapping."""
    return (ScheduledLoop(name, mapping) for name in names)


def points_along(plan: KernelPlan, place: int) -> int:
    """Return the points per thread along thread dimension `place` (0 is x, 1 is y, 2 is z)."""
    threads = plan.kernel.roles.threads
    return plan.registers[threads[place]] if place < len(threads) else 1


def walks(plan: KernelPlan, name: str, d: int) -> bool:
    """Return whether a member slides along its dimension `d`."""
    return name in plan.sliding and plan.sliding[name].dimension == d


def member_thread(plan: KernelPlan, name: str, d: int, place: int) -> str:
    """Return the name of a member's thread loop over dimension `d`, along x, y or z (`place`)."""
    loop = pure_loop(d)
    bounded = name in plan.kernel.exact_members and not walks(plan, name, d)
    split = not bounded or points_along(plan, place) > 1
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
    """Return the schedule of a member.

    Args:
        plan: The planned kernel.
        name: The member.
        nest: The nest of the group's output.
        extents: As for `member_nest`.
        algorithm: The pipeline.
        unroll: Whether to unroll small loops inside threads.
    """
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
    compute = replace(level, loop=nest.walk_loop) if name in plan.sliding else level
    return FuncSchedule(order[name], compute, level, memory, stages)


def output_schedule(
    plans: Sequence[KernelPlan],
    algorithm: Algorithm,
    *,
    unroll: bool = True,
    any_size: bool = False,
    scanned: bool = False,
) -> tuple[FuncSchedule, list[ScheduledStage]]:
    """Return the schedule of a group's output, from one plan per stage."""
    nests = [output_nest(plan, unroll=unroll, any_size=any_size, scanned=scanned) for plan in plans]
    func = algorithm.order[plans[0].kernel.output]
    return FuncSchedule(func, ROOT, ROOT, "auto", tuple(n.schedule for n in nests)), nests


def _canonical(func: Func, stage: Stage) -> dict[str, str]:
    """Return the canonical name of each loop of a stage, by its name in the pipeline."""
    loops = original_loops(func, stage)
    return {loop.name: nest.name for loop, nest in zip(stage.loops, loops, strict=True)}


def _reductions(
    func: Func, stage: Stage, budget: _Budget, taken: set[str], steps: int
) -> tuple[list[Split | Fuse], list[ScheduledLoop]]:
    """Return the splits of the reduction loops, and the resulting loops, innermost first.

    Small loops of constant extent are unrolled, from the innermost outwards. The first larger loop
    is unrolled partially, by the largest divisor of its extent up to `steps`. The loads of the
    unrolled steps are then in flight together, and neighbouring loads share an address.
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


def _inner_reductions(
    plan: KernelPlan, budget: _Budget, scanned: bool
) -> tuple[list[Split | Fuse], list[ScheduledLoop]]:
    """Return the splits and loops of the reduction loops inside the threads of a kernel."""
    kernel = plan.kernel
    taken = {loop.loop.name for loop in kernel.loops} | set(kernel.rounds)
    parts, loops = _reductions(kernel.func, kernel.stage, budget, taken, plan.steps)
    if scanned and not parts and kernel.summary.scans and len(loops) == 1:
        nests = {nest.name: nest for nest in original_loops(kernel.func, kernel.stage)}
        return _steps(nests[loops[0].name])
    return parts, loops


def _steps(loop: NestLoop) -> tuple[list[Split | Fuse], list[ScheduledLoop]]:
    """Return the split of a scan's loop, and the resulting loops, innermost first.

    The remainder is a version of the loop of its own: a condition around every unrolled step would
    keep the loads of the next steps from being issued ahead. If the steps divide a constant extent,
    nothing remains, and the loop keeps Halide's default: Halide rejects a partition without effect.
    """
    copies, rest = part_of(loop.name, "_u"), part_of(loop.name, "_s")
    split = Split(loop.name, rest, copies, SEARCH.scan_steps, "guard_with_if")
    even = loop.extent is not None and loop.extent % SEARCH.scan_steps == 0
    outer = ScheduledLoop(rest, partition="auto" if even else "always")
    return [split], [ScheduledLoop(copies, "unrolled"), outer]


def _host_stage(func: Func, stage: Stage) -> StageSchedule:
    """Return the nest of a stage on the host, with its outermost loop in parallel if it is pure."""
    nest = default_stage(func, stage)
    originals = original_loops(func, stage)
    if originals and originals[-1].kind == "pure":
        outer = nest.loops[-1]
        loops = (*nest.loops[:-1], ScheduledLoop(outer.name, "parallel"))
        return StageSchedule(nest.splits, loops)
    return nest
