from .candidate import (
    Candidate as Candidate,
    RunLimits as RunLimits,
    Measurement as Measurement,
    STATUSES as STATUSES,
    Status as Status,
    Timing as Timing,
    VerifyResult as VerifyResult,
    machine_id as machine_id,
)
from .client import (
    Event as Event,
    Workers as Workers,
    WorkersError as WorkersError,
)
from .collection import (
    collection_paused as collection_paused,
)
from .command import (
    EndedCommand as EndedCommand,
    command as command,
    last_words as last_words,
    printed as printed,
    run_to_end as run_to_end,
)
from .forked import (
    ForkedCallError as ForkedCallError,
    call_forked as call_forked,
)
from .templates import (
    filled as filled,
    names_in as names_in,
)
from .held import Held as Held
from .finalists import (
    Finals as Finals,
    finalists as finalists,
)
from .measuring import (
    end_servers as end_servers,
    measure_all as measure_all,
    measure_one as measure_one,
)
from .statistics import (
    ConfidenceInterval as ConfidenceInterval,
    bootstrap_interval as bootstrap_interval,
    ratio_interval as ratio_interval,
)
from .token import (
    TimingToken as TimingToken,
    TokenError as TokenError,
    on_wait as on_wait,
)
from .worker import load_builder as load_builder
from .references import reference_to as reference_to
from .timing import (
    cpu_seconds as cpu_seconds,
    time_runs as time_runs,
)
