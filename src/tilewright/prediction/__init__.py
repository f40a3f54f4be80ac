"""Run-time prediction: NN+C (Srivastava et al., HiPC 2020), its baselines, and better ones.

Every name is imported when it is first used, so that a dispatched call pays for little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.prediction.errors import PredictionError
    from tilewright.prediction.export.export import compile_single, export_c, export_python
    from tilewright.prediction.models.augmented import Augmented
    from tilewright.prediction.models.auto import Auto
    from tilewright.prediction.models.boosted import Boosted, GaussianProcess
    from tilewright.prediction.models.complexity import Complexity
    from tilewright.prediction.models.estimator import Estimator
    from tilewright.prediction.models.evaluation import Evaluation, cross_validate, evaluate
    from tilewright.prediction.models.forest import Forest
    from tilewright.prediction.models.nnc_paper import LRC, NLRC, NN, NNC, C
    from tilewright.prediction.models.stored import load

_MODULES = {
    "models.augmented": ("Augmented",),
    "models.auto": ("Auto",),
    "models.boosted": ("Boosted", "GaussianProcess"),
    "models.complexity": ("Complexity",),
    "errors": ("PredictionError",),
    "models.estimator": ("Estimator",),
    "models.evaluation": ("Evaluation", "cross_validate", "evaluate"),
    "export.export": ("compile_single", "export_c", "export_python"),
    "models.forest": ("Forest",),
    "models.nnc_paper": ("LRC", "NLRC", "NN", "NNC", "C"),
    "models.stored": ("load",),
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
