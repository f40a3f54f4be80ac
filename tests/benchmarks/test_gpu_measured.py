"""How measured GPU schedules are read and ranked."""

import numpy as np
import pytest


def rows(*seconds):
    return [{"program": "blur", "seconds": each} for each in seconds]


def test_a_ranking_counts_pairs_that_differ_enough():
    import gpu_measured

    (row,) = gpu_measured.ranked(rows(1.0, 1.1, 2.0, 4.0), np.array([2.0, 1.0, 4.0, 3.0]))
    # 1.0 and 1.1 are too close to count, and 2.0 and 4.0 are in the wrong order.
    assert (row["pairs"], row["pairs_in_order"]) == (5, 4)
    assert row["regret"] == pytest.approx(1.1)
    assert row["bias"] == pytest.approx((24.0 / 8.8) ** 0.25)


def test_schedules_without_a_prediction_are_left_out():
    import gpu_measured

    predicted = np.array([1.0, np.nan, 2.0, 3.0])
    (row,) = gpu_measured.ranked(rows(1.0, 9.0, 2.0, 4.0), predicted)
    assert (row["schedules"], row["spearman"]) == (3, 1.0)
    found = gpu_measured.figures(rows(1.0, 9.0, 2.0, 4.0), predicted)
    assert (found["ordering_rate"], found["top1_regret"]) == (1.0, 1.0)


def test_what_an_h100_ran_is_predicted():
    import gpu_measured
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants

    device, found = gpu_measured.loaded(gpu_measured.DATA)
    found = [row for row in found if row["program"] == "blur" and row["schedule"]]
    gpu = gpu_measured.machine(device["machine"])
    counts, network = gpu_measured.observed(found, gpu)
    seconds = gpu_measured.seconds(counts, gpu, GpuConstants())
    assert len(found) == len(network) == 16
    assert gpu_measured.figures(found, seconds)["ordering_rate"] >= 0.8


def test_schedules_that_are_measured_again_are_replaced():
    import gpu_measured

    def row(program, variant, schedule, seconds):
        return {"program": program, "variant": variant, "schedule": schedule, "seconds": seconds}

    before = [row("blur", "a", {"n": 1}, 1.0), row("blur", "hand", None, 2.0)]
    new = [row("blur", "b", {"n": 1}, 3.0), row("harris", "hand", None, 4.0)]
    assert gpu_measured.merged(before, new) == [before[1], *new]
