from . import calibration as calibration
from . import ir as ir
from .frontend.source import (
    ScheduledError as ScheduledError,
    load as load,
    own_generators as own_generators,
)
from .frontend.given import (
    Given as Given,
    read_schedule as read_schedule,
)
from .frontend.estimates import MissingEstimatesError as MissingEstimatesError
from .legality.check import (
    Violation as Violation,
    check as check,
)
from .emit.apply import apply as apply
from .execution.session import (
    Session as Session,
    Variant as Variant,
    versions as versions,
)
from .options import (
    Planning as Planning,
    Measuring as Measuring,
    Budget as Budget,
)
from .autoschedule import schedule as schedule
from .comparison import (
    Comparison as Comparison,
    compare as compare,
)
from .result import Result as Result
from .schedulers.learned.training import TrainedModel as TrainedModel
from .training import train_model as train_model
