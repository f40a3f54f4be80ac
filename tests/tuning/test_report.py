import html.parser

import numpy as np
import pytest

from tilewright.cli.tune import _result, _text
from tilewright.tuning import (
    Categorical,
    CommandProblem,
    Integer,
    Ordinal,
    Permutation,
    Space,
    tune,
)
from tilewright.tuning.report import best_so_far, importance, tuning_page, write_tuning_page

SPACE = Space(
    [
        Ordinal("tile", (1, 2, 4, 8, 16), scale="log"),
        Integer("unroll", 1, 9),
        Categorical("mode", ("a", "<b>")),
        Permutation("order", ("i", "j")),
    ]
)


def cost(c):
    if c["unroll"] == 9:
        raise RuntimeError("too many registers & <more>")
    return 1.0 + c["tile"] + 0.01 * c["unroll"]


@pytest.fixture(scope="module")
def runs():
    return [tune(cost, SPACE, budget=25, seed=s).trials for s in range(3)]


def test_curves_never_rise(runs):
    for run in runs:
        curve = np.array(best_so_far(run))
        assert (curve[1:] <= curve[:-1]).all()
        assert curve[-1] == min(t.value for t in run)


def test_importance_names_what_matters(runs):
    shares = importance(SPACE, [t for run in runs for t in run])
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["tile"] > 0.8
    assert importance(SPACE, runs[0][:3]) == {}


class Parser(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def test_the_page_holds_everything_in_itself(runs, tmp_path):
    path = tmp_path / "page.html"
    write_tuning_page(path, runs, SPACE, "toy <1>", unit="ms", facts={"seed": "3"})
    parser = Parser()
    parser.feed(path.read_text())
    assert [link for link in parser.links if not link.startswith("#")] == []
    for word in (
        "Best so far",
        "Which parameters matter",
        "toy <1>",
        "Feasibility",
        "<more>",
        "seed",
    ):
        assert word in parser.text
    assert "Median over 3 runs" in parser.text


def test_runs_in_which_nothing_worked_have_a_page_too():
    found = tune(lambda c: None, SPACE, budget=4)
    assert "Feasibility" in tuning_page([found.trials], SPACE, "broken")


def test_two_objectives_show_their_front():
    found = tune(lambda c: (c["tile"], 9 - c["unroll"]), SPACE, budget=15, objectives=2)
    assert "Pareto front" in tuning_page([found.trials], SPACE, "two")


def test_times_are_shown_in_the_unit_that_suits_them():
    found = tune(lambda c: 1e-3 * c["x"], Space([Ordinal("x", (2, 4, 8))]), budget=3)
    page = tuning_page([found.trials], found.tuner.space, "kernel", unit="s")
    assert '<b class="good">2 ms</b>' in page
    assert "objective (s)" not in page


def test_maximised_values_are_shown_as_they_are():
    found = tune(lambda c: -12.5 * c["x"], Space([Ordinal("x", (2, 4, 8))]), budget=3)
    page = tuning_page([found.trials], found.tuner.space, "kernel", unit="GB/s", negated=True)
    assert '<b class="good">100 GB/s</b>' in page
    assert "-100" not in page
    assert "&minus;" not in page.split("How this was made")[0]


def test_importance_is_the_same_for_a_time_and_its_reciprocal_maximised():
    pair = [tune(f, SPACE, budget=20) for f in (cost, lambda c: -1.0 / cost(c))]
    slow, fast = (importance(SPACE, found.trials) for found in pair)
    assert slow == pytest.approx(fast)


def test_what_confirms_the_best_is_counted_apart():
    found = tune(lambda c: 1e-3 * c["x"], Space([Ordinal("x", (2, 4, 8))]), budget=3, confirm=2)
    again = sum(t.suggestion.origin == "confirm" for t in found.trials)
    assert again >= 2
    counts = f"3 evaluations and {again} to confirm the best, 0 failed; stopped: "
    problem = CommandProblem("kernel", found.tuner.space, {"value": "time"})
    text = _text(found, problem)
    assert text.startswith(counts)
    assert "best 2 ms" in text
    assert counts in found._repr_html_()
    data = _result(found, problem)
    assert (data["evaluations"], data["confirmations"]) == (3, again)


def test_page_and_result_have_the_same_best():
    times = iter([2.0, 9.0, 5.0, 5.0, 6.0])  # of x = 2, once and again; the others are slower
    space = Space([Ordinal("x", (2, 4, 8))])

    def run(c):
        return 1e-3 * (next(times) if c["x"] == 2 else 40 * c["x"])

    found = tune(run, space, budget=3, confirm=2)
    assert found.best.value == pytest.approx(5e-3)
    page = tuning_page([found.trials], space, "kernel", unit="s")
    assert '<b class="good">5 ms</b>' in page
    assert "<b>3</b><span>evaluations</span>" in page
    assert "1 parameter, 3 feasible" in page
