"""The most that Halide's interval arithmetic can make of a nest, against numbers worked by hand."""

import pytest

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.loop_ranges import SizedSplit, ranges_after, values
from tilewright.halide.analysis.nest_hull import Ends, ends_after, slid, values_of
from tilewright.halide.ir.schedule import Fuse, Split

NOTHING: frozenset = frozenset()


def between(low, high):
    """Ends that stand still."""
    return Ends(Interval(low, low), Interval(high, high))


def split(tail="round_up", factor=2.0):
    return SizedSplit(Split("v0", "o", "i", int(factor), tail), factor, even=False)


# Rows 3 y to min(3 y + 2, 75) for y up to 24: the ends of the tiles of a Func of 76 rows.
TILES = Ends(Interval(0.0, 72.0), Interval(2.0, 75.0))


def test_a_split_of_a_loop_whose_ends_move_takes_them_to_be_independent():
    ends = ends_after((split(),), {"v0": TILES})
    # At most 75 - 0 + 1 = 76 rows, at least 2 - 72 + 1 = -69.
    assert TILES.extent == Interval(-69.0, 76.0)
    assert ends["o"].high == Interval(-35.0, 37.0)
    assert ends["i"] == between(0.0, 1.0)


def test_rounding_up_counts_the_lower_end_twice():
    changes = (split(),)
    ends = ends_after(changes, {"v0": TILES})
    stores, _ = values_of(changes, ends, {}, NOTHING)
    # 37 pairs of rows from row 72 on, where no tile goes beyond row 75.
    assert stores["v0"].outer == Interval(0.0, 72.0 + 2 * 37 + 1)


@pytest.mark.parametrize(
    ("tail", "stored", "loaded"),
    [
        ("guard_with_if", 75.0, 75.0),
        ("predicate_stores", 75.0, 147.0),
        ("predicate_loads", 147.0, 75.0),
    ],
)
def test_a_guard_ends_at_the_greatest_upper_end(tail, stored, loaded):
    changes = (split(tail),)
    ends = ends_after(changes, {"v0": TILES})
    stores, loads = values_of(changes, ends, {}, NOTHING)
    assert (stores["v0"].high.hi, loads["v0"].high.hi) == (stored, loaded)


def test_a_tail_that_shifts_inwards_begins_before_the_end():
    changes = (split("shift_inwards", 8.0),)
    ends = ends_after(changes, {"v0": between(0.0, 20.0)})
    stores, _ = values_of(changes, ends, {}, NOTHING)
    assert stores["v0"] == between(0.0, 20.0)


def test_fused_loops_are_taken_apart_by_a_constant_extent():
    changes = (Fuse("v0", "v1", "f"),)
    ends = ends_after(changes, {"v0": between(0.0, 2.0), "v1": between(4.0, 5.0)})
    assert ends["f"].outer == Interval(0.0, 5.0)
    stores, _ = values_of(changes, ends, {}, {"v0"})
    assert stores["v0"].outer == Interval(0.0, 2.0)
    assert stores["v1"].outer == Interval(4.0, 5.0)


def test_an_extent_of_unknown_sign_divides_nothing_away():
    changes = (Fuse("v0", "v1", "f"),)
    ends = ends_after(changes, {"v0": between(0.0, 2.0), "v1": between(4.0, 5.0)})
    stores, _ = values_of(changes, ends, {}, NOTHING)
    # The fused loop has 6 iterations: at most 5 either way from the first row.
    assert stores["v1"].outer == Interval(4.0 - 5.0, 4.0 + 5.0)
    assert stores["v0"].outer == Interval(0.0, 2.0)


def test_a_guard_at_the_end_of_a_loop_keeps_stores_in_range():
    change = split("guard_with_if", 3.0)
    ranges = ranges_after((change,), {"v0": Interval(0.0, 0.0)})
    # One iteration in a tile of 3: the loop in the tile stands at its end, the other one runs.
    now = values((change,), ranges, {"i": 2.0}, frozenset({"o", "i"}))
    assert now.stores["v0"] == Interval(0.0, 0.0)


def test_sliding_funcs_begin_a_window_early_or_one_beyond_the_end():
    # Of rows 4 to 6, two were begun before row 4, or nothing is new from row 7 on.
    ends = slid(between(4.0, 6.0))
    assert ends.low == Interval(2.0, 7.0)
    # The other way round for what slides up.
    assert ends.high == Interval(3.0, 8.0)
