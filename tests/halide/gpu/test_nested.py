import halide as hl
import pytest
from gpu_pipelines import barely, full, kernel_of, khwz, matmul, pyramid

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.nested import (
    grows_inside_threads,
    max_order_reuse,
    optimize_granularity,
)


def test_example_of_the_paper():
    # K is needed pixel by pixel of W, in all its channels; rows of Z share values of W.
    kernel = kernel_of(khwz(), "Z", ["K", "W"], ["E_im", "H"])
    k, w = kernel.members
    assert max_order_reuse(kernel, kernel.output, w, {}) == "y"
    assert max_order_reuse(kernel, w, k, {}) is None
    assert barely(optimize_granularity(kernel)) == {"K": "W"}


def test_a_reduction_goes_into_the_threads_of_the_output():
    kernel = kernel_of(matmul(), "out", ["prod"], ["A_im", "B_im"])
    assert barely(optimize_granularity(kernel)) == {"prod": "out"}


def test_neighbours_that_read_one_value_share_it():
    kernel = kernel_of(pyramid(), "out", ["downy", "up"], ["image_im"])
    assert max_order_reuse(kernel, kernel.output, kernel.members[-1], {}) == "y"
    assert optimize_granularity(kernel) == {}


def pipeline(define, *extents):
    """``out`` of `define`, which gets the Var of each dimension."""
    dims = hl.vars("x y c")[: len(extents)]
    out = hl.Func("out")
    out[dims] = define(*dims)
    out.set_estimates([(0, extent) for extent in extents])
    return load(out)


def test_consumers_at_different_places_keep_a_member_at_the_block():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a, b = hl.Func("a"), hl.Func("b")

    def define(x, y):
        a[x, y] = image[x, y] * 2.0
        b[x, y] = a[x, y] + 1.0
        return a[x, y] + b[x - 1, y] + b[x + 1, y]

    kernel = kernel_of(pipeline(define, 256, 256), "out", ["a", "b"], ["image_im"])
    assert optimize_granularity(kernel) == {}


def test_a_chain_is_nested_in_one_place():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a, b = hl.Func("a"), hl.Func("b")

    def define(x, y):
        a[x, y] = image[x, y] * 2.0
        b[x, y] = a[x, y] + 1.0
        return a[x, y] + b[x, y]

    kernel = kernel_of(pipeline(define, 256, 256), "out", ["a", "b"], ["image_im"])
    assert barely(optimize_granularity(kernel)) == {"a": "out", "b": "out"}


def test_funcs_whose_size_differs_between_threads_are_not_nested():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a = hl.Func("a")

    def define(x, y):
        a[x, y] = image[x, y] * 2.0
        # From 3x/2 to 3(x+1)/2 - 1: one value or two, and none is shared.
        return a[x * 3 // 2, y] + a[(x * 3 + 3) // 2 - 1, y]

    kernel = kernel_of(pipeline(define, 256, 256), "out", ["a"], ["image_im"])
    assert max_order_reuse(kernel, kernel.output, kernel.members[0], {}) is None
    assert optimize_granularity(kernel) == {}


@pytest.mark.parametrize("separate", [True, False])
def test_loops_that_would_run_in_a_thread(separate):
    image = hl.ImageParam(hl.Float(32), 3, "image")
    r = hl.RDom([(0, 3)], "r")

    def define(x, y, c):
        return hl.sum(image[x, y, c + r.x if separate else r.x], "total") * hl.f32(c)

    algorithm = pipeline(define, 256, 256, 3)
    kernel = kernel_of(algorithm, "out", ["total"], ["image_im"])
    assert kernel.roles.others == (2,)
    nested = optimize_granularity(kernel)
    assert barely(nested) == {"total": "out"}
    # A sum a channel, or one for all of them.
    dims = len(algorithm.by_name[full(algorithm, "total")].args)
    assert grows_inside_threads(kernel, nested) == ((2,) if dims == 3 else ())
    assert (dims == 3) == separate


def test_funcs_clamped_in_a_range_of_a_thread_are_not_nested():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a, b = hl.Func("a"), hl.Func("b")

    def define(x, y):
        a[x, y] = image[x, y] * 2.0
        b[x, y] = a[hl.clamp(x, 5, 900), y]
        return b[4 * x, y] + b[4 * x + 1, y]

    kernel = kernel_of(pipeline(define, 256, 256), "out", ["a", "b"], ["image_im"])
    assert barely(optimize_granularity(kernel)) == {"b": "out"}


def test_nothing_is_nested_in_loops_that_differ_from_block_to_block():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a, b = hl.Func("a"), hl.Func("b")

    def define(x, y):
        a[x, y] = image[x, y] * 2.0
        b[x, y] = a[3 * x, y] + a[3 * x + 1, y]
        return b[hl.min(x // 64, 2), y] + b[hl.min(x // 64, 2) + 1, y]

    kernel = kernel_of(pipeline(define, 256, 256), "out", ["a", "b"], ["image_im"])
    (_, member) = kernel.members
    assert member not in kernel.exact_members
    assert kernel.member_threads[member] == (1,)
    assert optimize_granularity(kernel) == {}
