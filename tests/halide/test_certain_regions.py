"""Regions that are required for certain are never larger than those that Halide requires."""

import halide as hl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.certain_regions import CertainRegions
from tilewright.halide.analysis.guarded_reads import NOTHING
from tilewright.halide.analysis.inlining import View
from tilewright.halide.frontend.source import load

x, y = hl.vars("x y")
SIZE = (40, 24)


def built(value):
    """An output with the values that `value` computes from an input."""
    image = hl.ImageParam(hl.Int(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = value(image)
    out.set_estimates([(0, SIZE[0]), (0, SIZE[1])])
    return image, out


def required(image, out, mins, extents):
    """Halide's region of the input for a region of the output; None if it reads nothing."""
    asked = hl.Buffer(hl.Int(32), [int(extent) for extent in extents])
    asked.set_min([int(low) for low in mins])
    hl.Pipeline([out]).infer_input_bounds(asked)
    found = image.get()
    return [(d.min(), d.min() + d.extent() - 1) for d in (found.dim(0), found.dim(1))]


def certain(out, mins, extents):
    """The certain region of the input for a region of the output."""
    algorithm = load(out)
    box = tuple(Interval(float(m), float(m + n - 1)) for m, n in zip(mins, extents, strict=True))
    boxes = {algorithm.outputs[0]: box}
    found = CertainRegions(View(algorithm), boxes, dict(algorithm.symbols)).regions
    return found["image"]


SMALL = st.integers(-6, 6)


@st.composite
def comparisons(draw):
    """A comparison, as a function that builds it."""
    a, b, c = draw(SMALL), draw(st.integers(-2, 2)), draw(st.integers(-30, 60))
    kind = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq"]))
    build = {
        "lt": lambda p, q: p < q,
        "le": lambda p, q: p <= q,
        "gt": lambda p, q: p > q,
        "ge": lambda p, q: p >= q,
        "eq": lambda p, q: p == q,
    }[kind]
    return lambda: build(x * a + y * b, c)


@st.composite
def values(draw, depth=2):
    """A value that reads the input, possibly under conditions."""
    kind = draw(st.sampled_from(["read", "read", "choice", "choice", "sum", "none"]))
    if depth == 0 or kind == "read":
        dx, dy, factor = draw(SMALL), draw(SMALL), draw(st.sampled_from([1, 1, 2, -1]))
        return lambda image: image[x * factor + dx, y + dy]
    if kind == "none":
        return lambda image: hl.i32(3)
    one, other = draw(values(depth - 1)), draw(values(depth - 1))
    if kind == "sum":
        return lambda image: one(image) + other(image)
    parts = draw(st.lists(comparisons(), min_size=1, max_size=3))

    def choice(image):
        condition = parts[0]()
        for part in parts[1:]:
            condition = condition & part()
        return hl.select(condition, one(image), other(image))

    return choice


@settings(deadline=None, max_examples=30)
@given(
    values(),
    st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_halide_requires_them(value, mins, extents):
    image, out = built(value)
    if image.name() not in {p.name for p in load(out).parameters}:
        return
    theirs = required(image, out, mins, extents)
    ours = certain(out, mins, extents)
    for (low, high), interval in zip(theirs, ours, strict=True):
        assert interval == NOTHING or low <= interval.lo <= interval.hi <= high


# The columns of the input for columns -20 to 59 of the output.
COLUMNS = {
    "between": (lambda f: hl.select((x >= 3) & (x < 9), f[x, y], 0), (3, 8)),
    "a negative factor": (lambda f: hl.select(-2 * x < -11, f[x, y], 0), (6, 59)),
    "equal": (lambda f: hl.select(x == 7, f[x + 1, y], 0), (8, 8)),
    "the other branch": (lambda f: hl.select(x < 5, 0, f[x, y]), (5, 59)),
    "one in another": (lambda f: hl.select(x < 5, hl.select(x > 2, f[x, y], 0), 0), (3, 4)),
    "both branches": (lambda f: hl.select(x < 5, f[x, y], f[x, y] + 1), (-20, 59)),
    "also without": (lambda f: hl.select(x < 5, f[x, y], 0) + f[x + 1, y], (-20, 60)),
    "two variables": (lambda f: hl.select(x < y, f[x, y], 0), NOTHING),
    "never": (lambda f: hl.select(x > 90, f[x, y], 0), NOTHING),
    "not both": (lambda f: hl.select((x > 3) & (x < 9), 0, f[x, y]), NOTHING),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_conditions_on_one_variable_are_solved(name):
    value, expected = COLUMNS[name]
    _, out = built(value)
    columns, rows = certain(out, (-20, 0), (80, 8))
    assert columns == expected
    # Nothing else reads the input, so it is not needed at all where no row of it is.
    assert rows == ((0, 7) if name != "two variables" else NOTHING)


def test_a_read_that_may_not_happen_adds_nothing_to_others():
    _, out = built(lambda f: f[5, 5] + hl.select(x < y, f[x, 7], 0))
    assert certain(out, (0, 0), (9, 9)) == ((5, 5), (5, 5))


def test_predicates_narrow_what_an_update_reads_and_writes():
    image = hl.ImageParam(hl.Int(32), 2, "image")
    f, out, r = hl.Func("f"), hl.Func("out"), hl.RDom([(0, 30), (0, 30)], "r")
    r.where((r.x < 10) & (r.y <= 2 * 4))
    f[x, y] = 0
    f[r.x, r.y] += image[r.x + 1, r.y]
    out[x, y] = f[x, y]
    out.set_estimates([(2, 2), (2, 2)])
    assert certain(out, (2, 2), (2, 2)) == ((1, 10), (0, 8))
    algorithm = load(out)
    (name,) = (func.name for func in algorithm.funcs if len(func.stages) > 1)
    boxes = {algorithm.outputs[0]: (Interval(2.0, 3.0), Interval(2.0, 3.0))}
    regions = CertainRegions(View(algorithm), boxes, dict(algorithm.symbols))
    assert regions.regions[name] == ((0, 9), (0, 8))
    # In a loop, other iterations may be elsewhere: only what is read anyway is certain.
    (read,) = regions.in_loops().required_by(name, boxes[algorithm.outputs[0]]).values()
    assert read == (NOTHING, NOTHING)


def test_several_sizes_are_computed_together():
    _, out = built(lambda f: hl.select((x >= 3) & (x < 9), f[x, y], 0))
    algorithm = load(out)
    last = np.array([2.0, 5.0, 30.0])
    boxes = {algorithm.outputs[0]: (Interval(np.zeros(3), last), Interval(0.0, 7.0))}
    found = CertainRegions(View(algorithm), boxes, dict(algorithm.symbols)).regions["image"]
    assert list(found[0].extent) == [-np.inf, 3.0, 6.0]
