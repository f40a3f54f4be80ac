"""One decision of the search: which configuration to evaluate next (Sections 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.bayes.acquisition import (
    NEAREST,
    local_search,
    log_expected_improvement,
)
from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.feasibility import FeasibilityForest, fit_feasibility
from tilewright.tuning.bayes.gp import Posterior
from tilewright.tuning.bayes.many import UNIFORM, has_many, mutants, sampled_climbs
from tilewright.tuning.bayes.surrogate import (
    Surrogate,
    fit_surrogate,
    forest_surrogate,
    transform,
    uncensored,
)
from tilewright.tuning.bayes.warm import Shifted, SourceModel
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]

# The natural logarithm of the least expected improvement, in standard deviations of the observed
# values, for which a suggestion of the model is followed. Chosen: below it, a process that takes
# two or three observations for a line suggests near-copies of them.
LEAST_LOG_GAIN = math.log(1e-6)
# While the best value stands, one in as many suggestions is for the branch of conditional
# parameters that has been tried least. Chosen: the model keeps most of them.
NEGLECTED = 3


@dataclass(frozen=True)
class Observations:
    """The observations: codes, shape (n, width), and values, NaN for failures.

    ``bounded`` marks values that are only lower bounds (cut short).
    """

    codes: Array
    values: Array
    bounded: Array

    @property
    def valid(self) -> Array:
        """Whether each observation is a success."""
        return ~np.isnan(self.values)

    def stagnates(self, most: int, pending: int) -> bool:
        """Return whether the best value has stood for ``most`` evaluations; never for 0.

        Those that were ``pending`` when it came, about as many as now, could not build on it.
        """
        stood = len(self.values) - int(np.nanargmin(self.values))
        return most > 0 and stood > most + pending


@dataclass(frozen=True)
class Proposal:
    """A chosen code, why it was chosen, and the hyperparameters for the next fit.

    ``expected`` is the expected improvement as a share of the best value, None unless the surrogate
    is a Gaussian process.
    """

    code: Array
    origin: str
    theta: tuple[float, ...] = ()
    expected: float | None = None


def random_proposal(
    space: Space, settings: Settings, rng: np.random.Generator, taken: Collection[bytes]
) -> Proposal | None:
    """Return a random feasible configuration not taken yet, or None if none was found."""
    for size in (1, 8, 64, 512, 4096):
        codes = space.sample(rng, size, settings.biased_sampling)
        for code in codes:
            if settings.repeats or space.key(code) not in taken:
                return Proposal(code, "random")
    return None


def spread_proposal(
    space: Space,
    encoder: Encoder,
    settings: Settings,
    rng: np.random.Generator,
    taken: Collection[bytes],
    codes: Array,
) -> Proposal | None:
    """Return a random feasible configuration far from those of ``codes``, shape (n, width).

    Draw many uniform configurations; return the one farthest from its nearest neighbour.
    """
    drawn = space.sample(rng, 100, settings.biased_sampling)
    free = drawn[[space.key(code) not in taken for code in drawn]]
    if len(free) == 0 or len(codes) == 0 or settings.repeats:
        return random_proposal(space, settings, rng, taken)
    here, there = encoder(free), encoder(codes)
    apart = ((here[:, None, :] - there[None, :, :]) ** 2).sum(axis=2).min(axis=1)
    return Proposal(free[int(apart.argmax())], "random")


def neglected_proposal(
    space: Space,
    encoder: Encoder,
    settings: Settings,
    rng: np.random.Generator,
    taken: Collection[bytes],
    codes: Array,
) -> Proposal | None:
    """Return a configuration with the set of conditional parameters that has been tried least.

    Such a set is a branch of the space: a model that has seen one poor configuration of a branch
    hardly returns to it, since its parameters mean nothing elsewhere. Return None without
    conditional parameters, if nothing new is drawn, and for two of three numbers of codes.
    """
    if not space.conditions or len(codes) % NEGLECTED:
        return None
    drawn = space.sample(rng, settings.samples, settings.biased_sampling)
    free = drawn[[space.key(code) not in taken for code in drawn]]
    if len(free) == 0:
        return None
    of, tried = _branches(encoder.presence(free), encoder.presence(codes))
    inside = free[of == int(np.argmin(tried))]
    here, there = encoder(inside), encoder(codes)
    apart = ((here[:, None, :] - there[None, :, :]) ** 2).sum(axis=2).min(axis=1)
    return Proposal(inside[int(apart.argmax())], "random")


def _branches(drawn: Array, seen: Array) -> tuple[Array, Array]:
    """Return the branch of each drawn configuration, and how many of the seen ones each has.

    `drawn` and `seen` say which conditional parameters are present, shapes (n, parameters).
    """
    branches, of = np.unique(drawn, axis=0, return_inverse=True)
    same = (seen[:, None, :] == branches[None, :, :]).all(axis=2)
    return of.reshape(-1), same.sum(axis=0)


def propose(
    space: Space,
    encoder: Encoder,
    seen: Observations,
    pending: Array,
    settings: Settings,
    rng: np.random.Generator,
    taken: Collection[bytes],
    theta: tuple[float, ...] = (),
    bias: Callable[[Array], Array] | None = None,
    source: SourceModel | None = None,
) -> Proposal | None:
    """Return the configuration of the largest expected improvement, or None if all are taken.

    Args:
        space: the search space.
        encoder: embeds codes of the space.
        seen: observations, at least two of them valid.
        pending: codes that are being evaluated, shape (m, width); every model assumes that they
            return its predicted mean (the kriging believer of the constant-liar family).
        settings: the pieces of the search.
        rng: the decision's own random numbers.
        taken: keys of the configurations that must not be asked (again).
        theta: hyperparameters of the previous decision.
        bias: function of codes whose value is added to the logarithm of the acquisition, or None.
        source: models of similar problems, or None.
    """
    # at odd counts: the process is fitted from scratch at even ones
    if seen.stagnates(settings.stagnation, len(pending)) and (len(seen.codes) + len(pending)) % 2:
        settings = replace(settings, surrogate="rf")
    known = np.concatenate([seen.codes, pending]) if len(pending) else seen.codes
    stands = seen.stagnates(settings.stagnation // 2, len(pending))
    if stands and (neglected := neglected_proposal(space, encoder, settings, rng, taken, known)):
        return replace(neglected, theta=theta)
    valid = seen.valid
    codes, values = seen.codes[valid], seen.values[valid]
    belief = None if source is None else source.belief(encoder(codes), values)
    reach = 0.0 if belief is None else belief.reach
    modelled = transform(values, settings, reach, distinct=has_many(encoder, settings))
    kept = representative(modelled.values, settings.most_points)
    codes, outputs = codes[kept], modelled.values[kept]
    points = encoder(codes)
    shift = None if belief is None else belief.shift(points, outputs, modelled.slope, theta)
    # where a similar problem gives a prior mean, the model learns the difference
    learned = outputs if shift is None else shift.residual(points, outputs)
    fitted = fit_surrogate(encoder, codes, learned, settings, rng, theta, observed=len(values))
    bounded = seen.bounded[valid][kept]
    surrogate = _completed(fitted.surrogate, encoder, points, learned, bounded, pending, rng)
    if shift is not None:
        surrogate = Shifted(surrogate, shift)
    best = float(outputs[~bounded].min(initial=outputs.max()))
    if len(pending):
        # Predictions for pending runs count towards the best value; otherwise later suggestions
        # cluster around the pending ones.
        best = min(best, float(surrogate.predict(encoder(pending))[0].min()))
    chance = _chance(_feasible(encoder, seen, pending, settings, rng), source, len(seen.codes))
    score = _Score(encoder, surrogate, best, chance, bias)
    if rng.random() < settings.local:
        met = _around(space, codes[np.argsort(outputs, kind="stable")], taken)
        scores = score(met)
    else:
        met, scores = _candidates(space, settings, rng, score, codes, outputs)
    i = _first_untaken(space, settings, met, scores, taken)
    if i is not None:
        # the user's prior says where to look, not what is gained there
        gain = scores[i] - (0.0 if bias is None else float(bias(met[i : i + 1])[0]))
        if gain >= LEAST_LOG_GAIN or settings.repeats:
            # `Tuner.remaining_gain` is fitted to the uncertainty of a Gaussian process, not of a
            # forest
            meant = modelled.slope > 0 and settings.surrogate == "gp"
            expected = float(np.exp(min(gain, 0.0))) * modelled.slope if meant else None
            return Proposal(met[i], "model", fitted.theta, expected)
    # The model expects no gain anywhere: only what it does not know can still be better.
    chosen = spread_proposal(space, encoder, settings, rng, taken, known)
    return None if chosen is None else Proposal(chosen.code, "random", fitted.theta)


def _first_untaken(
    space: Space, settings: Settings, codes: Array, scores: Array, taken: Collection[bytes]
) -> int | None:
    """Return the place of the best code that may be asked, None if there is none."""
    order = np.argsort(-scores, kind="stable")
    return next(
        (int(i) for i in order if settings.repeats or space.key(codes[i]) not in taken), None
    )


def representative(outputs: Array, most: int) -> Array:
    """Return the places of at most `most` outputs, in their order: the best, and the whole range.

    Half are the smallest; the others are evenly spaced in rank. This bounds the cost of a decision,
    which otherwise grows with the cube of the observations.

    Args:
        outputs: shape (n,), smaller is better.
        most: the number of outputs to keep.
    """
    if len(outputs) <= most:
        return np.arange(len(outputs))
    order = np.argsort(outputs, kind="stable")
    best = most // 2
    spaced = np.linspace(best, len(order) - 1, most - best).round().astype(int)
    return np.sort(np.concatenate([order[:best], order[spaced]]))


def recent(valid: Array, most: int) -> Array:
    """Return the places of at most `most` successes and as many failures: the latest of each."""
    return np.sort(np.concatenate([np.flatnonzero(valid == b)[-most:] for b in (True, False)]))


def _completed(
    surrogate: Surrogate,
    encoder: Encoder,
    points: Array,
    learned: Array,
    bounded: Array,
    pending: Array,
    rng: np.random.Generator,
) -> Surrogate:
    """Return the surrogate with its expectation for censored and pending runs."""
    if bounded.any() and isinstance(surrogate, Posterior):
        surrogate = uncensored(surrogate, points, learned, bounded, encoder.blocks)
    if len(pending) == 0:
        return surrogate
    waiting = encoder(pending)
    expected = surrogate.predict(waiting)[0]
    if isinstance(surrogate, Posterior):
        return surrogate.extend(waiting, expected)
    return forest_surrogate(
        np.concatenate([points, waiting]), np.concatenate([learned, expected]), rng
    )


@dataclass(frozen=True)
class _Score:
    """Logarithm of expected improvement times probability of feasibility."""

    encoder: Encoder
    surrogate: Surrogate
    best: float
    chance: Callable[[Array, Array], Array] | None
    bias: Callable[[Array], Array] | None

    def __call__(self, codes: Array) -> Array:
        points = self.encoder(codes)
        mean, variance = self.surrogate.predict(points)
        score = log_expected_improvement(mean, variance, self.best)
        if self.chance is not None:
            chance = self.chance(codes, points)
            score = score + np.log(np.maximum(chance, 1e-9))
        if self.bias is not None:
            score = score + self.bias(codes)
        return score


def _feasible(
    encoder: Encoder,
    seen: Observations,
    pending: Array,
    settings: Settings,
    rng: np.random.Generator,
) -> FeasibilityForest | None:
    """Return the model of the probability of success, or None without failures."""
    if not settings.feasibility or seen.valid.all():
        return None
    known = recent(seen.valid, settings.most_points)
    return fit_feasibility(encoder, seen.codes[known], seen.valid[known], pending, rng)


def _chance(
    forest: FeasibilityForest | None, source: SourceModel | None, count: int
) -> Callable[[Array, Array], Array] | None:
    """Return the probability of feasibility, after ``count`` evaluations here.

    It is a function of codes and of the points that encode them.
    """
    if source is None or source.forest is None:
        return None if forest is None else forest.mean

    def chance(codes: Array, points: Array) -> Array:
        here = np.ones(len(points)) if forest is None else forest.mean(codes, points)
        return source.chance(points, here, count)

    return chance


def _around(space: Space, ranked: Array, taken: Collection[bytes]) -> Array:
    """Return untried neighbours of the best configuration that has any."""
    for code in ranked:
        near = space.neighbours(code, 32)
        free = [i for i, c in enumerate(near) if space.key(c) not in taken]
        if free:
            return near[free]
    return ranked[:0]


def _candidates(
    space: Space,
    settings: Settings,
    rng: np.random.Generator,
    score: _Score,
    codes: Array,
    outputs: Array,
) -> tuple[Array, Array]:
    """Return codes and their scores: random ones, and those met on climbs from the best of them."""
    drawn = space.sample(rng, settings.samples, settings.biased_sampling)
    leaders = codes[np.argsort(outputs, kind="stable")]
    many = has_many(score.encoder, settings)
    sampled = drawn
    if many:
        uniform, rest = drawn[: len(drawn) // UNIFORM], drawn[len(drawn) // UNIFORM :]
        sampled = np.concatenate([uniform, mutants(space, rng, leaders, rest)])
    scores = score(sampled)
    if not settings.local_search:
        return sampled, scores
    leading = sampled[np.argsort(-scores, kind="stable")[: 4 * settings.climbs]]
    _, first = np.unique(leading, axis=0, return_index=True)
    starts = leading[np.sort(first)][: settings.climbs]
    if many:
        begun = np.concatenate([starts, leaders[:1]])
        met, climbed = sampled_climbs(space, rng, score, begun, drawn)
        near = space.neighbours(leaders[0], NEAREST)
        met, climbed = np.concatenate([met, near]), np.concatenate([climbed, score(near)])
    else:
        met, climbed = local_search(space, score, np.concatenate([starts, leaders[:3]]))
    return np.concatenate([sampled, met]), np.concatenate([scores, climbed])
