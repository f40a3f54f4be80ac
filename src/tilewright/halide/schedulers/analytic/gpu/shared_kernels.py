"""The kernels of a search with their tilings, costs and launches, each computed once.

Many groups and options lead to the same kernel: a stage that reads no member is the same in every
group, and the options of the final pass change only the tiles to choose from.
"""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, Costs
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel, used_members
from tilewright.halide.schedulers.analytic.gpu.launch import predicted_launch
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan
from tilewright.halide.schedulers.analytic.gpu.tiling import Step, Tiles, candidates
from tilewright.halide.schedulers.analytic.grouping import Group


class SharedKernels:
    """Makes and keeps the kernels of one analysis.

    `halve`: whether tiles are at most half as large (`candidates`).
    """

    def __init__(self, analysis: Analysis, model: CostModel, *, halve: bool) -> None:
        self.analysis = analysis
        self.model = model
        self.halve = halve
        self._kernels: dict[Hashable, FusedKernel] = {}
        self._tilings: dict[tuple[FusedKernel, Step], Tiles] = {}
        self._costs: dict[FusedKernel, Costs] = {}
        self._fits: dict[Hashable, bool] = {}

    def kernel(
        self, group: Group, stage: int, *, atomic: bool = False, in_rounds: bool = False
    ) -> FusedKernel:
        """Return the kernel of a stage of a group's output."""
        output = group.output
        members = used_members(self.analysis, output, stage, group.members)
        key = (output, stage, members, atomic, in_rounds)
        if key not in self._kernels:
            self._kernels[key] = FusedKernel(
                self.analysis, output, stage, members, atomic, in_rounds
            )
        return self._kernels[key]

    def tilings(self, kernel: FusedKernel, step: Step) -> Tiles:
        """Return the tile sizes to try, shape (tilings, parallel loops), in iterations."""
        key = (kernel, step)
        if key not in self._tilings:
            self._tilings[key] = candidates(kernel.extents, kernel.roles, step, halve=self.halve)
        return self._tilings[key]

    def costs(self, kernel: FusedKernel) -> Costs:
        """Return the costs of the tilings in powers of two, with all members at block level."""
        if kernel not in self._costs:
            self._costs[kernel] = self.model.costs(kernel, self.tilings(kernel, "powers"))
        return self._costs[kernel]

    def fits(self, plan: KernelPlan, any_size: bool) -> bool:
        """Return whether the largest block fits, not only the one in the middle of the domain.

        Args:
            plan: The planned kernel.
            any_size: `Options.any_size` of the schedule.
        """
        nested = tuple(plan.nested.items())
        key = (plan.kernel, plan.kind, plan.tile, plan.registers, nested, any_size)
        if key not in self._fits:
            machine = self.model.machine
            launch = predicted_launch(plan, any_size)
            threads = launch.threads[0] * launch.threads[1] * launch.threads[2]
            self._fits[key] = (
                threads <= machine.max_threads_per_block
                and launch.shared_bytes <= machine.shared_per_block
            )
        return self._fits[key]
