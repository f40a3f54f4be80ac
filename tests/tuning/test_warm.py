"""Warm starts: what is known of a similar problem shapes the model, and may mislead."""

import math
import zlib

import numpy as np
import pytest

from tilewright.tuning import Categorical, Integer, Ordinal, Settings, Space, Tuner, WarmStart
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.gp import Hyperparameters, Posterior
from tilewright.tuning.bayes.warm import Belief, Shift, Shifted, SourceModel, SourcePosterior

SPACE = Space(
    [
        Ordinal("tile", (1, 2, 4, 8, 16, 32, 64, 128), scale="log"),
        Ordinal("block", (1, 2, 4, 8, 16, 32, 64, 128), scale="log"),
        Integer("unroll", 1, 16),
        Categorical("schedule", ("static", "dynamic", "guided")),
    ],
    ["unroll <= tile"],
)


def cost(c, tile=4.0):
    time = 1 + 0.5 * abs(math.log2(c["tile"]) - tile) + 0.3 * abs(math.log2(c["block"]) - 2)
    time += 0.1 * abs(c["unroll"] - 7) + 0.2 * abs(math.log2(c["tile"] / c["block"]) - 2)
    return time + {"static": 0.4, "dynamic": 0.0, "guided": 0.2}[c["schedule"]]


def earlier(value, seed=0, count=60):
    """Random evaluations of another problem."""
    codes = SPACE.sample(np.random.default_rng([77, seed]), count)
    return [(c, value(c)) for c in map(SPACE.decode, codes)]


def mean_best(count, pairs=None, queued=0, seeds=6):
    """The mean over seeds of the best cost after a number of evaluations."""
    found = []
    for seed in range(seeds):
        warm = None if pairs is None else WarmStart(pairs, queued)
        tuner = Tuner(SPACE, seed=seed, warm=warm, settings=Settings(initial=4))
        for _ in range(count):
            asked = tuner.ask()
            tuner.tell(asked, cost(asked.configuration))
        found.append(tuner.best.value)
    return float(np.mean(found))


def test_a_similar_problem_shapes_the_model_and_not_only_the_queue():
    # another machine: three times slower, its best tile half as large
    similar = earlier(lambda c: 3e-3 * cost(c, tile=3.0))
    assert mean_best(9, similar) < mean_best(9) - 0.2
    assert mean_best(3, similar, queued=3) < mean_best(3) - 0.2


@pytest.mark.thorough
def test_a_problem_that_misleads_costs_little():
    opposite = earlier(lambda c: 1e-3 / cost(c))
    unrelated = earlier(lambda c: 1.0 + (zlib.crc32(repr(c).encode()) % 97), seed=1)
    cold = mean_best(26, seeds=4)
    assert mean_best(30, opposite, queued=3, seeds=4) < cold + 0.15
    assert mean_best(30, unrelated, queued=3, seeds=4) < cold + 0.15


def test_the_factor_is_learned_from_what_is_measured_here():
    def factor(value):
        warm = [WarmStart(earlier(value))]
        model = SourceModel(warm, encode, Settings(), np.random.default_rng(0))
        belief = Belief(model.sources, np.ones(1), encode.blocks)
        return belief.shift(encode(codes), outputs, slope, ()).factors[1]

    encode = encoder(SPACE)
    codes = SPACE.sample(np.random.default_rng(5), 25)
    logs = np.log([cost(SPACE.decode(code)) for code in codes])
    slope = float(logs.std())
    outputs = (logs - logs.mean()) / slope
    assert factor(lambda c: 7 * cost(c)) > 0.8
    assert factor(lambda c: 1 / cost(c)) < -0.3
    assert abs(factor(lambda c: 1.0 + (zlib.crc32(repr(c).encode()) % 97))) < 0.4


def test_both_levels_together_are_one_gaussian_process():
    rng = np.random.default_rng(2)
    blocks = np.arange(3)
    before, here, new = rng.random((12, 3)), rng.random((7, 3)), rng.random((5, 3))
    told_before, told_here = rng.standard_normal(12), rng.standard_normal(7)
    low = Hyperparameters(np.log([0.5, 0.7, 0.9, 1.3, 0.01]))
    rest = Hyperparameters(np.log([0.8, 0.4, 0.6, 0.9, 0.02]))
    source = Posterior(before, told_before, blocks, low)
    constant, factor, scale = 0.2, 0.7, 0.5
    shift = Shift(
        [SourcePosterior(source, 1.0, 1.0)], np.ones(1), np.array([constant, factor]), scale
    )
    inner = Posterior(here, shift.residual(here, told_here), blocks, rest)
    mean, variance = Shifted(inner, shift).predict(new)

    def kernel(hyper, a, b):
        return Posterior(before, told_before, blocks, hyper).prior(a, b)

    # f_here = constant + factor f_before + scale residual, conditioned on all at once
    def cross(a, b):
        return factor**2 * kernel(low, a, b) + scale**2 * kernel(rest, a, b)

    corner = kernel(low, before, before) + (low.noise + 1e-9 * low.signal) * np.eye(12)
    own = cross(here, here) + scale**2 * (rest.noise + 1e-9 * rest.signal) * np.eye(7)
    between = factor * kernel(low, here, before)
    joint = np.block([[corner, between.T], [between, own]])
    told = np.concatenate([told_before, told_here - constant])
    seen = np.concatenate([factor * kernel(low, new, before), cross(new, here)], axis=1)
    np.testing.assert_allclose(mean, constant + seen @ np.linalg.solve(joint, told), rtol=1e-7)
    left = np.diag(cross(new, new)) - np.einsum("ij,ji->i", seen, np.linalg.solve(joint, seen.T))
    np.testing.assert_allclose(variance, left, rtol=1e-6)


def test_failures_of_a_similar_problem_are_avoided_until_it_is_known_better():
    pairs = [(c, None if c["tile"] > 16 else v) for c, v in earlier(cost, count=100)]
    encode = encoder(SPACE)
    model = SourceModel([WarmStart(pairs)], encode, Settings(), np.random.default_rng(0))
    large = {"tile": 64, "block": 4, "unroll": 8, "schedule": "dynamic"}
    points = encode(np.array([SPACE.encode(large), SPACE.encode({**large, "tile": 8})]))
    early, late = (model.chance(points, np.ones(2), n) for n in (2, 200))
    assert early[0] < 0.5 < early[1]
    assert late[0] > 0.9


def test_values_of_another_size_become_the_nearest():
    pairs = [
        ({"tile": 300, "block": 3, "unroll": 40, "schedule": "static", "gone": 1}, 1.0),
        ({"tile": 8, "block": 4, "unroll": 2, "schedule": "unheard of"}, 2.0),  # not expressible
        ({"tile": 8, "block": 4, "unroll": 2, "schedule": "static"}, math.nan),  # failed
        ({"tile": 2, "block": 4, "unroll": 9, "schedule": "static"}, 0.5),  # not feasible here
    ]
    warm = WarmStart(pairs)
    codes, values = warm.codes(SPACE)
    assert SPACE.decode(codes[0]) == {
        "tile": 128,
        "block": 4,
        "unroll": 16,
        "schedule": "static",
    }
    assert len(values) == 3
    assert [SPACE.decode(code)["tile"] for code in warm.leaders(SPACE)] == [128]


def test_of_repeated_evaluations_most_must_have_worked():
    small, large = SPACE.decode(SPACE.sample(np.random.default_rng(0), 2)[0]), SPACE.default()
    large = large or {"tile": 1, "block": 1, "unroll": 1, "schedule": "static"}
    pairs = [(small, 2.0), (small, None), (small, 4.0), (large, 1.0), (large, None)]
    values = WarmStart(pairs).codes(SPACE)[1]
    assert values[0] == 3.0
    assert math.isnan(values[1])


def test_a_restored_run_with_a_warm_start_decides_alike():
    warm = WarmStart(earlier(cost))

    def run(tuner, count):
        for _ in range(count):
            asked = tuner.ask()
            tuner.tell(asked, cost(asked.configuration))
        return tuner

    whole = run(Tuner(SPACE, seed=3, warm=warm), 12)
    half = Tuner(SPACE, seed=3, warm=warm)
    half.restore(whole.trials[:7])
    run(half, 5)
    assert [t.configuration for t in half.trials] == [t.configuration for t in whole.trials]


@pytest.mark.parametrize("pairs", [[], [({"tile": 8}, 1.0)], [(c, None) for c, _ in earlier(cost)]])
def test_with_too_little_to_learn_from_the_run_is_a_plain_one(pairs):
    tuner = Tuner(SPACE, seed=0, warm=WarmStart(pairs))
    plain = Tuner(SPACE, seed=0)
    for _ in range(8):
        asked, other = tuner.ask(), plain.ask()
        assert asked.configuration == other.configuration
        tuner.tell(asked, cost(asked.configuration))
        plain.tell(other, cost(other.configuration))


def test_of_two_sources_the_one_that_orders_what_is_measured_is_followed():
    similar, opposite = earlier(lambda c: 3e-3 * cost(c)), earlier(lambda c: 1e-3 / cost(c), seed=1)
    encode = encoder(SPACE)
    rng = np.random.default_rng(0)
    model = SourceModel([WarmStart(opposite), WarmStart(similar)], encode, Settings(), rng)
    codes = SPACE.sample(np.random.default_rng(3), 5)
    values = np.array([cost(SPACE.decode(code)) for code in codes])
    before, after = (model.weights(encode(codes[:n]), values[:n]) for n in (0, 5))
    assert before[0] == before[1] > 0.3
    assert after[0] < 0.02 < 0.9 < after[1]
    # what no source orders is not believed of any
    assert model.weights(encode(codes), -values)[1] < 0.1


def test_values_that_are_close_say_nothing_of_a_source():
    encode = encoder(SPACE)
    model = SourceModel([WarmStart(earlier(cost))], encode, Settings(), np.random.default_rng(0))
    leaders = [{"tile": 16, "block": 4, "unroll": u, "schedule": "dynamic"} for u in (6, 7, 8)]
    points = encode(np.array([SPACE.encode(c) for c in leaders]))
    orders = [model.weights(points, np.array(v))[0] for v in ((1.1, 1.0, 1.1), (1.0, 1.1, 1.0))]
    assert all(0.7 < weight < 0.9 for weight in orders)


def test_a_source_that_misleads_is_dropped_within_five_evaluations():
    for seed in range(4):
        pairs = earlier(lambda c: 1e-3 / cost(c), seed=seed)
        tuner = Tuner(SPACE, seed=seed, warm=WarmStart(pairs), settings=Settings(initial=8))
        for _ in range(5):
            asked = tuner.ask()
            tuner.tell(asked, cost(asked.configuration))
        encode = encoder(SPACE)
        model = SourceModel(tuner.warm, encode, Settings(), np.random.default_rng(0))
        points = encode(np.array([SPACE.encode(t.configuration) for t in tuner.trials]))
        assert model.belief(points, np.array([t.value for t in tuner.trials])) is None
        # and the initial design goes on
        assert tuner.ask().origin == "random"


def test_a_source_that_is_right_takes_the_place_of_the_initial_design():
    tuner = Tuner(SPACE, seed=1, warm=WarmStart(earlier(lambda c: 5 * cost(c))))
    origins = []
    for _ in range(5):
        asked = tuner.ask()
        origins.append(asked.origin)
        tuner.tell(asked, cost(asked.configuration))
    assert origins == ["queue", "random", "model", "model", "model"]


@pytest.mark.parametrize("spread", [0.0, 1e-15, 1e-9, 1e-3])
@pytest.mark.parametrize("sign", [1, -1])
def test_sources_of_another_scale_or_sign_do_not_end_a_run_of_nearly_equal_values(spread, sign):
    warm = [WarmStart(earlier(cost)), WarmStart(earlier(lambda c: -cost(c), seed=1))]
    tuner = Tuner(SPACE, seed=0, warm=warm, settings=Settings(initial=3))
    for _ in range(7):
        asked = tuner.ask()
        tuner.tell(asked, sign * (1 + spread * cost(asked.configuration)))
    assert "model" in {t.suggestion.origin for t in tuner.trials}
