"""Features before compilation, against kernels run thread by thread."""

import numpy as np
import pytest
from test_grid_kernels import GLB, GRID, explored, runs_on_a_grid, simulated, tiled
from test_rewriting import data
from warps import lines_by_brute_force

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.grid import ThreadGrid
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.features import counts, features, kernel_features

N, M = tp.sizes("N M")
DOUBLE = tp.fun(lambda v: v + v, "twice")
SPACES = ("global", "local", "private")


@pytest.mark.parametrize(
    "launch", [None, ThreadGrid((poly(2), poly(2), poly(1)), (4, 2, 1))], ids=["default", "strided"]
)
@pytest.mark.few(1)
def test_counts_equal_what_threads_do(launch):
    checked = 0
    for p in explored(12):
        if runs_on_a_grid(p, launch) is None:
            continue
        _, happened, kernels = simulated(p, data(p), launch)
        for kernel, seen in zip(kernels, happened, strict=True):
            total = counts(kernel, {})
            found = {f"{s}_{what}s": seen[what, s] for s in SPACES for what in ("load", "store")}
            assert {k: getattr(total, k).value for k in found} == found, str(p)
            assert total.barriers == seen["barrier"]
            assert total.arithmetic == seen["arithmetic"]
            lines = kernel_features(kernel, {}).lines_per_access
            assert np.isclose(lines, lines_by_brute_force(kernel, {}), rtol=1e-9), str(p)
            checked += 1
    assert checked > 20


def test_counts_are_polynomials_in_the_sizes():
    A, B = tp.array("A", tp.f32[N]), tp.array("B", tp.f32[N])
    both = tp.to_local(tp.map_lcl(tp.add)) >> tp.map_lcl(DOUBLE)
    p = tp.zip(A, B) >> tp.split(64) >> tp.map_wrg(both) >> tp.join
    (kernel,) = grid_code(p, "kernel", None)[1]
    total = counts(kernel, {"N": 640})  # the paper's listing 3
    assert total.global_loads == 2 * N
    assert total.local_stores == total.local_loads == total.global_stores == N
    (found,) = features(p, {"N": 640})
    assert (found.global_size_0, found.local_size_0, found.local_memory) == (640, 64, 256)
    assert (found.global_loads, found.global_stores, found.local_loads) == (2, 1, 1)
    assert found.barriers == found.if_statements == found.loop_bodies == 0


@pytest.mark.parametrize(("chunk", "lines"), [(1, 1), (2, 2), (4, 4), (32, 32), (64, 32)])
def test_lines_of_a_split_array_are_the_papers(chunk, lines):
    # Listing 4: threads read `chunk` elements apart; 32 floats fill a line.
    A = tp.array("A", tp.f32[N])
    p = A >> tp.split(chunk) >> tp.map_glb(tp.map_seq(DOUBLE))
    (found,) = features(p, {"N": 4096 * chunk})
    assert found.lines_per_access == lines


def test_lines_equal_brute_force_over_warps():
    A = tp.array("A", tp.f32[N, M])
    star = tp.fun(lambda w: w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1], "star")
    p = A >> tp.slide2(3, 1) >> tp.map2(star)
    known = {"N": 10, "M": 34}
    for program in (
        rw.derive(p, rw.lower_nest(*GLB)).program,
        rw.derive(p, rw.tiling2(4, 16), rw.lower_nest(*GRID), rw.stage_tile()).program,
        rw.derive(p, rw.tiling2(8, 4), rw.lower_nest(*GRID)).program,
    ):
        (kernel,) = grid_code(program, "kernel", None)[1]
        expected = lines_by_brute_force(kernel, known)
        assert np.isclose(kernel_features(kernel, known).lines_per_access, expected)


@pytest.mark.parametrize("width", [30, 33, 66])
def test_lines_are_exact_where_rows_and_warps_do_not_align(width):
    # One dimension of threads over a padded image: indices have quotients and rests.
    A = tp.array("A", tp.f32[N, M])
    ends = tp.fun(lambda w: w[0, 0] + w[2, 2], "ends")
    p = A >> tp.slide2(3, 1) >> tp.map2(ends) >> tp.join >> tp.map_glb(DOUBLE)
    known = {"N": 7, "M": width}
    launch = ThreadGrid((poly(2), poly(1), poly(1)), (40, 1, 1))
    for chosen in (None, launch):
        for kernel in grid_code(p, "kernel", chosen)[1]:
            expected = lines_by_brute_force(kernel, known)
            assert np.isclose(kernel_features(kernel, known).lines_per_access, expected, rtol=1e-9)


def test_control_flow_follows_the_launch():
    (found,) = features(tiled())
    # 3 x 2 threads copy a tile of 5 x 4 elements: two rounds in each dimension, partly full.
    assert found.barriers == 1
    assert np.isclose(found.loop_bodies, (4 * 3 + 20) / 6)
    assert found.if_statements == 0
    A = tp.array("A", tp.i32[N])
    (found,) = features(A >> tp.map_glb(DOUBLE), {"N": 1000})
    assert (found.if_statements, found.global_size_0) == (1, 1024)
    assert np.isclose(found.global_loads, 1000 / 1024)
    strided = ThreadGrid((poly(2), poly(1), poly(1)), (50, 1, 1))
    (found,) = features(A >> tp.map_glb(DOUBLE), {"N": 1000}, strided)
    assert (found.loop_bodies, found.if_statements) == (10, 0)


def test_sizes_that_do_not_fit_are_refused():
    A = tp.array("A", tp.i32[N]) >> tp.split(4) >> tp.map_glb(tp.map_seq(DOUBLE))
    with pytest.raises(tp.SizeError, match="N / 4 is 6/4"):
        features(A, {"N": 6})


def test_features_are_a_vector():
    (found,) = features(tiled())
    assert found.vector().shape == (18,)
    assert [*found.table_1(), *found.vector()[15:]] == [*found.vector()]
    assert found.table_1()[-1] == found.loop_bodies
    assert np.isfinite(found.vector()).all()
