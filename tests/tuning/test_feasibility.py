import math

import numpy as np
import pytest

from tilewright.tuning import Categorical, Integer, Ordinal, Real, Space
from tilewright.tuning.bayes import feasibility
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.feasibility import fit_feasibility, log_numbers

TILES = (1, 2, 4, 8, 16, 32, 64, 128)
SPACE = Space(
    [
        Ordinal("tile", TILES, scale="log"),
        Integer("threads", 1, 32),
        Integer("unroll", 0, 4),
        Ordinal("width", (1, 3, 5)),
        Categorical("order", ("rows", "columns")),
        Real("ratio", 0.1, 1.0),
        Ordinal("depth", (2, 4), when="order == 'rows'"),
        Integer("fixed", 3, 3),
    ]
)


def drawn(count, seed=0):
    return SPACE.sample(np.random.default_rng(seed), count)


def works(codes):
    found = [SPACE.decode(code) for code in codes]
    return np.array([c["tile"] * c["threads"] <= 256 for c in found])


def test_logarithms_are_of_the_numbers_that_are_always_present_and_above_zero():
    codes = drawn(30)
    found = [SPACE.decode(code) for code in codes]
    wanted = [[math.log(c[name]) for name in ("tile", "threads", "width")] for c in found]
    assert log_numbers(SPACE, codes) == pytest.approx(np.array(wanted))
    assert log_numbers(Space([Categorical("c", ("a", "b"))]), np.zeros((4, 1))).shape == (4, 0)


def squared_error(count, seed):
    codes, asked = drawn(count, seed), drawn(1000, 99)
    embed = encoder(SPACE)
    rng = np.random.default_rng(seed)
    forest = fit_feasibility(embed, codes, works(codes), codes[:0], rng)
    return np.mean((forest.mean(asked, embed(asked)) - works(asked)) ** 2)


def test_a_limit_of_a_product_is_learned_from_fewer_evaluations(monkeypatch):
    ours = np.mean([squared_error(40, seed) for seed in range(5)])
    monkeypatch.setattr(feasibility, "_ENOUGH", math.inf)
    plain = np.mean([squared_error(40, seed) for seed in range(5)])
    assert ours < 0.7 * plain


def test_products_are_features_once_enough_has_failed_and_enough_has_worked():
    codes = drawn(60)
    worked = works(codes)
    good, bad = codes[worked], codes[~worked]
    for successes, failures, products in ((5, 4, 0), (4, 5, 0), (5, 5, 3)):
        seen = np.concatenate([good[:successes], bad[:failures]])
        outcomes = np.arange(len(seen)) < successes
        rng = np.random.default_rng(0)
        forest = fit_feasibility(encoder(SPACE), seen, outcomes, codes[:0], rng)
        assert len(forest.pairs) == products


def test_of_many_products_some_are_drawn():
    space = Space([Integer(f"n{i}", 1, 9) for i in range(40)])
    codes = space.sample(np.random.default_rng(0), 20)
    embed = encoder(space)
    worked = np.arange(20) % 2 == 0
    pending = space.sample(np.random.default_rng(1), 3)
    forest = fit_feasibility(embed, codes, worked, pending, np.random.default_rng(2))
    assert forest.pairs.shape == (80, 2)
    assert len(np.unique(forest.pairs, axis=0)) == 80
    assert forest.mean(codes, embed(codes)).shape == (20,)
