"""On a GPU the predicted time decides: over groups, points per thread and tiles."""

import math
import re
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import analysed, bare, khwz, matmul, pyramid
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.halide import schedule
from tilewright.halide.analysis.gpu_launches import launches, middle_launches
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu import group_times, time_search
from tilewright.halide.schedulers.analytic.gpu.constants import (
    TIME_ONLY,
    GpuConstants,
    differing,
)
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes, GroupWork
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.recomputing import cut_at, cuts
from tilewright.halide.schedulers.analytic.gpu.registers import estimated_registers
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.gpu.time_search import TimeSearch, points_of
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import Task, make_task
from tilewright.machines import gpu

GPU = gpu("v100")
LIMITS = Limits(1024, 48 * 1024)


def chain(stages=6, width=1536, height=1024, taps=2):
    """Stencils one after the other: what is fused is computed again at the borders of blocks."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    last = hl.BoundaryConditions.repeat_edge(image, [(0, width), (0, height)])
    for i in range(stages):
        func = hl.Func(f"stencil_{i}")
        around = [
            last[x + dx, y + dy] for dx in range(-taps, taps + 1) for dy in range(-taps, taps + 1)
        ]
        func[x, y] = sum(around[1:], around[0])
        last = func
    last.set_estimates([(0, width), (0, height)])
    return load(last)


def box_blur(width=1536, height=1024):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, out = hl.Func("across"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    out[x, y] = across[x, y] + across[x, y + 1] + across[x, y + 2]
    out.set_estimates([(0, width), (0, height)])
    return load(out)


PIPELINES = {"khwz": khwz, "matmul": matmul, "pyramid": pyramid, "chain": chain, "blur": box_blur}


def task_of(algorithm, machine=GPU):
    return Task(algorithm, machine.halide_target, machine, "test")


def searching(algorithm, machine=GPU, constants=None):
    base = analysed(algorithm, specialize=True)
    inlined = choose_inlined(
        base, load_weight=1.0, cache_bytes=machine.l2_bytes, constants=constants
    )
    return GroupingSearch(base, machine, inlined, constants)


# --- the time of a group --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_the_times_of_groups_make_up_that_of_the_schedule(name):
    algorithm = PIPELINES[name]()
    search = searching(algorithm)
    for options in (Options(), Options("none"), Options(points=(2, 2))):
        times = GroupTimes(search)
        timed = times.timed([(group, options) for group in search.groups(options)])
        together = math.fsum(part.seconds for part in times.times(timed))
        whole = predicted(task_of(algorithm), search.plan(options).schedule)
        assert together == pytest.approx(whole.seconds, rel=1e-3)


def test_the_work_of_a_plan_is_counted_once():
    search = searching(box_blur())
    times = GroupTimes(search)
    wanted = [(group, Options()) for group in search.groups(Options())]
    (first,) = times.timed(wanted)
    assert times.spent == 2
    # Another setting that leads to the same plan costs nothing.
    (second,) = times.timed([(wanted[0][0], Options(register_tiles=False))])
    assert times.spent == 2
    assert second.parts is first.parts


@pytest.mark.parametrize("name", PIPELINES)
def test_plans_and_their_work_are_the_same_whatever_the_constants_of_time(name):
    algorithm = PIPELINES[name]()
    plain = GpuConstants()
    other = replace(plain, **{field: 3.0 * getattr(plain, field) for field in TIME_ONLY})
    assert differing(plain, other) == TIME_ONLY
    found = []
    for constants in (plain, other):
        search = searching(algorithm, constants=constants)
        groups = [(group, Options()) for group in search.groups(Options())]
        found.append(GroupTimes(search).timed(groups))
    one, three = found
    assert all(each.plan.kernels for each in one)
    assert [each.group for each in one] == [each.group for each in three]
    assert repr([each.parts for each in one]) == repr([each.parts for each in three])
    assert [each.seconds for each in one] != [each.seconds for each in three]


def test_work_that_is_shared_is_timed_by_each_ones_constants():
    algorithm = box_blur()
    search = searching(algorithm)
    wanted = [(group, Options()) for group in search.groups(Options())]
    work = GroupWork(search)
    slow = replace(GpuConstants(), kernel_cycles=1e6)
    (plain,), (slower,) = (GroupTimes(search, c, work).timed(wanted) for c in (None, slow))
    assert plain.parts is slower.parts
    assert slower.seconds > 2.0 * plain.seconds
    assert (
        slower.seconds == GroupTimes(searching(algorithm, constants=slow)).timed(wanted)[0].seconds
    )


def row_sums():
    """Running sums along rows, whose steps may be unrolled."""
    x, y = hl.vars("x y")
    image, sums = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("sums")
    r = hl.RDom([(1, 4096)], "r")
    sums[x, y] = hl.f32(0.0)
    sums[r, y] = sums[r - 1, y] + image[r - 1, y]
    sums.set_estimates([(0, 4097), (0, 512)])
    return load(sums)


@pytest.mark.parametrize(
    ("made", "other"),
    [(box_blur, Options(any_size=True)), (row_sums, Options(scanned=True))],
)
def test_options_that_affect_only_the_code_have_work_of_their_own(made, other):
    search = searching(made())
    work = GroupWork(search)
    parts = []
    for options in (Options(), other):
        wanted = [(group, options) for group in search.groups(options)]
        (shared,), (alone,) = (GroupTimes(search, None, w).timed(wanted) for w in (work, None))
        assert repr(shared.parts) == repr(alone.parts)
        parts.append(repr(shared.parts))
    assert len(set(parts)) == 2


def test_only_some_loops_at_root_are_looked_at():
    algorithm = chain(3)
    search = searching(algorithm)
    schedule = search.plan(Options("none")).schedule
    analysis = nest_analysis(algorithm, schedule)
    whole = ScheduledNest(analysis, schedule)
    for func in range(len(algorithm.funcs)):
        part = ScheduledNest(analysis, schedule, only={func}, whole=whole.whole)
        own = [loop for loop in whole.loops if loop.stage[0] == func]
        assert [(loop.name, loop.extent) for loop in part.loops] == [
            (loop.name, loop.extent) for loop in own
        ]


@pytest.mark.parametrize("name", PIPELINES)
def test_blocks_in_the_middle_are_those_of_the_launch(name):
    algorithm = PIPELINES[name]()
    schedule = searching(algorithm).plan(Options()).schedule
    nest = ScheduledNest(nest_analysis(algorithm, schedule), schedule)
    found = middle_launches(nest)
    assert found
    for quick, exact in zip(found, launches(nest), strict=True):
        assert (quick.func, quick.stage, quick.registers) == (
            exact.func,
            exact.stage,
            exact.registers,
        )
        assert np.prod(quick.block) <= np.prod(exact.block)
        assert quick.shared_bytes <= exact.shared_bytes


# --- cutting --------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_cut_has_every_func_once_and_no_reader_outside(data):
    algorithm = data.draw(st.sampled_from([khwz(), chain(4), pyramid()]))
    view = View(algorithm)
    members = tuple(func.name for func in view.funcs)
    name = data.draw(st.sampled_from(members[:-1]))
    parts = cut_at(view, Group(members), name)
    assert sorted(member for part in parts for member in part.members) == sorted(members)
    assert name in {part.output for part in parts}
    assert parts[-1].output == members[-1]
    for part in parts:
        for member in part.members[:-1]:
            assert set(view.consumers[member]) <= set(part.members)


def test_the_cut_that_saves_most_comes_first():
    # Of a chain, the first stencils are computed again most often; to cut in the middle saves
    # that for all of them.
    algorithm = chain(6)
    search = searching(algorithm)
    group = Group(tuple(func.name for func in search.view.funcs))
    found = cuts(search.model, search.final_plan(group, Options()), group)
    assert len(found) == len(group.members) - 1
    outputs = [bare(parts[0].output) for parts in found]
    assert outputs[-1] != outputs[0]
    assert outputs[0].startswith("stencil")


# --- the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.few(2)
def test_one_shot_is_at_least_as_fast_as_all_that_the_cost_would_choose(name):
    algorithm = PIPELINES[name]()
    task = task_of(algorithm)
    (best,) = schedule_gpu(algorithm, GPU)
    assert not check(best.schedule, algorithm, LIMITS)
    assert best.cost == pytest.approx(predicted(task, best.schedule).seconds, rel=1e-3)
    assert best.cost == pytest.approx(sum(group.cost for group in best.groups), rel=1e-6)
    for mode in ("nested", "none"):
        (other,) = schedule_gpu(algorithm, GPU, mode=mode, objective="sioutas")
        assert best.cost <= 1.001 * predicted(task, other.schedule).seconds


def test_threads_compute_several_points_where_that_is_faster():
    (best,) = schedule_gpu(box_blur(), GPU)
    assert "unrolled" in {
        loop.mapping for e in best.schedule.funcs for s in e.stages for loop in s.loops
    }
    (paper,) = schedule_gpu(box_blur(), GPU, objective="sioutas")
    assert best.cost < 0.8 * predicted(task_of(box_blur()), paper.schedule).seconds


@pytest.mark.thorough
def test_a_chain_of_wide_stencils_is_not_fused_whole():
    algorithm = chain(8)
    (paper,) = schedule_gpu(algorithm, GPU, objective="sioutas")
    (best,) = schedule_gpu(algorithm, GPU)
    assert max(len(group.funcs) for group in best.groups) < 8
    assert best.cost < predicted(task_of(algorithm), paper.schedule).seconds


def test_the_papers_objective_leaves_the_time_out(monkeypatch):
    algorithm = box_blur()
    wanted = searching(algorithm).plan(Options()).schedule
    monkeypatch.setattr(TimeSearch, "best", None)
    (found,) = schedule_gpu(algorithm, GPU, objective="sioutas")
    assert found.schedule == wanted


def test_without_rates_the_cost_decides():
    algorithm = box_blur()
    unknown = replace(GPU, clock_hz=None)
    (found,) = schedule_gpu(algorithm, unknown)
    (paper,) = schedule_gpu(algorithm, GPU, objective="sioutas")
    assert found.schedule == paper.schedule


def test_plans_that_would_spill_are_not_taken(monkeypatch):
    # Every plan needs registers of its own: as if all code were loops.
    monkeypatch.setattr(group_times, "needed_registers", estimated_registers)
    algorithm = box_blur()
    free = TimeSearch(GroupTimes(searching(algorithm)), Options()).best()
    limited = replace(time_search.SEARCH, most_estimated_registers=0.0)
    monkeypatch.setattr(time_search, "SEARCH", limited)
    search = TimeSearch(GroupTimes(searching(algorithm)), Options())
    best = search.best()
    (plain,) = search.times.timed([(each.group, Options()) for each in best.groups])
    assert best.groups[0].registers <= plain.registers < free.groups[0].registers
    assert free.seconds < best.seconds


def test_straight_code_may_use_all_registers(monkeypatch):
    algorithm = box_blur()
    free = TimeSearch(GroupTimes(searching(algorithm)), Options()).best()
    limited = replace(time_search.SEARCH, most_estimated_registers=0.0)
    monkeypatch.setattr(time_search, "SEARCH", limited)
    best = TimeSearch(GroupTimes(searching(algorithm)), Options()).best()
    assert best.seconds == free.seconds


def spilling_from(monkeypatch, funcs):
    """Let every kernel with at least that many stages be expected to spill; return the search."""
    monkeypatch.setattr(
        group_times,
        "needed_registers",
        lambda kernel, _: 200.0 if len(kernel.stages) >= funcs else 10.0,
    )
    return TimeSearch(GroupTimes(searching(pyramid())), Options())


def limits(monkeypatch, **changes):
    monkeypatch.setattr(time_search, "SEARCH", replace(time_search.SEARCH, **changes))


def test_what_the_search_starts_with_is_replaced_if_it_would_spill(monkeypatch):
    free = spilling_from(monkeypatch, 100).best()
    most = max(len(each.group.members) for each in free.groups)
    assert most > 1
    # All plans of the largest group spill, so it is cut in two.
    limits(monkeypatch, spill_slack=10.0)
    found = spilling_from(monkeypatch, most).best()
    assert max(each.registers for each in found.groups) == 10.0
    assert max(len(each.group.members) for each in found.groups) < most
    assert len(found.groups) > len(free.groups)
    names = [
        sorted(bare(name) for each in made.groups for name in each.group.members)
        for made in (free, found)
    ]
    assert names[0] == names[1]


def test_a_plan_that_would_spill_stays_where_all_others_are_much_slower(monkeypatch):
    free = spilling_from(monkeypatch, 100).best()
    most = max(len(each.group.members) for each in free.groups)
    for changes in ({"spill_slack": 1.0}, {"spill_slack": 10.0, "unspilled_effort": 0}):
        with monkeypatch.context() as patch:
            limits(patch, **changes)
            found = spilling_from(patch, most).best()
            assert max(each.registers for each in found.groups) == 200.0
            assert found.seconds == free.seconds


def test_the_effort_is_bounded(monkeypatch):
    algorithm = chain(8)
    least = 2 * 9  # the groups that a search starts from, the input's boundary with them
    nothing = dict.fromkeys(
        ("most_timed", "cutting_effort", "merging_effort", "reshaping_effort"), 0
    )
    monkeypatch.setattr(time_search, "SEARCH", replace(time_search.SEARCH, **nothing))
    search = TimeSearch(GroupTimes(searching(algorithm)), Options())
    assert search.best() is not None
    assert search.times.spent <= least


def test_neighbouring_points_stay_within_the_limits():
    search = TimeSearch(GroupTimes(searching(box_blur())), Options())
    best = search.best()
    (now,) = best.groups
    x, y = points_of(now.plan)
    assert x <= time_search.SEARCH.most_points[0]
    assert y <= time_search.SEARCH.most_points[1]
    assert x * y <= time_search.SEARCH.most_register_tile


def test_top_schedules_follow_in_order_of_time():
    planned = schedule_gpu(khwz(), GPU, k=5)
    costs = [each.cost for each in planned]
    assert len(costs) == 5
    assert costs[1:] == sorted(costs[1:])
    (best,) = schedule_gpu(khwz(), GPU)
    assert planned[0].schedule == best.schedule


def test_the_runner_up_is_slower_and_said():
    algorithm = box_blur()
    (best,) = schedule_gpu(algorithm, GPU)
    second = best.runner_up
    assert second.seconds >= best.cost
    assert re.fullmatch(
        r"out with (\d+x\d+ points per thread, not \d+x\d+|tiles of [\dx]+, not [\dx]+|members .*)"
        r"|every Func( of the large groups)? in a kernel of its own"
        r"|the \d+ groups? of least cost \(Sioutas 2020\)",
        second.difference,
    )
    (paper,) = schedule_gpu(algorithm, GPU, objective="sioutas")
    assert paper.runner_up is None


def test_explaining_says_what_limits_each_kernel_and_what_came_second():
    algorithm = box_blur()
    sizes = {algorithm.outputs[0]: [(0, 1536), (0, 1024)]}
    result = schedule(algorithm.serialized, machine="v100", estimates=sizes)
    text = result.explain()
    (row,) = result.report().groups
    assert row.limit in text
    assert row.limit in ("issue", "l1", "l2", "memory", "shared", "latency", "launch")
    assert f"{row.occupancy:.0%}" in text
    if row.occupancy < 1.0:
        assert f"({row.occupancy_limit})" in text
    assert "Runner-up, predicted " in text
    paper = schedule(algorithm.serialized, machine="v100", estimates=sizes, objective="sioutas")
    assert "Runner-up" not in paper.explain()


def test_an_unknown_objective_is_refused():
    x = hl.Var("x")
    out = hl.Func("out")
    out[x] = x
    out.set_estimates([(0, 1024)])
    with pytest.raises(TilewrightError, match="objective='speed' is unknown: use one of time"):
        plan(make_task(out, machine=GPU), objective="speed")
