"""Black-box tuning (BaCO): parameters, constraints, feasible sets, surrogates, the tuner."""

from tilewright.tuning.bayes.prior import OptimumPrior
from tilewright.tuning.bayes.warm import WarmStart
from tilewright.tuning.errors import ConfigurationError, ConstraintError, SettingsError, SpaceError
from tilewright.tuning.isolated import Isolated
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.json import space_from_dict, space_to_dict
from tilewright.tuning.space.parameters import Categorical, Integer, Ordinal, Permutation, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Suggestion, Trial
from tilewright.tuning.tunable import Tunable, tunable
from tilewright.tuning.tune import FailedError, Journal, Result, tune
from tilewright.tuning.tuner import Tuner

__all__ = [
    "Categorical",
    "ConfigurationError",
    "ConstraintError",
    "FailedError",
    "Integer",
    "Isolated",
    "Journal",
    "OptimumPrior",
    "Ordinal",
    "Permutation",
    "Real",
    "Result",
    "Settings",
    "SettingsError",
    "Space",
    "SpaceError",
    "Suggestion",
    "Trial",
    "Tunable",
    "Tuner",
    "WarmStart",
    "space_from_dict",
    "space_to_dict",
    "tunable",
    "tune",
]
