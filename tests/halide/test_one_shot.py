"""One shot hands back a schedule that Halide lowers."""

import halide as hl
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import one_shot
from tilewright.halide.search.one_shot import plan_checked


def blurs():
    """Several different schedules are worth trying."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.UInt(16), 2, "data")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = data[x, y] + data[x + 1, y] + data[x + 2, y]
    g[x, y] = f[x, y] + f[x, y + 1] + f[x, y + 2]
    g.set_estimates([(0, 1536), (0, 1024)])
    return g


@pytest.fixture(scope="module")
def task():
    return make_task(blurs())


def refuse(monkeypatch, count):
    """Halide refuses the first `count` different schedules; gives those it was asked about."""
    asked = []

    def refusal(schedule, algorithm, threads=None):
        if schedule not in asked:
            asked.append(schedule)
        return "not today" if asked.index(schedule) < count else ""

    monkeypatch.setattr(one_shot, "refusal", refusal)
    return asked


def test_the_best_that_lowers_is_the_best(task, monkeypatch):
    asked = refuse(monkeypatch, 0)
    assert plan_checked(task) == plan(task)
    assert len(asked) == 1


def test_the_next_is_taken_where_halide_refuses(task, monkeypatch):
    asked = refuse(monkeypatch, 1)
    (found,) = plan_checked(task)
    best = plan(task)[0]
    more = plan(task, k=1 + one_shot.ALTERNATIVES)
    assert found.schedule == next(p.schedule for p in more if p.schedule != best.schedule)
    assert asked[0] == best.schedule
    assert found.notes[-1] == "Halide refused the model's best schedule: not today"


def test_refused_schedules_are_left_out_of_several(task, monkeypatch):
    refuse(monkeypatch, 1)
    assert [p.schedule for p in plan_checked(task, k=2)] == [plan(task, k=2)[1].schedule]


def test_the_naive_schedule_remains_if_all_are_refused(task, monkeypatch):
    many = plan(task, k=1 + one_shot.ALTERNATIVES)
    refuse(monkeypatch, len(many))
    (found,) = plan_checked(task)
    assert found.schedule == one_shot.naive(task)
    assert found.notes[-1] == f"Halide refused {len(many)} schedules: not today"


def test_the_models_schedule_is_returned_if_even_the_naive_is_refused(task, monkeypatch):
    refuse(monkeypatch, 1000)
    found = plan_checked(task)[0]
    assert found.schedule == plan(task)[0].schedule
    assert found.notes[-1] == (
        "Halide refused the pipeline under every schedule, even with every Func at root: not today"
    )


def test_no_check_lowers_nothing(task, monkeypatch):
    asked = refuse(monkeypatch, 1000)
    assert plan_checked(task, check=False) == plan(task)
    assert tilewright.schedule(blurs(), check=False).planned.notes == ()
    assert asked == []


def test_schedule_says_what_was_refused(monkeypatch):
    refuse(monkeypatch, 1)
    result = tilewright.schedule(blurs())
    assert "not today" in result.explain()


def test_an_unknown_target_is_refused_in_one_line():
    with pytest.raises(TilewrightError, match="does not know the target 'cud'") as caught:
        tilewright.schedule(hl.Func("f"), target="cud")
    assert "\n" not in str(caught.value)
    assert "host-cuda" in str(caught.value)
