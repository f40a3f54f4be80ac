"""The figures of the estimate of registers, from rows written by hand."""

import numpy as np
import pytest

import gpu_registers as benchmark


def row(program, registers, terms, spill=0, needed=10.0, words=False, loops=True):
    return [program, "a100", "drawn", registers, spill, needed, words, loops, *terms]


def test_ranks_and_pairs():
    real = np.array([10.0, 20.0, 70.0, 80.0])
    found = benchmark.agreement(np.array([1.0, 3.0, 2.0, 4.0]), real)
    # One pair of four is out of order, and so is one of the 2 x 2 pairs across the limit.
    assert found["registers_spearman"] == pytest.approx(0.8)
    assert found["over64_auc"] == 0.75
    assert benchmark.agreement(real, real[:2].repeat(2))["over64_auc"] is None


def made(count=12):
    random = np.random.default_rng(1)
    rows = []
    for i in range(count):
        for terms in random.random((9, 6)) * 10:
            registers = 5 + 2 * terms[0] + 3 * terms[3]
            rows.append(row(f"program{i}", registers, terms, int(registers > 45)))
    return rows


def test_a_program_is_left_out_of_the_fit_to_the_others():
    rows = made()
    _, real = benchmark.table(rows)
    assert benchmark.held_out(rows) == pytest.approx(real)
    assert benchmark.fitted(rows) == pytest.approx([5, 2, 0, 0, 3, 0, 0], abs=1e-6)
    # A program that is unlike the others is not learned from itself.
    odd = [row("odd", 60.0, r[8:]) for r in rows[:9]]
    assert np.abs(benchmark.held_out([*rows, *odd])[-9:] - 60.0).max() > 10


def test_the_summary_counts_what_the_search_would_limit():
    rows = made()
    rows.append(row("straight", 90.0, [10] * 6, spill=8, loops=False))
    rows.append(row("sums", 90.0, [10] * 6, spill=8, words=True))
    rows.append(row("random:1", 99.0, [15] * 6, spill=8, needed=20.0))
    found = benchmark.summary(rows)
    assert found["kernels"] == len(rows)
    assert found["pipelines"] == 15
    assert found["random_pipelines"] == 1
    assert found["flagged_before"] == found["flagged_spilling_before"] == 0
    assert found["flagged"] == found["flagged_spilling"] == 1
