"""The estimate of what ptxas gives a thread without a limit, by hand."""

import dataclasses
import math

import pytest

from tilewright.halide.schedulers.analytic.gpu.addressing import Addressing
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.kernel_time import needed_registers
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.register_features import (
    FEATURES,
    LARGEST,
    register_features,
    register_terms,
)
from tilewright.halide.schedulers.analytic.gpu.registers import (
    LEAST,
    RegisterModel,
    estimated_registers,
    from_json,
    inputs,
    shipped,
)
from tilewright.halide.schedulers.analytic.gpu.stage_work import StageWork, Waits, WarpAccess
from tilewright.halide.schedulers.analytic.gpu.warps import TouchedLines

C = GpuConstants(
    ptxas_base=1.0,
    ptxas_instructions=2.0,
    ptxas_words=3.0,
    ptxas_values=5.0,
    ptxas_loads=7.0,
    ptxas_dimensions=11.0,
    ptxas_patterns=13.0,
    unrolled_wholly=16.0,
    unrolled_partly=4.0,
    ahead_registers=6.0,
    learned_registers=0.0,
)
TOUCHED = TouchedLines(2.0, 4.0, 1.0, 1.0)
NO_WAITS = Waits(0.0, 0.0, 0.0, 0.0)


def stage(iterations, copies, runs=1.0, steps=1.0, held=0.0):
    """Return a stage whose body has 10 instructions, 2 loads from memory and a store."""
    times = max(iterations, runs)
    loads = WarpAccess("memory", False, 2.0 * times, TOUCHED)
    store = WarpAccess("memory", True, times, TOUCHED)
    return StageWork(
        False, 64.0, 2.0, runs, 9.0 * times, times, iterations, copies, steps, 0.0, held,
        (loads, store), NO_WAITS,
    )  # fmt: skip


def kernel(*stages, registers=0.0):
    return KernelWork(
        "f", 0, 1.0, 7.0, (16, 8, 1), 0.0, registers, stages, {}, 64.0, 0.0, 4, 0
    )  # fmt: skip


@pytest.mark.parametrize(
    ("iterations", "runs", "copies_of_body"),
    [
        (0.0, 1.0, 1),  # no loop
        (9.0, 1.0, 9),  # a 3 x 3 filter
        (16.0, 1.0, 16),
        (17.0, 1.0, 4),  # too long to be unrolled as a whole
        (32.0, 4.0, 8),  # per run
        (0.0, 4.0, 1),
    ],
)
def test_terms_of_one_stage(iterations, runs, copies_of_body):
    terms = register_terms(kernel(stage(iterations, 2.0, runs)), C)
    assert terms.instructions == pytest.approx(math.sqrt(13 * copies_of_body))
    assert terms.values == pytest.approx(math.sqrt(2 * min(copies_of_body, 4)))
    assert terms.loads == pytest.approx((2 * copies_of_body) ** 0.75)
    assert terms.dimensions == 2
    assert terms.patterns == 2


def test_stages_add_up_except_their_loads():
    terms = register_terms(kernel(stage(0.0, 3.0), stage(8.0, 1.0), registers=25.0), C)
    assert terms.instructions == pytest.approx(math.sqrt(13 + 13 * 8))
    assert terms.values == pytest.approx(math.sqrt(3 + 4))
    assert terms.loads == pytest.approx(16**0.75) == 8.0
    assert terms.words == 5.0
    assert terms.patterns == 4


def test_every_term_has_its_constant():
    found = kernel(stage(0.0, 3.0), stage(8.0, 1.0), registers=25.0)
    terms = register_terms(found, C)
    weighted = sum(map(math.prod, zip(terms, (2, 3, 5, 7, 11, 13), strict=True)))
    assert estimated_registers(found, C) == pytest.approx(1 + weighted)


def test_the_least_estimate():
    assert estimated_registers(kernel(), dataclasses.replace(C, ptxas_dimensions=0.0)) == LEAST


def feature(found, name):
    return register_features(found, C)[FEATURES.index(name)]


def test_features_are_sums_and_maxima_over_stages():
    found = kernel(stage(0.0, 3.0), stage(8.0, 1.0, steps=2.0), registers=25.0)
    assert len(register_features(found, C)) == len(FEATURES) == len(set(FEATURES))
    assert feature(found, "sum_copies") == 4.0
    assert feature(found, "most_copies") == 3.0
    # Per execution of the body: 9 instructions, 2 loads from memory, a store.
    assert feature(found, "sum_plain") == 18.0
    assert feature(found, "most_loads") == 2.0
    assert feature(found, "sum_stores") == 2.0
    assert feature(found, "most_values") == 3.0
    assert feature(found, "most_ahead") == 16.0
    assert feature(found, "sum_looped") == 1.0
    assert feature(found, "kernel_words") == 25.0
    assert feature(found, "kernel_threads") == 128.0


def test_loads_that_move_along_the_innermost_loop_are_ahead():
    loop = dataclasses.replace(
        stage(24.0, 1.0), serial=(1.0, 24.0, 1.0), addressing=Addressing(fixed=5.0, moving=3.0)
    )
    found = kernel(loop)
    assert feature(found, "most_depth") == 1.0
    assert feature(found, "most_innermost") == 24.0
    assert feature(found, "most_ahead_few") == 3.0 * 4
    assert feature(found, "most_ahead_many") == 3.0 * 16


def test_features_are_finite():
    endless = dataclasses.replace(kernel(stage(8.0, 1.0)), shared=math.inf)
    assert feature(endless, "kernel_shared") == LARGEST
    assert all(map(math.isfinite, register_features(kernel(), C)))


def test_the_correction_is_weighted():
    found = kernel(stage(8.0, 1.0), stage(0.0, 2.0))
    linear = estimated_registers(found, C)
    trees = shipped().trees(inputs(register_features(found, C)[None], C))[0]
    assert trees != 0.0
    for weight in (0.5, 1.0):
        c = dataclasses.replace(C, learned_registers=weight)
        assert estimated_registers(found, c) == pytest.approx(linear * math.exp(weight * trees))


def test_the_model_is_the_same_after_writing_and_reading():
    again = from_json(shipped().to_json())
    rows = inputs(register_features(kernel(stage(8.0, 1.0)), C)[None], C)
    assert again.trees(rows) == shipped().trees(rows)
    assert again.provenance == shipped().provenance
    assert again.provenance["kernels"] >= 20_000


def test_a_model_of_other_features_is_refused():
    other = RegisterModel(shipped().trees).to_json().replace("kernel_threads", "kernel_warps")
    with pytest.raises(ValueError, match="train it again"):
        from_json(other)


def test_what_loops_load_ahead_is_needed_unless_funcs_are_in_registers():
    loop = kernel(stage(8.0, 1.0))
    assert needed_registers(loop, C) == pytest.approx(estimated_registers(loop, C) - 6.0)
    # The old estimate counts where it is higher, in straight code and with Funcs in registers.
    high = dataclasses.replace(C, register_base=500.0)
    assert needed_registers(loop, high) > 500.0
    assert needed_registers(kernel(stage(0.0, 1.0)), C) == C.register_base
    in_registers = kernel(stage(8.0, 1.0), registers=4.0)
    assert needed_registers(in_registers, C) < estimated_registers(in_registers, C) - 6.0


def test_sums_need_registers_together_with_their_operands_and_the_sizes():
    c = dataclasses.replace(C, register_base=2.0, register_dimension=1.5)
    small = kernel(stage(8.0, 4.0, steps=8.0, held=12.0), registers=4.0)
    large = kernel(stage(8.0, 4.0, steps=8.0, held=112.0), registers=4.0)
    assert needed_registers(large, c) == pytest.approx(2.0 + 4 * 1.5 + 4.0 + 112.0)
    assert needed_registers(small, c) < needed_registers(large, c) - 90.0
    # Operands that are not copied are loaded one after the other.
    assert needed_registers(kernel(stage(8.0, 4.0, held=112.0)), c) == needed_registers(
        kernel(stage(8.0, 4.0)), c
    )
