from .location import (
    cache_directory as cache_directory,
    calibration_path as calibration_path,
    default_path as default_path,
)
from .lock import RecordsError as RecordsError
from .measured import (
    Outcome as Outcome,
    Trial as Trial,
    measure_recorded as measure_recorded,
)
from .store import (
    Record as Record,
    Records as Records,
    canonical as canonical,
    digest as digest,
)
