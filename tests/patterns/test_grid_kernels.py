"""Kernels for a grid of threads: right, free of races, in bounds, with no barrier too many."""

import os
import shutil
import subprocess

import numpy as np
import pytest
from test_rewriting import PROGRAMS, data, equal
from threads import Broken, run_program

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.halide.execution.cuda_kernels import find_ptxas
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.binding import conforming
from tilewright.patterns.codegen.code import Barrier, statements
from tilewright.patterns.codegen.grid import ThreadGrid
from tilewright.patterns.compiling import grid_code

N, M = tp.sizes("N M")
GRID = [n.MapLevel(k, d) for k in ("wrg", "lcl") for d in (1, 0)]
GLB = [n.MapLevel("glb", 1), n.MapLevel("glb", 0)]
SUM = tp.fun(lambda w: w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1], "star")
DOUBLE = tp.fun(lambda v: v + v, "twice")


def explored(limit=25):
    chosen = rw.ExplorationSettings(target="gpu", tiles=(2, 3), limit=limit)
    return [d.program for p in PROGRAMS.values() for d in rw.explore(p, chosen)]


def runs_on_a_grid(p, launch=None):
    """The kernels of a program, or None if it says why a grid cannot run it."""
    try:
        return grid_code(p, "kernel", launch)
    except tp.LoweringError as error:
        known = ("no thread is given", "is stored outside", "say where it is stored")
        if any(reason in str(error) for reason in known):
            return None
        raise


def simulated(p, arrays, launch=None, known=None):
    made = grid_code(p, "kernel", launch)
    results, counts = run_program(*made, conforming(n.inputs(p), arrays), known or {})
    return [np.array(v) for v in results.values()], counts, made[1]


@pytest.mark.parametrize(
    "launch",
    [
        None,
        ThreadGrid((poly(1), poly(2), poly(1)), (2, 1, 1)),
        pytest.param(
            ThreadGrid((poly(2), poly(1), poly(1)), (4, 3, 1)), marks=pytest.mark.thorough
        ),
    ],
    ids=["default", "few", "others"],
)
@pytest.mark.few(1)
def test_explored_programs_run_on_any_grid(launch):
    count = 0
    for p in explored():
        if runs_on_a_grid(p, launch) is None:
            continue
        count += 1
        arrays = data(p)
        (result,), _, _ = simulated(p, arrays, launch)
        expected = tp.interpret(p, *arrays)
        assert equal(result.reshape(expected.shape), expected), str(p)
    assert count > 30


def test_tiles_that_do_not_divide_the_grid_write_only_what_exists():
    A = tp.array("A", tp.i32[N, M])
    p = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(SUM)
    steps = (rw.round_up2(2, 4), rw.tiling2(2, 4), rw.lower_nest(*GRID), rw.stage_tile())
    q = rw.derive(p, *steps).program
    a = np.arange(35, dtype=np.int32).reshape(5, 7)
    for launch in (None, ThreadGrid((poly(2), poly(1), poly(1)), (3, 2, 1))):
        (result,), _, _ = simulated(q, [a], launch, {"N": 5, "M": 7})
        assert equal(result.reshape(5, 7), tp.interpret(p, a))


def test_a_single_work_group_is_still_one():
    x = tp.array("x", tp.i32[4])
    one = x >> tp.split(4) >> tp.map_wrg(tp.map_lcl(DOUBLE))
    (result,), _, _ = simulated(one, [np.arange(4)])
    assert result.tolist() == [0, 2, 4, 6]
    single = x >> tp.split(1) >> tp.map_wrg(tp.map_lcl(DOUBLE))
    (result,), _, _ = simulated(single, [np.arange(4)], ThreadGrid(None, (3, 1, 1)))
    assert result.tolist() == [0, 2, 4, 6]


def test_reductions_are_explored_as_stored_partial_ones():
    found = [d.program for d in rw.explore(PROGRAMS["sum"], rw.ExplorationSettings(tiles=(2, 3)))]
    stored = [p for p in found if "to_global" in str(p) and runs_on_a_grid(p) is not None]
    assert len(stored) > 3
    for p in stored:
        (result,), _, _ = simulated(p, data(p))
        assert result == tp.interpret(p, *data(p))


def tiled(stage=True):
    A = tp.array("A", tp.i32[6, 9])
    p = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(SUM)
    steps = [rw.tiling2(2, 3), rw.lower_nest(*GRID)]
    return rw.derive(p, *steps, *([rw.stage_tile()] if stage else [])).program


def barriers(p, launch=None):
    _, kernels = grid_code(p, "kernel", launch)
    return sum(isinstance(s, Barrier) for k in kernels for s in statements(k.body))


def test_barriers_are_where_they_are_needed_and_nowhere_else():
    assert barriers(tiled(stage=False)) == 0
    assert barriers(tiled()) == 1
    looping = ThreadGrid((poly(1), poly(1), poly(1)), (3, 2, 1))
    assert barriers(tiled(), looping) == 3  # after the copy, and before the next tile of each loop
    x = tp.array("x", tp.i32[12]) >> tp.split(4)
    own = tp.to_local(tp.map_lcl(DOUBLE)) >> tp.map_lcl(DOUBLE)
    crossing = tp.to_local(tp.map_lcl(DOUBLE)) >> tp.gather(lambda i, m: m - 1 - i)
    assert barriers(x >> tp.map_wrg(own)) == 0
    assert barriers(x >> tp.map_wrg(crossing >> tp.map_lcl(DOUBLE))) == 1
    twice = crossing >> crossing >> tp.map_lcl(DOUBLE)
    assert barriers(x >> tp.map_wrg(twice)) == 2
    for body in (own, crossing >> tp.map_lcl(DOUBLE), twice):
        p = x >> tp.map_wrg(body) >> tp.join
        (result,), _, _ = simulated(p, [np.arange(12)])
        assert np.array_equal(result, tp.interpret(p, np.arange(12)))


def test_a_missing_barrier_is_found_out():
    code, kernels = grid_code(tiled(), "kernel", None)
    block = next(
        s.body for s in statements(kernels[0].body) if hasattr(s, "body") and has_barrier(s.body)
    )
    block[:] = [s for s in block if not isinstance(s, Barrier)]
    inputs = conforming(n.inputs(tiled()), [np.ones((6, 9), np.int32)])
    with pytest.raises(Broken, match=r"written by another thread|before it is written"):
        run_program(code, kernels, inputs, {})


def has_barrier(block):
    return any(isinstance(s, Barrier) for s in block)


def test_stages_of_a_program_become_kernels():
    x = tp.array("x", tp.i32[N])
    partial = tp.to_global(tp.map_glb(tp.reduce_seq(tp.add, 0)))
    p = x >> tp.split(4) >> partial >> tp.reduce_seq(tp.add, 0)
    _, kernels = grid_code(p, "total", None)
    assert [k.name for k in kernels] == ["total_0", "total_1"]
    assert kernels[1].grid({"N": 8}) == (1, 1, 1)
    (result,), _, _ = simulated(p, [np.arange(12)], known={"N": 12})
    assert result == 66


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x: x >> tp.map_lcl(DOUBLE), r"outside of map_wrg\(..., 0\)"),
        (lambda x: x >> tp.map_par(DOUBLE), "are for CPUs"),
        (lambda x: x >> tp.split(2) >> tp.map_seq(tp.map(DOUBLE)), "no thread is given"),
        (
            lambda x: x >> tp.split(2) >> tp.map_wrg(tp.map_seq(DOUBLE) >> tp.identity),
            None,
        ),
        (lambda x: x >> tp.split(2) >> tp.map_glb(tp.map_glb(DOUBLE)), "inside another"),
        (
            lambda x: (
                x
                >> tp.split(2)
                >> tp.map_glb(tp.to_local(tp.map_seq(DOUBLE)) >> tp.reduce_seq(tp.add, 0))
            ),
            "to_local outside of map_wrg",
        ),
        (
            lambda x: (
                x
                >> tp.split(2)
                >> tp.map_wrg(tp.to_private(tp.map_lcl(DOUBLE)) >> tp.map_lcl(DOUBLE))
            ),
            "use to_local",
        ),
        (
            lambda x: (
                x
                >> tp.split(2)
                >> tp.map_wrg(tp.to_local(tp.map_lcl(DOUBLE)) >> tp.reduce_seq(tp.add, 0))
            ),
            r"stored outside of map_lcl\(..., 0\)",
        ),
        (
            lambda x: (
                x
                >> tp.split(2)
                >> tp.map_glb(tp.to_global(tp.map_seq(DOUBLE)) >> tp.map_seq(DOUBLE))
            ),
            "to_global inside of a kernel",
        ),
    ],
)
def test_programs_that_a_grid_cannot_run_are_refused_with_the_reason(body, message):
    p = body(tp.array("x", tp.i32[12]))
    if message is None:
        simulated(p, [np.arange(12)])
        return
    with pytest.raises(tp.LoweringError, match=message):
        tp.source(p, "opencl")


def test_impossible_launches_are_refused():
    with pytest.raises(tp.LoweringError, match="give 1 to 1024"):
        ThreadGrid(None, (64, 32, 1))


@pytest.mark.opencl
def test_opencl_runs_what_the_interpreter_means():
    A, B = tp.array("A", tp.f32[N, M]), tp.array("B", tp.f32[N, M])
    mix = tp.fun(lambda w, p: tp.sqrt(tp.absolute(w[0, 0])) * 3 + w[2, 2] - p, "mix")
    p = tp.zip2(A >> tp.pad2(1, 1, tp.mirror) >> tp.slide2(3, 1), B) >> tp.map2(mix)
    steps = (rw.zipped_tiling2(4, 8), rw.lower_nest(*GRID), rw.stage_tile((0, 1)))
    staged = rw.derive(p, *steps).program
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 8, 24), np.float32)
    expected = tp.interpret(p, a, b)
    for q in (p, staged):
        assert np.allclose(tp.compile(q, "opencl")(a, b), expected, rtol=1e-5)
    total = (
        tp.array("x", tp.i32[N])
        >> tp.split(4)
        >> tp.to_global(tp.map_glb(tp.reduce_seq(tp.add, 0)))
        >> tp.reduce_seq(tp.add, 0)
    )
    assert tp.compile(total, "opencl")(np.arange(20)) == 190


def nvcc():
    """The CUDA compiler: on the path, or with the assembler of the extra's wheel."""
    ptxas = find_ptxas()
    bundled = shutil.which("nvcc", path=os.path.dirname(ptxas)) if ptxas else None
    return shutil.which("nvcc") or bundled


@pytest.mark.skipif(nvcc() is None, reason="no nvcc: the extra cuda-static installs it")
def test_cuda_compiles(tmp_path):
    found = [p for p in explored(4) if runs_on_a_grid(p) is not None]
    sources = [tp.source(p, "cuda") for p in [tiled(), *found[:6]]]
    for i, source in enumerate(sources):
        body = f"namespace n{i} {{\n{source}\n}}\n".replace('extern "C" ', "")
        (tmp_path / f"k{i}.cu").write_text(body)
    joined = "\n".join((tmp_path / f"k{i}.cu").read_text() for i in range(len(sources)))
    (tmp_path / "all.cu").write_text(joined)
    command = [
        nvcc(),
        "-cubin",
        "-arch=sm_80",
        "-o",
        str(tmp_path / "out"),
        str(tmp_path / "all.cu"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
