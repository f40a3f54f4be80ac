from .data.kernel import (
    Kernel as Kernel,
    KernelVariant as KernelVariant,
)
from .data.runs import (
    Runs as Runs,
    read_csv as read_csv,
    check_description_place as check_description_place,
    sidecar_of as sidecar_of,
    csv_text as csv_text,
    write_csv as write_csv,
)
from .data.unfinished import Unfinished as Unfinished
from .data.user_kernels import (
    from_callable as from_callable,
    from_command as from_command,
)
from . import kernels as kernels
from .kernels.families import schedule_family as schedule_family
from .kernels.schedules import collect_schedules as collect_schedules
from .data.collect import (
    CollectionProgress as CollectionProgress,
    ROUNDS as ROUNDS,
    collect as collect,
)
from .models.complexity import Complexity as Complexity
from .models.stored import (
    Estimator as Estimator,
    load as load,
)
from .models.adapted import Adapted as Adapted
from .models.augmented import Augmented as Augmented
from .models.auto import Auto as Auto
from .models.boosted import Boosted as Boosted
from .models.forest import Forest as Forest
from .models.gaussian_process import GaussianProcess as GaussianProcess
from .models.nnc_paper import (
    C as C,
    LRC as LRC,
    NLRC as NLRC,
    NN as NN,
    NNC as NNC,
)
from .models.censored import fit_censored as fit_censored
from .models.evaluation import (
    Evaluation as Evaluation,
    cross_validate as cross_validate,
    evaluate as evaluate,
)
from .models.report import (
    evaluation_table as evaluation_table,
    feature_ranges as feature_ranges,
    prediction_report as prediction_report,
)
from .decisions.selector import (
    Choice as Choice,
    Modelled as Modelled,
    Selection as Selection,
    Selector as Selector,
    is_selector as is_selector,
    selector_path as selector_path,
    train_selector as train_selector,
)
from .decisions.ranking import (
    Ranked as Ranked,
    rank as rank,
    rank_schedules as rank_schedules,
    verify_schedules as verify_schedules,
    verify_variants as verify_variants,
)
from .decisions.regret import (
    Regret as Regret,
    regret as regret,
)
from .decisions.answers import (
    Choices as Choices,
    Ranking as Ranking,
    Selections as Selections,
    read_queries as read_queries,
)
from .export.export import (
    compile_single as compile_single,
    export_c as export_c,
    export_python as export_python,
)
from .errors import PredictionError as PredictionError
from .decisions.dispatcher import (
    Dispatcher as Dispatcher,
    dispatch as dispatch,
)
