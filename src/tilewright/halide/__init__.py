"""Autoscheduling of Halide pipelines (Sioutas et al. 2020), with measurements and tuning.

Start at `autoschedule.schedule`. Data flows through the folders and files in this order:

- ``frontend``: reads a pipeline's bytes into an immutable `Algorithm`.
- ``ir``: the data that all folders share: algorithms, schedules, loop nests, targets.
- ``options``: the groups of arguments of `schedule` and `compare`.
- ``calibration``: fits the cost models to a processor or a GPU.
- ``analysis``: bounds, inlining, and the regions that a scheduled program computes and accesses.
- ``legality``: whether Halide accepts a schedule, and at which sizes it is correct.
- ``schedulers``: naive, analytic and learned schedulers; Halide's autoschedulers for comparison.
- ``search``: selects schedules by measuring them, and tunes their factors.
- ``emit``: applies a schedule to a pipeline and prints it as Python or C++.
- ``execution``: builds, verifies and times schedules in worker processes.
- ``autoschedule``: `schedule` runs all of these.
- ``result``: the chosen schedule with its measurements, to apply, print and explain.
- ``comparison``: `compare` times it against hand-written schedules and Halide's autoschedulers.
- ``report``: describes a schedule: groups, loop nest, graph.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
