"""Predicted times: bounds that hold for any GPU, and reductions spread with atomic additions."""

import halide as hl
import pytest
from gpu_pipelines import matmul

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import Task
from tilewright.machines import gpu


def copied(width, height):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = image[x, y] + 1.0
    out.set_estimates([(0, width), (0, height)])
    return load(out)


def rows(width, height):
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    x, y = hl.vars("x y")
    r = hl.RDom([(0, width)], "r")
    out = hl.Func("out")
    out[x, y] = 0
    out[hl.i32(image[r, y]), y] += 1
    out.set_estimates([(0, 256), (0, height)])
    return load(out)


def task_of(algorithm, machine):
    return Task(algorithm, gpu(machine).halide_target, gpu(machine), "test")


def total(algorithm, machine):
    (planned,) = schedule_gpu(algorithm, gpu(machine))
    return predicted(task_of(algorithm, machine), planned.schedule).seconds


@pytest.mark.parametrize("machine", ["v100", "a100", "h100"])
def test_a_copy_takes_as_long_as_its_bytes(machine):
    least = 2 * 4 * 4096 * 4096 / gpu(machine).memory_bandwidth
    assert least <= total(copied(4096, 4096), machine) < 2 * least


def test_a_matrix_product_takes_at_least_its_operations():
    least = 2 * 1024**3 / gpu("a100").peak_flops
    assert least < total(matmul(1024), "a100") < 20 * least


@pytest.mark.thorough
def test_a_newer_gpu_is_expected_to_be_faster():
    times = [total(matmul(1024), machine) for machine in ("k40c", "v100", "h100")]
    assert times == sorted(times, reverse=True)


def test_without_rates_there_is_no_time():
    algorithm = copied(512, 512)
    (planned,) = schedule_gpu(algorithm, gpu("pocl"))
    assert predicted(task_of(algorithm, "pocl"), planned.schedule) is None


def update(algorithm, machine="a100"):
    (planned,) = schedule_gpu(algorithm, gpu(machine))
    entry = planned.schedule.funcs[algorithm.order[algorithm.outputs[0]]]
    return entry.stages[1], planned.groups[1]


def test_a_reduction_of_few_rows_is_spread_over_its_columns():
    stage, group = update(rows(4096, 256))
    assert stage.atomic
    # Neighbouring threads read neighbouring pixels.
    assert next(loop.name for loop in stage.loops if loop.mapping == "gpu_thread").startswith("r0")
    assert group.blocks[0] * group.tile[0] == 4096


def test_a_reduction_of_many_rows_is_not():
    stage, _ = update(rows(64, 100_000))
    assert not stage.atomic
