from dataclasses import replace

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.capability import can_be_atomic, host_only
from tilewright.machines import gpu

CUDA, OPENCL = gpu("a100"), gpu("pocl")
x, y = hl.vars("x y")


def last_stage(func, **estimates):
    algorithm = load(func, estimates=estimates)
    found = algorithm.by_name[algorithm.outputs[0]]
    return found, found.stages[-1]


def defined(value, dims=1):
    f = hl.Func("f")
    f[(x, y)[:dims]] = value
    f.set_estimates([(0, 16)] * dims)
    return f


def why(value, machine, **estimates):
    func, stage = last_stage(defined(value), **estimates)
    return host_only(stage, func, machine)


def buffer(kind):
    data = hl.Buffer(kind, [16], "data")
    data.fill(0)
    return data[x]


@pytest.mark.parametrize("machine", [CUDA, OPENCL])
def test_arithmetic_and_known_functions_run_on_the_gpu(machine):
    value = hl.sqrt(hl.exp(buffer(hl.Float(32)))) + hl.f32(hl.i64(x) * 3)
    assert why(value, machine) is None


def test_small_floats_of_brains_stay_on_the_host():
    brains = hl.ImageParam(hl.BFloat(16), 1, "brains")[x]
    assert "bfloat16" in why(hl.f32(brains), CUDA)
    assert why(hl.f32(buffer(hl.Float(16))), CUDA) is None


def test_doubles_need_a_feature_of_opencl():
    value = buffer(hl.Float(64)) + 1.0
    assert "cl_doubles" in why(value, OPENCL)
    assert why(value, replace(OPENCL, features=("cl_doubles",))) is None
    assert why(value, CUDA) is None


def test_funcs_that_print_stay_on_the_host():
    assert "print" in why(hl.print(buffer(hl.Int(32)), "here"), CUDA)


def test_readers_of_the_cache_stay_on_the_host():
    f, g = hl.Func("f"), hl.Func("g")
    g[x] = x * 2
    f[x] = g[x] + 1
    f.set_estimates([(0, 16)])
    func, stage = last_stage(f)
    reads = next(c.name for c in stage.calls)
    assert host_only(stage, func, CUDA) is None
    assert reads in host_only(stage, func, CUDA, frozenset([reads]))


def summed(kind, update, dims=0):
    f = hl.Func("f")
    f[(x,)[:dims]] = hl.cast(kind, 0)
    update(f, hl.RDom([(0, 64)], "r"))
    f.set_estimates([(0, 16)] * dims)
    algorithm = load(f)
    return Analysis(View(algorithm), {}, algorithm.symbols), algorithm.funcs[-1].name


def add(f, r):
    f[()] = f[()] + hl.cast(f.type(), r.x)


def histogram(f, r):
    f[r.x % 16] += hl.cast(f.type(), 1)


def maximum(f, r):
    f[()] = hl.max(f[()], hl.cast(f.type(), r.x))


def neighbour(f, r):
    f[r.x % 16] = f[(r.x + 1) % 16] + hl.cast(f.type(), 1)


@pytest.mark.parametrize(
    ("kind", "update", "dims", "cuda", "opencl"),
    [
        (hl.Int(32), add, 0, True, True),
        (hl.Float(32), add, 0, True, False),
        (hl.UInt(8), add, 0, False, False),
        (hl.Int(32), histogram, 1, True, True),
        (hl.Int(32), maximum, 0, False, False),
        (hl.Int(32), neighbour, 1, False, False),
    ],
)
def test_atomic_additions(kind, update, dims, cuda, opencl):
    analysis, name = summed(kind, update, dims)
    assert can_be_atomic(analysis, name, 1, CUDA) == cuda
    assert can_be_atomic(analysis, name, 1, OPENCL) == opencl


def test_funcs_that_halide_miscompiles_for_opencl_stay_on_the_host():
    bits = hl.u32(x)
    for value in (hl.popcount(bits), hl.count_leading_zeros(bits), hl.count_trailing_zeros(bits)):
        assert "for OpenCL" in why(value, OPENCL)
        assert why(value, CUDA) is None
    assert "conditions wrongly" in why(hl.select(~(x > 5), 1, 2), OPENCL)
    assert why(hl.select(~(x > 5), 1, 2), CUDA) is None
    assert why(~hl.i32(x), OPENCL) is None
