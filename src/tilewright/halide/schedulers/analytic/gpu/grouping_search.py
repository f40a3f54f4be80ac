"""Search for groups and tilings of a pipeline on a GPU, for a given set of inlined Funcs.

Groups are merged greedily with power-of-two tiles. The final groups are tiled in steps of two
(Sioutas 2020, Section 4).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.rounds import independent_rvar
from tilewright.halide.analysis.summaries import Analysis, nothing_to_do
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.analytic.gpu.assemble import assemble
from tilewright.halide.schedulers.analytic.gpu.capability import (
    can_be_atomic,
    host_only,
    read_by_externs,
)
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, Costs
from tilewright.halide.schedulers.analytic.gpu.fusable import why_not_member, why_not_read
from tilewright.halide.schedulers.analytic.gpu.kernel import Array, FusedKernel
from tilewright.halide.schedulers.analytic.gpu.loops import output_nest, output_tail
from tilewright.halide.schedulers.analytic.gpu.nested import (
    bounded_in_members,
    grows_inside_threads,
    narrowed_by_conditions,
    optimize_granularity,
    updated_by_conditions,
)
from tilewright.halide.schedulers.analytic.gpu.occupancy import residency
from tilewright.halide.schedulers.analytic.gpu.plan import (
    GroupPlan,
    KernelPlan,
    Options,
    given_tile,
    points_each,
)
from tilewright.halide.schedulers.analytic.gpu.roofline import predicted_seconds
from tilewright.halide.schedulers.analytic.gpu.shared_kernels import SharedKernels
from tilewright.halide.schedulers.analytic.gpu.tiling import Step, Tiles
from tilewright.halide.schedulers.analytic.grouping import Group, greedy_grouping
from tilewright.halide.schedulers.diversity import far_from
from tilewright.machines import GpuMachine


class GroupingSearch:
    """Searches groupings and tilings of one pipeline, for a given set of inlined Funcs.

    `base` is the analysis of the pipeline with nothing inlined.
    """

    def __init__(
        self,
        base: Analysis,
        machine: GpuMachine,
        inlined: frozenset[str],
        constants: GpuConstants | None = None,
    ) -> None:
        self.algorithm = algorithm = base.view.algorithm
        self.machine = machine
        self.analysis = base.with_inlined(inlined)
        self.view = self.analysis.view
        self.model = CostModel(residency(machine), constants)
        halve = machine.max_threads_per_block <= SEARCH.small_group
        self.kernels = SharedKernels(self.analysis, self.model, halve=halve)
        self._memoized = frozenset(f.name for f in algorithm.funcs if f.memoized)
        self._for_externs = read_by_externs(algorithm)
        self._why_host: dict[tuple[str, int], str | None] = {}
        self._groupings: dict[tuple[bool, int | None, bool], tuple[Group, ...]] = {}
        self._why_not_member: dict[str, str] = {}
        self._why_not_read: dict[tuple[str, str], str] = {}
        self._relaxed: dict[tuple[str, int | None, bool], int] = {}
        self._final: dict[tuple[Group, Options], GroupPlan] = {}
        self._granularity: dict[tuple[FusedKernel, bool], dict[str, str]] = {}

    def plan(self, options: Options) -> PlannedSchedule:
        """Return the best schedule under the given options."""
        return assemble(self.analysis, self.model, self.plans(options), options)

    def plan_groups(self, groups: tuple[Group, ...], options: Options) -> PlannedSchedule:
        """Return the best schedule with the given groups under the given options."""
        self._groupings[options.mode != "none", options.max_threads, options.any_size] = groups
        return self.plan(options)

    def plans(self, options: Options) -> list[GroupPlan]:
        """Return the plan of each group of the best schedule."""
        groups = self.groups(options)
        if not options.unlike:
            return [self.final_plan(group, options) for group in groups]
        return [self._unlike_plan(group, options) for group in groups]

    def _unlike_plan(self, group: Group, options: Options) -> GroupPlan:
        """Return a group's final plan; entries of `options.unlike` for other groups are ignored."""
        mine = tuple(place for place in options.unlike if place[0] == group.output)
        key = (group, replace(options, unlike=mine))
        if key not in self._final:
            self._final[key] = self.final_plan(*key)
        return self._final[key]

    # --- grouping ------------------------------------------------------------------------

    def groups(self, options: Options) -> tuple[Group, ...]:
        """Return the groups that result from greedy merging by cost."""
        fuse = options.mode != "none"
        key = (fuse, options.max_threads, options.any_size)
        known = self._groupings.get(key)
        if known is None:
            if not fuse:
                known = tuple(Group((f.name,)) for f in self._scheduled())
            else:
                grouping = greedy_grouping(
                    self.view,
                    lambda group: self.group_plan(group, "powers", options, merging=True),
                    lambda producer, consumer: True,
                )
                scheduled = {f.name for f in self._scheduled()}
                known = tuple(g for g in grouping.groups if g.output in scheduled)
            self._groupings[key] = known
        return known

    def _scheduled(self) -> list[Func]:
        return [
            f
            for f in self.view.funcs
            if not f.fixed and not f.scheduled and f.name in self.analysis.regions
        ]

    def group_plan(
        self, group: Group, step: Step, options: Options, *, merging: bool = False
    ) -> GroupPlan:
        """Return a plan with the best tiling per stage, and all members at block level.

        Args:
            group: The group.
            step: The tile sizes to try: powers of two, or all multiples of two.
            options: The options.
            merging: Whether to reject the group if it must waive more of the model's rules than its
                Funcs in separate groups.
        """
        func = self.view.by_name[group.output]
        if func.fixed or func.scheduled or group.output not in self.analysis.regions:
            return GroupPlan((), 0.0)
        why_not = self.unfusable(group)
        if why_not:
            return GroupPlan((), np.inf, why_not)
        plans = []
        for stage in self.view.stages(group.output):
            plan = self._stage_plan(group, stage.index, step, options)
            if plan is None:
                return GroupPlan((), np.inf, "no tiling fits the hardware")
            plans.append(plan)
        if len(group.members) > 1 and not self._one_block_loop(plans):
            return GroupPlan((), np.inf, "its stages have different loops")
        relaxed = max(plan.relaxed for plan in plans)
        if (
            merging
            and len(group.members) > 1
            and relaxed > self._relaxed_alone(group, step, options)
        ):
            return GroupPlan((), np.inf, "too little parallelism together")
        return GroupPlan(tuple(plans), sum(plan.cost for plan in plans))

    def unfusable(self, group: Group) -> str:
        """Return why members cannot be computed in the blocks of the output; empty if they can."""
        stages = sum(len(self.view.stages(name)) for name in group.members[:-1])
        if self.machine.api == "opencl" and stages > SEARCH.most_opencl_stages:
            return f"{stages} stages of other Funcs in one kernel"
        for name in group.members[:-1]:
            for stage in self.view.stages(name):
                if self.why_host(name, stage.index):
                    return f"{name} stays on the host"
            if name not in self._why_not_member:
                self._why_not_member[name] = why_not_member(self.analysis, name)
            if self._why_not_member[name]:
                return self._why_not_member[name]
        inside = set(group.members[:-1])
        for reader in group.members:
            for name in self.view.producers[reader]:
                if name in inside:
                    pair = (reader, name)
                    if pair not in self._why_not_read:
                        self._why_not_read[pair] = why_not_read(self.analysis, reader, name)
                    if self._why_not_read[pair]:
                        return self._why_not_read[pair]
        return ""

    def why_host(self, name: str, stage: int) -> str | None:
        """Return why a stage cannot run on the GPU; None if it can."""
        key = (name, stage)
        if key not in self._why_host:
            definition = self.view.stages(name)[stage]
            func = self.view.by_name[name]
            self._why_host[key] = host_only(
                definition, func, self.machine, self._memoized, self._for_externs
            )
        return self._why_host[key]

    def _one_block_loop(self, plans: list[KernelPlan]) -> bool:
        loops = {
            output_nest(p).block_loop if p.kind == "parallel" else ""
            for p in plans
            if p.kernel.members and p.kind != "nothing"
        }
        return len(loops) <= 1 and "" not in loops

    def _relaxed_alone(self, group: Group, step: Step, options: Options) -> int:
        """Return the most rules that a Func of the group waives in a separate group."""
        worst = 0
        for name in group.members:
            key = (name, options.max_threads, options.any_size)
            if key not in self._relaxed:
                alone = self.group_plan(Group((name,)), step, options)
                self._relaxed[key] = alone.relaxed
            worst = max(worst, self._relaxed[key])
        return worst

    # --- one stage of a group's output ---------------------------------------------------

    def _stage_plan(
        self, group: Group, index: int, step: Step, options: Options
    ) -> KernelPlan | None:
        kernel, kind, reason = self._kernel(group, index)
        if kind != "parallel":
            return self._alone_plan(kernel, kind, reason) if not kernel.members else None
        plan = self._tiled(kernel, step, options)
        if kernel.atomic or not self._leaves_idle(kernel):
            return plan
        if not kernel.members and independent_rvar(kernel.func, kernel.stage):
            other = self._tiled(self.kernels.kernel(group, index, in_rounds=True), step, options)
            return self._faster(plan, other, 1.0)
        if not can_be_atomic(self.analysis, group.output, index, self.machine):
            return plan
        other = self._tiled(self.kernels.kernel(group, index, atomic=True), step, options)
        return self._faster(plan, other, self.model.constants.atomic_gain)

    def _faster(
        self, plan: KernelPlan | None, other: KernelPlan | None, gain: float
    ) -> KernelPlan | None:
        """Return `other` if there is no `plan`, or `other` is faster by more than a factor."""
        if plan is None or other is None:
            return plan or other
        slow, fast = (predicted_seconds(self.model, each) for each in (plan, other))
        if slow is None or fast is None:
            return plan
        return other if gain * fast < slow else plan

    def _tiled(self, kernel: FusedKernel, step: Step, options: Options) -> KernelPlan | None:
        final = step == "two"
        given = given_tile(kernel, options) if final else None
        if given is not None:
            return self._best(kernel, *given, {}, final, options)
        if final and options.points:
            tiles, registers = self._register_tiles(kernel, [options.points])
            return self._best(kernel, tiles, registers, {}, final, options)
        tiles = self.kernels.tilings(kernel, step)
        if step == "powers":
            return self._best(kernel, tiles, None, {}, final, options, self.kernels.costs(kernel))
        return self._best(kernel, tiles, None, {}, final, options)

    def _leaves_idle(self, kernel: FusedKernel) -> bool:
        """Return whether a reduction's parallel loops are too short to keep the GPU busy."""
        threads = float(np.prod(np.asarray(kernel.extents, dtype=np.float64)))
        room = self.machine.sms * self.machine.max_threads_per_sm
        return threads * self.model.constants.idle_factor < room and kernel.iterations > room

    def _kernel(self, group: Group, index: int) -> tuple[FusedKernel, str, str]:
        name = group.output
        kernel = self.kernels.kernel(group, index)
        if nothing_to_do(kernel.stage):
            return kernel, "nothing", "it only leaves values undefined"
        why = self.why_host(name, index)
        if why:
            return kernel, "host", why
        if kernel.loops:
            return kernel, "parallel", ""
        if can_be_atomic(self.analysis, name, index, self.machine):
            atomic = self.kernels.kernel(group, index, atomic=True)
            if atomic.loops:
                return atomic, "parallel", ""
        if kernel.iterations > self.model.constants.most_alone:
            return kernel, "host", "its iterations depend on one another, and are many"
        return kernel, "single_thread", "its iterations depend on one another"

    def _alone_plan(self, kernel: FusedKernel, kind: str, reason: str) -> KernelPlan:
        if kind == "nothing":
            return KernelPlan(kernel, "nothing", reason=reason)
        each = kernel.summary.arithmetic + len(kernel.summary.loads)
        c = self.model.constants
        weight = c.host_cost if kind == "host" else c.alone_cost
        return KernelPlan(
            kernel,
            kind,  # type: ignore[arg-type]
            cost=kernel.iterations * each * weight,
            reason=reason,
        )

    def _best(
        self,
        kernel: FusedKernel,
        tiles: Tiles,
        registers: Tiles | None,
        nested: Mapping[str, str],
        final: bool,
        options: Options,
        known: Costs | None = None,
    ) -> KernelPlan | None:
        """Return the plan with the best of some tilings, whose costs may be `known`."""
        if not len(tiles):
            return None
        costs = known or self.model.costs(kernel, tiles, registers, nested)
        legal = costs.legal
        if options.max_threads is not None:
            fewer = legal & (costs.thread_count <= options.max_threads)
            legal = fewer if fewer.any() else legal
        if final and options.unlike:
            func, stage = kernel.output, kernel.stage.index
            # An atomic kernel also tiles its reduction loops, so its tiles have another length.
            rank = len(kernel.loops)
            seen = [
                tile
                for name, index, tile in options.unlike
                if (name, index) == (func, stage) and len(tile) == rank
            ]
            other = legal & far_from(costs.tiles, seen)
            legal = other if other.any() else legal
        for _ in range(SEARCH.most_refusals):
            if not legal.any():
                return None
            level, chosen = self.pick(costs, legal, final)
            plan = self._chosen(kernel, costs, chosen, level, nested, final)
            varies = final or len(kernel.exact_members) < len(kernel.members)
            if not varies or self.kernels.fits(plan, options.any_size):
                return plan
            legal = legal & (np.arange(len(tiles)) != chosen)
        return None

    # Decisions that the sampler of random schedules overrides (`benchmarks/support/gpu_sample.py`).

    def total(self, costs: Costs, final: bool) -> Array:
        """Return the cost of every tiling, scaled up if some SMs have no block."""
        return costs.total(final) * (self.machine.sms / costs.active_sms)

    def pick(self, costs: Costs, legal: object, final: bool) -> tuple[int, int]:
        """Relax the model's rules one by one until a tiling passes.

        Returns:
            The number of rules relaxed, and the index of the cheapest tiling that passes.
        """
        total = self.total(costs, final)
        wanted = [costs.all_sms, costs.occupied]
        if final:
            wanted.append(costs.warps_full)
        for level in range(4):
            mask = np.asarray(legal)
            keep = len(wanted) - level + (0 if final else 1)
            for condition in wanted[: max(min(keep, len(wanted)), 0)]:
                mask = mask & condition
            if mask.any():
                return level, int(np.argmin(np.where(mask, total, np.inf)))
        raise AssertionError("a legal tiling passes when everything is waived")

    def nest(self, kernel: FusedKernel, found: Mapping[str, str]) -> dict[str, str]:
        """Return the members to nest, among those that can be nested (`found`)."""
        return dict(found)

    def prefer(self, tighter: KernelPlan, loose: KernelPlan) -> bool:
        """Return whether the kernel with nested members is better than the one without."""
        return (tighter.relaxed, tighter.cost) < (loose.relaxed, loose.cost)

    def _chosen(
        self,
        kernel: FusedKernel,
        costs: Costs,
        chosen: int,
        level: int,
        nested: Mapping[str, str],
        final: bool,
    ) -> KernelPlan:
        return KernelPlan(
            kernel,
            "parallel",
            tuple(int(t) for t in costs.tiles[chosen]),
            tuple(int(r) for r in costs.registers[chosen]),
            dict(nested),
            float(self.total(costs, final)[chosen]),
            float(costs.blocks[chosen]),
            tuple(int(t[chosen]) for t in costs.threads),
            int(costs.shared[chosen]),
            float(costs.launch_occupancy[chosen]),
            level,
        )

    # --- the final pass ------------------------------------------------------------------

    def final_plan(self, group: Group, options: Options) -> GroupPlan:
        """Return a plan with tiles in steps of two, and members in threads if that is cheaper."""
        plan = self.group_plan(group, "two", options)
        if not plan.kernels:
            plan = self.group_plan(group, "powers", options)
        if options.mode != "nested" or not plan.kernels:
            return plan
        reading = [p for p in plan.kernels if p.kernel.members]
        if len(reading) != 1:
            return plan
        best = reading[0]
        kernel = best.kernel
        several = any(each > 1 for each in options.points)
        nested = self.nest(kernel, self._can_nest(kernel, several))
        if not nested:
            return plan
        tiles = self.kernels.tilings(kernel, "two")
        registers: Tiles | None = None
        given = given_tile(kernel, options)
        if given is not None:
            tiles, registers = given
        elif options.points:
            tiles, registers = self._register_tiles(kernel, [options.points])
        elif (
            options.register_tiles
            and self._has_reduction(nested)
            and self._can_nest(kernel, True) == self._can_nest(kernel, False)
        ):
            tiles, registers = self._register_tiles(kernel, _REGISTER_TILES)
        tiles, registers = _bounded(kernel, nested, tiles, registers, options.any_size)
        if not len(tiles):
            return plan
        tighter = self._best(kernel, tiles, registers, nested, True, options)
        if tighter is None or not self.prefer(tighter, best):
            return plan
        kernels = tuple(tighter if p is best else p for p in plan.kernels)
        return GroupPlan(kernels, sum(p.cost for p in kernels))

    def _can_nest(self, kernel: FusedKernel, several: bool) -> dict[str, str]:
        """Return the members that may be nested if a thread computes one or `several` points."""
        key = (kernel, several)
        known = self._granularity.get(key)
        if known is None:
            known = optimize_granularity(kernel, several=several)
            self._granularity[key] = known
        return known

    def _has_reduction(self, nested: Mapping[str, str]) -> bool:
        return any(stage.rvars for name in nested for stage in self.view.stages(name))

    def _register_tiles(
        self, kernel: FusedKernel, points: Iterable[Sequence[int]]
    ) -> tuple[Tiles, Tiles]:
        """Return tiles and points per thread, each of shape (N, parallel loops).

        Tiles combine powers of two of threads with each of `points`, which are points per thread
        along x, y and z.
        """
        threads = self.kernels.tilings(kernel, "powers")
        rows = []
        shares = []
        for shape in points:
            each = points_each(kernel, shape)
            rows.append(threads * each)
            shares.append(np.broadcast_to(each, threads.shape))
        tiles = np.concatenate(rows)
        registers = np.concatenate(shares)
        inside = np.all(tiles <= np.maximum(kernel.extents, 1), axis=1)
        return tiles[inside], registers[inside]


def _bounded(
    kernel: FusedKernel,
    nested: Mapping[str, str],
    tiles: Tiles,
    registers: Tiles | None,
    any_size: bool,
) -> tuple[Tiles, Tiles | None]:
    """Return the tiles for which Halide can bound the registers of nested members."""
    kept = np.full(len(tiles), True)
    for i in grows_inside_threads(kernel, nested):
        kept &= tiles[:, i] == 1.0
    if registers is None:
        return tiles[kept], None
    if updated_by_conditions(kernel, nested):
        kept &= np.all(registers == 1.0, axis=1)
    if narrowed_by_conditions(kernel, nested):
        kept &= (registers > 1.0).sum(axis=1) < 2
    if output_tail(kernel, any_size) == "guard_with_if":
        kept &= bounded_in_members(kernel, nested, tiles, registers)
    return tiles[kept], registers[kept]


# Points per thread of a reduction to try, along x and y.
_REGISTER_TILES = [
    (x, y)
    for x, y in itertools.product(SEARCH.register_tiles, repeat=2)
    if x * y <= SEARCH.most_register_tile
]
