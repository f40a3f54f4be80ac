"""The best tiling of one group, under one policy.

| symbol | meaning | shape, unit |
|---|---|---|
| N | tilings costed at once | count |
| `tiles`, `counts` | size and number of tiles by dimension of the output | (N, dimensions) |
| `full` | extents of the output | (dimensions,), elements |
| `cycles` | time of the group; the best tiling minimises it | (N,), cycles |
| window | the dimension along which members slide, and the rows per step | count |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.ir.algorithm import Variable
from tilewright.halide.schedulers.analytic.cpu.assemble import Tiling
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.regions import GroupCosts, Regions, Window
from tilewright.halide.schedulers.analytic.cpu.sliding import (
    blockwise,
    inputs_protected,
    windows,
)
from tilewright.halide.schedulers.analytic.cpu.traffic import Array
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.diversity import far_from


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """The best tiling found for a group; times in cycles, sizes in bytes."""

    cost: float
    tiling: Tiling
    compute: float = 0.0
    traffic: float = 0.0
    overhead: float = 0.0
    tile_bytes: float = 0.0
    tasks: int = 1
    root_bytes: float = 0.0
    fault: float = 0.0


IMPOSSIBLE = CpuPlan(math.inf, Tiling((), ()))


@dataclass(frozen=True, slots=True)
class Policy:
    """The options that distinguish competing searches (see `POLICIES`).

    Attributes:
        inline_bias: above 1 inlines more, below 1 less.
        fuse: allow groups of several Funcs.
        slide: allow sliding windows.
        always_slide: use sliding windows wherever they are possible.
        unprotected: allow windows over inputs with unclamped indices, although Halide may then
            require a few more rows of input.
        stepped: allow windows that advance several rows at a time.
        memory_weight: the factor on the cost of traffic.
        block: use the block-th best register block for reductions (0: the best).
        transposed: store intermediate Funcs with their second dimension innermost.
    """

    inline_bias: float = 1.0
    fuse: bool = True
    slide: bool = True
    always_slide: bool = False
    unprotected: bool = False
    stepped: bool = False
    memory_weight: float = 1.0
    block: int = 0
    transposed: bool = False


class Planner:
    """Finds the best tiling of each group and caches the plans.

    A group's tiling must differ from those in `unlike`, listed by output, by at least a factor of
    two in some dimension. The outputs in `cut` get at least one tile loop. With `fine`, more tile
    sizes are tried. `known` may have the plans of searches under other policies; `spent` counts
    the members of groups that are not in `counted`, so that it does not depend on them.
    """

    def __init__(
        self,
        costs: CpuCosts,
        policy: Policy,
        known: dict[Hashable, CpuPlan],
        fine: bool = False,
        unlike: Mapping[str, Sequence[Sequence[int]]] | None = None,
        cut: frozenset[str] = frozenset(),
        counted: set[Hashable] | None = None,
    ) -> None:
        self.unlike = unlike or {}
        self.cut = cut
        self.costs = costs
        self.policy = policy
        self.fine = fine
        self.tilings = 0
        self.spent = 0
        self._known = known
        self._counted = set() if counted is None else counted

    def plan(self, group: Group) -> CpuPlan:
        """Return the cheapest tiling of `group`, or `IMPOSSIBLE`.

        Plans are shared between views: a plan depends on the Funcs inlined into the group, and on
        no others.
        """
        view = self.costs.analysis.view
        key = (
            self.fine,
            self._options_for(group),
            tuple((m, view.absorbed(m), self.costs.nested.get(m)) for m in group.members),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._best(group)
        if key not in self._counted:
            self._counted.add(key)
            self.spent += len(group.members)
        return found

    def _options_for(self, group: Group) -> Policy:
        """Return the policy with those options only on which the plan of a group depends."""
        policy = replace(self.policy, inline_bias=1.0)
        if self._is_fused(group):
            return policy
        return Policy(
            memory_weight=policy.memory_weight, block=policy.block, transposed=policy.transposed
        )

    def _guests(self, group: Group) -> set[str]:
        """Return the reductions in registers of the group's output."""
        nested = self.costs.nested
        return {g for g in group.members if g in nested and nested[g].host == group.output}

    def _is_fused(self, group: Group) -> bool:
        return len(group.members) - 1 - len(self._guests(group)) > 0

    def given(self, group: Group, tiling: Tiling) -> CpuPlan:
        """Return the plan of a group with the given tiling."""
        if self.costs.analysis.view.by_name[group.output].extern is not None:
            return CpuPlan(0.0, tiling)
        tiles = np.array([tiling.sizes], dtype=np.float64)
        windows = () if tiling.sliding is None else (tiling.sliding,)
        regions = self.costs.regions(group, tiles, tiling.order, windows)
        return _plan(self.costs.costs(group, regions, tiling.sliding, tiling.deep), 0, tiling)

    def again(self, group: Group, plan: CpuPlan) -> CpuPlan:
        """Return a plan of a group with fused Funcs as it costs now; others cost the same."""
        if len(group.members) == 1 or not math.isfinite(plan.cost):
            return plan
        return self.given(group, plan.tiling)

    def _best(self, group: Group) -> CpuPlan:
        costs, view = self.costs, self.costs.analysis.view
        output = view.by_name[group.output]
        fused = self._is_fused(group)
        if fused and (output.fixed or not self.policy.fuse or not _hosts(costs, group)):
            return IMPOSSIBLE
        region = costs.analysis.regions.get(group.output)
        if region is None:
            return IMPOSSIBLE
        if output.extern is not None:
            return CpuPlan(0.0, Tiling((), ()))
        extents = [_extent(i) for i in region]
        if not extents:
            found = costs.costs(group, costs.regions(group, np.ones((1, 0)), ()))
            return _plan(found, 0, Tiling((), ()))
        tiles = candidate_tiles(extents, costs.block(group.output, 0), self.fine)
        orders = [tuple(range(len(extents)))]
        if self._guests(group) and len(extents) > 1:
            orders.append((1, 0, *range(2, len(extents))))
        best = IMPOSSIBLE
        far = far_from(tiles, self.unlike.get(group.output, ()))
        if group.output in self.cut:
            far &= (tiles < np.array(extents, dtype=np.float64)).any(axis=1)
        for regions, order, sliding, deep in self._options(group, tiles, orders, fused):
            found = costs.costs(group, regions, sliding, deep)
            self.tilings += len(tiles)
            cycles = np.where(np.isfinite(found.cycles), found.cycles, np.inf)
            if sliding is not None:
                rows = tiles[:, sliding.dimension]
                fits = (rows > sliding.step) & (rows % sliding.step == 0)
                cycles = np.where(fits, cycles, np.inf)
            cycles = np.where(far, cycles, np.inf)
            i = int(np.argmin(cycles))
            if cycles[i] < best.cost:
                sizes = tuple(int(t) for t in tiles[i])
                best = _plan(found, i, Tiling(sizes, order, sliding, deep))
        return best

    def _options(
        self, group: Group, tiles: Array, orders: Sequence[tuple[int, ...]], fused: bool
    ) -> Iterator[tuple[Regions, tuple[int, ...], Window | None, bool]]:
        """Yield the options besides tile sizes: (regions, order of tile loops, window, deep)."""
        costs = self.costs
        slidable = self._windows(group) if fused else ()
        for order in orders:
            regions = costs.regions(group, tiles, order, slidable if order == orders[0] else ())
            if not (slidable and self.policy.always_slide):
                yield regions, order, None, False
            if order == orders[0]:
                yield from ((regions, order, along, False) for along in slidable)
                if slidable and blockwise(costs, group):
                    yield from ((regions, order, w, True) for w in slidable if w.step == 1)

    def _windows(self, group: Group) -> tuple[Window, ...]:
        """Return the sliding windows that the policy allows."""
        stages = self.costs.analysis.view.by_name[group.output].stages
        if not self.policy.slide or len(stages) != 1:
            return ()
        if not self.policy.unprotected and not inputs_protected(self.costs, group):
            return ()
        # Halide may not recognise a sliding window over halved rows and then recomputes them.
        # Only measured policies (`stepped`) use such windows.
        return windows(self.costs, group, SEARCH.largest_step if self.policy.stepped else 1)


def _plan(found: GroupCosts, i: int, tiling: Tiling) -> CpuPlan:
    """Return the plan of the `i`-th tiling of `found`."""
    return CpuPlan(
        float(found.cycles[i]),
        tiling,
        float(found.compute[i]),
        float(found.l2[i] + found.l3[i] + found.memory[i]),
        float(found.overhead[i]),
        float(found.tile_bytes[i]),
        int(found.tasks[i]),
        found.root_bytes,
        found.fault,
    )


def _extent(interval: Interval) -> int:
    extent = float(np.max(interval.extent))
    return max(1, int(extent)) if math.isfinite(extent) else SEARCH.unknown_extent


def _hosts(costs: CpuCosts, group: Group) -> bool:
    """Return whether members can be computed within the tiles of the group's output.

    They are computed in the loops of one stage of the output: its only stage, or its last one if
    that one scatters or only adds to each point, and no other stage reads members.
    """
    stages = costs.analysis.summaries(group.output)
    if len(stages) == 1:
        return True
    members = set(group.members) - {group.output}
    points = all(isinstance(arg, Variable) and arg.kind == "var" for arg in stages[-1].args)
    pure = points and all(loop.kind == "pure" for loop in stages[-1].loops)
    if not pure and (not stages[-1].scatter or members & set(costs.nested)):
        return False
    return not any(a.callee in members for s in stages[:-1] for a in s.accesses)


def candidate_tiles(extents: list[int], block: Block, fine: bool) -> Array:
    """Return the tile sizes to try, shape (N, dimensions): powers of two and the full extent.

    In dimensions shorter than `SEARCH.untiled_extent`, tiles have size 1 or the full extent. Along
    the dimensions of a block, they consist of complete blocks. `fine` adds 1.5 times the powers.
    """
    largest = sorted(range(len(extents)), key=lambda d: -extents[d])
    largest = largest[: SEARCH.tiled_dimensions]
    choices: list[list[int]] = []
    for d, extent in enumerate(extents):
        unit = block.width if d == block.vector else block.rows if d == block.row else 1
        if extent < SEARCH.untiled_extent or d not in largest:
            choices.append(sorted({1, extent}) if d not in (block.vector, block.row) else [extent])
            continue
        sizes = {extent}
        size = unit
        while size < extent:
            sizes.add(size)
            if fine and size + size // 2 < extent and (size // 2) % unit == 0 and size > 1:
                sizes.add(size + size // 2)
            size *= 2
        if d == block.vector:
            sizes = {
                s for s in sizes if s >= min(extent, SEARCH.tile_vectors * block.lanes) or s == unit
            }
        choices.append(sorted(sizes))
    most = SEARCH.most_fine_tilings if fine else SEARCH.most_tilings
    while math.prod(len(c) for c in choices) > most:
        longest = max(range(len(choices)), key=lambda d: len(choices[d]))
        choices[longest] = choices[longest][::2] + choices[longest][-1:]
        choices[longest] = sorted(set(choices[longest]))
    return np.array(list(itertools.product(*choices)), dtype=np.float64)
