"""Black-box tuning (BaCO): parameters, constraints, feasible sets, surrogates, the tuner."""

from tilewright.tuning.errors import ConfigurationError, ConstraintError, SpaceError
from tilewright.tuning.parameters import Categorical, Integer, Ordinal, Permutation, Real
from tilewright.tuning.space import Space
from tilewright.tuning.space_json import space_from_dict, space_to_dict

__all__ = [
    "Categorical",
    "ConfigurationError",
    "ConstraintError",
    "Integer",
    "Ordinal",
    "Permutation",
    "Real",
    "Space",
    "SpaceError",
    "space_from_dict",
    "space_to_dict",
]
