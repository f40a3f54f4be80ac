from dataclasses import fields

import numpy as np
import pytest
from gpu_pipelines import kernel_of, khwz, matmul, pyramid

from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, ramp
from tilewright.halide.schedulers.analytic.gpu.nested import optimize_granularity
from tilewright.halide.schedulers.analytic.gpu.occupancy import residency
from tilewright.machines import gpu

MODEL = CostModel(residency(gpu("rtx2080ti")))


def tilings(*rows):
    return np.array(rows, dtype=np.float64)


def test_example_of_the_paper():
    # Z tiled 32x12; W needs four rows more: a block of 32x16 = 512 threads, 2048 bytes.
    kernel = kernel_of(khwz(), "Z", ["W"], inlined=("E_im", "H", "K"))
    costs = MODEL.costs(kernel, tilings([32, 12]))
    assert [float(extent[0]) for extent in costs.threads] == [32, 16, 1]
    assert costs.thread_count[0] == 512
    assert costs.shared[0] == 2048
    assert costs.launch_occupancy[0] == 1.0
    # Listing 1 looks at every stage: Z's 384 threads alone would fill three quarters.
    assert costs.occupancy[0] == 0.75
    assert costs.legal[0]
    assert costs.warps_full[0]


@pytest.mark.parametrize("nest", [False, True])
@pytest.mark.parametrize(
    ("algorithm", "output", "members", "inlined"),
    [
        (khwz(), "Z", ["K", "H", "W"], ["E_im"]),
        (matmul(), "out", ["prod"], ["A_im", "B_im"]),
        (pyramid(), "out", ["down", "downy", "up"], ["image_im"]),
    ],
)
def test_arrays_of_tilings_cost_what_each_costs_alone(algorithm, output, members, inlined, nest):
    kernel = kernel_of(algorithm, output, members, inlined)
    nested = optimize_granularity(kernel) if nest else {}
    rows = tilings([8, 8], [16, 8], [32, 12], [10, 40], [64, 64])
    together = MODEL.costs(kernel, rows, None, nested)
    for i, row in enumerate(rows):
        alone = MODEL.costs(kernel, row[None], None, nested)
        for field in fields(alone):
            if field.name in ("constants", "tiles", "registers", "threads"):
                continue
            expected = getattr(alone, field.name)[0]
            assert getattr(together, field.name)[i] == pytest.approx(expected), field.name
        for a, b in zip(together.threads, alone.threads, strict=True):
            assert a[i] == b[0]


def test_too_many_threads_and_too_much_shared_memory_are_illegal():
    kernel = kernel_of(khwz(), "Z", ["K", "W"], inlined=("E_im", "H"))
    costs = MODEL.costs(kernel, tilings([32, 28], [32, 32], [128, 6]))
    assert costs.legal.tolist() == [True, False, False]
    assert costs.thread_count.tolist() == [1024, 32 * 36, 128 * 10]
    wide = kernel_of(matmul(64), "out", ["prod"], ["A_im", "B_im"])
    assert MODEL.costs(wide, tilings([32, 32])).legal[0]
    assert not MODEL.costs(wide, tilings([128, 128])).legal[0]


def test_a_gpu_that_is_not_filled_is_seen():
    kernel = kernel_of(khwz(256, 256), "Z", ["W"], inlined=("E_im", "H", "K"))
    costs = MODEL.costs(kernel, tilings([32, 32], [8, 8], [10, 8]))
    assert costs.blocks.tolist() == [64, 1024, 26 * 32]
    assert costs.all_sms.tolist() == [False, True, True]
    assert costs.warps_full.tolist() == [True, True, False]
    assert costs.active_sms.tolist() == [64, 68, 68]


def test_memory_is_hidden_in_the_final_pass_only():
    kernel = kernel_of(khwz(), "Z", inlined=("E_im", "H"))
    costs = MODEL.costs(kernel, tilings([32, 8]))
    assert (
        costs.total(final=False)[0]
        == costs.arithmetic[0] + costs.memory[0] + MODEL.constants.launch_cost
    )
    hiding = costs.occupancy[0] * costs.active_threads[0]
    assert costs.total(final=True)[0] == costs.arithmetic[0] + costs.memory[0] / hiding


def test_a_load_weighs_more_as_its_footprint_grows():
    weights = ramp(np.array([0.0, 32.0, 64.0, 1e9]), 200.0, 64.0)
    assert weights.tolist() == [1.0, 101.0, 200.0, 200.0]


def test_rows_of_threads_load_together():
    # The same number of tiles of one size: long in x, accesses share transactions.
    kernel = kernel_of(khwz(), "Z", inlined=("E_im", "H", "K"))
    costs = MODEL.costs(kernel, tilings([16, 16], [8, 32]))
    assert costs.memory[0] < costs.memory[1]


def test_values_kept_in_registers_are_limited():
    kernel = kernel_of(matmul(), "out", ["prod"], ["A_im", "B_im"])
    nested = optimize_granularity(kernel)
    shares = tilings([1, 1], [4, 8], [8, 8])
    costs = MODEL.costs(kernel, 16 * shares, shares, nested)
    assert costs.legal.tolist() == [True, True, False]
    assert costs.thread_count.tolist() == [256, 256, 256]
    assert costs.shared.tolist() == [0, 0, 0]
    # Every operand that is loaded serves a row or a column of them.
    assert costs.memory[1] < costs.memory[0]
