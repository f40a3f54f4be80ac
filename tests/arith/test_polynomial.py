"""The normal form of sizes and indices, checked against evaluation."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.arith import (
    LoopVariable,
    NotWhole,
    Poly,
    at_least_zero,
    below,
    boundary,
    boundary_value,
    bounds,
    divided,
    evaluate,
    floor_divide,
    modulo,
    poly,
    sizes,
)

N, M = sizes("N M")


def loop(name, extent):
    return Poly.of(LoopVariable(name, poly(extent)))


def rational(p, known):
    top, bottom = p.fraction
    return Fraction(evaluate(top, known), evaluate(bottom, known))


def everywhere(p, known):
    """Values of p over all values of its loop variables, as {assignment: value}."""
    loops = sorted({a for a in p.all_atoms() if isinstance(a, LoopVariable)}, key=lambda a: a.name)
    ranges = [range(evaluate(a.extent, known)) for a in loops]
    for values in itertools.product(*ranges):
        yield dict(zip([a.name for a in loops], values, strict=True), **known)


def test_equal_polynomials_are_identical():
    assert (N + 1) * (N - 1) == N * N - 1
    assert hash(N * M + M) == hash(M * (N + 1))
    assert N / 4 * 4 == N
    assert (N * M) / M == N
    assert divided(N * N + N, N + 1) == N
    assert str((N - 2) / 4 + 1) == "(N + 2) / 4"


def test_exact_division_that_is_not_exact_is_refused():
    assert evaluate(N / 4, {"N": 8}) == 2
    with pytest.raises(NotWhole, match="N / 4 is 6/4"):
        evaluate(N / 4, {"N": 6})
    with pytest.raises(ValueError, match="no closed form"):
        divided(N, N + 1)
    with pytest.raises(ValueError, match="/ 0"):
        divided(N, poly(0))


def test_mixed_radix_indices_part_cleanly():
    y, x = loop("y", N), loop("x", 32)
    assert floor_divide(32 * y + x, poly(32)) == y
    assert modulo(32 * y + x, poly(32)) == x
    assert floor_divide(32 * y + x, poly(128)) == floor_divide(y, poly(4))
    assert modulo(32 * y + x, poly(128)) == 32 * modulo(y, poly(4)) + x
    row, column = loop("r", N), loop("c", M)
    assert floor_divide(row * M + column, M) == row
    assert modulo(row * M + column, M) == column
    outer, inner = loop("o", M / 4), loop("i", 4)
    assert floor_divide(row * M + 4 * outer + inner, M) == row


def test_padded_widths_are_divided_as_sums():
    row, column = loop("r", N), loop("c", M + 2)
    assert floor_divide(row * (M + 2) + column, M + 2) == row
    assert modulo(row * (M + 2) + column, M + 2) == column


def test_quotient_and_rest_join_again():
    x = loop("x", N * M)
    assert floor_divide(x, M) * M + modulo(x, M) == x
    assert (floor_divide(x, M) * M + modulo(x, M)) * 4 + 1 == 4 * x + 1


def test_boundaries_vanish_where_the_index_is_inside():
    i = loop("i", N)
    assert boundary("clamp", i, N) == i
    assert boundary("clamp", i - 1, N) != i - 1
    assert boundary("clamp", -1 - i, N) == 0
    assert boundary("clamp", N + i, N) == N - 1
    assert boundary("mirror", i + 1, N + 1) == i + 1
    with pytest.raises(ValueError, match="'fold'"):
        boundary("fold", i, N)


def test_boundaries_follow_their_definition():
    def mirror(i, n):  # Lift: reflect with the border repeated
        j = (-1 - i if i < 0 else i) % (2 * n)
        return 2 * n - 1 - j if j >= n else j

    for n in range(1, 5):
        for i in range(-2 * n, 3 * n):
            assert boundary_value("clamp", i, n) == max(0, min(i, n - 1))
            assert boundary_value("wrap", i, n) == i % n
            assert boundary_value("mirror", i, n) == mirror(i, n)
            assert boundary_value("mirror", np.array([i]), n)[0] == mirror(i, n)


def test_inequalities_over_all_sizes():
    assert at_least_zero(N * M - N)
    assert at_least_zero(N - 1)
    assert not at_least_zero(N - 2)
    assert below(loop("i", N) * M + loop("j", M), N * M)
    assert not below(loop("i", N) + 1, N)
    assert bounds(4 - loop("i", N)) == (5 - N, poly(4))


@st.composite
def indices(draw):
    """A sum of a few loop variables with coefficients, nested divisions, and a constant."""
    total = poly(draw(st.integers(-6, 12)))
    for name in draw(st.lists(st.sampled_from("abc"), max_size=3)):
        extent = {"a": poly(2), "b": poly(4), "c": N}[name]
        variable = loop(name, extent)
        coefficient = draw(st.sampled_from([1, 2, 3, 4, 8, -1, N, N + 2, 4 * N]))
        term = variable * coefficient
        divisor = draw(st.sampled_from([None, 2, 3, 4, N]))
        if divisor is not None:
            term = draw(st.sampled_from([floor_divide, modulo]))(term, poly(divisor))
        total = total + term
    return total


DIVISORS = st.sampled_from([poly(1), poly(2), poly(3), poly(4), poly(8), N, N + 2, 2 * N, 4 * N])


@given(indices(), DIVISORS, st.sampled_from([1, 2, 3, 5]))
def test_division_agrees_with_evaluation(x, d, n):
    quotient, rest = floor_divide(x, d), modulo(x, d)
    joined = quotient * d + rest
    for known in everywhere(x + quotient + rest, {"N": n}):
        value, divisor = evaluate(x, known), evaluate(d, known)
        assert evaluate(quotient, known) == value // divisor
        assert evaluate(rest, known) == value % divisor
        assert evaluate(joined, known) == value


@given(
    indices(), st.sampled_from(["clamp", "wrap", "mirror"]), DIVISORS, st.sampled_from([1, 2, 5])
)
def test_boundaries_and_bounds_agree_with_evaluation(x, kind, n, size):
    led = boundary(kind, x, n)
    found = bounds(x)
    for known in everywhere(x + led, {"N": size}):
        value = evaluate(x, known)
        assert evaluate(led, known) == boundary_value(kind, value, evaluate(n, known))
        if found is not None:
            assert rational(found[0], known) <= value <= rational(found[1], known)


def test_a_constant_is_found_among_numbers():
    assert 3 in {Poly.constant(3)}
    assert Poly.constant(0) in {0}
    assert len({Poly.constant(3), 3}) == 1
