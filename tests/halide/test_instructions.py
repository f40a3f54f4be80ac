"""Instructions of operations and stages, by hand."""

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.instructions import cost_of
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Call, Const, Op, Type, Variable

I32, U8, U16, F32 = Type("int", 32), Type("uint", 8), Type("uint", 16), Type("float", 32)
LOADED = Call("image", "image", (), U8)


def variable(kind):
    return Variable("v", "var", kind)


def op(name, kind, *args):
    return Op(name, args or (variable(kind), variable(kind)), kind)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (op("add", I32), (1, 0)),
        (op("min", I32), (1, 0)),
        (op("min", F32), (2, 0)),
        (op("div", F32), (0, 1)),
        (op("div", F32, variable(F32), Const(3.0, F32)), (1, 0)),
        (op("div", I32), (10, 1)),
        (op("mod", I32), (11, 1)),
        (op("div", U16), (4, 1)),
        (op("div", I32, variable(I32), Const(3, I32)), (6, 0)),
        (op("mod", U16, variable(U16), Const(3, U16)), (4, 0)),
        (op("div", I32, variable(I32), Const(4, I32)), (1, 0)),
        (op("mod", F32), (4, 0)),
        (op("cast", F32, variable(I32)), (1, 0)),
        (op("cast", U16, variable(U16)), (0, 0)),
        (op("cast", I32, LOADED), (0, 0)),  # the load widens it
        (op("cast", F32, LOADED), (1, 0)),
        (op("reinterpret", F32, variable(I32)), (0, 0)),
        (op("add", F32, op("mul", F32), variable(F32)), (0, 0)),  # part of the product
        (op("add", I32, op("mul", I32), variable(I32)), (0, 0)),
        (op("add", U16, op("mul", U16), variable(U16)), (1, 0)),
        (op("lt", Type("uint", 1), variable(F32), variable(F32)), (1, 0)),
        (Call("exp_f32", "extern", (variable(F32),), F32), (20, 0)),
        (Call("sqrt_f32", "extern", (variable(F32),), F32), (0, 1)),
        (Call("abs", "intrinsic", (variable(F32),), F32), (4, 0)),
        (Call("absd", "intrinsic", (variable(I32),) * 2, I32), (3, 0)),
        (Call("likely", "intrinsic", (variable(I32),), I32), (0, 0)),
        (Call("shift_right", "intrinsic", (variable(I32),) * 2, I32), (1, 0)),
    ],
)
def test_operations(node, expected):
    assert cost_of(node) == expected


def instructions(func, stage=-1):
    algorithm = load(func)
    view = View(algorithm, frozenset())
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    return analysis.instructions(algorithm.outputs[0])[stage]


def loops(names, found):
    return frozenset(found) == frozenset(names)


def plain(found):
    return sum(item.plain for item in found.work)


def stencil(index=lambda image, x, y: image[x, y]):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = index(image, x, y)
    return out.set_estimates([(0, 64), (0, 64)])


def test_sums_of_indices_cost_nothing():
    found = instructions(stencil(lambda i, x, y: i[x + 1, y + 2] + i[2 * x - 3, y]))
    assert plain(found) == 1  # the sum of the two values


def test_clamped_indices_are_computed():
    found = instructions(stencil(lambda i, x, y: i[hl.clamp(x + 1, 0, 63), y] * 2.0))
    # A product, a minimum, a maximum, and the sum inside.
    assert plain(found) == 4


def test_an_index_that_is_used_as_a_value_is_computed():
    found = instructions(stencil(lambda i, x, y: i[x + 1, y] * hl.f32(x + 1)))
    assert plain(found) == 1 + 1 + 1  # product, cast, sum


def test_equal_expressions_count_once():
    square = instructions(stencil(lambda i, x, y: (i[x, y] + 1.0) * (i[x, y] + 1.0)))
    assert plain(square) == 2
    assert sum(not access.store for access in square.accesses) == 1


def test_loads_along_a_row_share_an_address():
    found = instructions(stencil(lambda i, x, y: i[x, y] + i[x + 1, y] + i[x, y + 1]))
    loads = [access for access in found.accesses if not access.store]
    assert len(loads) == 3
    assert len({load.base for load in loads}) == 2
    assert len({load.folded for load in loads}) == 1
    assert len({row for load in loads for row in load.rows}) == 2


def test_loops_of_work_and_accesses():
    x, y = hl.vars("x y")
    k = hl.RDom([(0, 8)], "k")
    a, b = hl.ImageParam(hl.Float(32), 1, "a"), hl.ImageParam(hl.Float(32), 2, "b")
    out = hl.Func("out")
    out[x, y] = 0.0
    out[x, y] += (a[x] + 1.0) * b[k, y]
    out.set_estimates([(0, 64), (0, 64)])
    found = instructions(out)
    work = {tuple(sorted(name.split("$")[0] for name in w.loops)): w.plain for w in found.work}
    assert set(work) == {("x",), ("k", "x", "y")} or sum(work.values()) == 2
    assert sum(work.values()) == 2  # the sum with 1; the product, fused with the sum
    own = [access for access in found.accesses if access.callee.startswith("out")]
    assert [access.store for access in own] == [False, True]
    # What is stored is loaded again in every iteration, wherever the address stays.
    assert all(len(access.loops) == 3 and len(access.moved) == 2 for access in own)
    (one,) = (access for access in found.accesses if access.callee.startswith("a"))
    assert len(one.loops) == len(one.moved) == 1


def test_indices_that_data_decides_or_that_bend():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    table = hl.ImageParam(hl.UInt(8), 1, "table")
    out = hl.Func("out")
    out[x, y] = image[hl.i32(table[x]), y // 2] + image[x, y]
    out.set_estimates([(0, 64), (0, 64)])
    found = instructions(out)
    loads = {(a.callee.split("_")[0], a.indirect): a for a in found.accesses if not a.store}
    assert loads["image", True].bent == loads["image", True].moved
    assert loads["image", False].bent == frozenset()
    assert len(loads["image", False].outer) == 1
    assert not loads["table", False].indirect
