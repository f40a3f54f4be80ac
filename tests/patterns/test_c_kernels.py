"""C kernels compute what the interpreter computes."""

import numpy as np
import pytest
from batch import kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from random_patterns import stages
from test_rewriting import PROGRAMS, RULES, data, equal

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.compiling import compile
from tilewright.patterns.programs import LINEAR_ALGEBRA
from tilewright.patterns.rewriting.rule import apply_at, sites

N, M = tp.sizes("N M")
MEAN = tp.fun(lambda w: (w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1]) / 4, "mean")
MEAN_OF_ONE = tp.fun(lambda v: v + v, "twice")
GRID = [n.MapLevel(k, d) for k in ("wrg", "lcl") for d in (1, 0)]


EXPECTED = ("use gather", "is read by another pattern", "unrolled", "not read in order")


def makes_code(p):
    try:
        generate(p)
    except tp.PatternError as error:
        if any(reason in str(error) for reason in EXPECTED):
            return False
        raise
    return True


def check(programs):
    for kernel in kernels(programs):
        arrays = data(kernel.program)
        expected = tp.interpret(kernel.program, *arrays)
        assert equal(kernel(*arrays, threads=2), expected), f"{kernel.program}\n{kernel.source}"


@given(st.lists(stages(tp.i32[4, 6], depth=3, most=4), min_size=40, max_size=40))
@settings(max_examples=3)
def test_random_programs(made):
    programs = [tp.array("A", tp.i32[4, 6]) >> p for p in made]
    programs = [p for p in dict.fromkeys(programs) if makes_code(p)]
    check(programs)


@pytest.mark.parametrize("target", ["c", "gpu"])
@pytest.mark.few(1)
def test_explored_programs(target):
    chosen = rw.ExplorationSettings(target=target, tiles=(2, 3), limit=15)
    found = [d.program for p in PROGRAMS.values() for d in rw.explore(p, chosen)]
    programs = [p for p in found if makes_code(p)]
    assert len(programs) > 30
    check(programs)


def test_rewritten_programs():
    programs = []
    for p in PROGRAMS.values():
        for site in sites(p):
            made = [q for rule in RULES if isinstance(q := apply_at(rule, site), n.Pattern)]
            programs += [q for q in made if makes_code(q)]
    assert len(programs) > 40
    check(list(dict.fromkeys(programs)))


def stencil():
    A = tp.array("A", tp.f32[N, M])
    return A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(MEAN)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (37, 53)])
def test_a_stencil_of_open_size_runs_at_any_size(shape):
    a = np.random.default_rng(0).random(shape, np.float32)
    kernel = compile(stencil(), name="jacobi")
    assert np.allclose(kernel(a), tp.interpret(stencil(), a), rtol=1e-6)
    assert "#pragma omp parallel for" in kernel.source
    assert "int jacobi(" in kernel.source


def test_a_tiled_stencil_stages_its_tile():
    tiled = rw.derive(stencil(), rw.tiling2(4, 8), rw.lower_nest(*GRID), rw.stage_tile()).program
    kernel = compile(tiled)
    a = np.random.default_rng(0).random((12, 24), np.float32)
    assert np.allclose(kernel(a), tp.interpret(stencil(), a), rtol=1e-6)
    assert "float l0[60]" in kernel.source
    with pytest.raises(tp.SizeError, match=r"M / 8 is 25/8|\(M - 8\) / 8 is 17/8"):
        kernel(np.ones((12, 25)))


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (8, 16), (13, 31)])
def test_tiles_that_do_not_divide_the_size(shape):
    steps = (rw.round_up2(4, 8), rw.tiling2(4, 8), rw.lower_nest(*GRID), rw.stage_tile())
    tiled = rw.derive(stencil(), *steps).program
    assert str(tp.type_of(tiled)) == "f32[N, M]"
    a = np.random.default_rng(0).random(shape, np.float32)
    expected = tp.interpret(stencil(), a)
    assert np.array_equal(tp.interpret(tiled, a), expected)
    assert np.allclose(compile(tiled)(a), expected, rtol=1e-6)
    x = tp.array("x", tp.f32[N]) >> tp.map(MEAN_OF_ONE)
    chunks = rw.derive(x, rw.round_up(8), rw.split_join(8), rw.lower_nest(n.PAR, n.SIMD)).program
    assert np.array_equal(compile(chunks)(a[0]), 2 * a[0])


def test_a_product_of_matrices_keeps_a_tile_of_sums():
    product = LINEAR_ALGEBRA["matmul"](8, 12, 6)
    steps = (
        rw.split2(4, 6),
        rw.lower_nest(n.PAR, n.SEQ),
        rw.bottom_up(rw.interchange),
        rw.bottom_up(rw.interchange),
    )
    tiled = rw.derive(product, *steps).program
    a, b = np.random.default_rng(0).random((2, 8, 12), np.float32)
    a, b = a[:, :6].copy(), b[:6].copy()
    kernel = compile(tiled)
    assert np.allclose(tp.interpret(tiled, a, b), a @ b, rtol=1e-5)
    assert np.allclose(kernel(a, b), a @ b, rtol=1e-5)
    assert "float acc0[24]" in kernel.source
    assert "new" not in kernel.source


def test_accumulators_that_move_their_elements_are_kept_twice():
    x = tp.array("x", tp.i32[5, 3])
    turned = tp.par(tp.gather(lambda i, m: (i + 1) % m), tp.identity) >> tp.zip >> tp.map(tp.add)
    p = x >> tp.reduce(turned, tp.i32(0) >> tp.repeat(3))
    a = np.arange(15, dtype=np.int32).reshape(5, 3)
    assert np.array_equal(compile(p)(a), tp.interpret(p, a))
    assert "restrict new0" in compile(p).source


def test_long_accumulators_outside_of_loops_are_not_on_the_stack():
    x = tp.array("x", tp.f32[N, M])
    p = x >> tp.reduce(tp.zip >> tp.map(tp.add), tp.f32(0) >> tp.repeat(M))
    a = np.ones((2, 8_000_000), np.float32)  # 32 MB: more than a stack has
    assert np.array_equal(compile(p)(a), np.full(8_000_000, 2, np.float32))


def test_the_source_binds_what_indices_share():
    source = compile(stencil()).source
    assert source.count("index_clamp(i0 - 1, N)") == 1
    assert len(source) < 2000


def test_values_of_every_type_and_shape():
    A, B = tp.array("A", tp.f64[N]), tp.array("B", tp.i64[N])
    s = tp.array("s", tp.f64)
    scaled = tp.fun(lambda a, b, s: tp.where(b < 2, a * s, tp.f64(b)) + tp.sqrt(a), "scaled")
    both = tp.zip(A, B, s >> tp.repeat(N)) >> tp.map(tp.fork(scaled, tp.get(1)))
    a, b = np.linspace(0, 1, 5), np.arange(5)
    got, expected = compile(both)(a, b, 3.0), tp.interpret(both, a, b, 3.0)
    assert isinstance(got, tuple)
    assert np.allclose(got[0], expected[0])
    assert np.array_equal(got[1], b)
    below = A >> tp.map(tp.fun(lambda a: (a < 0.5) & ~(a < 0.2)))
    assert compile(below)(a).dtype == bool
    assert np.array_equal(compile(below)(a), tp.interpret(below, a))


def test_reductions_of_several_values_at_once():
    x = tp.array("x", tp.f64[N])
    mean_and_square = tp.reduce(
        tp.fork(
            tp.par(tp.get(0), tp.identity) >> tp.add,
            tp.par(tp.get(1), tp.fun(lambda x: x * x)) >> tp.add,
        ),
        tp.fork(tp.f64(0), tp.f64(0)),
    )
    a = np.linspace(0, 1, 7)
    total, squares = compile(x >> mean_and_square)(a)
    assert np.isclose(total, a.sum())
    assert np.isclose(squares, (a * a).sum())


def test_intermediate_arrays_live_where_they_are_put():
    A = tp.array("A", tp.f32[N, M])
    double = tp.fun(lambda v: v + v, "double")
    rows = tp.to_private(tp.map_seq(double)) >> tp.reduce(tp.add, 0)
    p = A >> tp.to_global(tp.map_par(tp.map_seq(double))) >> tp.map_par(rows)
    kernel = compile(p)
    a = np.random.default_rng(0).random((5, 6), np.float32)
    assert np.allclose(kernel(a), 4 * a.sum(1), rtol=1e-5)
    assert "restrict g0" in kernel.source
    assert "malloc" in kernel.source  # a row of open length
    four = tp.array("A", tp.f32[N, 4]) >> tp.map_par(rows)
    assert "float p0[4]" in compile(four).source


def test_a_scatter_may_come_last_in_programs_that_only_move():
    A, last = tp.array("A", tp.i32[3, 4]), tp.scatter(lambda i, n: (i + 1) % n)
    padded = tp.map(tp.pad(1, 1, tp.clamp))
    double = tp.map(tp.map(tp.fun(lambda v: v + v)))
    moved = [last, tp.map(last), tp.transpose >> last, last >> tp.transpose, padded >> last]
    check([A >> p for p in (*moved, double >> padded >> last, padded >> last >> tp.join)])
    with pytest.raises(tp.PatternError, match="use gather"):
        compile(A >> last >> padded)


def test_programs_without_c_code_are_refused_with_the_reason():
    A = tp.array("A", tp.f32[N])
    with pytest.raises(tp.PatternError, match="say where it is stored"):
        compile(A >> tp.map_par(tp.copy) >> tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0)))
    with pytest.raises(tp.PatternError, match="N iterations cannot be unrolled"):
        compile(A >> tp.map_unroll(tp.copy))
    with pytest.raises(tp.PatternError, match="use gather"):
        compile(A >> tp.scatter(lambda i, n: n - 1 - i) >> tp.map(tp.copy))
    with pytest.raises(tp.PatternError, match="target 'fortran'"):
        compile(A >> tp.map(tp.copy), target="fortran")
    with pytest.raises(tp.PatternError, match="C and Python can use"):
        tp.array("double", tp.f32[N])
    with pytest.raises(tp.PatternError, match="threads is 0"):
        compile(A >> tp.map(tp.copy))(np.ones(3), threads=0)
    with pytest.raises(tp.PatternError, match="holds complex128"):
        compile(A >> tp.map(tp.copy))(np.ones(3, complex))


def test_names_of_users_do_not_clash_with_generated_ones():
    i0, v0 = tp.sizes("i0 v0")
    p = tp.array("acc0", tp.i32[i0, v0]) >> tp.pad2(1, 1, tp.wrap)
    p = tp.zip(p >> tp.map(tp.reduce(tp.add, 0)), tp.array("out0", tp.i32[i0 + 2])) >> tp.map(
        tp.mul
    )
    a, b = np.arange(12).reshape(3, 4), np.arange(5)
    assert np.array_equal(compile(p, name="main_")(a, b), tp.interpret(p, a, b))


def test_loops_are_cut_at_borders():
    kernel = compile(rw.derive(stencil(), rw.lower_nest(n.PAR, n.SIMD)).program)
    inside = kernel.source.split("#pragma omp simd")[1].split("}")[0]
    assert "index_clamp" not in inside
    assert kernel.source.count("index_clamp(i1 - 1, M)") == 2  # at each border
    for shape in ((1, 1), (3, 2), (4, 37)):
        a = np.random.default_rng(0).random(shape, np.float32)
        assert np.allclose(kernel(a), tp.interpret(stencil(), a), rtol=1e-6)


@pytest.mark.parametrize("boundary", [tp.clamp, tp.wrap, tp.mirror, 0.5])
def test_borders_of_every_kind(boundary):
    row = tp.pad(3, 2, boundary) >> tp.slide(6, 1) >> tp.map(tp.reduce(tp.add, 0.0))
    p = tp.array("A", tp.f32[N, M]) >> tp.map(row)
    kernel = compile(p)
    assert "i1_border" in kernel.source
    for columns in (1, 4, 5, 30):
        a = np.random.default_rng(0).random((3, columns), np.float32)
        assert np.allclose(kernel(a), tp.interpret(p, a), rtol=1e-5)


def test_a_packed_product_of_matrices():
    product = LINEAR_ALGEBRA["matmul"](8, 12, 6)
    packed = rw.derive(product, rw.pack("B", 4), rw.split2(4, 4), rw.lower_nest(n.PAR, n.SEQ))
    a, b = np.random.default_rng(0).random((2, 8, 12), np.float32)
    a, b = a[:, :6].copy(), b[:6].copy()
    kernel = compile(packed.program)
    assert np.allclose(kernel(a, b), a @ b, rtol=1e-5)
    assert "g0[24 * i0 + 4 * i1 + i2] = f_copy(B[4 * i0 + 12 * i1 + i2])" in kernel.source
    x = tp.array("x", tp.f32[N, M])
    again = tp.array("A", tp.f32[N]) >> tp.map(tp.fork(x, x) >> tp.get(0))
    with pytest.raises(tp.RewriteError, match="inside a loop"):
        rw.derive(again, rw.pack("x", 2))
