"""The analytic scheduler for CPUs: inline, nest, group, tile, assemble."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.halide.algorithm import Algorithm, Variable
from tilewright.halide.analysis import Analysis, estimated_boxes
from tilewright.halide.bounds import Box, Linear
from tilewright.halide.clones import clones_of, with_clones
from tilewright.halide.cpu.assemble import Tiling, group_schedules
from tilewright.halide.cpu.cost import Array, CpuCosts, Nest, Regions, Window
from tilewright.halide.cpu.kernel import SHORT, accumulates, value_bytes
from tilewright.halide.cpu.model import CpuModel, model_of, weighted
from tilewright.halide.cpu.sliding import LARGEST_STEP, blockwise, inputs_protected, windows
from tilewright.halide.grouping import Group, Grouping, greedy_grouping
from tilewright.halide.inlining import TooLarge, View
from tilewright.halide.planned import GroupReport, PlannedSchedule
from tilewright.halide.schedule import INLINE, ROOT, Clone, FuncSchedule, Schedule
from tilewright.machines.cpu import CpuMachine

LARGEST_EXPRESSION = 1500
EFFORT = 3000


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
    """What distinguishes the searches whose results compete (see `POLICIES`).

    `inline_bias` above 1 inlines more, below 1 less. `fuse` allows members, `slide` sliding
    windows; `always_slide` asks for windows wherever they are possible, `unprotected` allows
    them over inputs that are not clamped (Halide may then ask for a few more rows of input).
    `memory_weight` makes traffic dearer, `block` takes the so-many-th best register block of
    reductions, `transposed` stores intermediate Funcs with their second dimension innermost.
    """

    inline_bias: float = 1.0
    fuse: bool = True
    slide: bool = True
    always_slide: bool = False
    unprotected: bool = False
    memory_weight: float = 1.0
    block: int = 0
    transposed: bool = False


def inline_trivial(base: Analysis, model: CpuModel, bias: float) -> frozenset[str]:
    """Funcs that cost less recomputed at every use than stored and loaded.

    Each Func's uses are costed with its definition substituted and common subexpressions
    shared, against computing it once and moving it through the second-level cache. A `bias`
    above 1 inlines more.
    """
    algorithm = base.view.algorithm
    regions = base.regions
    inlined: set[str] = set()

    def costs_with(names: set[str]) -> CpuCosts:
        return CpuCosts(base.with_inlined(frozenset(names)), model, {})

    current = costs_with(inlined)
    for func in algorithm.funcs:
        if (
            not func.pure
            or func.fixed
            or func.scheduled
            or func.name in algorithm.outputs
            or func.name not in regions
        ):
            continue
        readers = current.analysis.view.consumers[func.name]
        if not readers or any(algorithm.by_name[r].fixed for r in readers):
            continue
        proposal = costs_with(inlined | {func.name})
        try:
            together = sum(_root_cycles(proposal, r, regions) for r in readers)
            size = max(
                sum(op.count for op in s.ops) + len(s.loads)
                for r in readers
                for s in proposal.analysis.summaries(r)
            )
        except TooLarge:
            continue
        if size > LARGEST_EXPRESSION:
            continue
        apart = _root_cycles(current, func.name, regions)
        apart += sum(_root_cycles(current, r, regions) for r in readers)
        moved = value_bytes(func.types) * math.prod(
            float(np.max(i.extent)) for i in regions[func.name]
        )
        apart += 2.0 * moved / model.l2_rate
        if together <= apart * bias:
            inlined.add(func.name)
            current = proposal
    return frozenset(inlined)


def _root_cycles(costs: CpuCosts, name: str, regions: Mapping[str, Box]) -> float:
    return float(np.max(costs.func_cycles(name, regions[name])))


def nest_reductions(analysis: Analysis) -> dict[str, Nest]:
    """Reductions that one pure Func reads point by point, and that Func.

    Computing such a reduction in its reader's innermost block keeps it in registers and
    repeats nothing (Sioutas 2020, Section 4.3: no reuse across the reader's loops). A short
    dimension may be read in another way, as it is unrolled whole inside the block.
    """
    view = analysis.view
    hosts: dict[str, Nest] = {}
    for func in view.funcs:
        readers = view.consumers[func.name]
        if len(readers) != 1 or func.fixed or func.scheduled or func.name in view.algorithm.outputs:
            continue
        host = view.by_name[readers[0]]
        stages = analysis.summaries(func.name)
        if (
            len(stages) < 2
            or not all(accumulates(s) for s in stages[1:])
            or len(host.stages) != 1
            or host.fixed
            or host.scheduled
            or any(nest.host == host.name for nest in hosts.values())
            or not all(_covers(s.args, func.args) for s in stages)
        ):
            continue
        others = _not_pointwise(analysis, host.name, func.name)
        if others is None or len(others) > 1:
            continue
        whole = next(iter(others), None)
        if whole is not None and not (
            _is_short(analysis, func.name, whole) and _is_short(analysis, host.name, whole)
        ):
            continue
        hosts[func.name] = Nest(host.name, whole)
    return hosts


def _is_short(analysis: Analysis, name: str, dimension: int) -> bool:
    region = analysis.regions.get(name)
    return region is not None and 1 < float(np.max(region[dimension].extent)) <= SHORT


def _not_pointwise(analysis: Analysis, host: str, guest: str) -> set[int] | None:
    """The dimensions in which the guest is read elsewhere than at the host's own point."""
    args = analysis.view.by_name[host].args
    others: set[int] = set()
    for access in analysis.summaries(host)[0].reads(guest):
        if len(access.forms) != len(args):
            return None
        others.update(
            d
            for d, (name, forms) in enumerate(zip(args, access.forms, strict=True))
            if not _is_at(forms, name)
        )
    return others


def _is_at(forms: tuple[tuple[Linear, float, float], ...], variable: str) -> bool:
    if len(forms) != 1:
        return False
    form, low, high = forms[0]
    if low != 0 or high != 0 or len(form.terms) != 1:
        return False
    atom, c = form.terms[0]
    return isinstance(atom, Variable) and atom.name == variable and c == 1


def _covers(args: tuple[object, ...], names: tuple[str, ...]) -> bool:
    return all(isinstance(a, Variable) and a.kind == "var" for a in args) and len(args) == len(
        names
    )


class Planner:
    """Finds the best tiling of groups, remembering every group it has planned."""

    def __init__(
        self,
        costs: CpuCosts,
        policy: Policy,
        known: dict[object, CpuPlan],
        fine: bool = False,
    ) -> None:
        self.costs = costs
        self.policy = policy
        self.fine = fine
        self.tilings = 0
        self.spent = 0
        self._known = known

    def plan(self, group: Group) -> CpuPlan:
        """The cheapest tiling of `group`, or `IMPOSSIBLE`.

        Plans are shared between views: a group's depends on what is inlined into its members
        and nowhere else.
        """
        view = self.costs.analysis.view
        key = (
            self.fine,
            self.policy,
            tuple((m, view.absorbed(m), self.costs.nested.get(m)) for m in group.members),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._best(group)
            self.spent += len(group.members)
        return found

    def _best(self, group: Group) -> CpuPlan:
        costs, view = self.costs, self.costs.analysis.view
        output = view.by_name[group.output]
        guests = {
            g for g in group.members if g in costs.nested and costs.nested[g].host == group.output
        }
        fused = len(group.members) - 1 - len(guests) > 0
        if fused and (output.fixed or not self.policy.fuse or not _hosts(costs, group)):
            return IMPOSSIBLE
        region = costs.analysis.regions.get(group.output)
        if region is None:
            return IMPOSSIBLE
        if output.extern is not None:
            return CpuPlan(0.0, Tiling((), ()))
        extents = [
            max(1, int(float(np.max(i.extent)))) if math.isfinite(float(np.max(i.extent))) else 1024
            for i in region
        ]
        if not extents:
            c = costs.costs(group, costs.regions(group, np.ones((1, 0)), ()))
            return CpuPlan(
                float(c.cycles[0]),
                Tiling((), ()),
                float(c.compute[0]),
                root_bytes=c.root_bytes,
                fault=c.fault,
            )
        tiles = candidate_tiles(extents, costs.block(group.output, 0), self.fine)
        dims = range(len(extents))
        orders = [tuple(dims)]
        if guests and len(extents) > 1:
            orders.append((1, 0, *range(2, len(extents))))
        best = IMPOSSIBLE
        slidable: tuple[Window, ...] = ()
        if (
            fused
            and self.policy.slide
            and len(output.stages) == 1
            and (self.policy.unprotected or inputs_protected(costs, group))
        ):
            # Halide does not always see that a window over halved rows slides, and computes it
            # anew then: that is left to measuring.
            slidable = windows(costs, group, LARGEST_STEP if self.policy.always_slide else 1)
        options: list[tuple[Regions, tuple[int, ...], Window | None, bool]] = []
        for order in orders:
            regions = costs.regions(group, tiles, order, slidable if order == orders[0] else ())
            if not (slidable and self.policy.always_slide):
                options.append((regions, order, None, False))
            if order == orders[0]:
                options += [(regions, order, along, False) for along in slidable]
                if slidable and blockwise(costs, group):
                    options += [(regions, order, w, True) for w in slidable if w.step == 1]
        for regions, order, sliding, deep in options:
            found = costs.costs(group, regions, sliding, deep)
            self.tilings += len(tiles)
            cycles = np.where(np.isfinite(found.cycles), found.cycles, np.inf)
            if sliding is not None:
                rows = tiles[:, sliding.dimension]
                fits = (rows > sliding.step) & (rows % sliding.step == 0)
                cycles = np.where(fits, cycles, np.inf)
            i = int(np.argmin(cycles))
            if cycles[i] < best.cost:
                sizes = tuple(int(t) for t in tiles[i])
                best = CpuPlan(
                    float(cycles[i]),
                    Tiling(sizes, order, sliding, deep),
                    float(found.compute[i]),
                    float(found.l2[i] + found.l3[i] + found.memory[i]),
                    float(found.overhead[i]),
                    float(found.tile_bytes[i]),
                    int(found.tasks[i]),
                    found.root_bytes,
                    found.fault,
                )
        return best


def _hosts(costs: CpuCosts, group: Group) -> bool:
    """Whether the group's output can have members in its tiles.

    They are computed in the loops of one stage: the only one, or the last where that scatters
    and no other reads them.
    """
    stages = costs.analysis.summaries(group.output)
    if len(stages) == 1:
        return True
    members = set(group.members) - {group.output}
    if not stages[-1].scatter or members & set(costs.nested):
        return False
    return not any(a.callee in members for s in stages[:-1] for a in s.accesses)


def candidate_tiles(extents: list[int], block: object, fine: bool) -> Array:
    """Tile sizes to try: powers of two and the whole extent, in every dimension.

    Dimensions shorter than 8 are taken whole or one by one; along the vector dimension a tile
    holds whole blocks. `fine` adds the sizes between powers of two.
    """
    from tilewright.halide.cpu.kernel import Block

    assert isinstance(block, Block)
    largest = sorted(range(len(extents)), key=lambda d: -extents[d])[:3]
    choices: list[list[int]] = []
    for d, extent in enumerate(extents):
        unit = block.width if d == block.vector else block.rows if d == block.row else 1
        if extent < 8 or d not in largest:
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
            sizes = {s for s in sizes if s >= min(extent, 2 * block.lanes) or s == unit}
        choices.append(sorted(sizes))
    while math.prod(len(c) for c in choices) > (4096 if fine else 512):
        longest = max(range(len(choices)), key=lambda d: len(choices[d]))
        choices[longest] = choices[longest][::2] + choices[longest][-1:]
        choices[longest] = sorted(set(choices[longest]))
    return np.array(list(itertools.product(*choices)), dtype=np.float64)


class Search:
    """The search under one policy: which Funcs to inline, and the groups of the others."""

    def __init__(
        self,
        algorithm: Algorithm,
        machine: CpuMachine,
        boxes: Mapping[str, Box],
        scalars: Mapping[str, float],
        policy: Policy,
    ) -> None:
        self.algorithm = algorithm
        self.machine = machine
        self.policy = policy
        self.model = weighted(model_of(machine), policy.memory_weight)
        self.base = Analysis(View(algorithm), boxes, scalars, specialize=True)
        self._known: dict[object, CpuPlan] = {}
        self.spent = 0

    def costs(self, inlined: frozenset[str]) -> CpuCosts:
        """The costs of the pipeline with some Funcs inlined."""
        analysis = self.base.with_inlined(inlined)
        return CpuCosts(
            analysis,
            self.model,
            nest_reductions(analysis),
            self.policy.block,
            self.policy.transposed,
        )

    def group(self, costs: CpuCosts) -> Grouping[CpuPlan]:
        """Groups what is not inlined."""
        planner = Planner(costs, self.policy, self._known)
        guests = {nest.host: guest for guest, nest in costs.nested.items()}
        initial = [
            Group((guests[f.name], f.name)) if f.name in guests else Group((f.name,))
            for f in costs.analysis.view.funcs
            if f.name not in costs.nested and f.name in self.base.regions
        ]
        found = [
            greedy_grouping(
                costs.analysis.view, planner.plan, initial=initial, producers_first=first
            )
            for first in (False, True)
        ]
        self.spent += planner.spent
        return min(found, key=lambda grouping: self.total(costs, grouping))

    def total(self, costs: CpuCosts, grouping: Grouping[CpuPlan]) -> float:
        """The cost of a whole grouping, with the page faults of all its buffers together.

        C libraries keep freed memory for the next run only up to a limit: single large
        buffers, and a heap far larger than its largest buffer, go back to the system and
        fault anew in every run.
        """
        limit = self.model.fault_threshold
        view = costs.analysis.view
        place = {name: i for i, group in enumerate(grouping.groups) for name in group.members}
        fresh = largest = peak = 0.0
        live: dict[int, float] = {}
        ends: dict[int, int] = {}
        for i, (group, plan) in enumerate(zip(grouping.groups, grouping.plans, strict=True)):
            size = plan.root_bytes
            if size > limit:
                fresh += size
            else:
                largest = max(largest, size)
                live[i] = size
                readers = view.consumers[group.output]
                ends[i] = max((place[r] for r in readers if r in place), default=i)
                peak = max(peak, sum(live.values()))
            live = {j: held for j, held in live.items() if ends[j] > i}
        if peak > 1.5 * largest:
            fresh += peak
        return sum(plan.cost - plan.fault for plan in grouping.plans) + costs.fault_cycles(fresh)

    def run(self, effort: int) -> tuple[CpuCosts, Grouping[CpuPlan]]:
        """Inlines what is cheap, groups, then revises what is inlined.

        Revisions are tried, the costliest groups' outputs first: a Func at root is inlined, or
        an inlined one is not, where that lowers the whole cost. They end when `effort`
        members of groups have been costed, a count rather than a time so that the same
        pipeline always gets the same schedule.
        """
        inlined = inline_trivial(self.base, self.model, self.policy.inline_bias)
        costs = self.costs(inlined)
        grouping = self.group(costs)
        best = self.total(costs, grouping)
        tried: set[frozenset[str]] = {inlined}
        improved = True
        while improved and self.spent < effort:
            improved = False
            for name in self._revisions(grouping, inlined):
                proposal = inlined ^ {name}
                if proposal in tried or self.spent >= effort:
                    continue
                tried.add(proposal)
                try:
                    new_costs = self.costs(proposal)
                    new = self.group(new_costs)
                except TooLarge:
                    continue
                if self.total(new_costs, new) < 0.995 * best and not self._too_large(
                    new_costs, name
                ):
                    inlined, costs, grouping = proposal, new_costs, new
                    best = self.total(costs, grouping)
                    improved = True
                    break
        final = Planner(costs, self.policy, self._known, fine=True)
        plans = tuple(
            min(final.plan(g), p, key=lambda plan: plan.cost)
            for g, p in zip(grouping.groups, grouping.plans, strict=True)
        )
        return costs, Grouping(grouping.groups, plans)

    def _revisions(self, grouping: Grouping[CpuPlan], inlined: frozenset[str]) -> list[str]:
        """Funcs whose inlining may be worth revising, the most promising first."""
        algorithm = self.algorithm
        worth: dict[str, float] = {}
        for group, plan in zip(grouping.groups, grouping.plans, strict=True):
            if plan.cost < 0.02 * grouping.cost:
                continue
            for name in group.members:
                func = algorithm.by_name[name]
                if (
                    func.pure
                    and not func.fixed
                    and not func.scheduled
                    and name not in algorithm.outputs
                ):
                    worth[name] = plan.cost / (1 if name == group.output else 4)
                for producer in algorithm.producers[name]:
                    if producer in inlined:
                        worth[producer] = max(worth.get(producer, 0.0), plan.cost / 2)
        return sorted(worth, key=lambda name: (-worth[name], algorithm.order[name]))

    @staticmethod
    def _too_large(costs: CpuCosts, name: str) -> bool:
        analysis = costs.analysis
        readers = [f for f in analysis.view.funcs if name in analysis.view.absorbed(f.name)]
        return any(
            sum(op.count for op in s.ops) + len(s.loads) > LARGEST_EXPRESSION
            for f in readers
            for s in analysis.summaries(f.name)
        )


def schedule_with(
    algorithm: Algorithm,
    machine: CpuMachine,
    boxes: Mapping[str, Box],
    scalars: Mapping[str, float],
    policy: Policy,
    effort: int = EFFORT,
) -> tuple[Schedule, Grouping[CpuPlan], CpuCosts]:
    """One search under one policy."""
    costs, grouping = Search(algorithm, machine, boxes, scalars, policy).run(effort)
    view = costs.analysis.view
    funcs: list[FuncSchedule] = []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        func = view.by_name[group.output]
        if func.fixed or func.scheduled:
            continue
        funcs += group_schedules(costs, group, plan.tiling, machine.cores)
    funcs += [FuncSchedule(algorithm.order[name], INLINE, INLINE) for name in view.inlined]
    placed = {entry.func for entry in funcs}
    # Of what an extern stage alone reads, nobody says how much is wanted.
    funcs += [
        FuncSchedule(algorithm.order[func.name], ROOT, ROOT)
        for func in view.funcs
        if not (func.fixed or func.scheduled or algorithm.order[func.name] in placed)
    ]
    funcs.sort(key=lambda f: f.func)
    clones = clones_of(algorithm)
    return Schedule(algorithm.digest, "host", tuple(funcs), clones=clones), grouping, costs


POLICIES = (
    Policy(),
    Policy(unprotected=True, always_slide=True),
    Policy(memory_weight=3.0),
    Policy(block=1),
    Policy(inline_bias=2.0),
    Policy(slide=False),
    Policy(inline_bias=0.5),
    Policy(block=2),
    Policy(fuse=False),
)


def schedule_cpu(
    algorithm: Algorithm,
    machine: CpuMachine,
    *,
    boxes: Mapping[str, Box] | None = None,
    scalars: Mapping[str, float] | None = None,
    k: int = 1,
) -> list[PlannedSchedule]:
    """The `k` most promising distinct schedules for a CPU, the expected best first.

    `boxes` gives the region wanted of each output and `scalars` the values of symbols; by
    default both come from the algorithm's estimates. Nothing is compiled or run. The first is
    the model's best; the others are the best under assumptions that may hold instead (more or
    less inlining, no fusion, …), so that measuring a few covers what the model gets wrong.
    """
    if boxes is None:
        boxes = estimated_boxes(View(algorithm))
    if scalars is None:
        scalars = algorithm.symbols
    found: dict[Schedule, PlannedSchedule] = {}
    chosen = algorithm

    def search(policy: Policy) -> CpuCosts:
        schedule, grouping, costs = schedule_with(chosen, machine, boxes, scalars, policy)
        if schedule not in found:
            found[schedule] = _planned(schedule, grouping, costs)
        return costs

    first = search(POLICIES[0])
    if _gathers(first):
        search(Policy(transposed=True))
    chosen = with_clones(algorithm, worth_cloning(first))
    if chosen is not algorithm:
        search(POLICIES[0])
    best = sorted(found.values(), key=lambda planned: planned.cost)
    chosen = with_clones(algorithm, best[0].schedule.clones)
    for policy in POLICIES[1:]:
        if len(found) >= k:
            break
        search(policy)
    rest = [planned for planned in found.values() if planned not in best]
    return [*best, *rest][:k]


def worth_cloning(costs: CpuCosts) -> tuple[Clone, ...]:
    """Copies of Funcs for the scattering stages that read them, among other readers.

    A stage that scatters is not vectorised. A copy can be, in a row of its own that is computed
    just before, while the other readers go on computing the Func where they need it.
    """
    view = costs.analysis.view
    base = view.algorithm
    clones = []
    for func in base.funcs:
        name = func.name
        readers = [f for f in base.funcs if name in base.producers[f.name]]
        if len(readers) < 2 or not func.args or not func.pure or func.fixed or func.scheduled:
            continue
        for reader in readers:
            if reader.name in view.inlined or reader.fixed:
                continue
            stages = costs.analysis.summaries(reader.name)
            if len(stages) > 1 and stages[-1].scatter:
                clones.append(Clone(base.order[name], (base.order[reader.name],)))
    return tuple(sorted(clones, key=lambda clone: (clone.func, clone.readers)))


def _gathers(costs: CpuCosts) -> bool:
    """Whether some vectors are gathered across rows, so that another storage may be better."""
    view = costs.analysis.view
    for func in view.funcs:
        if func.name not in costs.analysis.regions:
            continue  # read by extern stages alone, who knows where
        for summary in costs.analysis.summaries(func.name):
            block = costs.block(func.name, summary.index)
            if block.vector is None:
                continue
            loop = costs.pure_loops(func.name, summary.index).get(block.vector)
            for load in summary.loads:
                steps = load.strides.get(loop or "", ())
                if not load.indirect and (steps is None or any(steps[1:])):
                    return True
    return False


def _planned(schedule: Schedule, grouping: Grouping[CpuPlan], costs: CpuCosts) -> PlannedSchedule:
    reports = []
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        func = costs.analysis.view.by_name[group.output]
        block = costs.block(group.output, len(func.stages) - 1) if func.extern is None else None
        reports.append(
            GroupReport(
                funcs=group.members,
                output=group.output,
                stage=max(0, len(func.stages) - 1),
                tile=plan.tiling.sizes,
                parallel_tasks=plan.tasks,
                vector_width=block.lanes if block is not None else 0,
                cost=plan.cost,
                seconds=costs.model.seconds(plan.cost),
                notes=(f"members slide along dimension {plan.tiling.sliding.dimension}",)
                if plan.tiling.sliding is not None
                else (),
            )
        )
    return PlannedSchedule(schedule, tuple(reports), grouping.cost)
