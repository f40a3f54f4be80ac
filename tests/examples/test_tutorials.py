"""The small pipelines: each computes what NumPy says, with every stage at root."""

import ctypes
import subprocess
import sysconfig
from pathlib import Path

import halide as hl
import numpy as np
import pytest

import common
from tilewright.halide.frontend.importer import import_pipeline

PACKAGE = Path(__file__).resolve().parents[2] / "examples" / "tutorials"


tutorials = common.load_module(PACKAGE / "__init__.py", "tutorials")


def build(name):
    made = tutorials.PIPELINES[name]()
    return made if isinstance(made, hl.Pipeline) else hl.Pipeline(made)


def compute_all_at_root(pipeline):
    algorithm = import_pipeline(hl.serialize_pipeline(pipeline))
    for i, func in enumerate(algorithm.funcs):
        if not func.scheduled:
            pipeline.get_func(i).compute_root()
    return algorithm


def as_buffer(array, minima=()):
    # Halide knows NumPy's 64-bit integers by their C name, long long, alone.
    if array.dtype in (np.int64, np.uint64):
        array = array.view(np.longlong if array.dtype == np.int64 else np.ulonglong)
    buffer = hl.Buffer(array, reverse_axes=False)
    if any(minima):
        buffer.set_min(list(minima))
    return buffer


def run(pipeline, expected, inputs, target):
    """Run over the estimated regions; gives the outputs with axes in Halide's order."""
    spans = []
    algorithm = compute_all_at_root(pipeline)
    for func in (algorithm.by_name[name] for name in algorithm.outputs):
        minima = [func.estimates[arg].min for arg in func.args]
        spans += [minima] * len(func.types)
    arguments = pipeline.infer_arguments()
    values = []
    for argument in arguments:
        value = inputs[argument.name]
        if isinstance(value, np.ndarray):
            bounds = argument.argument_estimates.buffer_estimates
            value = as_buffer(value, [hl.evaluate(span.min) for span in bounds])
        values.append(value)
    results = [np.zeros(np.shape(e), e.dtype, order="F") for e in expected]
    outputs = [as_buffer(r, minima) for r, minima in zip(results, spans, strict=True)]
    pipeline.compile_to_callable(arguments, target)(*values, *outputs)
    return results


# The rest are exact, or right to the last few bits of a float.
LOOSE = {"approximations": 2e-4}


@pytest.mark.parametrize("name", tutorials.PIPELINES)
@pytest.mark.few(36)
def test_computes_what_numpy_says(name):
    pipeline = build(name)
    inputs = tutorials.random_inputs(pipeline)
    expected = tutorials.EXPECTED[name](inputs)
    results = run(pipeline, expected, inputs, hl.get_host_target())
    for result, wanted in zip(results, expected, strict=True):
        if np.issubdtype(wanted.dtype, np.floating):
            tolerance = LOOSE.get(name, 1e-5)
            np.testing.assert_allclose(result, wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("name", tutorials.PIPELINES)
def test_has_estimates_of_everything(name):
    pipeline = build(name)
    for argument in pipeline.infer_arguments():
        estimates = argument.argument_estimates
        if argument.kind == hl.ArgumentKind.InputScalar:
            assert estimates.scalar_estimate is not None
        else:
            assert len(estimates.buffer_estimates) == argument.dimensions
    algorithm = import_pipeline(hl.serialize_pipeline(pipeline))
    for name_of_output in algorithm.outputs:
        func = algorithm.by_name[name_of_output]
        assert set(func.estimates) == set(func.args)


def test_there_are_at_least_thirty():
    assert len(tutorials.PIPELINES) >= 30


def test_generator_with_its_default_radius():
    image = np.asfortranarray(np.random.default_rng(0).integers(0, 256, (14, 6), dtype=np.uint8))
    result = np.zeros((10, 6), np.uint16, order="F")
    with hl.GeneratorContext(hl.get_host_target()):
        brighten = tutorials.generators.Brighten().compile_to_callable()
    brighten(as_buffer(image), 7, as_buffer(result))
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.uint16), 5, axis=0)
    np.testing.assert_array_equal(result, windows.sum(axis=2) // 5 + 7)


def test_extern_stage(tmp_path):
    source, library = tmp_path / "reverse.c", tmp_path / "reverse.so"
    source.write_text(tutorials.generators.EXTERN_SOURCE)
    compiler = sysconfig.get_config_var("CC").split()[0]
    include = Path(hl.install_dir()) / "include"
    command = [compiler, "-shared", "-fPIC", f"-I{include}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    pipeline = hl.Pipeline(tutorials.generators.extern_stage())
    inputs = tutorials.random_inputs(pipeline)
    expected = inputs["input"][::-1] * 2 + 1
    (result,) = run(pipeline, [expected], inputs, hl.get_host_target())
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_extern_stage_is_read_as_one():
    pipeline = hl.Pipeline(tutorials.generators.extern_stage())
    algorithm = import_pipeline(hl.serialize_pipeline(pipeline))
    (extern,) = [func for func in algorithm.funcs if func.extern]
    assert extern.fixed
    assert extern.extern.function == "tilewright_reverse"
