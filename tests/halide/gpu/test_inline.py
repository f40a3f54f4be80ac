from itertools import pairwise

import halide as hl
from gpu_pipelines import analysed, bare, khwz

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined

x, y = hl.vars("x y")


def inlined(algorithm, **options):
    return {bare(n) for n in choose_inlined(analysed(algorithm, specialize=True), **options)}


def image(dims=2):
    return hl.ImageParam(hl.Float(32), dims, "image")


def blur(value):
    return value(-2) + 4.0 * value(-1) + 6.0 * value(0) + 4.0 * value(1) + value(2)


def test_wrappers_and_what_is_read_pointwise():
    found = inlined(khwz())
    assert {"E_im", "H"} <= found
    assert "W" not in found
    assert "Z" not in found


def test_a_stencil_is_not_inlined_into_a_stencil():
    source = image()
    a, b = hl.Func("a"), hl.Func("b")
    a[x, y] = blur(lambda i: source[x + i, y])
    b[x, y] = blur(lambda i: a[x, y + i])
    b.set_estimates([(0, 512), (0, 512)])
    assert inlined(load(b)) == {"image_im"}


def test_a_chain_of_cheap_funcs_stops_where_it_has_become_costly():
    source = image()
    funcs = [hl.Func(f"f{i}_") for i in range(8)]
    funcs[0][x, y] = source[x, y]
    for before, after in pairwise(funcs):
        after[x, y] = before[x, y] * 2.0 + before[x, y] * before[x, y]
    out = hl.Func("out")
    out[x, y] = sum((funcs[-1][x + i, y + j] for i in range(5) for j in range(5)), hl.f32(0))
    out.set_estimates([(0, 512), (0, 512)])
    found = inlined(load(out))
    # Pointwise up to the last, which is read 25 times and stands for all of them.
    assert {f"f{i}_" for i in range(7)} <= found
    assert "f7_" not in found


def test_a_large_func_with_two_readers_is_computed_twice_rather_than_stored():
    source = image()
    a, b, c, out = (hl.Func(name) for name in "abcd")
    a[x, y] = (source[x, y] * source[x, y - 1] + source[x, y]) * 0.5
    b[x, y] = a[x, y - 1] + a[x, y]
    c[x, y] = a[x - 1, y] + a[x, y]
    out[x, y] = blur(lambda i: b[x + i, y]) + blur(lambda i: c[x, y + i])
    out.set_estimates([(0, 2048), (0, 2048)])
    algorithm = load(out)
    assert "a" not in inlined(algorithm, cache_bytes=1 << 30)
    assert "a" in inlined(algorithm, cache_bytes=1 << 20)


def test_inputs_of_an_extern_stage_are_kept():
    source = image()
    g, e, f = hl.Func("g"), hl.Func("e"), hl.Func("f")
    g[x, y] = source[x, y] + 1.0
    e.define_extern("stage", [hl.ExternFuncArgument(g)], [hl.Float(32)], [x, y])
    f[x, y] = e[x, y] * 2.0
    f.set_estimates([(0, 64), (0, 64)])
    assert inlined(load(f, estimates={"image": [(0, 64), (0, 64)]})) == set()


def test_update_definitions_are_never_inlined():
    source = image()
    r = hl.RDom([(0, 3)], "r")
    out = hl.Func("out")
    out[x, y] = hl.sum(source[x + r.x, y], "total")
    out.set_estimates([(0, 64), (0, 64)])
    assert inlined(load(out)) == {"image_im"}


def test_a_chain_of_smaller_images_is_not_one_expression():
    source = image()
    levels = [source]
    for level in range(6):
        f = hl.Func(f"level_{level}")
        above = levels[-1]
        f[x, y] = above[2 * x - 1, 2 * y] + above[2 * x, 2 * y] + above[2 * x + 1, 2 * y + 1]
        levels.append(f)
    levels[-1].set_estimates([(0, 16), (0, 12)])
    kept = {f"level_{level}" for level in range(6)} - inlined(load(levels[-1]))
    assert len(kept) >= 2
