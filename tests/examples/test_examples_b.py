"""The larger pipelines of the published suites: right as they are and as scheduled by hand."""

import halide as hl
import numpy as np
import pytest

import common
from tilewright.halide.execution.cuda_kernels import device_code, entries
from tilewright.halide.frontend.importer import import_pipeline

# How far a value may be from the reference. Integers wrap, so they have to be equal; sums of
# floats are reassociated; the solver of bgu amplifies that.
TOLERANCES = {
    "stencil_chain": 0,
    "matmul": 5e-5,
    "conv_layer": 1e-4,
    "nl_means": 1e-5,
    "lens_blur": 1e-6,
    "bgu": 1e-3,
    "depthwise_conv": 1e-5,
    "demosaic": 1e-5,
    "fft": 5e-5,
}
FULL_SIZE = {
    "stencil_chain": [1536, 2560],
    "matmul": [1536, 2560],
    "conv_layer": [64, 128, 128, 4],
    "nl_means": [1536, 2560, 3],
    "lens_blur": [1536, 2560, 3],
    "bgu": [1536, 2560, 3],
    "depthwise_conv": [16, 112, 112, 4],
    "demosaic": [1536, 2560, 3],
    "fft": [64, 64, 2],
}
BY_HAND = sorted(TOLERANCES.keys() - {"demosaic"})
# LLVM takes up to a quarter of a minute over these; benchmarks verify them whenever they run.
LONG_TO_COMPILE = {"bgu", "lens_blur", "matmul", "stencil_chain"}
LONG_AT_ROOT = {"bgu", "lens_blur"}
COMPILED = sorted(set(BY_HAND) - LONG_TO_COMPILE)


@pytest.fixture(params=TOLERANCES)
def example(request):
    return common.example(request.param)


def unscheduled(module, **size):
    return getattr(module, module.__name__)(**size)


def assert_right(pipeline, module, target):
    """Run the pipeline at its small size and compare with the reference."""
    inputs = module.random_inputs(**module.SMALL)
    (expected,) = module.reference(inputs)
    arguments = pipeline.infer_arguments()
    values = []
    for argument in arguments:
        value = inputs[argument.name]
        if isinstance(value, np.ndarray):
            value = hl.Buffer(value, reverse_axes=False)
            value.set_host_dirty(True)
        values.append(value)
    result = np.zeros(expected.shape, expected.dtype, order="F")
    output = hl.Buffer(result, reverse_axes=False)
    pipeline.compile_to_callable(arguments, target)(*values, output)
    output.copy_to_host()
    difference = np.abs(result.astype(np.float64) - expected)
    assert difference.max() <= TOLERANCES[module.__name__]
    # A constant image would pass for many a wrong pipeline.
    assert expected.std() > 0


def test_serialises_unscheduled_with_estimates(example):
    algorithm = import_pipeline(hl.serialize_pipeline(unscheduled(example)))
    (output,) = (algorithm.by_name[name] for name in algorithm.outputs)
    assert [output.estimates[arg].extent for arg in output.args] == FULL_SIZE[example.__name__]
    assert not any(func.scheduled for func in algorithm.funcs)


def test_every_input_has_an_estimate(example):
    for argument in unscheduled(example).infer_arguments():
        estimates = argument.argument_estimates
        if argument.kind == hl.ArgumentKind.InputBuffer:
            assert len(estimates.buffer_estimates) == argument.dimensions
        else:
            assert estimates.scalar_estimate is not None


# A schedule by hand shows as much of the others.
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in LONG_AT_ROOT else ())
        for name in sorted(TOLERANCES.keys() - set(COMPILED))
    ],
    indirect=True,
)
def test_computed_stage_by_stage(example):
    pipeline = unscheduled(example, **example.SMALL)
    algorithm = import_pipeline(hl.serialize_pipeline(pipeline))
    for i in range(len(algorithm.funcs)):
        pipeline.get_func(i).compute_root()
    assert_right(pipeline, example, hl.get_host_target())


@pytest.mark.parametrize("example", COMPILED, indirect=True)
def test_hand_schedule_for_cpu(example):
    target = hl.get_host_target()
    assert_right(example.hand(target, **example.SMALL), example, target)


@pytest.mark.parametrize("example", sorted(LONG_TO_COMPILE), indirect=True)
def test_hand_schedule_for_cpu_lowers(example):
    target = hl.get_host_target()
    pipeline = example.hand(target, **example.SMALL)
    module = pipeline.compile_to_module(pipeline.infer_arguments(), example.__name__, target)
    assert module.name() == example.__name__


@pytest.mark.parametrize(
    "example", sorted(set(BY_HAND) - {"bgu", "fft", "stencil_chain"}), indirect=True
)
@pytest.mark.few(2)
def test_hand_schedule_for_cuda_makes_kernels(example):
    target = hl.Target("host-cuda-no_runtime")
    ptx, _ = device_code(example.hand(target), target)
    assert entries(ptx)


# The convolution layer's schedule shares data within a warp, which OpenCL has no words for; PoCL
# takes long over the kernels of the lens blur, the stencil chain, non-local means and bgu.
@pytest.mark.opencl
@pytest.mark.thorough
@pytest.mark.parametrize("example", ["depthwise_conv", "matmul"], indirect=True)
def test_hand_schedule_for_opencl(example):
    target = hl.Target("host-opencl")
    assert_right(example.hand(target, **example.SMALL), example, target)


def test_hand_is_none_where_there_is_no_source(example):
    for kind, target in (("cpu", "host"), ("gpu", "host-cuda")):
        by_hand = example.hand(hl.Target(target), **example.SMALL)
        assert (by_hand is None) == (example.HAND_SOURCE[kind] is None)


def test_square_matmul_is_square():
    algorithm = import_pipeline(hl.serialize_pipeline(common.example("matmul").square(512)))
    (output,) = (algorithm.by_name[name] for name in algorithm.outputs)
    assert [output.estimates[arg].extent for arg in output.args] == [512, 512]


@pytest.mark.parametrize("size", [1, 48])
def test_fft_of_a_size_that_is_not_a_power_of_two_is_refused(size):
    with pytest.raises(ValueError, match="power of two"):
        common.example("fft").fft(size)


def test_inverse_fft():
    module = common.example("fft")
    inputs = module.random_inputs(16)
    (expected,) = module.reference(inputs, sign=1)
    pipeline = module.fft(16, sign=1)
    result = np.zeros(expected.shape, np.float32, order="F")
    buffers = [hl.Buffer(a, reverse_axes=False) for a in (inputs["input"], result)]
    run = pipeline.compile_to_callable(pipeline.infer_arguments(), hl.get_host_target())
    run(*buffers)
    np.testing.assert_allclose(result, expected, atol=2e-5)
