from .execution import (
    Execution as Execution,
    execute as execute,
    task_seconds as task_seconds,
)
from .graph import (
    Edge as Edge,
    Graph as Graph,
    MappingError as MappingError,
    GraphTask as GraphTask,
    graph_from_dict as graph_from_dict,
)
from .planning import (
    METHODS as METHODS,
    MappingPlan as MappingPlan,
    PlanStep as PlanStep,
    plan as plan,
    predictor as predictor,
)
from .platform import (
    Device as Device,
    Link as Link,
    Platform as Platform,
    cores_as_devices as cores_as_devices,
    platform_from_dict as platform_from_dict,
)
from .trace import (
    Trace as Trace,
    kernel as kernel,
    trace as trace,
)
from .chart import (
    plan_page as plan_page,
    plan_text as plan_text,
)
