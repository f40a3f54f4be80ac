"""The analytic scheduler for CPUs.

Steps: choose Funcs to inline, nest reductions in their readers, group the other Funcs, tile each
group, and assemble the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import TooLarge, View, may_inline
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import Added, clones_of, with_clones
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import ROOT, FuncSchedule, Schedule
from tilewright.halide.schedulers.analytic.cpu.assemble import group_schedules
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH, CpuConstants
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.inline import (
    hopeless,
    inline_trivial,
)
from tilewright.halide.schedulers.analytic.cpu.known_blocks import KnownBlocks
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel, model_of, weighted
from tilewright.halide.schedulers.analytic.cpu.member_loops import with_deeper_members
from tilewright.halide.schedulers.analytic.cpu.nested import nest_reductions
from tilewright.halide.schedulers.analytic.cpu.page_faults import fault_cycles, values_at_root
from tilewright.halide.schedulers.analytic.cpu.panels import with_panels
from tilewright.halide.schedulers.analytic.cpu.reports import reported, unplanned
from tilewright.halide.schedulers.analytic.cpu.retries import (
    DEAR_MEMORY,
    DEARER_MEMORY,
    FIXED,
    LESS_INLINED,
    MORE_INLINED,
    UNFUSED,
    fastest,
    gathers,
    is_doubtful,
    nest_seconds,
    rival_policies,
    worth_cloning,
)
from tilewright.halide.schedulers.analytic.cpu.splitting import split_reductions
from tilewright.halide.schedulers.analytic.cpu.staging import staged_reductions, wrappers_of
from tilewright.halide.schedulers.analytic.cpu.storage import kept_bytes
from tilewright.halide.schedulers.analytic.cpu.tiling import CpuPlan, Planner, Policy
from tilewright.halide.schedulers.analytic.entries import completed
from tilewright.halide.schedulers.analytic.grouping import Group, Grouping, greedy_grouping
from tilewright.halide.schedulers.diversity import LEAST_SHARE, Chosen
from tilewright.machines import CpuMachine


class InliningSearch:
    """The search under one policy: it chooses Funcs to inline and groups the others."""

    def __init__(
        self,
        algorithm: Algorithm,
        machine: CpuMachine,
        boxes: Mapping[str, Box],
        scalars: Mapping[str, float],
        policy: Policy,
        base: Analysis | None = None,
        known: KnownBlocks | None = None,
        constants: CpuConstants | None = None,
        plans: dict[Hashable, CpuPlan] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.machine = machine
        self.policy = policy
        self.model = weighted(model_of(machine, constants), policy.memory_weight)
        self.base = base or Analysis(View(algorithm), boxes, scalars, specialize=True)
        self.orders: tuple[bool, ...] = (False, True)
        self._plans = {} if plans is None else plans
        self._counted: set[Hashable] = set()
        self._blocks = KnownBlocks() if known is None else known
        self.spent = 0

    def costs(self, analysis: Analysis) -> CpuCosts:
        """Return the costs of the pipeline with the inlining of `analysis`."""
        return CpuCosts(
            analysis,
            self.model,
            nest_reductions(analysis),
            self.policy.block,
            self.policy.transposed,
            self._blocks,
        )

    def group(self, costs: CpuCosts) -> Grouping[CpuPlan]:
        """Group the Funcs that are not inlined.

        The first call tries both orders of merging; later calls use the better one.
        """
        planner = Planner(costs, self.policy, self._plans, counted=self._counted)
        guests = {nest.host: guest for guest, nest in costs.nested.items()}
        initial = [
            Group((guests[f.name], f.name)) if f.name in guests else Group((f.name,))
            for f in costs.analysis.view.funcs
            if f.name not in costs.nested and f.name in self.base.regions
        ]
        found = self._groupings(costs, planner.plan, initial)
        if any(fault_cycles(costs, grouping) > 0 for grouping in found):
            # Merges that save a buffer at root may pay only with the faults that they save.
            charged = self._groupings(costs, partial(_with_fault, costs, planner), initial)
            found += [Grouping(g.groups, tuple(map(planner.plan, g.groups))) for g in charged]
        self.spent += planner.spent
        totals = [self.total(costs, grouping) for grouping in found]
        best = totals.index(min(totals))
        self.orders = (self.orders[best % len(self.orders)],)
        return found[best]

    def _groupings(
        self, costs: CpuCosts, plan: Callable[[Group], CpuPlan], initial: Sequence[Group]
    ) -> list[Grouping[CpuPlan]]:
        """Return the groupings that each order of merging finds."""
        moduli = costs.alignment.moduli
        return [
            greedy_grouping(
                costs.analysis.view, plan, lambda made, _: not moduli(made.output), initial, first
            )
            for first in self.orders
        ]

    def total(self, costs: CpuCosts, grouping: Grouping[CpuPlan]) -> float:
        """Return the cost of a grouping, including the page faults of all its buffers."""
        return grouping.cost + fault_cycles(costs, grouping)

    def run(self, effort: int) -> tuple[CpuCosts, Grouping[CpuPlan]]:
        """Inline cheap Funcs, group the others, then revise the inlining.

        A revision inlines one more Func or one fewer, and is kept if it lowers the total cost. The
        most expensive groups come first. The search ends after costing `effort` members of groups.
        That is a count rather than a time, so that the schedule is reproducible.
        """
        trivial = inline_trivial(self.base, self.model, self.policy.inline_bias, self._blocks)
        inlined = trivial.view.inlined
        costs = self.costs(trivial)
        grouping = self.group(costs)
        best = self.total(costs, grouping)
        # A set of inlined Funcs is an integer with one bit per Func.
        place = self.algorithm.order
        now = sum(1 << place[name] for name in inlined)
        tried = {now}
        improved = True
        while improved and self.spent < effort:
            improved = False
            for names in self._proposals(costs, grouping, inlined):
                proposal = now
                for name in names:
                    proposal ^= 1 << place[name]
                if proposal in tried or self.spent >= effort:
                    continue
                tried.add(proposal)
                readers = costs.analysis.view.consumers
                if any(n not in inlined and hopeless(costs, n, readers[n]) for n in names):
                    continue
                analysis = costs.analysis
                for name in names:
                    analysis = analysis.toggled(name)
                try:
                    new_costs = self.costs(analysis)
                    new = self.group(new_costs)
                except TooLarge:
                    continue
                if self.total(new_costs, new) < SEARCH.least_gain * best and not any(
                    self._too_large(new_costs, name) for name in names
                ):
                    now, costs, grouping = proposal, new_costs, new
                    inlined = costs.analysis.view.inlined
                    best = self.total(costs, grouping)
                    improved = True
                    break
        # The largest buffer at root is only known now, and with it what the heap keeps.
        roots = zip(grouping.plans, values_at_root(costs, grouping), strict=True)
        costs.kept_heap = kept_bytes((p.root_bytes / n for p, n in roots), self.model.constants)
        final = Planner(costs, self.policy, {}, fine=True)
        plans = tuple(
            min(final.plan(g), final.again(g, p), key=lambda plan: plan.cost)
            for g, p in zip(grouping.groups, grouping.plans, strict=True)
        )
        return costs, Grouping(grouping.groups, plans)

    def _proposals(
        self, costs: CpuCosts, grouping: Grouping[CpuPlan], inlined: frozenset[str]
    ) -> list[tuple[str, ...]]:
        """Return the sets of Funcs whose inlining to revise: single ones, then siblings.

        Siblings are stored Funcs that read no others than one of them does, such as the products of
        two derivatives. One of them inlined, its readers load the products that are left and
        what these are made of. With all of them inlined, they only load the latter, once.
        """
        names = self._revisions(costs, grouping, inlined)
        producers = costs.analysis.view.producers
        sets: list[tuple[str, ...]] = [(name,) for name in names]
        stored = [name for name in names if name not in inlined and producers[name]]
        for name in stored:
            read = set(producers[name])
            kin = tuple(sorted(n for n in stored if read.issuperset(producers[n])))
            if 1 < len(kin) <= SEARCH.most_siblings:
                sets.append(kin)
        return list(dict.fromkeys(sets))

    def _revisions(
        self, costs: CpuCosts, grouping: Grouping[CpuPlan], inlined: frozenset[str]
    ) -> list[str]:
        """Return the Funcs whose inlining to revise, the most promising first.

        The cost of a group includes the page faults of its buffer, as `total` may charge them.
        """
        algorithm = self.algorithm
        wrappers = wrappers_of(algorithm)
        worth: dict[str, float] = {}
        for group, plan in zip(grouping.groups, grouping.plans, strict=True):
            cost = plan.cost - plan.fault + costs.fault_cycles(plan.root_bytes)
            if cost < SEARCH.least_share * grouping.cost:
                continue
            for name in group.members:
                func = algorithm.by_name[name]
                if may_inline(algorithm, func) and name not in wrappers:
                    worth[name] = cost / (1 if name == group.output else SEARCH.member_worth)
                for producer in algorithm.producers[name]:
                    if producer in inlined:
                        worth[producer] = max(
                            worth.get(producer, 0.0), cost / SEARCH.producer_worth
                        )
        return sorted(worth, key=lambda name: (-worth[name], algorithm.order[name]))

    @staticmethod
    def _too_large(costs: CpuCosts, name: str) -> bool:
        analysis = costs.analysis
        if name not in analysis.view.inlined:
            return False
        return any(
            sum(op.count for op in s.ops) + len(s.loads) > SEARCH.largest_expression
            for reader in analysis.view.reached(name)
            if reader not in analysis.view.inlined
            for s in analysis.summaries(reader)
        )


def _with_fault(costs: CpuCosts, planner: Planner, group: Group) -> CpuPlan:
    """Return the plan of a group with the page faults of its buffer as part of its cost."""
    plan = planner.plan(group)
    return replace(plan, cost=plan.cost - plan.fault + costs.fault_cycles(plan.root_bytes))


def schedule_with(
    algorithm: Algorithm,
    machine: CpuMachine,
    boxes: Mapping[str, Box],
    scalars: Mapping[str, float],
    policy: Policy,
    effort: int = SEARCH.effort,
    base: Analysis | None = None,
    known: KnownBlocks | None = None,
    constants: CpuConstants | None = None,
    plans: dict[Hashable, CpuPlan] | None = None,
) -> tuple[Schedule, Grouping[CpuPlan], CpuCosts]:
    """Return the schedule, grouping and costs that a search finds under one policy.

    `base` is the analysis with nothing inlined, if it exists already. `known` and `plans` may have
    results of searches under other policies.
    """
    search = InliningSearch(
        algorithm, machine, boxes, scalars, policy, base, known, constants, plans
    )
    costs, grouping = search.run(effort)
    return assembled(algorithm, costs, grouping, machine.cores), grouping, costs


def assembled(
    algorithm: Algorithm, costs: CpuCosts, grouping: Grouping[CpuPlan], cores: int
) -> Schedule:
    """Return the schedule of a grouping and its tilings for `cores` cores."""
    view = costs.analysis.view
    funcs: list[FuncSchedule] = []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        func = view.by_name[group.output]
        if func.fixed or func.scheduled:
            continue
        if unplanned(func, plan):
            funcs += [FuncSchedule(algorithm.order[name], ROOT, ROOT) for name in group.members]
            continue
        funcs += group_schedules(costs, group, plan.tiling, cores)
    entries = completed(funcs, view)
    return Schedule(algorithm.digest, "host", entries, clones=clones_of(algorithm))


POLICIES = (
    Policy(),
    Policy(unprotected=True, always_slide=True, stepped=True),
    Policy(stepped=True),
    DEAR_MEMORY,
    DEARER_MEMORY,
    Policy(block=1),
    MORE_INLINED,
    FIXED,
    LESS_INLINED,
    Policy(block=2),
    UNFUSED,
)


def schedule_cpu(
    algorithm: Algorithm,
    machine: CpuMachine,
    *,
    boxes: Mapping[str, Box] | None = None,
    scalars: Mapping[str, float] | None = None,
    k: int = 1,
    constants: CpuConstants | None = None,
) -> list[PlannedSchedule]:
    """Return the `k` most promising distinct schedules for a CPU, the expected best first.

    Nothing is compiled or run. The first schedule is the best one according to the models: of a
    search, and of its rivals (`retries`). Each other one is the best under a different assumption
    (more or less inlining, no fusion, …), so that measuring a few of them compensates for errors
    of the model.

    Args:
        algorithm: the pipeline.
        machine: the CPU.
        boxes: the required region of each output, by default from the estimates.
        scalars: the values of symbols, by default from the estimates.
        k: the number of schedules.
        constants: the constants of the cost model, by default those of the processor's family.
    """
    if boxes is None:
        boxes = estimated_boxes(View(algorithm))
    if scalars is None:
        scalars = algorithm.symbols
    searches = _Searches(machine, boxes, scalars, constants, Chosen(algorithm))
    found = searches.found
    wrappers = staged_reductions(searches.base(algorithm), model_of(machine, constants))
    chosen = with_clones(algorithm, wrappers)
    first = searches.run(chosen, POLICIES[0])
    if gathers(first):
        searches.run(chosen, Policy(transposed=True))
    if clones := worth_cloning(first):
        searches.run(with_clones(algorithm, (*clones, *wrappers)), POLICIES[0])
    best = min(found.accepted, key=searches.cycles)
    best = _with_split_reductions(algorithm, searches, best)
    chosen = with_clones(algorithm, best.schedule.clones)
    model = model_of(machine, constants)
    seconds = nest_seconds(algorithm, best, boxes, model)
    rivals = rival_policies(algorithm, is_doubtful(best, seconds, model), POLICIES[1:])
    for policy in rivals:
        searches.run(chosen, policy)
    best = fastest(algorithm, best, found.accepted, boxes, model, searches.faults)
    for policy in POLICIES[1:]:
        if len(found.accepted) >= k:
            break
        if policy not in rivals:
            searches.run(chosen, policy)
    if len(found.accepted) < k:
        _offer_tilings(found, k, *searches.results[best.schedule], machine.cores)
    moved = with_deeper_members(algorithm, best, boxes, model)
    rest = [planned for planned in found.accepted if planned is not best]
    ranked = sorted(rest, key=searches.cycles)
    return [*([] if moved is None else [moved]), best, *ranked, *found.reserve][:k]


def _with_split_reductions(
    algorithm: Algorithm, searches: _Searches, best: PlannedSchedule
) -> PlannedSchedule:
    """Return the best schedule that splits reductions, if it is clearly cheaper, else `best`."""
    costs = searches.results[best.schedule][1]
    for added in split_reductions(algorithm, costs, best.schedule):
        searches.run(with_clones(algorithm, added), POLICIES[0])
    cheapest = min(searches.found.accepted, key=searches.cycles)
    limit = SEARCH.partial_gain * searches.cycles(best)
    return cheapest if searches.cycles(cheapest) < limit else best


@dataclass
class _Searches:
    """Searches of one pipeline and its clones under several policies.

    The schedules are offered to `found`; `results` keeps the search that produced each, and
    `faults` its `fault_cycles`. Searches of the same Funcs share what does not depend on the
    policy: analyses, register blocks, and the plans of groups.
    """

    machine: CpuMachine
    boxes: Mapping[str, Box]
    scalars: Mapping[str, float]
    constants: CpuConstants | None
    found: Chosen
    results: dict[Schedule, tuple[Policy, CpuCosts, Grouping[CpuPlan]]] = field(
        default_factory=dict
    )
    faults: dict[Schedule, float] = field(default_factory=dict)
    _bases: dict[tuple[Added, ...], Analysis] = field(default_factory=dict)
    _blocks: dict[tuple[Added, ...], KnownBlocks] = field(default_factory=dict)
    _plans: dict[tuple[Added, ...], dict[Hashable, CpuPlan]] = field(default_factory=dict)

    def base(self, algorithm: Algorithm) -> Analysis:
        """Return the analysis of the algorithm with its clones and nothing inlined."""
        key = clones_of(algorithm)
        if key not in self._bases:
            view = View(algorithm)
            self._bases[key] = Analysis(view, self.boxes, self.scalars, specialize=True)
        return self._bases[key]

    def cycles(self, planned: PlannedSchedule) -> float:
        """Return the cost of a schedule, with the page faults of all its buffers."""
        return planned.cost + self.faults.get(planned.schedule, 0.0)

    def run(self, algorithm: Algorithm, policy: Policy) -> CpuCosts:
        """Search under a policy, offer the schedule, and return the costs used."""
        schedule, grouping, costs = schedule_with(
            algorithm,
            self.machine,
            self.boxes,
            self.scalars,
            policy,
            SEARCH.transposed_effort if policy.transposed else SEARCH.effort,
            self.base(algorithm),
            self._blocks.setdefault(clones_of(algorithm), KnownBlocks()),
            self.constants,
            self._plans.setdefault(clones_of(algorithm), {}),
        )
        self.results.setdefault(schedule, (policy, costs, grouping))
        if policy.memory_weight != 1.0:
            costs, grouping = unweighted(costs, grouping, model_of(self.machine, self.constants))
        planned = reported(schedule, grouping, costs)
        self.faults[schedule] = fault_cycles(costs, grouping)
        packed = with_panels(planned, costs, grouping)
        if packed is not None:
            self.faults[packed.schedule] = self.faults[schedule]
            self.results.setdefault(packed.schedule, (policy, costs, grouping))
            self.found.offer(packed)
        self.found.offer(planned)
        return costs


def _offer_tilings(
    found: Chosen, k: int, policy: Policy, costs: CpuCosts, grouping: Grouping[CpuPlan], cores: int
) -> None:
    """Offer a search's grouping with other tilings, until `k` schedules are accepted."""
    algorithm = costs.analysis.view.algorithm
    for other in other_tilings(costs, policy, grouping, k - len(found.accepted)):
        if len(found.accepted) >= k:
            return
        found.offer(reported(assembled(algorithm, costs, other, cores), other, costs))


def unweighted(
    costs: CpuCosts, grouping: Grouping[CpuPlan], model: CpuModel
) -> tuple[CpuCosts, Grouping[CpuPlan]]:
    """Return the costs and grouping of a search, costed again with the unweighted `model`."""
    plain = CpuCosts(costs.analysis, model, costs.nested, costs.block_rank, costs.transposed)
    plain.kept_heap = costs.kept_heap
    plans = []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        func = plain.analysis.view.by_name[group.output]
        if func.fixed or func.scheduled or unplanned(func, plan):
            plans.append(plan)
            continue
        tiling = plan.tiling
        windows = () if tiling.sliding is None else (tiling.sliding,)
        sizes = np.array([tiling.sizes], dtype=np.float64).reshape(1, len(tiling.sizes))
        regions = plain.regions(group, sizes, tiling.order, windows)
        cycles = plain.costs(group, regions, tiling.sliding, tiling.deep).cycles
        plans.append(replace(plan, cost=float(cycles[0])))
    return plain, Grouping(grouping.groups, tuple(plans))


def other_tilings(
    costs: CpuCosts, policy: Policy, grouping: Grouping[CpuPlan], count: int
) -> list[Grouping[CpuPlan]]:
    """Return groupings with one expensive group tiled differently, cheapest first.

    There are up to `count` groupings per group.
    """
    found: list[Grouping[CpuPlan]] = []
    for i, (group, plan) in enumerate(zip(grouping.groups, grouping.plans, strict=True)):
        if plan.cost < LEAST_SHARE * grouping.cost or not plan.tiling.sizes:
            continue
        seen = [plan.tiling.sizes]
        while len(seen) <= count:
            other = Planner(costs, policy, {}, unlike={group.output: seen}).plan(group)
            if not math.isfinite(other.cost):
                break
            seen.append(other.tiling.sizes)
            plans = (*grouping.plans[:i], other, *grouping.plans[i + 1 :])
            found.append(Grouping(grouping.groups, plans))
    return sorted(found, key=lambda each: each.cost)
