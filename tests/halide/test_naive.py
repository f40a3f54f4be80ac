"""The naive schedule: legal on every target, right, and never too large for an allocation."""

import importlib
import sys
from pathlib import Path

import halide as hl
import pytest
from patience import PATIENT

import tilewright
from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.machines import gpu
from tilewright.measure import Timing

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def example(name, **sizes):
    sys.path.insert(0, str(EXAMPLES))
    try:
        return load(getattr(importlib.import_module(name), name)(**sizes))
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.mark.parametrize("name", ["histogram", "iir_blur", "matmul", "bilateral_grid", "fft"])
def test_it_is_legal_on_a_gpu(name):
    algorithm = example(name)
    schedule = naive_schedule(algorithm, "host-cuda", gpu("k40c"))
    assert check(schedule, algorithm) == []
    mapped = {loop.mapping for f in schedule.funcs for s in f.stages for loop in s.loops}
    assert {"gpu_block", "gpu_thread"} <= mapped


def test_blocks_are_fused_where_a_grid_would_be_too_large():
    x, y, z = hl.vars("x y z")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = hl.f32(x + y)
    f.set_estimates([(0, 16), (0, 4_000_000)])
    g[x, y, z] = hl.f32(x + y + z)
    g.set_estimates([(0, 16), (0, 16), (0, 70_000)])
    for func in (f, g):
        algorithm = load(func)
        schedule = naive_schedule(algorithm, "host-cuda", gpu("a100"))
        assert check(schedule, algorithm) == []
        (entry,) = schedule.funcs
        mapped = [loop.mapping for loop in entry.stages[0].loops]
        assert mapped.count("gpu_block") == 1


def test_funcs_too_large_for_an_allocation_are_inlined():
    algorithm = example("nl_means")
    inlined = {
        algorithm.funcs[entry.func].name.split("$")[0]
        for entry in naive_schedule(algorithm).funcs
        if entry.compute.kind == "inline"
    }
    assert "dc" in inlined  # 2.3 GB
    assert "d" not in inlined


def test_inputs_are_not_copied():
    algorithm = example("blur")
    kinds = {
        algorithm.funcs[entry.func].name.split("$")[0]: entry.compute.kind
        for entry in naive_schedule(algorithm).funcs
    }
    assert kinds == {"input_im": "inline", "blur_x": "root", "blur_y": "root"}


@pytest.mark.opencl
def test_it_runs_and_is_right():
    x, y, z, w, i = (hl.Var(name) for name in "xyzwi")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 20), (0, 17)], "r")
    histogram, out = hl.Func("histogram"), hl.Func("out")
    histogram[i] = 0
    histogram[hl.i32(image[r.x, r.y]) // 8] += 1
    out[x, y, z, w] = histogram[(x + y + z + w) % 32] + hl.i32(image[x, y])
    out.set_estimates([(0, 20), (0, 17), (0, 3), (0, 2)])
    algorithm = load(out)
    variants = [
        Variant(naive_schedule(algorithm, target), target=target) for target in ("host", "opencl")
    ]
    with Session(algorithm, targets=("opencl",), limits=PATIENT, timing=ONCE) as session:
        for measured in session.measure(variants):
            assert measured.measurement.ok, measured.measurement


@pytest.mark.parametrize("target", ["host", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_dimensions_that_cannot_be_named_keep_their_loops(target):
    x, y = hl.Var("x.1"), hl.Var("y")
    f = hl.Func("f")
    f[x, y] = hl.f32(x + y)
    f.set_estimates([(0, 64), (0, 64)])
    result = tilewright.schedule(f, target=target)
    assert "the name has a dot" in result.explain()
    result.apply(f)
    assert f.realize([3, 2])[2, 1] == 3


def test_intermediate_funcs_of_rfactor_are_scheduled_for_a_gpu():
    a = hl.ImageParam(hl.Int(32), 1, "a")
    r, outer, inner = hl.RDom([(0, 4096)], "r"), hl.RVar("outer"), hl.RVar("inner")
    total = hl.Func("total")
    total[()] = 0
    total[()] += a[r.x]
    total.update().split(r.x, outer, inner, 64)
    total.update().rfactor(outer, hl.Var("u"))
    algorithm = load(total)
    for target in ("host", "host-opencl"):
        schedule = naive_schedule(algorithm, target)
        pipeline = hl.deserialize_pipeline(algorithm.serialized, {})
        apply(schedule, algorithm, pipeline, same_bytes=True)
    result = tilewright.schedule(total, machine="a100")
    result.apply(hl.deserialize_pipeline(algorithm.serialized, {}))
