"""What has been seen: the append-only store of measurements."""

from .location import cache_directory, default_path
from .lock import RecordsError
from .measured import Outcome, Trial, measure_recorded
from .store import Record, Records, canonical, digest

__all__ = [
    "Outcome",
    "Record",
    "Records",
    "RecordsError",
    "Trial",
    "cache_directory",
    "canonical",
    "default_path",
    "digest",
    "measure_recorded",
]
