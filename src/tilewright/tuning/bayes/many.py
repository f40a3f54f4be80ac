"""Spaces of many parameters: longer length scales, and candidates near the best configurations.

In such a space almost all uniform configurations are about equally far from each other and from the
best one. Under a prior of length scales that is made for ten parameters they are all but unrelated;
and climbs that score every neighbour take too long. Most single changes have no effect, so that
many values equal the best; `tilewright.tuning.bayes.surrogate.transform` then clips by the distinct
values.

| symbol | meaning | shape |
|---|---|---|
| `owner` | the parameter of each column of a code | (width,) |
| `drawn` | uniform configurations; changed parameters take their values | (count, width) |
| `here` | where each climb is | (climbs, width) |
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tilewright.tuning.bayes.acquisition import Score
from tilewright.tuning.bayes.encoding import Encoder
from tilewright.tuning.bayes.gp import Priors
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]
# The number of length scales for which `Priors` was made.
_USUAL = 10
# Further factor of the length scales, since most of many parameters matter little. Of 1, 3 and 10,
# the best in docs/decisions/tuning-model.md.
_LONGER = 3.0
# The mean number of parameters, at most, in which a candidate differs from a leader. Source: Regis
# and Shoemaker, Combining radial basis function surrogates and dynamic coordinate search, 2013,
# as Eriksson et al., Scalable global optimization via local Bayesian optimization, 2019, use it.
_CHANGED = 20
# Configurations, best first, from which candidates differ; the chance halves from each to the next.
_LEADERS = 5
# One of this many candidates is uniform; the others are near a leader.
UNIFORM = 3


def has_many(encoder: Encoder, settings: Settings) -> bool:
    """Return whether more parameters vary than `Settings.many`."""
    return encoder.varying > settings.many


def priors_of(encoder: Encoder, settings: Settings) -> Priors:
    """Return the priors of the settings, `scaled` if there are many parameters."""
    many = has_many(encoder, settings)
    return scaled(settings.priors, len(encoder.labels)) if many else settings.priors


def scaled(priors: Priors, blocks: int) -> Priors:
    """Return priors of longer length scales, for this number of blocks.

    A squared distance is a sum over blocks, so the typical distance grows with the root of their
    number. The scales grow with the same root, and further by `_LONGER`.

    Source: Hvarfner, Hellsten and Nardi, Vanilla Bayesian optimization performs great in high
    dimensions, 2024.

    Args:
        priors: for about ten blocks.
        blocks: the number of length scales.
    """
    if priors.lengthscale is None:
        return priors
    shape, rate = priors.lengthscale
    return replace(priors, lengthscale=(shape, rate / (_LONGER * math.sqrt(blocks / _USUAL))))


def mutants(space: Space, rng: np.random.Generator, leaders: Array, drawn: Array) -> Array:
    """Return feasible codes that differ from a leader in a random subset of parameters.

    The expected size of the subset is itself random for each, small ones more often.

    Args:
        space: the search space.
        rng: draws the leader and the subset of each.
        leaders: codes, best first, shape (count, width).
        drawn: as in the module's text; there are at most as many mutants.
    """
    count, parameters = len(drawn), len(space.parameters)
    share = min(1.0, _CHANGED / parameters) * rng.random(count) ** 2
    changed = rng.random((count, parameters)) < share[:, None]
    changed[np.arange(count), rng.integers(0, parameters, count)] = True
    rank = np.minimum(rng.geometric(0.5, count), min(_LEADERS, len(leaders))) - 1
    made = np.where(changed[:, _owner(space)], drawn, leaders[rank])
    return np.asarray(made[space.contains(made)])


def sampled_climbs(
    space: Space,
    rng: np.random.Generator,
    score: Score,
    here: Array,
    drawn: Array,
    *,
    steps: int = 8,
    each: int = 32,
) -> tuple[Array, Array]:
    """Climb from each start, at every step to the best of ``each`` random neighbours.

    Args:
        space: the search space.
        rng: draws the neighbours.
        score: the scores of codes, shape (count,), larger is better.
        here: the starts, shape (climbs, width).
        drawn: as in the module's text.
        steps: the number of steps.
        each: the neighbours of each climb at a step.

    Returns:
        every code scored on the way, and the scores.
    """
    owner = _owner(space)
    of = np.eye(len(space.parameters))[owner]
    value = score(here)
    met, values = [here], [value]
    first = each * np.arange(len(here))
    for _ in range(steps):
        before = np.repeat(here, each, axis=0)
        other = drawn[rng.integers(0, len(drawn), len(before))]
        # one of the parameters in which the two differ
        differs = (other != before) @ of > 0
        place = np.where(differs, rng.random(differs.shape), -1.0).argmax(axis=1)
        near = np.where(owner == place[:, None], other, before)
        near = np.where(space.contains(near)[:, None], near, before)
        scores = score(near)
        met.append(near)
        values.append(scores)
        top = first + scores.reshape(len(here), each).argmax(axis=1)
        better = scores[top] > value
        here = np.where(better[:, None], near[top], here)
        value = np.where(better, scores[top], value)
    return np.concatenate(met), np.concatenate(values)


def _owner(space: Space) -> Array:
    owner = np.zeros(space.width, dtype=np.int64)
    for place, p in enumerate(space.parameters):
        if p.name in space.columns:
            owner[space.columns[p.name]] = place
        if p.name in space.reals:
            owner[space.reals[p.name]] = place
    return owner
