"""How accesses are addressed, counted by hand."""

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.addressing import NOTHING, Addressing, addressing
from tilewright.halide.schedulers.analytic.gpu.thread_loops import InnerLoop


def accesses_of(pipeline, func, stage):
    algorithm = load(pipeline)
    view = View(algorithm)
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    (name,) = (name for name in view.by_name if name.split("$")[0] == func)
    return analysis.instructions(name)[stage].accesses


@pytest.fixture(scope="module")
def product():
    """The accesses of the update of a product of matrices: a, b, the sum, and its store."""
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "ab")
    x, y, out = hl.Var("x"), hl.Var("y"), hl.Func("out")
    k = hl.RDom([(0, 64)], "k")
    out[x, y] = hl.f32(0)
    out[x, y] += a[k.x, y] * b[x, k.x]
    out.set_estimates([(0, 64), (0, 64)])
    for image in (a, b):
        image.dim(0).set_estimate(0, 64)
        image.dim(1).set_estimate(0, 64)
    return accesses_of(hl.Pipeline([out]), "out", 1)


def memory(name):
    return "memory"


def test_loads_of_a_product(product):
    # Two columns per thread: b and the sum differ in them, a does not.
    inner = (InnerLoop({"k$x": 1.0}, 64.0, False), InnerLoop({"x": 1.0}, 2.0, True))
    found = addressing(product, inner, memory)
    assert found.loads == 3
    assert found.bases == 4  # a, b, the sum, and its store
    assert found.coordinates == 8
    assert found.bent == found.indirect == 0
    assert (found.moving, found.fixed) == (1 + 2 + 2, 0)


def test_what_an_inner_loop_does_not_change(product):
    # The last loop with more than one iteration counts; a does not change along x.
    loops = (InnerLoop({"k$x": 1.0}, 64.0, False), InnerLoop({"x": 1.0}, 8.0, False))
    single = InnerLoop({"y": 1.0}, 1.0, False)
    found = addressing(product, (*loops, single), memory)
    assert (found.moving, found.fixed) == (2, 1)


def test_nothing_moves_without_a_loop(product):
    found = addressing(product, (InnerLoop({"x": 1.0}, 2.0, True),), memory)
    assert (found.moving, found.fixed) == (0, 0)


def test_registers_take_no_addresses(product):
    inner = (InnerLoop({"k$x": 1.0}, 64.0, False),)
    found = addressing(product, inner, lambda name: "registers")
    assert found == Addressing(loads=3.0)


def test_no_access(product):
    assert addressing((), (), memory) == NOTHING


def test_indirect_and_bent_coordinates():
    table = hl.ImageParam(hl.UInt(8), 1, "table")
    picture = hl.ImageParam(hl.UInt(8), 1, "picture")
    x, out = hl.Var("x"), hl.Func("out")
    out[x] = table[hl.i32(picture[x])] + picture[x * x]
    out.set_estimates([(0, 8)])
    table.dim(0).set_estimate(0, 256)
    picture.dim(0).set_estimate(0, 64)
    found = addressing(accesses_of(hl.Pipeline([out]), "out", 0), (), memory)
    assert found.loads == 3
    assert found.indirect == 1
    assert found.bent >= 1
