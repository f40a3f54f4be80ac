"""Mapping a graph of kernels to the devices of a machine.

A `Graph` of tasks (from JSON, or from a Python function by `trace`) and a `Platform` of devices
and links are the input of `plan`, which makes a `Plan`. It can be shown as a Gantt chart and run by
`execute`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
