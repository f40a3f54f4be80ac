"""The benchmark of costs under the released weights: figures."""

import pytest

import halide_learned_static


def row(program, ours, theirs, held_out=False):
    costs = {
        kind: {"milliseconds": cost, "cpu_seconds": 2.0}
        for kind, cost in zip(halide_learned_static.KINDS, ours, strict=True)
    }
    plugin = {"status": "timeout", "cpu_seconds": 120.0}
    if theirs is not None:
        plugin = {"status": "ok", "cpu_seconds": 8.0, "milliseconds": theirs}
    return {"program": program, "held_out": held_out, "ours": costs, "plugin": plugin}


def test_costs_are_ratios_to_the_plugins():
    rows = [
        row("blur", (4.0, 2.0, 1.0, 0.5), 2.0),
        row("stranger_haar", (2.0, 2.0, 1.0, 1.0), 2.0, held_out=True),
        row("harris", (1.0, 1.0, 1.0, 1.0), None),
    ]
    found = halide_learned_static.summary(rows)
    assert found["released_model_score"] == pytest.approx(2**0.5)
    assert found["released_model_score_low"] == pytest.approx(1.0)
    assert found["released_model_score_high"] == pytest.approx(2.0)
    assert found["released_model_score_held_out"] == pytest.approx(1.0)
    assert found["released_model_score_plans"] == pytest.approx(1.0)
    assert found["released_model_score_tuned"] == pytest.approx(0.5)
    assert found["released_model_score_search"] == pytest.approx(0.125**0.5)
    assert found["released_model_score_programs"] == 2
    assert found["search_ratio"] == pytest.approx(0.25)
    assert found["plugin_status"] == {"ok": 2, "timeout": 1}
    assert found["failures"] == 0


def test_a_schedule_without_features_or_a_crash_is_a_failure():
    rows = [row("blur", (None, 2.0, 1.0, 1.0), 2.0)]
    rows.append(
        {**row("harris", (1, 1, 1, 1), 1.0), "ours": {"status": "failed", "message": "gone"}}
    )
    found = halide_learned_static.summary(rows)
    assert found["failures"] == 1 + len(halide_learned_static.KINDS)
    assert found["released_model_score"] is None
    assert found["released_model_score_plans_programs"] == 1
