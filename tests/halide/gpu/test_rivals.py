"""Schedules by other constants are rivals, judged by the model's own."""

from dataclasses import replace

import halide as hl
import pytest

from tilewright.halide.schedulers.analytic.gpu.constants import TIME_ONLY, GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import PRIORS
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupWork
from tilewright.halide.schedulers.analytic.gpu.rivals import (
    DRAWN,
    FACTORS,
    other_constants,
    rival_constants,
)
from tilewright.halide.schedulers.analytic.gpu.scheduler import KeptSearches
from tilewright.halide.schedulers.diversity import differ
from tilewright.halide.schedulers.registry import MODEL_FAILED, plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import gpu

C = GpuConstants()
A100 = gpu("a100")
BETTER = "the best schedule of the search without rivals"


def task(name, machine="v100"):
    return make_task(f"examples/{name}.py:{name}", target="cuda", machine=machine)


def test_no_constant_that_rivals_or_fits_change_affects_plans():
    assert set(PRIORS) | {name for factors in FACTORS for name in factors} <= TIME_ONLY


def test_each_rival_has_other_constants():
    rivals = rival_constants(replace(C, sector_cycles=2.0))
    assert [r.sector_cycles for r in rivals] == [2.0, 1.16]
    assert [r.member_wait for r in rivals] == [1.5, 1.0]


def test_more_are_drawn_where_several_schedules_are_wanted():
    few, more, most = (other_constants(C, A100, k) for k in (1, 3, 50))
    assert [len(each) for each in (few, more, most)] == [0, 2, DRAWN]
    assert most[:2] == more
    assert len({*most, *rival_constants(C), C}) == DRAWN + 3


@pytest.mark.parametrize("unknown", ["clock_hz", "memory_bandwidth"])
def test_none_are_drawn_where_times_cannot_be_predicted(unknown):
    machine = replace(gpu("v100"), **{unknown: None})
    assert other_constants(GpuConstants(), machine, 5) == ()
    x, out = hl.Var("x"), hl.Func("out")
    out[x] = hl.sqrt(hl.f32(x))
    out.set_estimates([(0, 4096)])
    found = plan(make_task(out, target="cuda", machine=machine), k=3)
    assert not any(MODEL_FAILED in note for each in found for note in each.notes)


def test_a_rival_that_is_faster_by_the_models_own_constants_is_chosen():
    made = task("depthwise_conv")
    (chosen,) = plan(made)
    (without,) = plan(made, constants=C)
    assert chosen.cost < 0.95 * without.cost
    assert chosen.schedule != without.schedule
    assert chosen.runner_up.difference == BETTER
    assert chosen.runner_up.seconds == pytest.approx(without.cost)
    # The parts of the report are of the same constants as the whole.
    assert sum(group.cost for group in chosen.groups) == pytest.approx(chosen.cost)
    kept = KeptSearches()
    rivals = [plan(made, constants=each, kept=kept)[0] for each in rival_constants(C)]
    assert chosen.schedule in [each.schedule for each in rivals]


def test_a_slower_rival_changes_nothing_but_may_be_measured():
    made = task("harris", "a100")
    (without,) = plan(made, constants=C)
    first, *others = plan(made, k=5)
    assert first.schedule == without.schedule
    assert first.runner_up == without.runner_up
    assert all(each.cost >= first.cost for each in others)
    constants = (*rival_constants(C), *other_constants(C, A100, 5))
    kept = KeptSearches()
    rivals = [plan(made, constants=each, kept=kept)[0] for each in constants]
    new = [each for each in rivals if differ(each, first, made.algorithm)]
    assert new
    assert others[0].schedule == new[0].schedule


def row_norms(rows, columns):
    """Few long sums, which other schedules split."""
    y = hl.Var("y")
    image, norms = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("norms")
    r = hl.RDom([(0, columns)], "r")
    norms[y] += image[r, y] * image[r, y]
    norms.set_estimates([(0, rows)])
    return norms


@pytest.mark.thorough
def test_what_was_planned_by_other_constants_changes_no_schedule():
    made, other = (
        make_task(row_norms(64, columns), target="cuda", machine="a100")
        for columns in (1 << 12, 1 << 10)
    )
    kept = KeptSearches()
    plan(made, constants=C, kept=kept)
    # Other constants of the time, others of the plans, and another pipeline.
    (drawn,) = other_constants(C, A100, 2)
    several = (made, drawn), (made, replace(C, launch_cost=1.0)), (other, C)
    for task_, constants in several:
        (again,) = plan(task_, constants=constants, kept=kept)
        (fresh,) = plan(task_, constants=constants)
        assert again.schedule == fresh.schedule
        assert again.cost == fresh.cost


@pytest.mark.thorough
def test_work_is_counted_once_for_all_constants(monkeypatch):
    counted = []
    count = GroupWork._count

    def spy(work, new):
        counted.extend(new)
        count(work, new)

    monkeypatch.setattr(GroupWork, "_count", spy)
    made, kept = make_task(row_norms(64, 1 << 14), target="cuda", machine="a100"), KeptSearches()
    plan(made, constants=C, kept=kept)
    assert counted
    counted.clear()
    # So little else that every decision is the same.
    plan(made, constants=replace(C, kernel_cycles=C.kernel_cycles * (1 + 1e-12)), kept=kept)
    assert not counted
