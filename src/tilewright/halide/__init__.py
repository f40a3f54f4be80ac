"""Autoscheduling of Halide pipelines: analytic (Sioutas et al. 2020), searched, measured.

Data flows through the rooms in this order:

- ``frontend``: a pipeline's bytes become an immutable `Algorithm`.
- ``ir``: what the other rooms speak of: algorithms, schedules, loop nests, targets.
- ``analysis``: bounds, inlining, and what a scheduled program computes, stores and reads.
- ``legality``: what a schedule must not do, and at which sizes it holds.
- ``schedulers``: where schedules come from: naive, analytic, Halide's own (as peers).
- ``search``: the best few by measuring, factors tuned.
- ``emit``: a schedule as Halide's directives, as Python and as C++.
- ``execution``: candidates built, verified and timed in worker processes.
- ``report``: why a schedule is what it is.

`tilewright.halide.autoschedule.schedule` runs them all; `tilewright.halide.compare` adds peers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
