"""Bounds as Halide's lowering finds them, against numbers worked by hand."""

import math

import numpy as np
import pytest

from tilewright.halide.analysis.bounds import Access, Interval, Linearizer
from tilewright.halide.analysis.loop_ranges import SizedSplit, ranges_after, values
from tilewright.halide.analysis.lowering_bounds import LoweringBounder, touched_at_most
from tilewright.halide.ir.algorithm import Call, Const, Op, Type, Variable
from tilewright.halide.ir.schedule import Split

INT, BOOL, FLOAT = Type("int", 32), Type("uint", 1), Type("float", 32)
X = Variable("x", "var", INT)


def number(value, type_=INT):
    return Const(value, type_)


def op(name, *args, type_=INT):
    return Op(name, args, type_)


def call(name, *args, type_=INT):
    return Call(name, "intrinsic", args, type_)


def bounded(expr, low, high, still=()):
    """The ends of an expression in x while x ranges from `low` to `high`."""
    bounder = LoweringBounder(Linearizer({})).standing(frozenset(still))
    return tuple(bounder.bound(expr, {"x": Interval(low, high)}, {}))


def test_the_remainder_of_a_loop_is_anything_below_the_divisor():
    # 8 and 9 leave 0 and 1, which the ends of a loop, two symbols, do not show.
    remainder = op("mod", X, number(4))
    assert bounded(remainder, 8.0, 9.0) == (0.0, 3.0)
    assert bounded(remainder, 9.0, 9.0) == (0.0, 3.0)


def test_the_remainder_of_what_stands_still_is_worked_out():
    remainder = op("mod", X, number(4))
    assert bounded(remainder, 9.0, 9.0, still=["x"]) == (1.0, 1.0)
    # Rounded down, as Halide divides: -3 = -1 * 4 + 1.
    assert bounded(remainder, -3.0, -3.0, still=["x"]) == (1.0, 1.0)


def test_values_of_an_image_are_never_constant():
    value = Call("image", "image", (X,), INT)
    assert bounded(op("mod", value, number(4)), 9.0, 9.0, still=["x"]) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("condition", "low", "high", "wanted"),
    [
        ("lt", 0.0, 9.0, (20.0, 20.0)),  # always below 10
        ("lt", 0.0, 10.0, (20.0, 30.0)),  # below or not
        ("lt", 10.0, 12.0, (30.0, 30.0)),
        ("ge", 10.0, 12.0, (20.0, 20.0)),
        ("le", 11.0, 12.0, (30.0, 30.0)),
        ("eq", 11.0, 12.0, (30.0, 30.0)),  # never
        ("eq", 10.0, 10.0, (20.0, 30.0)),  # two ends that meet are not one point
        ("ne", 11.0, 12.0, (20.0, 20.0)),
    ],
)
def test_a_select_takes_the_branches_that_its_condition_allows(condition, low, high, wanted):
    expr = op("select", op(condition, X, number(10), type_=BOOL), number(20), number(30))
    assert bounded(expr, low, high) == wanted


def test_constant_values_are_equal_or_not():
    expr = op("select", op("eq", X, number(10), type_=BOOL), number(20), number(30))
    assert bounded(expr, 10.0, 10.0, still=["x"]) == (20.0, 20.0)
    assert bounded(expr, 9.0, 9.0, still=["x"]) == (30.0, 30.0)


def test_conditions_combine():
    above, below = op("gt", X, number(3), type_=BOOL), op("lt", X, number(9), type_=BOOL)
    both = op("select", op("and", above, below, type_=BOOL), number(1), number(0))
    either = op("select", op("or", op("not", above, type_=BOOL), below, type_=BOOL), X, number(50))
    assert bounded(both, 4.0, 8.0) == (1.0, 1.0)
    assert bounded(both, 4.0, 9.0) == (0.0, 1.0)
    assert bounded(either, 0.0, 3.0) == (0.0, 3.0)
    assert bounded(either, 9.0, 10.0) == (50.0, 50.0)


def test_a_shift_by_what_is_known_to_be_in_range_is_a_product():
    inside = op("min", op("max", X, number(0)), number(6))
    assert bounded(call("shift_left", number(1), inside), 2.0, 5.0) == (4.0, 32.0)


def test_a_shift_by_a_loop_may_be_out_of_range():
    # Nothing is proved of the loop's ends; what is shifted is not negative, and so is the result.
    assert bounded(call("shift_left", number(1), X), 2.0, 5.0) == (0.0, math.inf)


def test_a_logarithm_grows_with_its_argument():
    argument = op("cast", X, type_=FLOAT)
    low, high = bounded(Call("log_f32", "extern", (argument,), FLOAT), 1.0, 8.0)
    assert low == 0.0
    assert high == float(np.float32(np.log(8.0)))


def quotient(offset):
    return op("div", op("add", X, number(offset)), number(2))


def test_two_quotients_are_as_far_apart_as_at_any_place():
    linear = Linearizer({})
    forms = tuple((linear(quotient(k)), linear(quotient(k)).const) for k in (0, 1))
    access = Access("f", "func", (tuple((form, c, c) for form, c in forms),), 2)
    bounder = LoweringBounder(linear, apart=True)
    # x / 2 and (x + 1) / 2 are both 2 at x = 4, but differ by 1 at every odd x.
    assert touched_at_most(access, {"x": Interval(4.0, 4.0)}, bounder, {}) == (Interval(2.0, 3.0),)


@pytest.mark.parametrize(
    ("tail", "idle", "beyond"),
    [
        ("guard_with_if", False, True),
        ("predicate", False, True),
        ("predicate_loads", True, False),
        ("predicate_stores", False, False),
    ],
)
def test_beyond_the_end_nothing_is_done_or_loaded(tail, idle, beyond):
    # 20 iterations in pieces of 8: the last one has 16 to 23.
    changes = (SizedSplit(Split("v0", "o", "i", 8, tail), 8.0, even=False),)
    ranges = ranges_after(changes, {"v0": Interval(0.0, 19.0)})
    past = values(changes, ranges, {"o": 2.0, "i": 4.0})
    assert past.still == {"o", "i", "v0"}
    assert (bool(past.idle), bool(past.beyond)) == (idle, beyond)
    # The last iteration, and one in which a loop of the split runs, have something to do.
    for fixed in ({"o": 2.0, "i": 3.0}, {"o": 2.0}):
        inside = values(changes, ranges, fixed)
        assert not inside.idle
        assert not inside.beyond
