"""What a candidate really costs: isolated workers, timing, verification.

A `Candidate` is plain data from which a worker process builds something to run. `measure_all`
measures many, `measure_one` a single one (on any executor), `finalists` compares a few in
interleaved rounds, and `command` makes a candidate of a command line. Whatever a candidate
does, crash, hang, print or allocate without end, its `Measurement` says so and the rest goes on.
"""

from .candidate import (
    STATUSES,
    Candidate,
    Limits,
    Measurement,
    Status,
    Timing,
    VerifyResult,
    machine_id,
)
from .client import Event, Workers, WorkersError
from .command import command
from .finalists import Finals, finalists
from .measuring import end_servers, measure_all, measure_one
from .statistics import Interval, bootstrap_interval, ratio_interval
from .token import computing
from .worker import load_builder

__all__ = [
    "STATUSES",
    "Candidate",
    "Event",
    "Finals",
    "Interval",
    "Limits",
    "Measurement",
    "Status",
    "Timing",
    "VerifyResult",
    "Workers",
    "WorkersError",
    "bootstrap_interval",
    "command",
    "computing",
    "end_servers",
    "finalists",
    "load_builder",
    "machine_id",
    "measure_all",
    "measure_one",
    "ratio_interval",
]
