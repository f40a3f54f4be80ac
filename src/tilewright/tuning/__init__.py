"""Black-box tuning (BaCO): parameters, constraints, feasible sets, surrogates, the tuner."""

from tilewright.tuning.errors import ConfigurationError, ConstraintError, SettingsError, SpaceError
from tilewright.tuning.isolated import Isolated
from tilewright.tuning.parameters import Categorical, Integer, Ordinal, Permutation, Real
from tilewright.tuning.prior import OptimumPrior
from tilewright.tuning.settings import Settings
from tilewright.tuning.space import Space
from tilewright.tuning.space_json import space_from_dict, space_to_dict
from tilewright.tuning.trial import Suggestion, Trial
from tilewright.tuning.tunable import Tunable, tunable
from tilewright.tuning.tune import FailedError, Journal, Result, tune
from tilewright.tuning.tuner import Tuner
from tilewright.tuning.warm import WarmStart

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
