from .location import (
    cache_directory as cache_directory,
    calibration_path as calibration_path,
    default_path as default_path,
)
from .lock import RecordsError as RecordsError
from .measured import (
    TrialOutcome as TrialOutcome,
    CandidateTrial as CandidateTrial,
    failed_by_tighter_limits as failed_by_tighter_limits,
    measure_recorded as measure_recorded,
)
from .store import (
    MeasurementRecord as MeasurementRecord,
    Records as Records,
    canonical as canonical,
    digest as digest,
)
from .maintenance import (
    Merged as Merged,
    chosen as chosen,
    matching as matching,
    merge as merge,
    read as read,
    to_line as to_line,
)
