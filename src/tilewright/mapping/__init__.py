"""Mapping a graph of kernels to the devices of a machine.

The names, in the order in which data flows through them:

- `Graph`: tasks and the data that they pass on, from JSON or from a Python function (`trace`).
- `Platform`: devices and the links between them.
- `plan`: places the tasks on the devices by predicted times, and gives a `MappingPlan`.
- `execute`: runs a plan, and `plan_page` shows it as a Gantt chart.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
