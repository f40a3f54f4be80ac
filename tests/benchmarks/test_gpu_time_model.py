"""The time model of GPU kernels ranks simulated schedules at least this well."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

import gpu_time_model as benchmark
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import predicted_cycles

RESULT = Path(benchmark.__file__).parent / "results" / "gpu_time_model.json"
LARGEST_FILE = 100_000
# Of the two programs below, a little under what the shipped constants reach: 0.93 and 0.94.
LEAST_SPEARMAN = 0.88
MOST_REGRET = 1.12


def recorded(program, kernels=()):
    return {
        "program": program,
        "size": {},
        "cycles": 1000,
        "kernels": list(kernels),
        "instructions_of": [(2.0, 1.0)],
        "predicted_cost": 1.0,
    }


def test_the_file_is_small():
    assert benchmark.DATA.stat().st_size <= LARGEST_FILE


def test_the_model_ranks_what_was_simulated():
    rows = benchmark.recorded(benchmark.DATA, ["blur", "matmul"])
    found = benchmark.observed(rows)
    predicted = predicted_cycles(found, benchmark.machine(), benchmark.constants())
    table = benchmark.ranked(rows, {"shipped": predicted.tolist()})
    blur, matmul, alone = table
    assert blur["spearman_shipped"] >= LEAST_SPEARMAN
    assert blur["regret_shipped"] <= MOST_REGRET
    assert matmul["spearman_shipped"] >= 0.75
    assert alone["schedules"] == 1
    assert "spearman_shipped" not in alone
    assert benchmark.instruction_error(rows) < 0.25


def test_a_new_fit_ranks_no_better_than_the_constants_of_the_model():
    result = json.loads(RESULT.read_text())
    assert set(result["fitted_to_all"]) <= {field.name for field in fields(GpuConstants)}
    summary = result["summary"]
    assert summary["spearman_median_shipped"] >= summary["spearman_median_fitted_to_all"]
    assert summary["top1_regret_shipped"] <= summary["top1_regret_fitted_to_all"]


def test_every_program_has_a_family():
    members = [name for family in benchmark.FAMILIES.values() for name in family]
    rows = benchmark.recorded(benchmark.DATA, members)
    assert {row["program"] for row in rows} == set(members)
    assert len(members) == len(set(members))
    assert benchmark.family("blur") == benchmark.family("harris") != benchmark.family("fft")


def test_launches_count():
    assert benchmark.total_cycles(recorded("f", [1, 2])) == 1000 + 2 * benchmark.LAUNCH_CYCLES


def test_ranks_and_regret():
    rows = [{**recorded("f"), "cycles": n} for n in (100, 200, 400)]
    predictions = {"program_out": [1, 2, 3], "paper": [3, 2, 1], "unfitted": [1, 1, 1]}
    (row,) = benchmark.ranked(rows, predictions)
    assert row["regret_program_out"] == 1.0
    assert row["spearman_unfitted"] == 0.0
    assert row["instruction_error"] == pytest.approx(0.693, abs=1e-3)
    found = benchmark.summary(rows, [row], predictions)
    assert found["spearman_median"] == pytest.approx(1.0)
    assert found["spearman_min_paper"] == pytest.approx(-1.0)
    assert found["top1_regret_paper"] == pytest.approx(4.0)
    assert found["log_correlation"] > 0.9 > 0.0 > found["log_correlation_paper"]


def test_the_choice_is_compared_with_others_of_the_same_program_and_size():
    launch = benchmark.LAUNCH_CYCLES
    rows = [{**recorded("f", [1]), "cycles": n} for n in (100, 200, 400)]
    others = [
        {**recorded("f", [1]), "kind": "hand", "cycles": 300},
        {**recorded("f", [1]), "kind": "Li2018", "cycles": 50, "size": {"width": 2}},
    ]
    (row,) = benchmark.ranked(rows, {"paper": [3, 1, 2]}, others)
    assert row["hand_over_paper"] == pytest.approx((300 + launch) / (200 + launch))
    assert "li2018_over_paper" not in row
    found = benchmark.figures([row], "paper")
    assert found["hand_over_choice"] == row["hand_over_paper"]
    assert found["li2018_over_choice"] is None
