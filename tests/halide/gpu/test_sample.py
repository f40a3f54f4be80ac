import json
from dataclasses import replace

import halide as hl
import pytest
from gpu_pipelines import khwz, matmul
from test_scheduler import SMALL_GPU, assert_right, example

from support.gpu_sample import sample_gpu
from tilewright.halide.ir.json import to_json
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu


def texts(samples):
    return [to_json(sample.planned.schedule) for sample in samples]


def test_samples_are_distinct_legal_and_the_same_for_the_same_seed():
    algorithm = khwz()
    samples = list(sample_gpu(algorithm, gpu("h100"), 20, seed=3))
    assert len(set(texts(samples))) == len(samples) == 20
    for sample in samples:
        assert not check(sample.planned.schedule, algorithm, Limits(1024, 48 * 1024))
    assert texts(sample_gpu(khwz(), gpu("h100"), 20, seed=3)) == texts(samples)
    assert set(texts(sample_gpu(algorithm, gpu("h100"), 20, seed=4))) - set(texts(samples))


def test_samples_are_spread_around_what_the_model_likes_best():
    algorithm = matmul()
    (best,) = schedule_gpu(algorithm, gpu("a100"), objective="sioutas")
    costs = [s.planned.cost for s in sample_gpu(algorithm, gpu("a100"), 40)]
    assert max(costs) > 4 * best.cost
    assert min(costs) < 1.5 * best.cost


def test_grouping_varies():
    counts = {len(s.planned.groups) for s in sample_gpu(khwz(), gpu("a100"), 20)}
    assert len(counts) > 1


def test_features_are_numbers_of_every_kernel():
    for sample in sample_gpu(matmul(), gpu("a100"), 5):
        data = json.loads(json.dumps(sample.features))
        assert [k["func"] for k in data if k["kind"] != "nothing"] == [
            group.output for group in sample.planned.groups
        ]
        for kernel, group in zip(data, sample.planned.groups, strict=True):
            if kernel["kind"] == "parallel":
                assert kernel["tile"] == list(group.tile)
                assert kernel["blocks"] >= 1
                assert 0 < kernel["occupancy"] <= 1


@pytest.mark.opencl
@pytest.mark.parametrize("name", ["harris", pytest.param("matmul", marks=pytest.mark.thorough)])
def test_samples_compute_the_right_thing(name):
    algorithm = example(name)
    for sample in sample_gpu(algorithm, SMALL_GPU, 4, seed=1):
        assert_right(algorithm, sample.planned.schedule)


def test_a_pipeline_with_one_schedule_gives_that_one():
    x = hl.Var("x")
    out = hl.Func("one")
    out[x] = x
    out.set_estimates([(0, 1)])
    from tilewright.halide.frontend.source import load

    tiny = replace(gpu("a100"), max_threads_per_block=32)
    samples = list(sample_gpu(load(out), tiny, 50))
    assert 1 <= len(samples) < 50
