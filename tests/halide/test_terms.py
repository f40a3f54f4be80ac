"""Sums whose addition Halide's simplifier changes, compared with what Halide makes of them."""

import halide as hl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.analysis.reorderable import is_reorderable
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.associativity import Combiner, combiner
from tilewright.halide.ir.terms import MOST_TERMS, sum_of
from tilewright.halide.legality.stages import is_associative

ROW, COLUMN = 256, 8

# Sums by what Halide 21 does: it vectorises the reduction, only splits it, or does neither.
VECTORISED = {
    "value": lambda v, w: v,
    "scaled": lambda v, w: v * 3,
    "scaled by less than zero": lambda v, w: v * -2,
    "sum": lambda v, w: v + w,
    "difference": lambda v, w: w - v,
    "squared difference": lambda v, w: (v - w) * (v - w),
    "negation added": lambda v, w: w + -v,
    "two negations": lambda v, w: -v * -w,
    "count": lambda v, w: hl.select(v > 3, hl.i32(1), hl.i32(0)),
    "where large": lambda v, w: hl.select(v > 3, v, 0),
    "clamped": lambda v, w: hl.clamp(v, 0, 9),
    "product with a constant inside": lambda v, w: (v + 1) * w,
}
SPLIT = {
    "constant": lambda v, w: v + 1,
    "constant taken off": lambda v, w: v - 1,
    "from a constant": lambda v, w: 1 - v,
    "scaled with a constant": lambda v, w: (v + 1) * 2,
    "constant further in": lambda v, w: v + (w + 1),
    "constant in a choice": lambda v, w: hl.select(v > 3, v, w) + 1,
}
NEITHER = {
    "negation": lambda v, w: -v,
    "negation by a factor": lambda v, w: v * -1,
    "negated product": lambda v, w: v * -w,
    "negated sum": lambda v, w: -(v + w),
    "both taken off": lambda v, w: -v - w,
    "negation in a cast": lambda v, w: hl.cast(hl.Int(32), hl.cast(hl.Int(64), -v)),
    "negation in an extreme": lambda v, w: hl.max(2, -(v * w)),
    "what is added is taken off": lambda v, w: v - (v + w),
}


def reduction(term, kind="sum"):
    """A pipeline with a reduction of two images by `term`, and its domain."""
    images = [hl.ImageParam(hl.Int(32), 2, name) for name in ("first", "second")]
    r = hl.RDom([(0, ROW), (0, COLUMN)], "r")
    f = hl.Func("reduced")
    f[()] = hl.i32(3)
    value = hl.cast(hl.Int(32), term(*(image[r.x, r.y] for image in images)))
    f[()] = f[()] * value if kind == "product" else f[()] + value
    for image in images:
        image.set_estimates([(0, ROW), (0, COLUMN)])
    f.set_estimates([])
    return f, r, images


def halide_splits(term, kind="sum"):
    f, r, _ = reduction(term, kind)
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    try:
        f.update(0).split(r.x, outer, inner, 64).rfactor([(inner, hl.Var("u"))])
    except hl.HalideError:
        return False
    return True


def halide_vectorises(term, path):
    f, r, images = reduction(term)
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    f.update(0).split(r.x, outer, inner, 64).atomic().vectorize(inner)
    f.compile_to_lowered_stmt(str(path), images, hl.StmtOutputFormat.Text, hl.get_host_target())
    return "vector_reduce" in path.read_text()


def update(term, kind="sum"):
    algorithm = load(hl.Pipeline(reduction(term, kind)[0]))
    return algorithm.by_name[algorithm.outputs[0]].stages[1]


@pytest.mark.parametrize("name", VECTORISED)
def test_what_halide_vectorises_is_accepted(name, tmp_path):
    stage = update(VECTORISED[name])
    assert isinstance(combiner(stage), Combiner)
    assert is_reorderable(stage)
    assert halide_splits(VECTORISED[name])
    assert halide_vectorises(VECTORISED[name], tmp_path / "stmt")


@pytest.mark.parametrize("name", SPLIT)
def test_constants_move_to_the_end_of_sums(name, tmp_path):
    stage = update(SPLIT[name])
    assert isinstance(combiner(stage), Combiner)
    assert not is_reorderable(stage)
    assert halide_splits(SPLIT[name])
    assert not halide_vectorises(SPLIT[name], tmp_path / "stmt")


@pytest.mark.parametrize("name", NEITHER)
def test_negations_are_refused(name):
    stage = update(NEITHER[name])
    assert isinstance(combiner(stage), str)
    assert not is_reorderable(stage)
    assert not is_associative(stage)  # its loops keep their order, and are not atomic
    assert not halide_splits(NEITHER[name])


@pytest.mark.parametrize(
    ("term", "accepted"),
    [
        (lambda v, w: v * 2, True),
        (lambda v, w: hl.max(v, w), True),
        (lambda v, w: -v, False),
        (lambda v, w: v * 0, False),
        (lambda v, w: v - v, False),
    ],
)
def test_products_without_signs_are_accepted(term, accepted):
    assert isinstance(combiner(update(term, "product")), Combiner) == accepted
    assert halide_splits(term, "product") == accepted


@st.composite
def terms(draw, depth=3):
    """A function of two values that gives an expression with signs, constants and choices."""
    kind = draw(st.integers(0, 7)) if depth else 0
    if kind == 0:
        return draw(st.sampled_from((lambda v, w: v, lambda v, w: w)))
    a = draw(terms(depth - 1))
    if kind == 1:
        number = draw(st.integers(-2, 3))
        return lambda v, w: hl.i32(number) - a(v, w)
    if kind == 2:
        return lambda v, w: -a(v, w)
    b = draw(terms(depth - 1))
    operators = (
        lambda p, q: p + q,
        lambda p, q: p - q,
        lambda p, q: p * q,
        lambda p, q: hl.max(p, q),
        lambda p, q: hl.select(p > 1, p, q),
    )
    operator = operators[kind - 3]
    return lambda v, w: operator(a(v, w), b(v, w))


@settings(max_examples=80, deadline=None)
@given(term=terms())
def test_halide_splits_what_is_accepted(term):
    stage = update(term)
    if stage.rvars and (isinstance(combiner(stage), Combiner) or is_reorderable(stage)):
        assert halide_splits(term)


def test_terms_are_combined():
    value = update(lambda v, w: 2 * v + w - v * 3 + (w - 5) * 2 + 1).values[0]
    (rest,) = value.args[1:]
    found = sum_of(rest)
    assert sorted(found.weights) == [-1.0, 3.0]
    assert found.constant == -9.0


def test_long_sums_are_not_taken_apart():
    def long(v, w, count):
        return sum((hl.max(v, i * w) for i in range(2, 2 + count)), v)

    most = update(lambda v, w: long(v, w, MOST_TERMS - 1)).values[0]
    assert len(sum_of(most.args[1]).weights) == MOST_TERMS
    assert sum_of(update(lambda v, w: long(v, w, MOST_TERMS)).values[0].args[1]) is None
