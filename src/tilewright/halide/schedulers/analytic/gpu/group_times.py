"""Predict the time of groups during a search, counting the work of each plan only once.

The work of a group does not depend on the other groups, apart from the data that L2 keeps between
kernels. So the work of each plan is counted in a nest that contains only its own loops, and the
time of a schedule follows from the work of its groups.

| symbol | meaning | unit |
|---|---|---|
| `parts` | kernels of a group, and its stages on the host | |
| `spent` | effort of the search so far: stages of the plans that were timed | count |
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.analysis.nest_parts import Boxes
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.plan import PartTime
from tilewright.halide.schedulers.analytic.gpu.assemble import schedule_of
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.kernel_time import needed_registers
from tilewright.halide.schedulers.analytic.gpu.nest_costs import KnownTimes, times_of
from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, KernelWork, nest_work
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, Options
from tilewright.halide.schedulers.analytic.gpu.sliding import sliding_plan
from tilewright.halide.schedulers.analytic.gpu.staging import computed_in, not_inlined
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import (
    HALIDE_JIT_MAX_REGISTERS,
    GpuMachine,
    block_limits,
    max_registers,
)

Part = KernelWork | HostWork


@dataclass(frozen=True, eq=False)
class TimedGroup:
    """A planned group with its work and predicted time.

    Attributes:
        group: The group.
        options: The options of the plan.
        plan: The plan.
        parts: The work of its kernels and host stages.
        seconds: Predicted time, as if there were no other groups.
        registers: Registers per thread needed to avoid spilling, the maximum over its kernels.
        lone: Whether an SM may run the blocks of a kernel with barriers one after the other.
    """

    group: Group
    options: Options
    plan: GroupPlan
    parts: tuple[Part, ...]
    seconds: float
    registers: float
    lone: bool


def can_predict(machine: GpuMachine) -> bool:
    """Return whether the GPU's clock and memory bandwidth, which predictions need, are known."""
    return machine.clock_hz is not None and machine.memory_bandwidth is not None


class GroupWork:
    """Plans groups and counts the work of each plan once, whatever constants it is timed by."""

    def __init__(self, search: GroupingSearch) -> None:
        self.search = search
        self._plans: dict[tuple[Group, Options], GroupPlan] = {}
        self._parts: dict[Hashable, tuple[Part, ...]] = {}
        self._analyses: dict[frozenset[str], tuple[Analysis, Boxes | None]] = {}

    def plan(self, group: Group, options: Options) -> GroupPlan:
        """Return the plan of a group; it has no kernels if none is possible."""
        key = (group, options)
        known = self._plans.get(key)
        if known is None:
            if options.planes:
                known = sliding_plan(self.search, group, options)
            elif options.steps == 1:
                known = self.search.final_plan(group, options)
            else:
                plain = self.plan(group, replace(options, steps=1))
                kernels = (replace(kernel, steps=options.steps) for kernel in plain.kernels)
                known = replace(plain, kernels=tuple(kernels))
            self._plans[key] = known
        return known

    def parts(
        self, wanted: Mapping[Hashable, tuple[Group, Options, GroupPlan]]
    ) -> dict[Hashable, tuple[Part, ...]]:
        """Return the kernels and host stages of plans, by the keys of `wanted`.

        No Func may be in two of the groups. All options must agree in `unroll`, `any_size` and
        `scanned`.

        Raises:
            UNKNOWN: Sizes that the prediction needs are unknown (one of these exceptions).
        """
        new = {key: each for key, each in wanted.items() if key not in self._parts}
        if new:
            self._count(new)
        return {key: self._parts[key] for key in wanted}

    def _count(self, new: Mapping[Hashable, tuple[Group, Options, GroupPlan]]) -> None:
        analysis, model = self.search.analysis, self.search.model
        plans = [plan for _, _, plan in new.values()]
        # The options that affect code generation beyond the plans are the same for all groups.
        options = next(options for _, options, _ in new.values())
        schedule = schedule_of(analysis, model, plans, options)
        order = self.search.algorithm.order
        only = frozenset(order[group.output] for group, _, _ in new.values())
        computed = computed_in(analysis, schedule)
        if computed not in self._analyses:
            self._analyses[computed] = not_inlined(analysis, computed), None
        exact, whole = self._analyses[computed]
        nest = ScheduledNest(exact, schedule, only=only, whole=whole)
        self._analyses[computed] = exact, nest.whole
        parts: dict[str, list[Part]] = {}
        for part in nest_work(nest, model.machine.warp_size, quick=True):
            parts.setdefault(part.func, []).append(part)
        for key, (group, _, _) in new.items():
            self._parts[key] = tuple(parts.get(group.output, ()))


class GroupTimes:
    """Predicts the times of planned groups, with a cache; the GPU's rates must be known.

    Args:
        search: The search that plans the groups.
        constants: The constants of the predictions, by default the search's. They may differ from
            the search's only in `TIME_ONLY`.
        work: The plans and their work, shared between predictions with several constants.
    """

    def __init__(
        self,
        search: GroupingSearch,
        constants: GpuConstants | None = None,
        work: GroupWork | None = None,
    ) -> None:
        self.search = search
        self.constants = constants or search.model.constants
        self.spent = 0
        self._work = work or GroupWork(search)
        self._known: dict[Hashable, tuple[tuple[Part, ...], float, float, bool]] = {}
        self._times_known: KnownTimes = {}

    def timed(self, wanted: Iterable[tuple[Group, Options]]) -> list[TimedGroup | None]:
        """Return the planned group per pair; None if no plan exists under its options.

        Args:
            wanted: Groups with their options. No Func may be in two of the groups.

        Raises:
            UNKNOWN: Sizes that the prediction needs are unknown (one of these exceptions).
        """
        pairs = [(group, options, self._work.plan(group, options)) for group, options in wanted]
        self._time([each for each in pairs if each[2].kernels])
        found: list[TimedGroup | None] = []
        for group, options, plan in pairs:
            known = self._known[_key(plan, options)] if plan.kernels else None
            found.append(known and TimedGroup(group, options, plan, *known))
        return found

    def times(self, groups: Iterable[TimedGroup]) -> tuple[PartTime, ...]:
        """Return the time of every part of a schedule with these groups, in execution order."""
        return self._times([part for group in groups for part in group.parts])

    def times_by(
        self, groups: Iterable[TimedGroup], constants: GpuConstants
    ) -> tuple[PartTime, ...]:
        """Return the same as `times`, by other constants."""
        parts = [part for group in groups for part in group.parts]
        return times_of(parts, self.search.model.machine, constants)

    def _times(self, parts: Sequence[Part]) -> tuple[PartTime, ...]:
        return times_of(parts, self.search.model.machine, self.constants, self._times_known)

    def _time(self, pairs: Sequence[tuple[Group, Options, GroupPlan]]) -> None:
        """Predict the times of the plans that are not cached."""
        new = {_key(plan, options): (group, options, plan) for group, options, plan in pairs}
        new = {key: each for key, each in new.items() if key not in self._known}
        machine = self.search.model.machine
        for key, own in self._work.parts(new).items():
            seconds = sum(part.seconds for part in self._times(own))
            kernels = [part for part in own if isinstance(part, KernelWork)]
            registers = max(
                (needed_registers(part, self.constants) for part in kernels), default=0.0
            )
            lone = any(_lone(part, machine) for part in kernels)
            self._known[key] = own, seconds, registers, lone
            members = new[key][0].members
            self.spent += sum(len(self.search.view.stages(name)) for name in members)


def _lone(kernel: KernelWork, machine: GpuMachine) -> bool:
    """Return whether an SM may run the blocks of a kernel with barriers one after the other.

    Threads are assumed to use as many registers as they may, because the estimate is often lower.
    """
    if not any(stage.member for stage in kernel.stages) or kernel.blocks <= machine.sms:
        return False
    threads = math.prod(kernel.block)
    cap = HALIDE_JIT_MAX_REGISTERS if machine.api == "cuda" else None
    registers = max_registers(machine, threads, cap)
    return float(block_limits(machine, threads, registers, int(kernel.shared)).blocks) < 2.0


def _key(plan: GroupPlan, options: Options) -> Hashable:
    """Return a cache key that is equal for plans with the same loops."""
    loops = (
        (
            kernel.kernel.output,
            kernel.kernel.stage.index,
            tuple(kernel.kernel.members),
            kernel.kernel.atomic,
            kernel.kernel.in_rounds,
            kernel.kind,
            kernel.tile,
            kernel.registers,
            kernel.steps,
            kernel.planes,
            tuple(kernel.nested.items()),
        )
        for kernel in plan.kernels
    )
    return options.unroll, options.any_size, options.scanned, *loops
