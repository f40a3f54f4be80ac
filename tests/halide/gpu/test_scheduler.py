import functools
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import khwz, matmul
from halide_constructs import CONSTRUCTS, pipeline

import common
from tilewright.errors import TilewrightError
from tilewright.halide.execution.binding import bind, deserialize, output_array
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.execution.runner import Runner, schedule_plainly
from tilewright.halide.execution.verification import accepted, compare, tolerance
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import to_json
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu

LIMITS = Limits(1024, 48 * 1024)
# PoCL with the limits of an integrated GPU.
SMALL_GPU = replace(gpu("pocl"), max_threads_per_block=512, features=("cl_doubles",))
# The same with the rates of another GPU, so that its times can be predicted.
A100 = gpu("a100")
TIMED = replace(SMALL_GPU, clock_hz=A100.clock_hz, memory_bandwidth=A100.memory_bandwidth)


@functools.cache
def example(name, **sizes):
    module = common.example(name)
    return load(getattr(module, name)(**{**module.SMALL, **sizes}))


def values(outputs, inputs):
    kinds = [kind for output in inputs.outputs for kind in output.types]
    return [np.array(output_array(o, kind)) for o, kind in zip(outputs, kinds, strict=True)]


@functools.lru_cache(maxsize=4)
def plain_answers(algorithm, inputs):
    live = deserialize(algorithm.serialized, inputs)
    schedule_plainly(algorithm, live.pipeline)
    outputs = bind(live, inputs, hl.get_host_target())
    live.pipeline.realize(outputs, hl.get_host_target())
    return values(outputs, inputs)


def assert_right(algorithm, schedule):
    """What a schedule computes on OpenCL equals what plain loops compute on the host."""
    inputs = describe_inputs(algorithm, seed=1)
    expected = plain_answers(algorithm, inputs)
    payload = {
        "serialized": algorithm.serialized,
        "schedule": to_json(schedule),
        "target": schedule.target,
        "inputs": inputs.to_json(),
    }
    found = Runner(payload).answers()
    kinds = [kind for output in inputs.outputs for kind in output.types]
    allowed = tolerance(algorithm)
    for a, b, kind in zip(found, expected, kinds, strict=True):
        comparison = compare(a, b, kind, allowed)
        assert accepted(comparison, allowed), comparison


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param("harris", "nested", marks=pytest.mark.thorough),
        ("harris", "overlapped"),
        ("matmul", "nested"),
        pytest.param("matmul", "none", marks=pytest.mark.thorough),
    ],
)
def test_all_modes_compute_the_right_thing(name, mode):
    algorithm = example(name)
    (planned,) = schedule_gpu(algorithm, SMALL_GPU, mode=mode)
    assert not check(planned.schedule, algorithm, Limits(512, 48 * 1024))
    assert_right(algorithm, planned.schedule)


@pytest.mark.opencl
@pytest.mark.parametrize(
    "name",
    [
        "histogram",
        pytest.param("bilateral_grid", marks=pytest.mark.thorough),
        pytest.param("iir_blur", marks=pytest.mark.thorough),
    ],
)
def test_examples_compute_the_right_thing(name):
    algorithm = example(name)
    (planned,) = schedule_gpu(algorithm, SMALL_GPU)
    assert_right(algorithm, planned.schedule)


@pytest.mark.opencl
def test_with_any_size_outputs_may_be_smaller_than_a_tile():
    large = example("harris", width=400, height=300)
    small = example("harris", width=13, height=11)
    assert small.digest == large.digest
    (planned,) = schedule_gpu(large, SMALL_GPU, any_size=True)
    assert max(planned.groups[-1].tile) > 8
    assert_right(small, planned.schedule)
    assert_right(example("harris", width=97, height=61), planned.schedule)


@pytest.mark.parametrize("name", sorted(CONSTRUCTS))
@pytest.mark.few(30)
def test_every_construct_gets_a_legal_schedule(name):
    algorithm = load(pipeline(name))
    for planned in schedule_gpu(algorithm, gpu("a100"), k=3):
        assert not check(planned.schedule, algorithm, LIMITS)


@pytest.mark.opencl
@pytest.mark.parametrize(
    "name",
    ["tuples", "predicated_reduction", "scatter", "two_scans", "several_outputs", "no_dimensions",
     "undefined_initially", "negative_origin", "inline_argmin", "interleaved"],
)  # fmt: skip
@pytest.mark.few(5)
def test_constructs_compute_the_right_thing(name):
    algorithm = load(pipeline(name))
    (planned,) = schedule_gpu(algorithm, SMALL_GPU)
    assert_right(algorithm, planned.schedule)


@pytest.mark.parametrize("name", ["memoized", "extern_stage", "handles", "small_floats"])
def test_pipelines_that_cannot_run_on_the_gpu_still_compile(name, tmp_path):
    algorithm = load(pipeline(name))
    (planned,) = schedule_gpu(algorithm, gpu("a100"))
    live = deserialize(algorithm.serialized, describe_inputs(algorithm))
    from tilewright.halide.emit.apply import apply

    apply(planned.schedule, algorithm, live.pipeline, same_bytes=True)
    target = hl.Target(planned.schedule.target + "-no_runtime")
    live.pipeline.compile_to_object(
        str(tmp_path / "code.o"), live.pipeline.infer_arguments(), "code", target
    )
    assert (tmp_path / "code.o").stat().st_size > 0


def test_schedules_are_distinct_and_repeatable():
    algorithm = khwz()
    planned = schedule_gpu(algorithm, gpu("a100"), k=5)
    texts = [to_json(p.schedule) for p in planned]
    assert len(set(texts)) == len(texts) == 5
    assert [p.cost for p in planned[1:]] == sorted(p.cost for p in planned[1:])
    again = khwz()
    assert again.digest == algorithm.digest
    assert [to_json(p.schedule) for p in schedule_gpu(again, gpu("a100"), k=5)] == texts


def test_fusion_is_chosen_where_the_model_finds_it_cheaper():
    nested, overlapped, none = (
        schedule_gpu(matmul(), gpu("a100"), mode=mode)[0]
        for mode in ("nested", "overlapped", "none")
    )
    assert nested.cost < overlapped.cost
    assert nested.cost < none.cost
    assert nested.groups[0].shared_bytes == 0


@pytest.mark.parametrize("name", [pytest.param("k40c", marks=pytest.mark.thorough), "pocl"])
def test_launches_respect_the_machine(name):
    machine = gpu(name)
    for mode in ("nested", "overlapped"):
        (planned,) = schedule_gpu(example("interpolate"), machine, mode=mode)
        for group in planned.groups:
            if group.threads:
                threads = group.threads[0] * group.threads[1] * group.threads[2]
                assert threads <= machine.max_threads_per_block
                assert group.shared_bytes <= machine.shared_per_block
        assert planned.schedule.target == machine.halide_target


def test_missing_estimates_are_named():
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = x
    algorithm = load(f, estimates={"f": [(0, 10)]})
    blank = replace(algorithm, funcs=tuple(replace(g, estimates={}) for g in algorithm.funcs))
    with pytest.raises(TilewrightError, match=r"f(\$\d+)?\.x"):
        schedule_gpu(blank, gpu("a100"))


def test_a_chain_of_hundreds_of_funcs():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    value = image
    for i in range(200):
        f = hl.Func(f"f_{i}")
        f[x, y] = value[x, y] * hl.f32(1.5) + hl.f32(i)
        value = f
    value.set_estimates([(0, 64), (0, 64)])
    algorithm = load(value)
    (planned,) = schedule_gpu(algorithm, gpu("a100"))
    assert not check(planned.schedule, algorithm, LIMITS)


@pytest.mark.parametrize(("stages", "together"), [(4, True), (60, False)])
def test_an_opencl_kernel_does_not_take_on_a_hundred_stages(stages, together):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    steps, out = hl.Func("steps"), hl.Func("out")
    steps[x, y] = image[x, y]
    for step in range(stages):
        steps[x, y] = 0.5 * steps[x, y] + float(step)
    out[x, y] = steps[x, y] + steps[x + 1, y]
    image.set_estimates([(0, 513), (0, 512)])
    out.set_estimates([(0, 512), (0, 512)])
    planned = schedule_gpu(load(hl.Pipeline(out)), gpu("pocl"))[0]
    (last,) = (g for g in planned.groups if g.output.startswith("out"))
    assert any(name.startswith("steps") for name in last.funcs) == together
