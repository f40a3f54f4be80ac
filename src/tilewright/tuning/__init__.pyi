from .errors import (
    ConfigurationError as ConfigurationError,
    ConstraintError as ConstraintError,
    SettingsError as SettingsError,
    SpaceError as SpaceError,
)
from .space.parameters import (
    Categorical as Categorical,
    Integer as Integer,
    Ordinal as Ordinal,
    Permutation as Permutation,
    Real as Real,
)
from .space.space import Space as Space
from .space.json import (
    space_from_dict as space_from_dict,
    space_to_dict as space_to_dict,
)
from .bayes.prior import OptimumPrior as OptimumPrior
from .bayes.warm import WarmStart as WarmStart
from .settings import Settings as Settings
from .trial import (
    confirming as confirming,
    counted as counted,
    Suggestion as Suggestion,
    Trial as Trial,
    plain as plain,
)
from .tuner import Tuner as Tuner
from .tune import (
    FailedError as FailedError,
    Journal as Journal,
    TuningResult as TuningResult,
    tune as tune,
)
from .tunable import (
    Tunable as Tunable,
    tunable as tunable,
)
from .isolated import Isolated as Isolated
from .journal import (
    RecordsJournal as RecordsJournal,
    problem_key as problem_key,
    warm_start as warm_start,
)
from .report import (
    tuning_page as tuning_page,
    write_tuning_page as write_tuning_page,
)
from .command_line.toml import (
    CommandProblem as CommandProblem,
    PROBLEM_TEMPLATE as PROBLEM_TEMPLATE,
    load_problem as load_problem,
)
from .interop.t4 import (
    check_t4_name as check_t4_name,
    export_t4 as export_t4,
)
from . import problems as problems
from .interop.hypermapper_protocol import (
    optimize as optimize,
    serve_hypermapper as serve_hypermapper,
)
from .interop.hypermapper_scenario import (
    load_scenario as load_scenario,
    read_scenario as read_scenario,
)
from .interop.optuna import TilewrightSampler as TilewrightSampler
from .interop.replay import (
    read_cache as read_cache,
    read_t4 as read_t4,
)
