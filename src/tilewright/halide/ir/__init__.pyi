from .algorithm import Algorithm as Algorithm
from .schedule import (
    FuncSchedule as FuncSchedule,
    Fuse as Fuse,
    INLINE as INLINE,
    Level as Level,
    ROOT as ROOT,
    Schedule as Schedule,
    ScheduledLoop as ScheduledLoop,
    Split as Split,
    StageSchedule as StageSchedule,
)
from .json import (
    from_json as from_json,
    to_json as to_json,
)
