"""The image pipelines of the published suites: right as they are and as scheduled by hand."""

import inspect

import halide as hl
import numpy as np
import pytest

import common
from tilewright.halide.execution.cuda_kernels import device_code, entries
from tilewright.halide.frontend.importer import import_pipeline

# How far a result may be from the reference: every value within the first number, and all but
# this fraction of them within the second. A float that is truncated to a bin or to a table's
# index may differ by one from the reference's, by contraction into fused multiply-adds.
TOLERANCES = {
    "blur": (0, 0, 0.0),
    "harris": (1e-6, 1e-7, 0.0),
    "unsharp": (1e-4, 1e-5, 0.0),
    "local_laplacian": (1000, 2, 0.001),
    "interpolate": (1e-4, 1e-5, 0.0),
    "bilateral_grid": (0.05, 1e-5, 0.01),
    "camera_pipe": (20, 0, 0.001),
    "histogram": (4, 1, 0.02),
    "iir_blur": (1e-5, 1e-5, 0.0),
    "max_filter": (0, 0, 0.0),
}


SLOW_ON_POCL = {"interpolate", "local_laplacian"}
QUICK_ON_POCL = {"blur", "harris", "histogram"}


@pytest.fixture(params=TOLERANCES)
def example(request):
    return common.example(request.param)


def unscheduled(module, **size):
    return getattr(module, module.__name__)(**size)


def output_of(algorithm):
    func = algorithm.by_name[algorithm.outputs[0]]
    return [func.estimates[arg] for arg in func.args]


def run(pipeline, module, target):
    """The output over its estimated region, as an array with x first.

    The pipeline is built again from its serialised form, as candidates are.
    """
    defaults = inspect.signature(module.reference).parameters
    inputs = module.random_inputs(**module.SMALL)
    serialized = hl.serialize_pipeline(pipeline)
    parameters, values = {}, []
    for argument in pipeline.infer_arguments():
        is_buffer = argument.kind == hl.ArgumentKind.InputBuffer
        parameters[argument.name] = hl.Parameter(
            argument.type, is_buffer, argument.dimensions, argument.name
        )
        if is_buffer:
            array = np.asfortranarray(inputs[argument.name])
            buffer = hl.Buffer(array, reverse_axes=False)
            buffer.set_host_dirty(True)
            values.append(buffer)
        else:
            values.append(defaults[argument.name].default)
    fresh = hl.deserialize_pipeline(serialized, parameters)
    spans = output_of(import_pipeline(hl.serialize_pipeline(unscheduled(module, **module.SMALL))))
    output = hl.Buffer(fresh.outputs()[0].types()[0], [span.extent for span in spans])
    output.set_min([span.min for span in spans])
    fresh.compile_to_callable(pipeline.infer_arguments(), target)(*values, output)
    output.copy_to_host()
    return np.array(output).T


def assert_close(result, module):
    (expected,) = module.reference(module.random_inputs(**module.SMALL))
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    most, usual, exceptions = TOLERANCES[module.__name__]
    difference = np.abs(result.astype(np.float64) - expected)
    assert difference.max() <= most
    assert np.mean(difference > usual) <= exceptions
    # A constant image would pass for many a wrong pipeline.
    assert expected.std() > 0


def test_estimates_are_complete(example):
    algorithm = import_pipeline(hl.serialize_pipeline(unscheduled(example)))
    (output,) = (algorithm.by_name[name] for name in algorithm.outputs)
    extents = [output.estimates[arg].extent for arg in output.args]
    # Harris leaves out a border of three pixels.
    assert extents[:2] in ([1536, 2560], [1530, 2554])
    assert extents[2:] in ([], [3])
    assert not any(func.scheduled for func in algorithm.funcs)


@pytest.mark.few(5)
def test_hand_schedule_for_cpu(example):
    target = hl.get_host_target()
    assert_close(run(example.hand(target, **example.SMALL), example, target), example)


@pytest.mark.few(4)
def test_hand_schedule_for_cuda_makes_kernels(example):
    target = hl.Target("host-cuda-no_runtime")
    ptx, _ = device_code(example.hand(target), target)
    assert entries(ptx)


# PoCL takes up to half a minute over the kernels of those left out.
@pytest.mark.opencl
@pytest.mark.parametrize(
    "example",
    [
        name if name in QUICK_ON_POCL else pytest.param(name, marks=pytest.mark.thorough)
        for name in sorted(TOLERANCES.keys() - SLOW_ON_POCL)
    ],
    indirect=True,
)
@pytest.mark.few(1)
def test_hand_schedule_for_opencl(example):
    target = hl.Target("host-opencl")
    assert_close(run(example.hand(target, **example.SMALL), example, target), example)
