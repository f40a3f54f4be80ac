"""The kernels by Halide, scheduled by Tilewright for this machine.

A schedule is made for given sizes and may need outputs of at least the size of a tile, so a kernel
is compiled up to three times: scheduled for large and for small sizes, and with the naive schedule
for even smaller ones. The first that fits the operands' shapes is used. Kernels are compiled at
first use.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.halide.ir import Fuse, Schedule, Split
from tilewright.prediction.data.kernel import Array, KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels.forms import FORMS
from tilewright.prediction.kernels.storage import dense

if TYPE_CHECKING:
    from tilewright.halide import Result

LEVELS = (256, 32, None)  # sizes that are scheduled for; None for no schedule
_compiling = threading.Lock()  # Halide numbers names for the whole process


def available() -> tuple[bool, str]:
    """Return whether the ``halide`` package is installed."""
    if importlib.util.find_spec("halide") is None:
        return False, "the package halide is missing: pip install halide"
    return True, ""


def versions() -> dict[str, str]:
    """Return Halide's version."""
    return {"halide": importlib.metadata.version("halide")}


def variant(kernel: str) -> dict[str, KernelVariant]:
    """Return the variant ``halide`` of a kernel."""

    def build(operands: Operands, settings: Mapping[str, int]) -> Run:
        import halide as hl

        form = FORMS[kernel]
        given = [dense(operands[name]) for name in form.arrays]
        scalars = [int(operands["s"])] if kernel == "pooling" else []
        shape = form.shape(*form.sizes(operands))
        buffers = [hl.Buffer(array) for array in given]
        failed = ""
        for level in LEVELS:
            function = _compiled(kernel, level)
            trial = np.empty(shape)
            try:
                function(*buffers, *scalars, hl.Buffer(trial))
            except hl.HalideError as error:
                failed = str(error).strip()
                continue
            return _runner(function, [*buffers, *scalars], shape, given)
        raise PredictionError(f"{kernel} by Halide cannot take these operands: {failed}")

    return {
        "halide": KernelVariant(
            "halide", build, available, versions=versions, complexity=partial(complexity, kernel)
        )
    }


def complexity(kernel: str) -> str:
    """Return the vector operations of a kernel's busiest thread, as its schedules have them.

    Tiles are computed completely, even if they overlap earlier ones, and threads take them in
    rounds. Outputs smaller than a tile use the next schedule, and the smallest are computed element
    by element.
    """
    columns, rows, depth = _WORK[kernel]
    text = f"({columns}) * ({rows}) * {depth}"
    for level in reversed(LEVELS):
        if level is not None:
            fits, work = _work(_scheduled(kernel, level), (columns, rows))
            text = f"{fits} * {work} * {depth} + (1 - {fits}) * ({text})"
    return text


def _work(schedule: Schedule, extents: tuple[str, str]) -> tuple[str, str]:
    """Return 1 if the extents suffice for the output's tiles, else 0, and a thread's vectors."""
    stage = schedule.funcs[-1].stages[0]
    fused = {s.fused: (s.inner, s.outer) for s in stage.splits if isinstance(s, Fuse)}
    splits = {s.old: s for s in stage.splits if isinstance(s, Split)}
    parallel = {loop.name for loop in stage.loops if loop.mapping == "parallel"}
    for name in list(parallel):
        parallel.update(fused.get(name, ()))
    vectors = {loop.name for loop in stage.loops if loop.mapping == "vectorized"}
    lanes = math.prod(s.factor for s in splits.values() if s.inner in vectors)
    size = 1
    fits: list[str] = []
    shared: list[str] = []  # among the threads
    alone: list[str] = []
    for dimension, extent in enumerate(extents):
        split = splits.get(f"v{dimension}")
        tile, outer = (1, f"v{dimension}") if split is None else (split.factor, split.outer)
        size *= tile
        fits.append(f"min(1, max(0, {extent} - {tile - 1}))")
        (shared if outer in parallel else alone).append(f"ceil(({extent}) / {tile})")
    turns = f"ceil({' * '.join(shared or ['1'])} / {os.cpu_count() or 1})"
    return " * ".join(fits), " * ".join([turns, *alone, f"{size / lanes:g}"])


def _runner(
    function: Callable[..., Any], arguments: list[Any], shape: tuple[int, ...], keep: list[Array]
) -> Run:
    import halide as hl

    def run(_: Any = keep) -> Array:
        out = np.empty(shape)
        function(*arguments, hl.Buffer(out))
        return out

    return run


def _compiled(kernel: str, level: int | None) -> Callable[..., Any]:
    with _compiling:
        return _compile(kernel, level)


@cache
def _compile(kernel: str, level: int | None) -> Callable[..., Any]:
    import halide as hl

    if level is None:
        output, parameters = _PROGRAMS[kernel](LEVELS[0])
        pipeline = hl.Pipeline(output)
    else:
        pipeline, parameters, planned = _planned(kernel, level)
        planned.apply(pipeline)
    function: Callable[..., Any] = pipeline.compile_to_callable(
        parameters, hl.get_jit_target_from_environment()
    )
    return function


def _scheduled(kernel: str, level: int) -> Schedule:
    with _compiling:
        return _planned(kernel, level)[2].schedule


@cache
def _planned(kernel: str, level: int) -> tuple[Any, list[Any], Result]:
    """Return a kernel's pipeline, its parameters, and its schedule for sizes of a level."""
    import halide as hl

    from tilewright.halide import schedule

    output, parameters = _PROGRAMS[kernel](level)
    pipeline = hl.Pipeline(output)
    return pipeline, parameters, schedule(pipeline, target="host", name=kernel)


def _images(*names: str) -> list[Any]:
    import halide as hl

    return [hl.ImageParam(hl.Float(64), 2, name) for name in names]


def _matmul(size: int) -> tuple[Any, list[Any]]:
    import halide as hl

    a, b = _images("a", "b")
    j, i = hl.vars("j i")
    r = hl.RDom([(0, a.dim(0).extent())], "r")
    product, out = hl.Func("product"), hl.Func("out")
    product[j, i] = hl.f64(0.0)
    product[j, i] += a[r.x, i] * b[j, r.x]
    out[j, i] = product[j, i]
    for image in (a, b):
        image.set_estimates([(0, size), (0, size)])
    out.set_estimates([(0, size), (0, size)])
    return out, [a, b]


def _convolution(size: int) -> tuple[Any, list[Any]]:
    import halide as hl

    a, w = _images("a", "w")
    j, i = hl.vars("j i")
    r = hl.RDom([(0, w.dim(0).extent()), (0, w.dim(1).extent())], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[j, i] = hl.f64(0.0)
    total[j, i] += a[j + r.x, i + r.y] * w[r.x, r.y]
    out[j, i] = total[j, i]
    a.set_estimates([(0, size + 4), (0, size + 4)])
    w.set_estimates([(0, 5), (0, 5)])
    out.set_estimates([(0, size), (0, size)])
    return out, [a, w]


def _pooling(size: int) -> tuple[Any, list[Any]]:
    import halide as hl

    (a,) = _images("a")
    s = hl.Param(hl.Int(32), "s")
    s.set_estimate(2)
    j, i = hl.vars("j i")
    edge = hl.BoundaryConditions.repeat_edge(a)
    r = hl.RDom([(0, s), (0, s)], "r")
    largest, out = hl.Func("largest"), hl.Func("out")
    largest[j, i] = edge[j * s, i * s]
    largest[j, i] = hl.max(largest[j, i], edge[j * s + r.x, i * s + r.y])
    out[j, i] = largest[j, i]
    a.set_estimates([(0, 2 * size), (0, 2 * size)])
    out.set_estimates([(0, size), (0, size)])
    return out, [a, s]


_PROGRAMS = {"matmul": _matmul, "convolution": _convolution, "pooling": _pooling}
# Columns and rows of the output, and operations per element, by the kernel's features.
_WORK = {
    "matmul": ("k", "m", "n"),
    "convolution": ("n - r + 1", "m - r + 1", "r**2"),
    "pooling": ("ceil(n/s)", "ceil(m/s)", "s**2"),
}
