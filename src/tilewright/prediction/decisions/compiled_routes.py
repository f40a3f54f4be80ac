"""Several fitted models as one compiled function, so that a decision costs one call from Python.

The models are exported to C, compiled once, and kept in the cache directory. Without a C compiler
their Python sources are called one by one, which takes some ten times as long.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from tilewright.files import scratch_folder
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.export.export import compile_single, export_c
from tilewright.prediction.kernels.native import built_from, compiler, version
from tilewright.prediction.models.estimator import Estimator
from tilewright.records import cache_directory

AllSeconds: TypeAlias = Callable[[Sequence[float]], list[float]]
FLAGS = ("-x", "c", "-std=c99", "-O2", "-w", "-shared", "-fPIC")
_FUNCTION = "tilewright_seconds"


@dataclass(frozen=True, eq=False)
class ModelCall:
    """A model with its arguments: names of the query's values, or numbers."""

    model: Estimator
    arguments: tuple[str | float, ...]


def compile_together(calls: Sequence[ModelCall], names: Sequence[str]) -> AllSeconds:
    """Return a function from the values of a query, in the order of `names`, to all seconds.

    Args:
        calls: the models; every name among their arguments is one of `names`.
        names: the names of the query's values.

    Raises:
        PredictionError: a model is not fitted, or cannot be exported.
    """
    order = {name: i for i, name in enumerate(names)}

    @cache
    def singles() -> list[Callable[..., float]]:
        return [compile_single(call.model) for call in calls]

    def one_by_one(values: Sequence[float]) -> list[float]:
        return [
            function(*(values[order[a]] if isinstance(a, str) else a for a in call.arguments))
            for function, call in zip(singles(), calls, strict=True)
        ]

    source = _source(calls, order)
    try:
        function = _loaded(source)
    except (PredictionError, OSError):  # no compiler, or none that works
        return one_by_one
    inputs, outputs = ctypes.c_double * len(order), ctypes.c_double * len(calls)

    def together(values: Sequence[float]) -> list[float]:
        found = outputs()
        try:
            function(inputs(*values), found)
        except (TypeError, OverflowError):  # not all are numbers of this size
            return one_by_one(values)
        return list(found)

    return together


def _source(calls: Sequence[ModelCall], order: dict[str, int]) -> str:
    """Return C source with one function that calls all models."""
    models: dict[int, str] = {}
    parts, lines = [], []
    for i, call in enumerate(calls):
        name = models.get(id(call.model))
        if name is None:
            name = models[id(call.model)] = f"tilewright_model_{len(models)}"
            parts.append(export_c(call.model, name, coverage=None))
        given = (f"q[{order[a]}]" if isinstance(a, str) else repr(float(a)) for a in call.arguments)
        lines.append(f"    s[{i}] = {name}({', '.join(given)});")
    head = f"void {_FUNCTION}(const double *q, double *s) {{"
    return "\n".join([*parts, head, *lines, "}", ""])


def _loaded(source: str) -> Callable[..., None]:
    found = compiler()
    if found is None:
        raise PredictionError("there is no C compiler: install gcc or clang, or set CXX")
    key = "\0".join([source, version(found), *FLAGS]).encode()
    folder = cache_directory() / "models"
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(".source-", folder) as work:
        file = work / f"{hashlib.sha256(key).hexdigest()[:24]}.c"
        file.write_text(source, encoding="utf-8")
        library = built_from(key, [found, *FLAGS], file, "routes", ".so", folder)
    function = ctypes.CDLL(str(library))[_FUNCTION]
    function.restype = None
    return function
