"""What `plan` says of schedules that it leaves out, and of what its analysis could not do."""

import halide as hl
import pytest
from cpu_machines import FOUR_CORES

from tilewright.halide.ir.nest import all_guarded
from tilewright.halide.legality.check import Violation
from tilewright.halide.schedulers import registry
from tilewright.halide.schedulers.task import make_task

REFUSED = [Violation("grid", "g", 0, "too many blocks")]


@pytest.fixture
def task():
    """A blur in two steps, for a processor with four cores."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = image[x, y] + image[x + 1, y]
    g[x, y] = f[x, y] + f[x, y + 1]
    g.set_estimates([(0, 2048), (0, 2048)])
    return make_task(g, target="host", machine=FOUR_CORES)


def test_a_schedule_that_is_left_out_is_in_the_notes_of_the_next(task, monkeypatch):
    wanted = registry.plan(task, k=3)
    answers = iter([REFUSED])
    monkeypatch.setattr(registry, "check", lambda *args: next(answers, []))
    found = registry.plan(task, k=3)
    assert wanted[0].schedule not in [planned.schedule for planned in found]
    assert (
        "The model ranked an illegal schedule before this one: g: too many blocks" in found[0].notes
    )
    assert not any("Left out" in note for planned in found[1:] for note in planned.notes)


def test_a_schedule_that_none_follows_is_in_the_notes_of_the_last(task, monkeypatch):
    candidates = registry._planned(task, 3, "nested", None)
    assert len(candidates) == 3
    monkeypatch.setattr(registry, "_planned", lambda *args: candidates)
    answers = iter([[], [], REFUSED])
    monkeypatch.setattr(registry, "check", lambda *args: next(answers, []))
    found = registry.plan(task, k=3)
    assert (
        "The model ranked an illegal schedule after this one: g: too many blocks" in found[1].notes
    )
    assert not any("Left out" in note for note in (*found[0].notes, *found[2].notes))


def test_a_schedule_that_is_left_out_before_a_double_is_not_forgotten(task, monkeypatch):
    first, second = registry._planned(task, 2, "nested", None)
    monkeypatch.setattr(registry, "_planned", lambda *args: [first, second, first])
    answers = iter([[], REFUSED, []])
    monkeypatch.setattr(registry, "check", lambda *args: next(answers, []))
    (only,) = registry.plan(task, k=1)
    assert "The model ranked an illegal schedule after this one: g: too many blocks" in only.notes


def test_the_naive_schedule_says_why_all_others_were_refused(task, monkeypatch):
    candidates = registry._planned(task, 2, "nested", None)
    monkeypatch.setattr(registry, "_planned", lambda *args: candidates)
    answers = iter([REFUSED, REFUSED])
    monkeypatch.setattr(registry, "check", lambda *args: next(answers, []))
    (only,) = registry.plan(task, k=1)
    (note,) = only.notes
    assert note == (
        "This is the naive schedule, because all schedules of the model are illegal: "
        "g: too many blocks"
    )


@pytest.mark.failing_model
def test_a_check_that_fails_leaves_the_schedule_out(task, monkeypatch):
    def broken(*args):
        raise KeyError("f")

    monkeypatch.setattr(registry, "check", broken)
    (only,) = registry.plan(task, k=1)
    assert only.schedule == registry.naive(task)
    assert f"{registry.MODEL_FAILED}: KeyError: 'f'." in only.notes[0]


@pytest.mark.failing_model
def test_variations_that_fail_leave_the_schedules_of_the_model(task, monkeypatch):
    def broken(*args):
        raise KeyError("f")

    before = registry.plan(task, k=1)
    monkeypatch.setattr(registry, "_planned", lambda *args: before)
    monkeypatch.setattr(registry, "variations", broken)
    (found,) = registry.plan(task, k=2)
    assert found.schedule == before[0].schedule
    assert found.notes[-1] == f"{registry.MODEL_FAILED}: KeyError: 'f'."


@pytest.mark.failing_model
def test_tails_that_could_not_be_chosen_are_in_the_notes(task, monkeypatch):
    def broken(schedule, algorithm):
        raise KeyError("f")

    (before,) = registry.plan(task, k=1)
    monkeypatch.setattr(registry, "any_size", broken)
    (found,) = registry.plan(task, k=1)
    assert found.schedule == all_guarded(found.schedule) != before.schedule
    assert f"{registry.GUARDED}: KeyError: 'f'." in found.notes


def test_other_tests_see_a_model_that_fails(task, monkeypatch):
    def broken(*args):
        raise KeyError("f")

    monkeypatch.setattr(registry, "check", broken)
    with pytest.raises(KeyError, match="f"):
        registry.plan(task, k=1)
