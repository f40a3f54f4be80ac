"""Autoscheduling of Halide pipelines: analytic (Sioutas et al. 2020), searched, measured.

Data flows through the folders and files in this order:

- ``frontend``: a pipeline's bytes become an immutable `Algorithm`.
- ``ir``: the data of all other folders: algorithms, schedules, loop nests, targets.
- ``options``: the arguments of `schedule` and `compare`, in groups.
- ``calibration``: a processor measured with kernels that Halide compiles, for the cost model.
- ``analysis``: bounds, inlining, and what a scheduled program computes, stores and reads.
- ``legality``: whether Halide accepts a schedule, and at which sizes it is correct.
- ``schedulers``: where schedules come from: naive, analytic, Halide's own (as peers).
- ``search``: the best few by measuring, factors tuned.
- ``emit``: a schedule as Halide's directives, as Python and as C++.
- ``execution``: candidates built, verified and timed in worker processes.
- ``autoschedule``: `schedule` runs all of these.
- ``result``: the chosen schedule with its measurements, to apply, print and explain.
- ``comparison``: `compare` times it with hand-written schedules and with Halide's autoschedulers.
- ``report``: explains a schedule: groups, loop nest, graph.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
