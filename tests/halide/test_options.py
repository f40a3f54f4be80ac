"""What `schedule` and `compare` take: in groups, by name, and by short forms."""

import html
import re
from typing import Any

import halide as hl
import pytest

import tilewright
from tilewright import Budget, Measuring, Planning
from tilewright.errors import TilewrightError
from tilewright.halide.options import CommonOptions, Groups, ScheduleOptions, grouped

x, y = hl.vars("x y")
KNOWN = ScheduleOptions.__optional_keys__


def groups(planning=None, measuring=None, budget=None, **options):
    return grouped("schedule", planning, measuring, budget, options, KNOWN)


def test_named_options_go_into_their_group():
    assert groups(k=3, seed=7, jobs=2) == Groups(Planning(k=3), Measuring(seed=7), Budget(jobs=2))


def test_a_name_goes_before_what_its_group_says():
    found = groups(Planning(k=3, fusion="none"), budget=Budget(1.0, jobs=4), k=5, time_limit=None)
    assert found.planning == Planning(k=5, fusion="none")
    assert found.budget == Budget(jobs=4)


@pytest.mark.parametrize(
    ("earlier", "existing"),
    [
        ({"keep_schedule": True}, "keep"),
        ({"discard_schedule": True}, "discard"),
        ({"improve": True, "discard_schedule": True}, "improve"),
        ({"keep_schedule": False, "improve": False}, "refuse"),
    ],
)
def test_names_of_earlier_versions_say_what_becomes_of_a_schedule(earlier, existing):
    assert groups(**earlier).planning == Planning(existing=existing)


def test_an_earlier_name_that_says_nothing_leaves_the_group_as_it_is():
    kept = Planning(existing="keep")
    assert groups(kept, keep_schedule=False, discard_schedule=False).planning == kept


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep_schedule": True, "discard_schedule": True}, "only one of keep_schedule"),
        ({"keep_schedule": True, "improve": True}, "leave out keep_schedule"),
        ({"k": 0}, "k=0"),
        ({"evaluations": 0}, "evaluations=0"),
        ({"existing": "drop"}, "refuse, keep, discard, improve"),
    ],
)
def test_contradictory_options_are_refused(options, said):
    with pytest.raises(TilewrightError, match=said):
        groups(**options)


def test_an_option_that_there_is_not_is_refused_with_the_nearest():
    wrong: dict[str, Any] = {"time_limt": 3}
    with pytest.raises(TypeError, match=r"schedule\(\).*'time_limt'; did you mean 'time_limit'"):
        tilewright.schedule(object(), **wrong)
    others: dict[str, Any] = {"verify": True}
    with pytest.raises(TypeError, match=r"compare\(\).*'verify'"):
        tilewright.compare(object(), **others)


def test_every_field_can_be_given_by_its_name():
    own = {name for group in (Planning, Measuring, Budget) for name in group.__annotations__}
    assert {*KNOWN} == {*own, "keep_schedule", "discard_schedule", "improve"}
    assert CommonOptions.__optional_keys__ < KNOWN


def test_groups_schedule_as_names_do():
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = x * y
    g[x, y] = f[x, y] + f[x + 1, y]
    g.set_estimates([(0, 640), (0, 480)])
    grouped_result = tilewright.schedule(g, planning=Planning(k=2, exact_sizes=True))
    named = tilewright.schedule(g, k=2, exact_sizes=True)
    assert [r.schedule for r in grouped_result.top()] == [r.schedule for r in named.top()]
    assert len(named.top()) == 2
    assert named.task.exact_sizes


def test_notebooks_show_results_and_schedules():
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = x * y
    g[x, y] = f[x, y] + f[x + 1, y]
    g.set_estimates([(0, 640), (0, 480)])
    result = tilewright.schedule(g, name="a < b")
    shown = result._repr_html_()
    assert "a &lt; b for host: not run" in shown
    assert all(group.name in shown for group in result.report().groups)
    page = html.unescape(re.findall('srcdoc="([^"]*)"', shown)[0])
    assert "<svg" in page  # the graph
    assert 'class="nest"' in page
    table = result.schedule._repr_html_()
    assert "Schedule for host" in table
    assert table.count("<tr") == 1 + len(result.schedule.funcs)
    assert "(parallel)" in table
