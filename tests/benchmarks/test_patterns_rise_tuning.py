"""RISE's kernels: records fit their spaces, experts' schedules are derivable, figures by hand."""

import pytest

import patterns_rise_tuning as rise
from tilewright.patterns import size_names
from tilewright.tuning.problems.recordings import configurations, read_recording


@pytest.mark.parametrize("name", rise.NAMES)
def test_a_record_has_every_configuration_and_the_experts(name):
    kernel = rise.kernel_of(name)
    record = read_recording(rise.DATA / f"{name}.json.gz")
    assert len(record.values) == sum(1 for _ in configurations(kernel.space))
    assert record.optimum <= record(kernel.expert)
    assert not size_names(kernel.derive(kernel.expert))


def test_evaluations_are_counted_until_the_time_is_reached():
    assert rise.evaluations_to([3.0, None, 2.0, 1.0], 2.0, 4) == 3 / 4
    assert rise.evaluations_to([3.0, None, 2.0, 1.0], 1.0, 3) == rise.NEVER
    assert rise.best_at([None, 3.0, 2.0], 2, 9.0) == 3.0
    assert rise.best_at([None], 1, 9.0) == 9.0


def row(tool, full, counts):
    known = {"kernel": "a", "tool": tool, "seeds": 3, "configurations": 8, "failed": 1}
    return known | {"vs_expert": dict.fromkeys(rise.BUDGETS, full), "evals_to_best_peer": counts}


def test_the_figures_compare_with_the_best_peer():
    rows = [
        row(rise.OURS, 1.2, [0.25, 0.5, rise.NEVER]),
        row("random", 0.6, []),
        row("pyatf", 0.8, []),
    ]
    found = rise.summary(rows)
    assert found["vs_expert_full"] == pytest.approx(1.2)
    assert found["vs_best_peer_full"] == pytest.approx(1.5)
    assert found["evals_to_best_peer"] == pytest.approx(0.5)
    assert found["reached"] == pytest.approx(2 / 3)
