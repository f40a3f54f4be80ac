"""The settings of the tuner, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.tuning.bayes.gp import Priors
from tilewright.tuning.space.parameters import Metric


@dataclass(frozen=True)
class Settings:
    """The pieces of the search; the defaults are meant for every problem.

    Attributes:
        surrogate: the model of the objective, a Gaussian process or a random forest.
        initial: random configurations before the model is used; by default one more than
            the number of parameters, at most 10.
        design: draw the initial configurations uniformly, or choose each among many uniform ones as
            the one farthest from those before.
        objective: how the objective is modelled: by the normal scores of its ranks, by its
            logarithm if all values have the same sign (as in the paper), or unchanged.
        log_parameters: measure distances on a log scale where a parameter asks for it.
        alignment: also distinguish numbers by the power of two that divides them (see
            `encoder`).
        metric: a metric for all permutations instead of each parameter's own.
        priors: the priors of the Gaussian process's hyperparameters.
        feasibility: weight the acquisition by the probability that a configuration does not fail.
        stagnation: after this many evaluations without improvement, a random forest, which
            extrapolates differently, makes every second decision; 0 for never. After half as many,
            every third suggestion is for a neglected branch of conditional parameters.
        many: with more parameters than this, longer length scales are expected, and most candidates
            are near the best configurations (see `tilewright.tuning.bayes.many`).
        biased_sampling: sample as ATF does, for comparison.
        local_search: climb from the best sampled configurations.
        local: the share of decisions that change only one parameter of the best configuration.
        samples: configurations sampled to start from.
        climbs: the number of them from which the search climbs.
        repeats: whether a configuration may be suggested again.
        most_points: maximum number of successful observations in the model of the objective, and of
            failures in the model of feasibility; if there are more, the best ones and a sample of
            the whole range are used.
    """

    surrogate: Literal["gp", "rf"] = "gp"
    initial: int | None = None
    design: Literal["uniform", "spread"] = "spread"
    objective: Literal["clipped", "rank", "log", "plain"] = "clipped"
    clip: float = 0.5
    clipped_slope: float = 0.0
    log_parameters: bool = True
    alignment: bool = True
    metric: Metric | None = None
    priors: Priors = field(default_factory=Priors)
    feasibility: bool = True
    stagnation: int = 10
    many: int = 20
    biased_sampling: bool = False
    local_search: bool = True
    local: float = 0.0
    samples: int = 600
    climbs: int = 5
    repeats: bool = False
    most_points: int = 150
