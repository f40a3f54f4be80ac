"""Run-time prediction: NN+C (Srivastava et al., HiPC 2020), its baselines, and better models.

Every name is imported when it is first used, to keep dispatched calls cheap.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
