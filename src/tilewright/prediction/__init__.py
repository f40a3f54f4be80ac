"""Run-time prediction: NN+C (Srivastava et al., HiPC 2020), its baselines, and better models.

The room in the order in which data flows; every name is imported when it is first used, to keep
dispatched calls cheap:

- ``data``: a `Kernel` with its variants, instances drawn and measured (`collect`), `Runs` as CSV.
- ``kernels``: the library of kernels, and schedules of Halide pipelines as variants.
- ``models``: estimators of run time, their cross-validation and evaluation.
- ``decisions``: selecting variants, ranking candidates, dispatching calls, regret.
- ``export``: models as Python and C source.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
