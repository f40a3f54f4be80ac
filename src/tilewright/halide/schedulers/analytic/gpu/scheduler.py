"""The analytic GPU scheduler (Sioutas 2020): converts an algorithm to schedules, without compiling.

Steps: inline Funcs; group the others greedily with power-of-two tiles; tile the final groups in
steps of two; nest members in threads where that is cheaper; generate the loops. Stages that the
model cannot analyse get a separate kernel or stay on the host. By default, `time_search` chooses
everything after inlining by predicted time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.bounds import Box
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import Added, with_clones
from tilewright.halide.ir.plan import PlannedSchedule, RunnerUp
from tilewright.halide.schedulers.analytic.gpu.assemble import scanned_in_memory
from tilewright.halide.schedulers.analytic.gpu.constants import (
    SEARCH,
    TIME_ONLY,
    GpuConstants,
    differing,
)
from tilewright.halide.schedulers.analytic.gpu.group_times import (
    GroupTimes,
    GroupWork,
    TimedGroup,
    can_predict,
)
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
from tilewright.halide.schedulers.analytic.gpu.plan import Mode, Objective, Options
from tilewright.halide.schedulers.analytic.gpu.splitting import (
    SHAPES,
    idle_reductions,
    split_reductions,
    whole_outputs,
)
from tilewright.halide.schedulers.analytic.gpu.time_search import TimedSchedule, TimeSearch
from tilewright.halide.schedulers.analytic.gpu.wrapping import (
    wrapped_reductions,
    wrapped_windows,
)
from tilewright.halide.schedulers.diversity import LEAST_SHARE, Chosen
from tilewright.machines import GpuMachine


def schedule_gpu(
    algorithm: Algorithm,
    machine: GpuMachine,
    *,
    boxes: Mapping[str, Box] | None = None,
    scalars: Mapping[str, float] | None = None,
    mode: Mode = "nested",
    k: int = 1,
    any_size: bool = False,
    constants: GpuConstants | None = None,
    objective: Objective = "time",
    rivals: Sequence[GpuConstants] = (),
    others: Sequence[GpuConstants] = (),
    kept: KeptSearches | None = None,
) -> list[PlannedSchedule]:
    """Return up to `k` distinct schedules for a GPU, the model's best first.

    Args:
        algorithm: The pipeline.
        machine: The GPU.
        boxes: Required region of each output, by default the pipeline's estimates.
        scalars: Expected value of each symbol, by default `Algorithm.symbols`.
        mode: How Funcs are fused.
        k: Number of schedules to return at most.
        any_size: Whether outputs may be smaller than a tile. This costs time before each launch.
        constants: The model's constants, by default `GpuConstants()`.
        objective: What to minimise: predicted time, in seconds, or the cost of Sioutas 2020. The
            cost is also used if the GPU's rates or the pipeline's sizes are unknown.
        rivals: Other constants. The best schedule by each is a candidate for the first, judged by
            `constants`: the search, which improves one schedule step by step, ends elsewhere with
            them.
        others: Constants whose best schedules follow those of the rivals, to be measured.
        kept: Plans of earlier calls for the same pipeline, which this call reuses and adds to.

    Raises:
        TilewrightError: The extent of an output is unknown.
    """
    if boxes is None:
        boxes = _boxes(algorithm)
    if scalars is None:
        scalars = algorithm.symbols
    # Unbounded regions have infinite ends, whose differences may be NaN.
    with np.errstate(invalid="ignore", over="ignore"):
        first = Options(mode, any_size=any_size)
        searches = (kept or KeptSearches()).of(
            algorithm, machine, boxes, scalars, constants or GpuConstants()
        )
        if objective == "time" and can_predict(machine):
            try:
                found = _fastest(searches, first, k, rivals, others)
            except UNKNOWN:
                found = []
            if found:
                return found
        return _cheapest(searches, first, k)


@dataclass
class _GroupingSearches:
    """The searches of one pipeline, one per setting of `Options.inline`.

    `base` is the analysis with nothing inlined; `scalars` are the values of symbols that it uses.
    `constants` are those of the predicted times. `extensions` are searches with added Funcs.
    """

    base: Analysis
    scalars: Mapping[str, float]
    machine: GpuMachine
    constants: GpuConstants
    known: dict[bool, GroupWork] = field(default_factory=dict)
    extensions: dict[tuple[Added, ...], _GroupingSearches] = field(default_factory=dict)

    def __getitem__(self, inline: bool) -> GroupingSearch:
        """Return the search for a value of `Options.inline`."""
        return self._work(inline).search

    def times(self, inline: bool) -> GroupTimes:
        """Return the predicted times of the search's groups."""
        work = self._work(inline)
        return GroupTimes(work.search, self.constants, work)

    def timed_by(self, constants: GpuConstants) -> _GroupingSearches:
        """Return searches with other constants; if these affect only times, plans are shared."""
        if differing(self.constants, constants) <= TIME_ONLY:
            return replace(self, constants=constants)
        return replace(self, constants=constants, known={}, extensions={})

    def extended(self, added: Sequence[Added]) -> _GroupingSearches:
        """Return searches of the pipeline with added Funcs."""
        key = tuple(added)
        if key not in self.extensions:
            extended = with_clones(self.base.view.algorithm, key)
            again = Analysis(View(extended), self.base.output_boxes, self.scalars, specialize=True)
            self.extensions[key] = replace(self, base=again, known={}, extensions={})
        return self.extensions[key].timed_by(self.constants)

    def _work(self, inline: bool) -> GroupWork:
        if inline not in self.known:
            inlined = choose_inlined(
                self.base,
                load_weight=1.0 if inline else self.constants.cautious_load,
                cache_bytes=self.machine.l2_bytes,
                constants=self.constants,
            )
            search = GroupingSearch(self.base, self.machine, inlined, self.constants)
            self.known[inline] = GroupWork(search)
        return self.known[inline]


class KeptSearches:
    """The plans of a pipeline, kept between calls of `schedule_gpu` with other constants.

    Only one thread may use it.
    """

    def __init__(self) -> None:
        self._last: _GroupingSearches | None = None

    def of(
        self,
        algorithm: Algorithm,
        machine: GpuMachine,
        boxes: Mapping[str, Box],
        scalars: Mapping[str, float],
        constants: GpuConstants,
    ) -> _GroupingSearches:
        """Return the searches of a pipeline.

        Those of the last call are reused if algorithm, GPU, boxes and scalars are the same.
        """
        last = self._last
        if last is None or not (
            last.base.view.algorithm is algorithm
            and last.machine == machine
            and last.base.output_boxes == boxes
            and last.scalars == scalars
        ):
            base = Analysis(View(algorithm), boxes, scalars, specialize=True)
            last = _GroupingSearches(base, dict(scalars), machine, constants)
        self._last = last.timed_by(constants)
        return self._last


@dataclass(frozen=True, eq=False)
class _Found:
    """The fastest schedule of a search with its variations, and all that were found.

    `pool` has pairs of a schedule and its search, the fastest one among them.
    """

    searches: _GroupingSearches
    best: TimedSchedule
    search: TimeSearch
    pool: list[tuple[TimedSchedule, TimeSearch]]


def _fastest(
    searches: _GroupingSearches,
    first: Options,
    k: int,
    rivals: Sequence[GpuConstants],
    others: Sequence[GpuConstants],
) -> list[PlannedSchedule]:
    """Return up to `k` distinct schedules: the fastest, the best by other constants, then more."""
    found = _searched(searches, first)
    if found is None:
        return []
    c = searches.constants
    apart = list(_by_other_constants(found.searches, first, rivals))
    pool = [*found.pool, *apart]
    chosen = Chosen(searches.base.view.algorithm)
    best, search = min(pool, key=lambda pair: pair[0].seconds)
    if best is found.best:
        runner_up = found.search.runner_up(best)
    else:
        runner_up = RunnerUp(found.best.seconds, "the best schedule of the search without rivals")
    chosen.offer(replace(search.planned(best, c), runner_up=runner_up))
    if k == 1:
        return chosen.best(k)
    for made, own in chain(apart, _by_other_constants(found.searches, first, others)):
        if len(chosen.accepted) == k:
            return chosen.best(k)
        if made is not best:
            chosen.offer(own.planned(made, c))
    search = found.search
    # Plans do not depend on `unroll`.
    options = [o for o in _variations(search.first, k)[1:] if o.inline and o.unroll]
    pool += [(made, search) for made in search.others(found.best, options, k)]
    searches = found.searches
    if searches[False].view.inlined != searches[True].view.inlined:
        cautious = TimeSearch(searches.times(False), first)
        less = cautious.best()
        pool += [(less, cautious)] if less is not None else []
    for made, own in sorted(pool, key=lambda pair: pair[0].seconds):
        if made is not best and len(chosen.accepted) < k:
            chosen.offer(own.planned(made, c))
    return chosen.best(k)


def _searched(searches: _GroupingSearches, first: Options, extend: bool = True) -> _Found | None:
    """Return the fastest schedule, and those with wrapped, split and scanned Funcs; None if none.

    The time is predicted with the constants of `searches`. Without `extend`, no Funcs are added.
    """
    search = TimeSearch(searches.times(True), first)
    best = search.best()
    if best is None:
        return None
    pool = [(best, search)]
    large = search.large(best)
    extensions = chain(
        _wrapped(searches, large),
        _whole(searches, large),
        _windows(searches, large),
        _split(searches, large),
    )
    for extended in extensions if extend else ():
        rivals = _rivals(extended, first, search)
        pool += rivals
        for made, own in rivals:
            if made.seconds < best.seconds:
                searches, search, best = extended, own, made
    if _scans(search, best):
        pool += _rivals(searches, replace(first, scanned=True), search)
        best, search = min(pool, key=lambda pair: pair[0].seconds)
    return _Found(searches, best, search, pool)


def _by_other_constants(
    searches: _GroupingSearches, first: Options, rivals: Sequence[GpuConstants]
) -> Iterator[tuple[TimedSchedule, TimeSearch]]:
    """Yield the fastest schedule by each of the `rivals`, with its time by the constants in use.

    `searches` are those of the best schedule: rivals have its added Funcs and no others. Pipelines
    with many Funcs, whose search takes long, have no rivals.
    """
    if len(searches.base.view.algorithm.funcs) > SEARCH.most_funcs_split:
        return
    for constants in rivals:
        found = _searched(searches.timed_by(constants), first, extend=False)
        if found is not None:
            yield found.search.retimed(found.best, searches.constants), found.search


def _rivals(
    searches: _GroupingSearches, options: Options, now: TimeSearch
) -> list[tuple[TimedSchedule, TimeSearch]]:
    """Return the best schedule of another search; none if it is far slower before refinement."""
    own = TimeSearch(searches.times(True), options)
    made = own.best(SEARCH.wrapped_slack * now.grouped_seconds)
    return [] if made is None else [(made, own)]


def _scans(search: TimeSearch, best: TimedSchedule) -> bool:
    """Return whether updates of a large group's Funcs scan a dimension that is not innermost."""
    analysis = search.search.analysis
    names = {name for each in search.large(best) for name in each.group.members}
    return any(scanned_in_memory(analysis, name) for name in names)


def _wrapped(
    searches: _GroupingSearches, large: Sequence[TimedGroup]
) -> Iterator[_GroupingSearches]:
    """Yield searches with wrappers of the reductions that `large` groups sum up in memory, if any.

    Pipelines that have clones already are left as they are.
    """
    base = searches.base
    algorithm = base.view.algorithm
    kernels = [kernel for each in large for kernel in each.plan.kernels]
    in_memory = {kernel.kernel.output for kernel in kernels}
    for kernel in kernels:
        in_memory |= set(kernel.kernel.members) - set(kernel.nested)
    wrappers = wrapped_reductions(base, in_memory)
    if wrappers and not algorithm.copies:
        yield searches.extended(wrappers)


def _whole(searches: _GroupingSearches, large: Sequence[TimedGroup]) -> Iterator[_GroupingSearches]:
    """Yield searches in which the outputs of `large` groups accumulate in registers, if any.

    Pipelines that have clones already, and those with many Funcs, are left as they are.
    """
    algorithm = searches.base.view.algorithm
    if len(algorithm.funcs) > SEARCH.most_funcs_split or algorithm.original is not None:
        return
    names = sorted({name for each in large for name in each.group.members})
    added = whole_outputs(searches.base, names)
    if added:
        yield searches.extended(added)


def _windows(
    searches: _GroupingSearches, large: Sequence[TimedGroup]
) -> Iterator[_GroupingSearches]:
    """Yield searches with wrappers of the Funcs that `large` groups read windows of, if any.

    Pipelines that have clones already, and those with many Funcs, are left as they are.
    """
    algorithm = searches.base.view.algorithm
    if len(algorithm.funcs) > SEARCH.most_funcs_split or algorithm.original is not None:
        return
    kernels = [kernel for each in large for kernel in each.plan.kernels]
    wrappers = wrapped_windows(searches[True].analysis, kernels)
    if wrappers:
        yield searches.extended(wrappers)


def _split(searches: _GroupingSearches, large: Sequence[TimedGroup]) -> Iterator[_GroupingSearches]:
    """Yield searches with the reductions in `large` groups split that leave the GPU idle.

    There is one for each of `SHAPES` that is possible. Pipelines that have clones already, and
    those with many Funcs, whose search takes long, are left as they are.
    """
    base, machine = searches.base, searches.machine
    algorithm = base.view.algorithm
    if len(algorithm.funcs) > SEARCH.most_funcs_split:
        return
    names = sorted({name for each in large for name in each.group.members})
    threads = machine.sms * machine.max_threads_per_sm
    idle = idle_reductions(base, names, threads / searches.constants.idle_factor)
    if not idle or algorithm.original is not None:
        return
    seen = set()
    for shape in SHAPES:
        added = split_reductions(base, idle, shape)
        if added and added not in seen:
            seen.add(added)
            yield searches.extended(added)


def _cheapest(searches: _GroupingSearches, first: Options, k: int) -> list[PlannedSchedule]:
    """Return up to `k` distinct schedules: that of Sioutas 2020, then others in order of cost."""
    found = Chosen(searches.base.view.algorithm)
    for options in _variations(first, k):
        if len(found.accepted) >= k:
            break
        found.offer(searches[options.inline].plan(options))
    best = found.accepted[0]
    if len(found.accepted) < k:
        others = other_tilings(searches[first.inline], first, best, k - len(found.accepted))
        for planned in sorted(others, key=lambda p: p.cost):
            if len(found.accepted) < k:
                found.offer(planned)
    ranked = sorted(found.accepted[1:], key=lambda p: p.cost)
    return [best, *ranked, *found.reserve][:k]


def other_tilings(
    search: GroupingSearch, first: Options, planned: PlannedSchedule, count: int
) -> list[PlannedSchedule]:
    """Return plans that each tile one expensive kernel differently, up to `count` per kernel."""
    found: list[PlannedSchedule] = []
    total = sum(group.cost for group in planned.groups)
    for group in sorted(planned.groups, key=lambda group: -group.cost):
        if not group.tile or group.cost < LEAST_SHARE * total:
            continue
        seen = [(group.output, group.stage, group.tile)]
        while len(seen) <= count:
            other = search.plan(replace(first, unlike=tuple(seen)))
            places = [(kernel.output, kernel.stage, kernel.tile) for kernel in other.groups]
            new = [place for place in places if place[:2] == seen[0][:2] and place not in seen]
            if not new:
                break
            seen += new
            found.append(other)
    return found


def _boxes(algorithm: Algorithm) -> dict[str, Box]:
    missing = [
        f"{name}.{arg}"
        for name in algorithm.outputs
        for arg in algorithm.by_name[name].args
        if arg not in algorithm.by_name[name].estimates
    ]
    if missing:
        raise TilewrightError(
            f"no estimate for {', '.join(missing)}: call set_estimates on the output, or give "
            "the extents as an argument"
        )
    return estimated_boxes(View(algorithm))


def _variations(first: Options, k: int) -> list[Options]:
    """Return the options to try in turn until there are `k` distinct schedules."""
    if k <= 1:
        return [first]
    others: list[Mode] = [m for m in ("nested", "overlapped", "none") if m != first.mode]
    return [
        first,
        replace(first, points=(2, 2)),
        replace(first, mode=others[0]),
        replace(first, points=(1, 4)),
        replace(first, max_threads=SEARCH.fewer_threads),
        replace(first, inline=False),
        replace(first, mode=others[1]),
        replace(first, max_threads=SEARCH.fewest_threads),
        replace(first, unroll=False),
        replace(first, register_tiles=False),
        replace(first, points=(2, 1)),
        replace(first, points=(1, 2), max_threads=SEARCH.fewer_threads),
        replace(first, inline=False, max_threads=SEARCH.fewer_threads),
        replace(first, mode=others[0], max_threads=SEARCH.fewer_threads),
        replace(first, mode=others[1], max_threads=SEARCH.fewer_threads),
        replace(first, mode=others[1], inline=False),
    ]
