"""The figures of the estimate of registers, from rows written by hand."""

import gzip
import json

import numpy as np
import pytest

import gpu_registers as benchmark
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.register_features import FEATURES, RegisterTerms
from tilewright.halide.schedulers.analytic.gpu.registers import LEAST, from_json, inputs, shipped


def row(program, registers, terms, spill=0, needed=10.0, words=False, loops=True):
    rest = [0.0] * (len(FEATURES) - len(terms))
    return [program, "a100", "drawn", registers, spill, needed, words, loops, *terms, *rest]


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
    found, linear = benchmark.held_out(rows)
    assert linear == pytest.approx(np.maximum(real, LEAST), rel=1e-2)
    assert found == pytest.approx(linear, rel=0.05)
    constants, _ = benchmark.fitted(rows)
    names = ("base", *RegisterTerms._fields)
    fitted = [getattr(constants, f"ptxas_{name}") for name in names]
    assert fitted == pytest.approx([5, 2, 0, 0, 3, 0, 0], abs=1e-6)
    # A program that is unlike the others is not learned from itself.
    odd = [row("odd", 60.0, r[8:]) for r in rows[:9]]
    assert np.abs(benchmark.held_out([*rows, *odd])[0][-9:] - 60.0).max() > 10


def test_trees_correct_what_the_linear_estimate_misses():
    rows = made(40)
    for each in rows:
        if each[8] > 5:
            each[3] *= 2
    found, linear = benchmark.held_out(rows)
    _, real = benchmark.table(rows)
    off, before = (np.abs(np.log(each / real)).mean() for each in (found, linear))
    assert off < before / 2


def test_the_summary_counts_what_the_search_would_limit():
    rows = made()
    rows.append(row("straight", 90.0, [10] * 6, spill=8, loops=False))
    rows.append(row("sums", 90.0, [10] * 6, spill=8, words=True))
    rows.append(row("random:1", 99.0, [15] * 6, spill=8, needed=20.0))
    found = benchmark.summary(rows, ["program1", "program2", "sums"])
    assert found["kernels"] == len(rows)
    assert found["kernels_held_out"] == 19
    assert found["pipelines"] == 15
    assert found["random_pipelines"] == 1
    assert found["flagged_before"] == found["flagged_spilling_before"] == 0
    assert found["flagged"] == found["flagged_spilling"] == 1


def test_the_model_that_is_written_is_read(tmp_path):
    rows, path = made(), tmp_path / "model.json"
    found = {"kernels": 108, "pipelines": 12, "registers_spearman": 1.0, "over64_auc": 1.0}
    benchmark.train({"rows": rows, "ptxas": "13.0"}, found, str(path))
    model = from_json(path.read_text())
    assert model.provenance["pipelines"] == 12
    assert json.loads(path.read_text())["features"] == list(FEATURES)


def test_the_hash_of_a_kernel_ignores_its_position():
    ptx = "{{\n$L__BB{0}_2:\nadd.s32 %r1, %r2;\n}}\n// Begin {0}\n.globl other{0}"
    hashes = {benchmark.code_of("sm_90", ptx.format(i)) for i in (3, 14)}
    assert len(hashes) == 1
    assert benchmark.code_of("sm_80", ptx.format(3)) not in hashes
    assert benchmark.code_of("sm_90", ptx.format(3).replace("add", "sub")) not in hashes


@pytest.fixture(scope="module")
def committed():
    with gzip.open(benchmark.DATA, "rt") as file:
        return json.load(file)


def test_the_committed_kernels_have_the_features_of_the_model(committed):
    rows = committed["rows"]
    assert {len(each) for each in rows} == {len(benchmark.COLUMNS) + len(FEATURES)}
    assert len(rows) == len(committed["codes"]) == len(set(committed["codes"]))
    # The shipped constants are the fitted ones.
    with (benchmark.common.HERE / "results" / "gpu_registers.json").open() as result:
        fitted = json.load(result)["summary"]["constants_fitted"]
    names = ("base", *RegisterTerms._fields)
    assert [getattr(GpuConstants(), f"ptxas_{name}") for name in names] == fitted


def test_a_pipeline_whose_kernels_spill_is_expected_to(committed):
    """Merged kernels of the bilateral grid, with loads in a loop, spill 108 to 980 bytes."""
    spill = benchmark.COLUMNS.index("spill")
    rows = [r for r in committed["rows"] if r[0] == "bilateral_grid" and r[spill] > 0]
    features, _ = benchmark.table(rows)
    given = inputs(features, GpuConstants())
    estimate = given[:, -1] * np.exp(shipped().trees(given))
    assert len(rows) >= 5
    assert estimate.min() - GpuConstants().ahead_registers > 56


def test_the_shipped_model_is_of_the_committed_kernels(committed):
    rows = committed["rows"][::20]
    features, real = benchmark.table(rows)
    given = inputs(features, GpuConstants())
    estimate = given[:, -1] * np.exp(shipped().trees(given))
    found = benchmark.agreement(estimate, real)
    assert found["registers_spearman"] > 0.9
    assert found["over64_auc"] > 0.95
