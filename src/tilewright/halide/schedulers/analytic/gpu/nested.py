"""Nested fusion: members computed inside threads (Sioutas 2020, Section 4.3, Listing 2).

A member can be computed at two levels on a GPU: at the innermost block loop, stored in shared
memory, or inside the innermost thread loop of a consumer, stored in registers. A member must stay
at block level if neighbouring threads share its values. It must also stay there if the number of
values differs between threads, because the number of registers must be constant.

| symbol | meaning | shape |
|---|---|---|
| `anchor` | the Func in whose threads a member may be computed | |
| `nested` | the anchor of every member that is already nested | |
| `dims` | the thread loops of the anchor, innermost first | D names |
| `steps` | the compared threads, as distances from the first one | (threads, D), iterations |
| `found` | the box that each of these threads needs | (threads,), coordinates |
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.halide.analysis.bounds import Bound, Box, Interval, Linearizer
from tilewright.halide.analysis.thread_divisors import (
    clamped_differently,
    divided_differently,
    scattered_by_parameters,
    scattered_dimensions,
)
from tilewright.halide.ir.algorithm import Call, Expr, Op, Stage, Variable, walk
from tilewright.halide.ir.expressions import uses
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.kernel import Array, FusedKernel, sizes
from tilewright.halide.schedulers.analytic.gpu.tiling import Tiles


def max_order_reuse(
    kernel: FusedKernel, anchor: str, member: str, nested: Mapping[str, str]
) -> str | None:
    """Return the outermost thread loop of `anchor` whose iterations share values of `member`.

    Args:
        kernel: The kernel.
        anchor: The Func in whose threads `member` would be computed.
        member: The member.
        nested: The members already nested, through which `member` may be read.

    Returns:
        The name of the loop; None if no two threads read the same value.
    """
    dims = _thread_loops(kernel, anchor)
    steps = np.vstack([np.zeros(len(dims)), np.eye(len(dims))])
    found = _regions(kernel, anchor, {**nested, member: anchor}, steps).get(member)
    if found is None:
        return None
    for place in reversed(range(len(dims))):
        if _intersects(found, 0, place + 1):
            return dims[place]
    return None


def optimize_granularity(kernel: FusedKernel, *, several: bool = False) -> dict[str, str]:
    """Return the members to nest, each with its anchor.

    A member is nested if all its consumers are computed in the threads of one anchor, no thread
    loop of the anchor carries reuse of the member, and its size per thread is constant. If threads
    compute `several` points, the member must be read at affine coordinates: Halide cannot infer how
    many values the quotients of several points need.
    """
    nested: dict[str, str] = {}
    view = kernel.analysis.view
    group = {*kernel.members, kernel.output}
    for member in reversed(kernel.members):
        anchors = {nested.get(c, c) for c in view.consumers[member] if c in group}
        if len(anchors) != 1:
            continue
        anchor = anchors.pop()
        if not _has_all_threads(kernel, anchor):
            continue
        if max_order_reuse(kernel, anchor, member, nested) is not None:
            continue
        if _runs_over_unknown(kernel, member) or scattered_by_parameters(view, member):
            continue
        if several and not _read_at_affine_places(kernel, member):
            continue
        if several and anchor in kernel.exact_members and _extends_by_unknown(kernel, anchor):
            continue
        if _size_is_plain(kernel, anchor, member, nested) and _same_size_everywhere(
            kernel, anchor, member, nested
        ):
            nested[member] = anchor
    return nested


def _runs_over_unknown(kernel: FusedKernel, member: str, dims: Sequence[int] | None = None) -> bool:
    """Return whether `member` is read or written along a reduction whose length is a parameter.

    The number of values per thread is then known only at run time, so they cannot be in registers.
    Only the dimensions `dims` count; None for all.
    """
    view = kernel.analysis.view
    for name in (member, *view.consumers[member]):
        for stage in view.stages(name):
            unknown = {r.name for r in stage.rvars if Linearizer({})(r.extent).terms}
            calls = [c.args for c in stage.calls if c.kind == "func" and c.name == member]
            places = [*calls, stage.args] if name == member else calls
            for args in places:
                chosen = args if dims is None else [args[d] for d in dims]
                used = (node for node in walk(*chosen) if isinstance(node, Variable))
                if any(node.name in unknown for node in used):
                    return True
    return False


def _extends_by_unknown(kernel: FusedKernel, anchor: str) -> bool:
    """Return whether the thread loops of `anchor` grow with a length that is a parameter.

    They are then not split by a constant, so the last thread may have fewer points than the others,
    and Halide finds no constant size for what they read.
    """
    below = {anchor}
    consumers = kernel.analysis.view.consumers
    for name in kernel.members:
        if any(name in consumers[reader] for reader in below):
            below.add(name)
    return any(_runs_over_unknown(kernel, name, kernel.member_threads[name]) for name in below)


def _read_at_affine_places(kernel: FusedKernel, member: str) -> bool:
    """Return whether all consumers read a member at affine coordinates."""
    return all(
        access.affine
        for reader in kernel.analysis.view.consumers[member]
        for summary in kernel.analysis.summaries(reader)
        for access in summary.reads(member)
    )


def _size_is_plain(
    kernel: FusedKernel, anchor: str, member: str, nested: Mapping[str, str]
) -> bool:
    """Return whether Halide finds a constant bound for the part of `member` that a thread needs.

    It does not in these cases:

    * A reader that needs several points divides or clamps a coordinate, or reads at several clamped
      coordinates. The difference between the ends of the region is then unknown.
    * The part depends on the extent that a thread of `anchor` runs over, and that extent differs
      between blocks.
    """
    trial = {**nested, member: anchor}
    here = [name for name, at in trial.items() if at == anchor]
    if divided_differently(kernel.analysis, anchor, here):
        return False
    if clamped_differently(kernel.analysis, member):
        return False
    once = np.zeros((1, len(_thread_loops(kernel, anchor))))
    found = _regions(kernel, anchor, trial, once)
    for reader in kernel.analysis.view.consumers[member]:
        if nested.get(reader) != anchor or all(s[0] == 1.0 for s in sizes(found[reader], 1)):
            continue
        for summary in kernel.analysis.summaries(reader):
            if not all(access.affine for access in summary.reads(member)):
                return False
    if anchor == kernel.output or anchor in kernel.exact_members:
        return True
    one, more = (
        _regions(kernel, anchor, trial, once, across=n)[member] for n in (1, SEARCH.across)
    )
    return [s[0] for s in sizes(one, 1)] == [s[0] for s in sizes(more, 1)]


def _same_size_everywhere(
    kernel: FusedKernel, anchor: str, member: str, nested: Mapping[str, str]
) -> bool:
    """Return whether all threads of all blocks need the same number of values of `member`.

    A sample of neighbouring threads and blocks is compared. If updates of `member` scatter, a block
    far away is among them: between the places that are written, those that are read hide.
    """
    dims = _thread_loops(kernel, anchor)
    steps = np.vstack(
        [np.zeros(len(dims)), *(np.eye(len(dims)) * step for step in range(1, SEARCH.neighbours))]
    )
    trial = {**nested, member: anchor}
    first: list[float] | None = None
    scatters = scattered_dimensions(kernel.analysis.view.by_name[member])
    shifts = (*range(SEARCH.shifts), *((SEARCH.far_shift,) if scatters else ()))
    for shift in shifts:
        found = _regions(kernel, anchor, trial, steps, shift).get(member)
        if found is None:
            return False
        for size in np.transpose(sizes(found, len(steps))).tolist():
            first = size if first is None else first
            if size != first or max(size, default=1.0) >= SEARCH.huge:
                return False
    return True


def grows_inside_threads(kernel: FusedKernel, nested: Mapping[str, str]) -> tuple[int, ...]:
    """Return the positions of the parallel loops that must not run completely inside a thread.

    The compiler does not know the extent of such a loop. So it cannot allocate registers for a
    nested member if each iteration of the loop needs other values of the member.
    """
    base = _small_tile(kernel)
    found = []
    for i in kernel.roles.others:
        rows = np.vstack([base, base])
        rows[1, i] = min(2, kernel.extents[i])
        env = kernel.block_env(rows)
        regions = thread_regions(kernel, env, kernel.regions(env), np.ones_like(rows), nested)
        if any(size[0] != size[1] for box in regions.values() for size in sizes(box, 2)):
            found.append(i)
    return tuple(found)


def narrowed_by_conditions(kernel: FusedKernel, nested: Mapping[str, str]) -> bool:
    """Return whether members are read under a condition on two dimensions (a triangle, say).

    Halide narrows the region that a thread reads to the points that meet the condition. If a thread
    has several points along both dimensions, Halide then finds no constant size for its registers.
    """
    view = kernel.analysis.view
    readers = {name: view.stages(name) for name in set(nested.values()) - {kernel.output}}
    readers[kernel.output] = (kernel.stage,)
    return any(
        _on_two_dimensions(stage, node.args[0]) and any(_reads(e, nested) for e in node.args[1:])
        for stages in readers.values()
        for stage in stages
        for node in walk(*stage.values)
        if isinstance(node, Op | Call) and node.name in ("select", "if_then_else")
    )


def updated_by_conditions(kernel: FusedKernel, nested: Mapping[str, str]) -> bool:
    """Return whether members have updates under a condition on two dimensions (a triangle, say).

    An update reads its own earlier value at the points that meet the condition, and Halide adds
    these to the region that a thread computes. If a thread has several points along one of the
    dimensions, Halide then finds no constant size for the registers.
    """
    stages = (stage for name in nested for stage in kernel.analysis.view.stages(name))
    return any(_on_two_dimensions(stage, each) for stage in stages for each in stage.predicates)


def bounded_in_members(
    kernel: FusedKernel, nested: Mapping[str, str], tiles: Tiles, registers: Tiles
) -> npt.NDArray[np.bool_]:
    """Return for which tiles Halide bounds the registers of Funcs nested in members, shape (N,).

    This matters for guarded kernels, whose last block is smaller. If the output has T points in a
    block, and a dimension of a member E, a thread that computes R of these needs from a Func::

        min(t R + R - 1, min(rest of the output, T) + E - T - 1) - t R + 1

    Halide cancels t R if the member has no halo (E = T), or one of R points (E - T = R, R divides
    T). It also fails if there is only one thread (E at most R), because it then omits the first of
    the two ends. These rules were found by lowering schedules with T up to 32, R up to 8 and halos
    of up to 8 points (Halide 21).

    Args:
        kernel: The kernel.
        nested: The anchor of each nested member.
        tiles: Tile sizes, shape (N, parallel loops), in iterations.
        registers: Iterations of each tile per thread, shape (N, parallel loops).
    """
    kept = np.full(len(tiles), True)
    anchors = kernel.exact_members & set(nested.values())
    if not anchors:
        return kept
    each = kernel.points_each(registers)
    boxes = kernel.regions(kernel.block_env(tiles))
    points = kernel.regions(kernel.block_env(np.ones((1, tiles.shape[1]))))
    for name in anchors:
        extents = sizes(boxes[name], len(tiles))
        halos = [size[0] - 1.0 for size in sizes(points[name], 1)]
        for place, d in enumerate(kernel.member_threads[name]):
            share, halo = each[:, place], halos[d]
            inner = extents[d] - halo
            like_output = np.any(tiles == inner[:, np.newaxis], axis=1)
            plain = (halo == 0.0) & (extents[d] > share)
            whole = (halo == share) & (inner % share == 0.0)
            kept &= (share == 1.0) | (like_output & (plain | whole))
    return kept


def _on_two_dimensions(stage: Stage, condition: Expr) -> bool:
    dimensions = {loop.name for loop in stage.loops if loop.kind == "pure"}
    return sum(uses(condition, {name}, reads=False) for name in dimensions) > 1


def _reads(expr: Expr, names: Container[str]) -> bool:
    return any(isinstance(node, Call) and node.name in names for node in walk(expr))


def thread_regions(
    kernel: FusedKernel,
    env: Mapping[str, Interval],
    boxes: Mapping[str, Box],
    registers: Tiles,
    nested: Mapping[str, str],
) -> dict[str, Box]:
    """Return the box of each nested member that one thread computes.

    A thread of the output runs over `registers` iterations of each thread loop, and over all
    iterations of the other loops in the block. A thread of a member computes the same number of
    points along the member's thread dimensions.

    Args:
        kernel: The kernel.
        env: Range of the output's loops in one block.
        boxes: Region of each member in one block.
        registers: Iterations of each tile per thread, shape (N, parallel loops).
        nested: The anchor of each nested member.
    """
    threads = {kernel.loops[i].loop.name: i for i in kernel.roles.threads}
    own = {
        name: Interval(span.lo, span.lo + registers[:, threads[name]] - 1.0)
        if name in threads
        else span
        for name, span in env.items()
    }
    each = kernel.points_each(registers)
    points = {}
    for name in set(nested.values()):
        if name != kernel.output and name in boxes:
            box = list(boxes[name])
            for place, d in enumerate(kernel.member_threads[name]):
                box[d] = Interval(box[d].lo, box[d].lo + each[:, place] - 1.0)
            points[name] = tuple(box)
    return kernel.inside_threads(own, points, nested)


def _small_tile(kernel: FusedKernel) -> Array:
    tile = np.array([float(min(SEARCH.probe_tile, max(e // 2, 1))) for e in kernel.extents])
    for i in kernel.roles.others:
        tile[i] = 1.0
    return tile


def _has_all_threads(kernel: FusedKernel, anchor: str) -> bool:
    """Return whether every stage of `anchor` has all thread loops, so that one level suits all."""
    if anchor == kernel.output:
        return bool(kernel.roles.threads)
    dims = kernel.member_threads[anchor]
    stages = kernel.working_stages(anchor)
    return bool(dims) and all(kernel.stage_threads(anchor, stage) == dims for stage in stages)


def _thread_loops(kernel: FusedKernel, anchor: str) -> list[str]:
    if anchor == kernel.output:
        return list(kernel.thread_loops)
    args = kernel.analysis.view.by_name[anchor].args
    return [args[d] for d in kernel.member_threads[anchor]]


def _regions(
    kernel: FusedKernel,
    anchor: str,
    nested: Mapping[str, str],
    steps: Array,
    shift: int = 0,
    *,
    across: int | None = None,
) -> dict[str, Box]:
    """Return the boxes of the nested members that threads of `anchor` need, one row per thread.

    Args:
        kernel: The kernel.
        anchor: The output or a member.
        nested: The anchor of each nested member.
        steps: Distance of each thread from the first one, shape (threads, D), in iterations.
        shift: Number of blocks by which all threads are moved along every loop.
        across: Points per thread along the dimensions of `anchor` without threads; None for all.
    """
    tile = _small_tile(kernel)
    env = kernel.block_env(np.tile(tile, (len(steps), 1)))
    env |= {
        loop.loop.name: Interval(
            env[loop.loop.name].lo + shift * tile[i], env[loop.loop.name].hi + shift * tile[i]
        )
        for i, loop in enumerate(kernel.loops)
    }
    if anchor == kernel.output:
        for place, i in enumerate(kernel.roles.threads):
            name = kernel.loops[i].loop.name
            at = env[name].lo + steps[:, place]
            env[name] = Interval(at, at)
        return kernel.inside_threads(env, {}, nested)
    point = list(kernel.regions(env)[anchor])
    if across is not None:
        point = [Interval(part.lo, part.lo + (across - 1.0)) for part in point]
    for place, d in enumerate(kernel.member_threads[anchor]):
        at = point[d].lo + steps[:, place]
        point[d] = Interval(at, at)
    return kernel.inside_threads(env, {anchor: tuple(point)}, nested)


def _intersects(box: Box, a: int, b: int) -> bool:
    """Return whether rows `a` and `b` of a box share a point."""
    for part in box:
        lo, hi = _row(part.lo, a), _row(part.hi, a)
        if lo > _row(part.hi, b) or _row(part.lo, b) > hi:
            return False
    return True


def _row(bound: Bound, row: int) -> float:
    return bound if isinstance(bound, float) else float(np.asarray(bound).flat[row])
