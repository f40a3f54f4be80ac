import itertools
import math

import numpy as np
import pytest

from tilewright.tuning import Categorical, Integer, Ordinal, Permutation, Real, Space
from tilewright.tuning.bayes.encoding import encoder


def squared_distance(space, a, b, block, **options):
    embed = encoder(space, **options)
    points = embed(np.stack([space.encode(a), space.encode(b)]))
    return ((points[0] - points[1]) ** 2)[embed.blocks == embed.labels.index(block)].sum()


def test_numbers_are_compared_by_size_or_by_logarithm():
    space = Space([Integer("n", 1, 5), Ordinal("t", (2, 4, 512, 1024), scale="log")])
    d = squared_distance(space, {"n": 1, "t": 2}, {"n": 3, "t": 4}, "n")
    assert d == pytest.approx((2 / 4) ** 2)
    low = squared_distance(space, {"n": 1, "t": 2}, {"n": 1, "t": 4}, "t")
    high = squared_distance(space, {"n": 1, "t": 512}, {"n": 1, "t": 1024}, "t")
    assert low == pytest.approx(high) == pytest.approx((1 / 9) ** 2)
    plain = squared_distance(space, {"n": 1, "t": 2}, {"n": 1, "t": 4}, "t", logs=False)
    assert plain == pytest.approx((2 / 1022) ** 2)


def test_categories_are_equal_or_not():
    space = Space([Categorical("c", ("a", "b", "c"))])
    for x, y in itertools.product("abc", repeat=2):
        assert squared_distance(space, {"c": x}, {"c": y}, "c") == pytest.approx(float(x != y))


def brute(metric, a, b):
    n = len(a)
    if metric == "spearman":
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / (n * (n * n - 1) / 3)
    if metric == "hamming":
        return sum(x != y for x, y in zip(a, b, strict=True)) / n
    if metric == "kendall":
        pairs = list(itertools.combinations(range(n), 2))
        return sum((a[i] < a[j]) != (b[i] < b[j]) for i, j in pairs) / len(pairs)
    return float(a != b)


@pytest.mark.parametrize("metric", ["spearman", "kendall", "hamming", "naive"])
@pytest.mark.parametrize("length", [2, 4, 7])
def test_permutation_distances_are_the_paper_s(metric, length):
    if metric == "naive" and length == 7:
        length = 6
    space = Space([Permutation("p", length, metric=metric)])
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = (tuple(int(i) for i in rng.permutation(length)) for _ in range(2))
        d = squared_distance(space, {"p": a}, {"p": b}, "p")
        assert d == pytest.approx(brute(metric, a, b))
    reverse = tuple(reversed(range(length)))
    far = squared_distance(space, {"p": tuple(range(length))}, {"p": reverse}, "p")
    if metric != "hamming":
        assert far == pytest.approx(1.0)


def test_the_paper_s_figure_3():
    space = Space([Permutation("p", 4)])
    a, b = (0, 1, 2, 3), (1, 3, 2, 0)
    assert squared_distance(space, {"p": a}, {"p": b}, "p") * 20 == pytest.approx(14)


def test_named_items_are_compared_by_their_places():
    space = Space([Permutation("p", ("i", "j", "k"))])
    d = squared_distance(space, {"p": ("i", "j", "k")}, {"p": ("j", "k", "i")}, "p")
    # i moves two places, j and k one each
    assert d == pytest.approx((4 + 1 + 1) / 8)


def test_alignment_tells_aligned_sizes_from_others():
    space = Space([Ordinal("b", (16, 32, 48, 64, 96), scale="log")])
    label = "b (alignment)"
    assert squared_distance(space, {"b": 16}, {"b": 48}, label) == 0
    assert squared_distance(space, {"b": 32}, {"b": 96}, label) == 0
    assert squared_distance(space, {"b": 48}, {"b": 64}, label) == pytest.approx(1.0)
    assert squared_distance(space, {"b": 32}, {"b": 64}, label) == pytest.approx(0.25)
    assert encoder(space, alignment=False).labels == ("b",)


@pytest.mark.parametrize("values", [(1, 2, 4), (1, 3, 5), (6, 10, 14)])
def test_alignment_that_tells_nothing_new_is_left_out(values):
    assert encoder(Space([Ordinal("b", values, scale="log")])).labels == ("b",)


def test_absent_parameters_have_a_place_of_their_own():
    space = Space(
        [
            Categorical("m", ("x", "y")),
            Ordinal("t", (1, 3), when="m == 'x'"),
            Real("r", 0.0, 1.0, when="m == 'y'"),
        ]
    )
    d = squared_distance(space, {"m": "x", "t": 1}, {"m": "y", "r": 0.5}, "t", alignment=False)
    assert d == pytest.approx(0.5**2 + 0.5**2)
    same = squared_distance(space, {"m": "x", "t": 1}, {"m": "x", "t": 3}, "r")
    assert same == 0
    assert math.isfinite(d)


def test_constant_parameters_take_no_part():
    space = Space([Ordinal("one", (7,)), Integer("n", 0, 3)])
    assert encoder(space).labels == ("n",)


def test_one_look_up_gives_the_points_of_each_parameter_s_own():
    space = Space(
        [
            Categorical("c", ("a", "b", "c")),
            Ordinal("n", (16, 24, 32, 96), scale="log"),
            Permutation("p", 3),
            Permutation("long", 8),
            Real("r", 0.0, 2.0),
            Integer("i", 0, 9, when="c == 'a'"),
            Integer("many", 0, 10**6),
        ]
    )
    codes = space.sample(np.random.default_rng(0), 50)
    embed = encoder(space)
    expected = np.full((50, len(embed.blocks)), np.nan)
    for part in embed.parts:
        part.fill(codes, expected[:, part.columns])
    assert np.isfinite(expected).all()
    assert (embed(codes) == expected).all()
    assert embed(codes[:0]).shape == (0, len(embed.blocks))


def test_presence_says_which_conditional_parameters_a_code_has():
    space = Space(
        [
            Categorical("kind", ("a", "b")),
            Real("x", 0.0, 1.0, when="kind == 'a'"),
            Integer("n", 1, 3, when="kind == 'b'"),
        ]
    )
    codes = np.array([space.encode(c) for c in ({"kind": "a", "x": 0.0}, {"kind": "b", "n": 1})])
    assert encoder(space).presence(codes).tolist() == [[True, False], [False, True]]
