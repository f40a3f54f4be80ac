"""Spaces of many parameters."""

import math

import numpy as np
import pytest

from tilewright.tuning import Categorical, Ordinal, Real, Settings, Space, Tuner
from tilewright.tuning.bayes import proposal
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.gp import MarginalLikelihood, Priors, fit
from tilewright.tuning.bayes.many import mutants, sampled_climbs, scaled
from tilewright.tuning.bayes.surrogate import transform


def switches(count):
    return Space([Categorical(f"s{i}", (False, True)) for i in range(count)])


MIXED = Space(
    [
        *(Categorical(f"s{i}", (False, True)) for i in range(25)),
        *(Ordinal(f"n{i}", (1, 2, 4, 8), scale="log") for i in range(4)),
        Real("r", 0.0, 1.0),
        Ordinal("child", (1, 2, 3), when="s0 == True"),
    ],
    ["n0 * n1 <= 16"],
)


def run(space, settings, count):
    """The configurations and hyperparameters of a run."""
    tuner = Tuner(space, seed=1, settings=settings)
    for _ in range(count):
        asked = tuner.ask()
        on = [i for i, v in enumerate(asked.configuration.values()) if v]
        tuner.tell(asked, 10.0 + sum(math.sin(i) for i in on) + 0.3 * (len(on) % 3))
    return [(t.configuration, t.suggestion.theta) for t in tuner.trials]


@pytest.mark.parametrize(("count", "same"), [(20, True), (21, False)])
def test_only_more_parameters_than_the_setting_change_the_search(count, same):
    space = switches(count)
    usual = run(space, Settings(many=10**6), 14)
    assert (run(space, Settings(), 14) == usual) is same


def test_parameters_of_one_value_do_not_count():
    constant = [Categorical(f"c{i}", ("only",)) for i in range(30)]
    assert encoder(Space([*constant, Categorical("c", ("a", "b"))])).varying == 1
    # nor does the second distance of a number's alignment
    assert encoder(Space([Ordinal("n", (16, 32, 48, 96))])).varying == 1


def test_expected_length_scales_grow_with_the_root_of_their_number():
    def gamma(priors):
        assert priors.lengthscale is not None
        return priors.lengthscale

    means = [np.divide(*gamma(scaled(Priors(), blocks))) for blocks in (25, 100)]
    assert means[1] == pytest.approx(2 * means[0])
    assert means[0] > np.divide(*gamma(Priors()))
    assert gamma(scaled(Priors(), 100))[0] == gamma(Priors())[0]
    assert scaled(Priors(lengthscale=None), 90) == Priors(lengthscale=None)


def test_where_most_values_equal_the_best_the_others_keep_their_order():
    values = np.array([4.0, 2.0, 1.0, 3.0] + [1.0] * 8)
    assert np.ptp(transform(values, Settings()).values) == 0
    kept = transform(values, Settings(), distinct=True).values
    assert kept[2] < kept[1] < kept[3] == kept[0]


def test_a_search_among_switches_without_effect_keeps_its_model(monkeypatch):
    """Seven of eight switches change nothing, so most evaluations equal the best."""
    spreads = []
    original = proposal.fit_surrogate

    def recorded(encode, codes, outputs, *rest, **named):
        spreads.append(np.ptp(outputs))
        return original(encode, codes, outputs, *rest, **named)

    monkeypatch.setattr(proposal, "fit_surrogate", recorded)
    tuner = Tuner(switches(40), seed=0)
    for _ in range(40):
        asked = tuner.ask()
        tuner.tell(asked, 1.0 + sum(list(asked.configuration.values())[:5]))
    values = [trial.value for trial in tuner.trials]
    assert np.median(values) == min(values)
    assert min(spreads) > 0


def test_from_equal_length_scales_a_sum_over_many_inputs_is_found():
    rng = np.random.default_rng(0)
    points = rng.integers(0, 2, (40, 100)).astype(float)
    outputs = points[:, :10] @ rng.normal(size=10)
    outputs = (outputs - outputs.mean()) / outputs.std()
    priors = scaled(Priors(), 100)
    likelihood = MarginalLikelihood(points, outputs, np.arange(100), priors)
    fitted = [
        likelihood(fit(likelihood, np.random.default_rng(s), equal=equal).theta)[0]
        for equal in (True, False)
        for s in range(3)
    ]
    # the same start for every seed, and no worse an optimum than from random ones
    assert fitted[0] == fitted[1] == fitted[2]
    assert fitted[0] <= min(fitted[3:]) + 1e-3 * abs(min(fitted[3:]))


def test_mutants_are_feasible_and_near_the_leaders():
    rng = np.random.default_rng(0)
    leaders = MIXED.sample(rng, 1)
    made = mutants(MIXED, rng, leaders, MIXED.sample(rng, 500))
    assert len(made) > 100
    assert MIXED.contains(made).all()
    changed = (made != leaders).sum(axis=1)
    assert 1 <= np.median(changed) < 10
    assert changed.max() > 5
    # every parameter is changed in some
    assert (made != leaders).any(axis=0).all()


def test_mutants_are_of_several_leaders_the_best_most_often():
    space, rng = switches(30), np.random.default_rng(0)
    leaders = np.array([[0.0] * 30, [1.0] * 30, [0.0] * 15 + [1.0] * 15])
    made = mutants(space, rng, leaders, space.sample(rng, 2000))
    nearest = (made[:, None] != leaders).sum(axis=2).argmin(axis=1)
    counts = np.bincount(nearest, minlength=3)
    # each half as often as the one before it, the last as often as all that would follow
    assert counts / len(made) == pytest.approx([0.5, 0.25, 0.25], abs=0.05)


def test_climbs_are_feasible_and_end_higher_than_they_began():
    rng = np.random.default_rng(0)

    def score(codes):
        return codes[:, :25].sum(axis=1) - codes[:, -1]

    starts = MIXED.sample(rng, 3)
    met, scores = sampled_climbs(MIXED, rng, score, starts, MIXED.sample(rng, 300))
    assert MIXED.contains(met).all()
    assert scores == pytest.approx(score(met))
    # eight steps, each of one of 32 neighbours, most of which a switch turns on
    assert scores.max() >= score(starts).max() + 5


@pytest.mark.thorough
def test_a_search_over_many_switches_beats_random_search():
    space = switches(60)
    weights = np.random.default_rng(0).normal(size=60) * (np.arange(60) < 12)

    def cost(configuration):
        return math.exp(0.1 * weights @ np.array(list(configuration.values()), dtype=float))

    found = []
    for seed in range(3):
        tuner = Tuner(space, seed=seed)
        for _ in range(40):
            asked = tuner.ask()
            tuner.tell(asked, cost(asked.configuration))
        found.append(tuner.best.value)
    drawn = space.sample(np.random.default_rng(0), 400)
    # the mean over seeds is better than the best of ten times as many at random
    assert np.mean(found) < min(cost(space.decode(code)) for code in drawn)


def test_the_neighbours_of_the_best_are_candidates(monkeypatch):
    seen = []
    original = proposal._Score.__call__

    def recorded(self, codes):
        seen.append(codes)
        return original(self, codes)

    monkeypatch.setattr(proposal._Score, "__call__", recorded)
    space = switches(30)
    tuner = Tuner(space, seed=0)
    for i in range(11):
        seen.clear()
        tuner.tell(tuner.ask(), 5.0 if i == 3 else 6.0 + i)
    best = space.encode(tuner.best.configuration)
    candidates = {space.key(code) for code in np.concatenate(seen)}
    assert {space.key(code) for code in space.neighbours(best)} <= candidates
