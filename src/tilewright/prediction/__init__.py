"""Run-time prediction: NN+C (Srivastava et al., HiPC 2020), its baselines, and better ones.

Every name is imported when it is first used, so that a dispatched call pays for little.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
