"""Several fitted models as one compiled function, so that a decision costs one call from Python.

The function adds what is paid beside a model's seconds, such as conversions of operands, and
compares the query with the training ranges. The models are exported to C, compiled once, and kept
in the cache directory. Without a C compiler their Python sources are called one by one, which
takes some ten times as long.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from tilewright.files import scratch_folder
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.export.export import compile_single, export_c, packed_c
from tilewright.prediction.export.surface import SURFACE_C
from tilewright.prediction.kernels.native import built_from, compiler, version
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.estimator import Estimator
from tilewright.records import cache_directory

# From the values of a query to the seconds of all routes, and whether it is outside a range.
RouteSeconds: TypeAlias = Callable[[Sequence[float]], tuple[tuple[float, ...], bool]]
# Bounds of the query's values, by name.
Ranges: TypeAlias = Sequence[tuple[str, float, float]]
FLAGS = ("-x", "c", "-std=c99", "-O2", "-w", "-shared", "-fPIC")
_FUNCTION = "tilewright_seconds"
_LINE = 8  # doubles of a cache line of 64 bytes; on CPUs with longer ones some are asked for twice


@dataclass(frozen=True, eq=False)
class ModelCall:
    """A model with its arguments: names of the query's values, or numbers."""

    model: Estimator
    arguments: tuple[str | float, ...]


@dataclass(frozen=True, eq=False)
class ExtraCost:
    """Seconds that are added to those of some routes if a value of the query has a given value.

    Attributes:
        call: the model of the added seconds; it is not asked where they are not added.
        value: the name of the query's value.
        equals: what it must be.
        routes: the places of the routes.
    """

    call: ModelCall
    value: str
    equals: float
    routes: tuple[int, ...]


def compile_together(
    calls: Sequence[ModelCall],
    names: Sequence[str],
    extras: Sequence[ExtraCost] = (),
    ranges: Ranges = (),
) -> RouteSeconds:
    """Return a function from the values of a query, in the order of `names`, to all seconds.

    It also returns whether a value lies outside its range, or is not a number.

    Args:
        calls: the model of each route.
        names: the names of the query's values; those in the other arguments are among them.
        extras: what is added to the seconds of routes.
        ranges: the bounds of values.

    Raises:
        PredictionError: a model is not fitted, or cannot be exported.
    """
    order = {name: i for i, name in enumerate(names)}
    one_by_one = _one_by_one(calls, order, extras, ranges)
    source = _source(calls, order, extras, ranges)
    try:
        function = _loaded(source)
    except (PredictionError, OSError):  # no compiler, or none that works
        return one_by_one
    inputs, outputs = struct.Struct(f"{len(order)}d"), struct.Struct(f"{len(calls)}d")
    pack, unpack = inputs.pack_into, outputs.unpack_from

    def buffers() -> tuple[Any, Any, Any, Any]:
        """Return memory for the values and for the seconds, and pointers to both."""
        given = ctypes.create_string_buffer(inputs.size)
        found = ctypes.create_string_buffer(outputs.size)
        return given, found, ctypes.byref(given), ctypes.byref(found)

    # A call takes the buffers away and puts them back, so that no two threads share them.
    free = [buffers()]

    def together(values: Sequence[float]) -> tuple[tuple[float, ...], bool]:
        try:
            own = free.pop()
        except IndexError:
            own = buffers()
        given, found, q, s = own
        try:
            pack(given, 0, *values)
        except struct.error:  # not all are numbers of this size
            free.append(own)
            return one_by_one(values)
        away = function(q, s)
        seconds = unpack(found)
        free.append(own)
        return seconds, away != 0

    return together


def _one_by_one(
    calls: Sequence[ModelCall], order: dict[str, int], extras: Sequence[ExtraCost], ranges: Ranges
) -> RouteSeconds:
    """Return the same in Python, a call of each model."""

    @cache
    def singles() -> list[Callable[..., float]]:
        return [compile_single(call.model) for call in (*calls, *(e.call for e in extras))]

    def seconds(values: Sequence[float]) -> tuple[tuple[float, ...], bool]:
        def one(function: Callable[..., float], call: ModelCall) -> float:
            return function(
                *(values[order[a]] if isinstance(a, str) else a for a in call.arguments)
            )

        functions = singles()
        found = [one(f, call) for f, call in zip(functions, calls, strict=False)]
        for function, extra in zip(functions[len(calls) :], extras, strict=True):
            if values[order[extra.value]] == extra.equals:
                more = one(function, extra.call)
                for route in extra.routes:
                    found[route] += more
        away = any(not low <= values[order[name]] <= high for name, low, high in ranges)
        return tuple(found), away

    return seconds


def _source(
    calls: Sequence[ModelCall], order: dict[str, int], extras: Sequence[ExtraCost], ranges: Ranges
) -> str:
    """Return C source with one function that calls all models."""
    models: dict[int, str] = {}
    parts: list[str] = []
    numbers: list[float] = []

    def asked(call: ModelCall) -> str:
        name = models.get(id(call.model))
        if name is None:
            name = models[id(call.model)] = f"tilewright_model_{len(models)}"
            if type(call.model) is Augmented:
                source, own = packed_c(call.model, name, f"(numbers + {len(numbers)})")
                parts.append(source)
                numbers.extend(own)
            else:
                parts.append(export_c(call.model, name, coverage=None))
        given = (f"q[{order[a]}]" if isinstance(a, str) else repr(float(a)) for a in call.arguments)
        return f"{name}({', '.join(given)})"

    lines = [f"    s[{i}] = {asked(call)};" for i, call in enumerate(calls)]
    for extra in extras:
        lines.append(f"    if (q[{order[extra.value]}] == {extra.equals!r}) {{")
        lines.append(f"        const double more = {asked(extra.call)};")
        lines += [f"        s[{route}] += more;" for route in extra.routes]
        lines.append("    }")
    within = [f"q[{order[n]}] >= {low!r} && q[{order[n]}] <= {high!r}" for n, low, high in ranges]
    lines.append(f"    return !({' && '.join(within) or 1});")
    head = [f"int {_FUNCTION}(const double *q, double *s) {{"]
    if numbers:
        table = ", ".join(map(repr, numbers))
        parts[:0] = [
            "#include <math.h>",
            f"static const double numbers[] = {{{table}}};",
            SURFACE_C,
        ]
        # They were last read before other work: all at once, instead of one after the other.
        head.append(f"    for (int i = 0; i < {len(numbers)}; i += {_LINE})")
        head.append("        __builtin_prefetch(numbers + i);")
    return "\n".join([*parts, *head, *lines, "}", ""])


def _loaded(source: str) -> Callable[..., int]:
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
    # PyDLL keeps the interpreter's lock, which is cheaper than releasing it for a microsecond.
    function: Callable[..., int] = ctypes.PyDLL(str(library))[_FUNCTION]
    return function
