"""Run-time prediction: NN+C (Srivastava et al., HiPC 2020), its baselines, and better ones.

Every name is imported when it is first used, so that a dispatched call pays for little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.prediction.augmented import Augmented
    from tilewright.prediction.auto import Auto
    from tilewright.prediction.boosted import Boosted, GaussianProcess
    from tilewright.prediction.complexity import Complexity
    from tilewright.prediction.errors import PredictionError
    from tilewright.prediction.estimator import Estimator
    from tilewright.prediction.evaluation import Evaluation, cross_validate, evaluate
    from tilewright.prediction.export import compile_single, export_c, export_python
    from tilewright.prediction.forest import Forest
    from tilewright.prediction.paper import LRC, NLRC, NN, NNC, C
    from tilewright.prediction.stored import load

_MODULES = {
    "augmented": ("Augmented",),
    "auto": ("Auto",),
    "boosted": ("Boosted", "GaussianProcess"),
    "complexity": ("Complexity",),
    "errors": ("PredictionError",),
    "estimator": ("Estimator",),
    "evaluation": ("Evaluation", "cross_validate", "evaluate"),
    "export": ("compile_single", "export_c", "export_python"),
    "forest": ("Forest",),
    "paper": ("LRC", "NLRC", "NN", "NNC", "C"),
    "stored": ("load",),
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "LRC",
    "NLRC",
    "NN",
    "NNC",
    "Augmented",
    "Auto",
    "Boosted",
    "C",
    "Complexity",
    "Estimator",
    "Evaluation",
    "Forest",
    "GaussianProcess",
    "PredictionError",
    "compile_single",
    "cross_validate",
    "evaluate",
    "export_c",
    "export_python",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
