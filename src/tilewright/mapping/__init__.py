"""Mapping a graph of kernels to the devices of a machine.

A `Graph` of tasks (from JSON, or from a Python function by `trace`) and a `Platform` of devices
and links make a `Plan` by `plan`; it is shown as a Gantt chart and carried out by `execute`.
"""

from tilewright.mapping.execution import Execution, execute, task_seconds
from tilewright.mapping.graph import Edge, Graph, MappingError, Task, graph_from_dict
from tilewright.mapping.planning import METHODS, Plan, Step, plan, predictor
from tilewright.mapping.platform import (
    Device,
    Link,
    Platform,
    cores_as_devices,
    platform_from_dict,
)
from tilewright.mapping.trace import Trace, kernel, trace

__all__ = [
    "METHODS",
    "Device",
    "Edge",
    "Execution",
    "Graph",
    "Link",
    "MappingError",
    "Plan",
    "Platform",
    "Step",
    "Task",
    "Trace",
    "cores_as_devices",
    "execute",
    "graph_from_dict",
    "kernel",
    "plan",
    "platform_from_dict",
    "predictor",
    "task_seconds",
    "trace",
]
