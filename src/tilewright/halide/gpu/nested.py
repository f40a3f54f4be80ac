"""Nested fusion: members computed inside threads (Sioutas 2020, Section 4.3, Listing 2).

On a GPU two levels are safe: the innermost block loop, where a member lives in shared memory,
and inside the innermost thread loop of a consumer, where it lives in registers. A member whose
values neighbouring threads share must stay at the block's level.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.halide.bounds import Box, Interval
from tilewright.halide.gpu.kernel import Kernel


def max_order_reuse(
    kernel: Kernel, anchor: str, member: str, nested: Mapping[str, str]
) -> str | None:
    """The outermost thread loop of `anchor` whose iterations share values of `member`.

    None where no two threads read the same value. `nested` holds the members already nested,
    through which `member` may be read.
    """
    trial = {**nested, member: anchor}
    if anchor == kernel.output:
        dims = [kernel.loops[i].loop.name for i in kernel.roles.threads]
    else:
        args = kernel.analysis.view.by_name[anchor].args
        dims = [args[d] for d in kernel.member_threads[anchor]]
    steps = np.vstack([np.zeros(len(dims)), np.eye(len(dims))])
    env, points = _one_thread(kernel, anchor, steps)
    found = kernel.inside_threads(env, points, trial).get(member)
    if found is None:
        return None
    for place in reversed(range(len(dims))):
        if _intersects(found, 0, place + 1):
            return dims[place]
    return None


def optimize_granularity(kernel: Kernel) -> dict[str, str]:
    """The members to nest, each with the Func in whose threads it is computed.

    A member goes to its last consumer where no thread loop of that consumer carries reuse. All
    its consumers must be there, for it is computed at one place.
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
        if max_order_reuse(kernel, anchor, member, nested) is None:
            nested[member] = anchor
    return nested


def _has_all_threads(kernel: Kernel, anchor: str) -> bool:
    """Whether every stage of `anchor` has all of its thread loops, so that one level fits."""
    if anchor == kernel.output:
        return bool(kernel.roles.threads)
    dims = kernel.member_threads[anchor]
    stages = kernel.analysis.view.stages(anchor)
    return bool(dims) and all(kernel.stage_threads(anchor, stage) == dims for stage in stages)


def _one_thread(
    kernel: Kernel, anchor: str, steps: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> tuple[dict[str, Interval], dict[str, Box]]:
    """One thread of `anchor`, and its neighbour in each thread dimension, as rows."""
    tile = np.array([min(8.0, e) for e in kernel.extents])
    for i in kernel.roles.others:
        tile[i] = 1.0
    tiles = np.tile(tile, (len(steps), 1))
    env = kernel.block_env(tiles)
    if anchor == kernel.output:
        for place, i in enumerate(kernel.roles.threads):
            name = kernel.loops[i].loop.name
            at = env[name].lo + steps[:, place]
            env[name] = Interval(at, at)
        return env, {}
    boxes = kernel.regions(env)
    point = list(boxes[anchor])
    for place, d in enumerate(kernel.member_threads[anchor]):
        at = point[d].lo + steps[:, place]
        point[d] = Interval(at, at)
    return env, {anchor: tuple(point)}


def _intersects(box: Box, a: int, b: int) -> bool:
    """Whether rows `a` and `b` of a box share a point."""
    for part in box:
        lo = (
            np.broadcast_to(np.asarray(part.lo), (max(a, b) + 1,))
            if np.ndim(part.lo) == 0
            else (np.asarray(part.lo))
        )
        hi = (
            np.broadcast_to(np.asarray(part.hi), (max(a, b) + 1,))
            if np.ndim(part.hi) == 0
            else (np.asarray(part.hi))
        )
        if lo[a] > hi[b] or lo[b] > hi[a]:
            return False
    return True
