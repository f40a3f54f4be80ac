"""Vectors of neighbouring elements: meaning, aligned accesses, code on all targets, counts."""

import numpy as np
import pytest
from batch import kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_grid_kernels import simulated
from test_nvrtc import needs_nvrtc
from test_rewriting import data, equal
from warps import lines_by_brute_force

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.code import lanes_of, loads, stores
from tilewright.patterns.codegen.grid import ThreadGrid
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.features import counts, kernel_features
from tilewright.patterns.nodes import MapLevel

N, M = tp.sizes("N M")
GLB = [MapLevel("glb", 1), MapLevel("glb", 0)]
SWAPPED = tp.fun(lambda a, b: b - a * 2, "swapped")
DOUBLE = tp.fun(lambda v: v + v, "twice")
ENDS = tp.fun(lambda w: w[0] - w[2], "ends")
LAUNCH = ThreadGrid((poly(1), poly(2), poly(1)), (3, 1, 1))


def lowered(p, length):
    """The program with vectors, its outer maps run by all threads."""
    made = rw.derive(p, rw.bottom_up(rw.vectorise(length))).program
    for levels in (GLB, GLB[1:]):
        try:
            return rw.apply(rw.lower_nest(*levels), made)
        except tp.RewriteError:
            continue
    return made


def programs(rows, columns, kind):
    """Programs of elements in rows, some of whose accesses are not aligned or not consecutive."""
    A, B = (tp.array(name, kind[rows, columns]) for name in "AB")
    wide = tp.array("A", kind[rows, columns + 2])
    twice = tp.fork(tp.identity, DOUBLE) >> SWAPPED
    total = tp.map(tp.reduce(tp.add, 0))
    return {
        "zip": tp.zip2(A, B) >> tp.map2(SWAPPED),
        "flat": A >> tp.join >> tp.map(twice),
        "columns": A >> tp.transpose >> total,
        "shifted": wide >> tp.map(tp.slide(3, 1)) >> tp.map2(ENDS),
        "reversed": tp.zip2(A >> tp.map(tp.gather(lambda i, m: m - 1 - i)), B) >> tp.map2(SWAPPED),
        "border": A >> tp.map(tp.pad(1, 1, tp.clamp) >> tp.slide(3, 1)) >> tp.map2(ENDS),
        "value": A >> tp.map(tp.pad(1, 1, 7) >> tp.slide(3, 1)) >> tp.map2(ENDS),
    }


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([2, 4, 8, 16]),
    st.sampled_from(["zip", "flat", "columns", "shifted", "reversed", "border", "value"]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_vectors_mean_the_same(rows, count, length, name, square):
    columns = count * length
    p = programs(columns if square else rows, columns, tp.i32)[name]
    made = lowered(p, length)
    arrays = data(p)
    expected = tp.interpret(p, *arrays)
    assert equal(tp.interpret(made, *arrays), expected)
    for launch in (None, LAUNCH):
        found, happened, run = simulated(made, arrays, launch)  # which checks that all are aligned
        assert equal(found[0], expected.ravel()), str(made)
        for kernel, seen in zip(run, happened, strict=True):
            if name != "value":  # whose loads beyond the border are not executed
                assert counts(kernel, {}).global_loads.value == seen["load", "global"]
            assert counts(kernel, {}).global_stores.value == seen["store", "global"]
            features = kernel_features(kernel, {})
            lines = lines_by_brute_force(kernel, {})
            assert np.isclose(features.lines_per_access, lines, rtol=1e-9), str(made)


def accesses(p):
    """Elements of each load and store of a program's kernels."""
    found = grid_code(p, "kernel", None)[1]
    return [
        sorted(lanes_of(a) for kernel in found for a in of(kernel.body)) for of in (loads, stores)
    ]


def test_consecutive_aligned_elements_are_vectors():
    some = programs(4, 8, tp.f32)
    found = {name: accesses(lowered(p, 4)) for name, p in some.items()}
    assert found["zip"] == [[4, 4], [4]]
    assert found["flat"] == [[4, 4], [4]]
    assert found["columns"] == [[4], [4]]
    assert found["shifted"] == [[1] * 4 + [1] * 4, [4]]
    assert found["reversed"] == [[1, 1, 1, 1, 4], [4]]


def test_longer_vectors_are_accessed_in_pieces():
    some = programs(4, 16, tp.f32)
    assert accesses(lowered(some["zip"], 8)) == [[4] * 4, [4] * 2]
    assert accesses(lowered(some["flat"], 16)) == [[4] * 8, [4] * 4]
    wide = programs(4, 16, tp.f64)
    assert accesses(lowered(wide["zip"], 4)) == [[2] * 4, [2] * 2]


def test_a_function_that_returns_several_numbers_stores_vectors_of_each():
    A = tp.array("A", tp.f32[4, 8])
    p = A >> tp.map2(tp.fork(tp.identity, DOUBLE))
    made = lowered(p, 4)
    assert accesses(made) == [[4, 4], [4, 4]]
    array = np.arange(32, dtype=np.float32)
    found = simulated(made, [array.reshape(4, 8)])[0]
    assert np.array_equal(found[0], array)
    assert np.array_equal(found[1], 2 * array)


def test_a_single_vector_is_split_on_request():
    p = tp.array("A", tp.f32[4, 4]) >> tp.map2(DOUBLE)
    plain, kept = (rw.bottom_up(rw.vectorise(4, keep_one=keep)) for keep in (False, True))
    assert str(rw.derive(p, plain).program) == "A >> map(map_vec(twice))"
    assert str(rw.derive(p, kept).program) == "A >> map(split(4) >> map(map_vec(twice)) >> join)"


def test_open_sizes_are_aligned_by_their_requirements():
    A = tp.array("A", tp.f32[N, M])
    made = lowered(A >> tp.map2(DOUBLE), 4)
    assert accesses(made) == [[4], [4]]
    kernel = tp.compile(made)
    array = np.arange(24, dtype=np.float32).reshape(3, 8)
    assert np.array_equal(kernel(array), 2 * array)
    with pytest.raises(tp.SizeError, match="M / 4 is 6/4"):
        kernel(array[:, :6])
    odd = tp.array("A", tp.f32[N, M + 1]) >> tp.map(tp.slide(2, 1) >> tp.map(tp.at(0) >> DOUBLE))
    assert accesses(lowered(odd, 4)) == [[1, 1, 1, 1], [4]]  # rows of M + 1 are not aligned


def test_vectors_in_local_memory_are_aligned():
    A = tp.array("A", tp.f32[64])
    tile = tp.to_local(tp.map_lcl(tp.copy)) >> tp.split(4) >> tp.map_lcl(tp.map_vec(DOUBLE))
    p = A >> tp.split(16) >> tp.map_wrg(tile >> tp.join) >> tp.join
    text = tp.source(p, "cuda")
    assert "__shared__ __align__(16) float l0[16];" in text
    assert "*(const float4 *)(l0 + 4 * " in text
    assert "vload4(0, l0 + 4 * " in tp.source(p, "opencl")
    array = np.arange(64, dtype=np.float32)
    assert np.array_equal(simulated(p, [array])[0][0], 2 * array)


def test_names_of_lanes_do_not_hide_those_of_inputs():
    x = tp.array("x", tp.i32[8])
    for name in ("v0_1", "i1_v0", "v1_1"):
        scale = tp.array(name, tp.i32)
        half = tp.fork(DOUBLE, DOUBLE) >> SWAPPED
        p = tp.zip(x, scale >> tp.repeat(8)) >> tp.map(tp.par(half, tp.identity) >> tp.mul)
        arrays = [np.arange(8, dtype=np.int32), np.int32(3)]
        made = lowered(p, 4)
        assert equal(simulated(made, arrays)[0][0], tp.interpret(p, *arrays))
        assert not [
            line for line in tp.source(made, "cuda").splitlines() if f"const int {name} =" in line
        ]


TYPES = [(tp.f32, 2), (tp.f32, 4), (tp.i32, 4), (tp.f64, 2), (tp.i64, 2), (tp.f32, 8), (tp.f64, 4)]


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("kind", "length"),
    [*TYPES[:3], TYPES[-1], *(pytest.param(*t, marks=pytest.mark.thorough) for t in TYPES[3:-1])],
    ids=str,
)
@pytest.mark.few(2)
def test_opencl_runs_them(kind, length):
    for p in programs(3, 8, kind).values():
        arrays = [a.astype(kind.dtype) for a in data(p)]
        made = lowered(p, length)
        width = min(length, 16 // kind.size)
        assert f"vstore{width}(({kind.c}{width})(" in tp.source(made, "opencl")
        assert np.array_equal(tp.compile(made, "opencl")(*arrays), tp.interpret(p, *arrays))


@needs_nvrtc
@pytest.mark.parametrize(("kind", "length"), TYPES, ids=str)
def test_cuda_compiles_them(kind, length):
    from tilewright.patterns.nvrtc import compile_cuda

    for p in programs(3, 8, kind).values():
        (use,) = compile_cuda(tp.source(lowered(p, length), "cuda")).kernels
        assert use.spill_bytes == 0


def test_c_runs_them_as_loops():
    some = [p for length in (2, 4) for p in programs(8, 8, tp.i32).values()]
    made = [lowered(p, length) for p, length in zip(some, [2] * 7 + [4] * 7, strict=True)]
    for kernel, p in zip(kernels(made), some, strict=True):
        assert equal(kernel(*data(p), threads=2), tp.interpret(p, *data(p)))


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (
            tp.split(3) >> tp.map_glb(tp.map_vec(DOUBLE)),
            "a vector of 3 elements: give 2, 4, 8 or 16",
        ),
        (
            tp.split(4) >> tp.transpose >> tp.map_glb(tp.map_vec(DOUBLE)) >> tp.transpose,
            "no access of global or local memory has consecutive elements",
        ),
        (
            tp.pad(0, 1, tp.clamp)
            >> tp.split(4)
            >> tp.map_glb(tp.map_vec(DOUBLE))
            >> tp.join
            >> tp.crop(15),
            "no access of global or local memory",
        ),
    ],
)
def test_what_cannot_be_a_vector_is_refused(p, message):
    length = 12 if "3" in message else 16
    x = tp.array("x", tp.f32[15 if "crop" in str(p) else length])
    with pytest.raises(tp.LoweringError, match=message):
        tp.source(x >> p, "cuda")


def test_the_rule_says_why_it_does_not_apply():
    x = tp.array("x", tp.f64[N])
    for p, rule, message in [
        (x >> tp.map(DOUBLE), rw.vectorise(3), "give 2, 4, 8 or 16"),
        (x >> tp.map(DOUBLE) >> tp.reduce(tp.add, 0), rw.vectorise(2), "reads its result"),
        (
            x >> tp.split(8) >> tp.map_glb(tp.map_seq(tp.fork(DOUBLE) >> tp.get(0))),
            rw.vectorise(2),
            "it is already run by seq",
        ),
    ]:
        with pytest.raises(tp.RewriteError, match=message):
            rw.apply(rule, p)


def test_vectors_are_explored_on_request():
    A = tp.array("A", tp.i32[8, 8])
    start = tp.zip2(A, A) >> tp.map2(SWAPPED)
    chosen = rw.ExplorationSettings(tiles=(4,), limit=100, vectors=(2, 4))
    found = [d for d in rw.explore(start, chosen) if "map_vec" in str(d.program)]
    assert len(found) > 5
    (array,) = data(start)
    expected = tp.interpret(start, array)
    ran = 0
    for d in found:
        assert equal(tp.interpret(d.program, array), expected)
        try:
            assert equal(simulated(d.program, [array])[0][0], expected.ravel()), str(d)
            ran += 1
        except tp.LoweringError:
            continue
    assert ran > 5
    plain = rw.explore(start, rw.ExplorationSettings(tiles=(4,), limit=100))
    assert not any("map_vec" in str(d.program) for d in plain)
