"""Random legal schedules of a pipeline, for learning what makes one fast.

The analytic search is perturbed: costs are multiplied by random factors while grouping, tiles are
drawn with a probability that falls with their cost, and options are random. With little noise the
samples lie near the model's optimum, with much they cover the space. The noise level is drawn for
each sample, so that both occur.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from support.gpu_features import features
from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.assemble import assemble
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.cost import Costs
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.plan import GroupPlan, KernelPlan, Mode, Options
from tilewright.halide.schedulers.analytic.gpu.tiling import Step
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import GpuMachine

# Drawn in turn for every sample: the temperature of tiles, in units of the logarithm of cost,
# and the spread of the factors on a group's cost.
TEMPERATURES = (0.05, 0.3, 1.0, 3.0)
SPREADS = (0.0, 0.3, 1.0)
# Draws per wanted number before the search for new ones is given up.
PATIENCE = 4


@dataclass(frozen=True)
class Sample:
    """A schedule, its kernels' features, and how it was drawn: the index and the noise."""

    planned: PlannedSchedule
    features: list[dict[str, Any]]
    index: int
    temperature: float
    spread: float


class RandomSearch(GroupingSearch):
    """A search that takes worse tilings and groupings too, by the generator's decisions."""

    def noisy(self, seed: tuple[int, ...], temperature: float, spread: float) -> None:
        """Decide by `seed` from here on."""
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._temperature = temperature
        self._spread = spread
        self._groupings.clear()
        self._relaxed.clear()

    def group_plan(
        self, group: Group, step: Step, options: Options, *, merging: bool = False
    ) -> GroupPlan:
        """Plan like `GroupingSearch`, with the cost times a factor that is fixed per group."""
        plan = super().group_plan(group, step, options, merging=merging)
        if step != "powers" or not np.isfinite(plan.cost):
            return plan
        # By place and not by name: names may be automatic.
        places = [self.algorithm.order[name] for name in group.members]
        factor = np.random.default_rng([*self._seed, *places])
        return replace(plan, cost=plan.cost * float(np.exp(self._spread * factor.normal())))

    def pick(self, costs: Costs, legal: object, final: bool) -> tuple[int, int]:
        """Return a tiling by chance in the final pass, the cheapest while grouping."""
        level, best = super().pick(costs, legal, final)
        if not final:
            return level, best
        mask = np.asarray(legal)
        weight = -np.log(np.maximum(self.total(costs, final), 1e-30)) / self._temperature
        weight = np.where(mask, weight, -np.inf)
        # The largest of perturbed weights is a draw from their softmax.
        chosen = int(np.argmax(weight + self._random.gumbel(size=len(mask))))
        return level, chosen

    def nest(self, kernel: FusedKernel, found: Mapping[str, str]) -> dict[str, str]:
        """Choose some of the members that can be nested, if their readers are nested, too.

        `found` has readers before the Funcs that they read.
        """
        whole = self._random.random() < 0.5
        kept: dict[str, str] = {}
        for member, anchor in found.items():
            readers = [c for c in self.view.consumers[member] if c in found]
            if all(r in kept for r in readers) and (whole or self._random.random() < 0.5):
                kept[member] = anchor
        return kept

    def prefer(self, tighter: KernelPlan, loose: KernelPlan) -> bool:
        """Choose one of the two at random."""
        return bool(self._random.random() < 0.5)


def sample_gpu(
    algorithm: Algorithm,
    machine: GpuMachine,
    count: int,
    *,
    seed: int = 0,
    boxes: Mapping[str, Box] | None = None,
    scalars: Mapping[str, float] | None = None,
    constants: GpuConstants | None = None,
) -> Iterator[Sample]:
    """Yield up to `count` distinct legal schedules, the same for the same seed.

    `boxes`, `scalars` and `constants` are as of `schedule_gpu`.
    """
    boxes = estimated_boxes(View(algorithm)) if boxes is None else boxes
    scalars = algorithm.symbols if scalars is None else scalars
    base = Analysis(View(algorithm), boxes, scalars, specialize=True)
    limits = Limits(machine.max_threads_per_block, machine.shared_per_block)
    searches: dict[float, RandomSearch] = {}
    seen: set[int] = set()
    for index in range(PATIENCE * count):
        if len(seen) >= count:
            return
        random = np.random.default_rng([seed, index])
        weight = float(random.choice([0.25, 1.0, 1.0, 4.0]))
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            if weight not in searches:
                inlined = choose_inlined(base, load_weight=weight, cache_bytes=machine.l2_bytes)
                searches[weight] = RandomSearch(base, machine, inlined, constants)
            search = searches[weight]
            temperature = float(random.choice(TEMPERATURES))
            spread = float(random.choice(SPREADS))
            search.noisy((seed, index), temperature, spread)
            options = _options(random)
            plans = search.plans(options)
            planned = assemble(search.analysis, search.model, plans, options)
            numbers = features(search.model, plans)
        known = hash(planned.schedule.funcs)
        if known in seen or check(planned.schedule, algorithm, limits):
            continue
        seen.add(known)
        yield Sample(planned, numbers, index, temperature, spread)


def _options(random: np.random.Generator) -> Options:
    modes: tuple[Mode, ...] = get_args(Mode)
    mode: Mode = modes[int(random.choice(len(modes), p=[0.5, 0.35, 0.15]))]
    threads = [None, None, None, 512, 256, 128, 64][int(random.integers(7))]
    return Options(
        mode=mode,
        unroll=bool(random.random() < 0.8),
        inline=True,
        max_threads=threads,
        register_tiles=bool(random.random() < 0.7),
    )
