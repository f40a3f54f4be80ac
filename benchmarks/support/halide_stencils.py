"""Lift's eight stencils as Halide pipelines, their schedules, and compiled functions of arrays.

Borders are Halide's ``BoundaryConditions.repeat_edge``, which lets it cut loops there; formulas
are those of `tilewright.patterns.programs.stencils`.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from tilewright.patterns.programs import stencils as formulas

x, y = hl.Var("x"), hl.Var("y")
Made = tuple[list[Any], Any]
FLOAT_CODE = 2  # halide_type_float


def _image(name: str, size: int, halo: int) -> Any:
    image = hl.ImageParam(hl.Float(32), 2, name)
    for d in range(2):
        image.dim(d).set_bounds(0, size + 2 * halo)
        image.dim(d).set_estimate(0, size + 2 * halo)
    return image


def _weighted(a: Any, weights: Any) -> Any:
    terms = [w * a[x + i, y + j] for j, row in enumerate(weights) for i, w in enumerate(row)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _stencil2d(a: Any) -> Any:
    return _weighted(a, np.array(formulas.SHOC_WEIGHTS).reshape(3, 3).tolist())


def _jacobi9(a: Any) -> Any:
    return _weighted(a, [[float(w) for w in row] for row in formulas.JACOBI9_WEIGHTS]) / 118.0


def _gaussian(a: Any) -> Any:
    return _weighted(a, [[float(w) for w in row] for row in formulas.GAUSSIAN_WEIGHTS]) / 159.0


def _jacobi5(a: Any) -> Any:
    north, south, centre = a[x + 1, y], a[x + 1, y + 2], a[x + 1, y + 1]
    west, east = a[x, y + 1], a[x + 2, y + 1]
    return (5.0 * north + 12.0 * west + 15.0 * centre + 12.0 * east + 5.0 * south) / 118.0


def _gradient(a: Any) -> Any:
    c = a[x + 1, y + 1]
    others = (a[x + 1, y], a[x + 1, y + 2], a[x, y + 1], a[x + 2, y + 1])
    north, south, west, east = (c - other for other in others)
    squares = north * north + south * south + west * west + east * east
    return c + 1.0 / hl.sqrt(1e-4 + squares)


def _srad1(image: Any) -> Any:
    a = hl.BoundaryConditions.repeat_edge(image)
    c, q0 = a[x, y], formulas.SRAD_Q0
    north, south, west, east = (v - c for v in (a[x, y - 1], a[x, y + 1], a[x - 1, y], a[x + 1, y]))
    gradient = (north * north + south * south + west * west + east * east) / (c * c)
    laplacian = (north + south + west + east) / c
    bottom = 1.0 + 0.25 * laplacian
    q = (0.5 * gradient - laplacian * laplacian / 16.0) / (bottom * bottom)
    d = (q - q0) / (q0 * (1 + q0))
    return hl.clamp(1.0 / (1.0 + d), 0.0, 1.0)


def _srad2(image: Any, k: Any, *differences: Any) -> Any:
    a = hl.BoundaryConditions.repeat_edge(k)
    north, south, west, east = (d[x, y] for d in differences)
    flow = a[x, y] * north + a[x, y + 1] * south + a[x, y] * west + a[x + 1, y] * east
    return image[x, y] + formulas.SRAD_LAMBDA_4 * flow


def _hotspot(t: Any, p: Any) -> Any:
    a, r = hl.BoundaryConditions.repeat_edge(t), formulas.HOTSPOT_R
    c = a[x, y]
    vertical = (a[x, y - 1] + a[x, y + 1] - 2.0 * c) * r
    horizontal = (a[x + 1, y] + a[x - 1, y] - 2.0 * c) * r
    loss = (formulas.HOTSPOT_AMBIENT - c) * formulas.HOTSPOT_RZ
    return c + formulas.HOTSPOT_A * (p[x, y] + vertical + horizontal + loss)


FORMULAS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "stencil2d": (_stencil2d, ("A",)),
    "srad1": (_srad1, ("I",)),
    "srad2": (_srad2, ("I", "K", "dN", "dS", "dW", "dE")),
    "hotspot": (_hotspot, ("T", "P")),
    "gradient": (_gradient, ("A",)),
    "jacobi5": (_jacobi5, ("A",)),
    "jacobi9": (_jacobi9, ("A",)),
    "gaussian": (_gaussian, ("A",)),
}


def pipeline(name: str, size: int) -> Made:
    """The inputs and the output of an unscheduled stencil of ``size`` x ``size`` results."""
    formula, names = FORMULAS[name]
    images = [_image(n, size, formulas.STENCILS[name].halo) for n in names]
    out = hl.Func("out")
    out[x, y] = hl.f32(formula(*images))
    out.set_estimates([(0, size), (0, size)])
    for d in range(2):
        out.output_buffer().dim(d).set_bounds(0, size)
    return images, out


def build(name: str, size: int, threads: int, library: Path) -> None:
    """Make a shared library of a stencil, as `tilewright.schedule` schedules it for some cores."""
    import tilewright
    from tilewright.machines import detect_cpu

    images, out = pipeline(name, size)
    result = tilewright.schedule(out, machine=replace(detect_cpu(), cores=threads))
    result.apply(out)
    stem = library.with_suffix("")
    out.compile_to_static_library(str(stem), images, "stencil", hl.get_host_target())
    archive = ["-Wl,--whole-archive", f"{stem}.a", "-Wl,--no-whole-archive"]
    command = ["gcc", "-shared", "-o", str(library), *archive, "-lpthread", "-ldl", "-lm"]
    subprocess.run(command, check=True, capture_output=True)


class _Dimension(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class _Buffer(ctypes.Structure):
    """``halide_buffer_t`` of Halide 21."""

    _fields_ = [
        ("device", ctypes.c_uint64),
        ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_Dimension)),
        ("padding", ctypes.c_void_p),
    ]


def bound(library: Path, arrays: list[Any], threads: int) -> Callable[[], None]:
    """A function that runs the stencil on arrays of f32, the last one its result."""
    loaded = ctypes.CDLL(str(library))
    loaded.halide_set_num_threads(threads)
    made = []
    for array in arrays:
        rows, columns = array.shape
        dims = (_Dimension * 2)(_Dimension(0, columns, 1, 0), _Dimension(0, rows, columns, 0))
        made.append(_Buffer(0, None, array.ctypes.data, 0, FLOAT_CODE, 32, 1, 2, dims, None))
    pointers = [ctypes.byref(buffer) for buffer in made]

    def run() -> None:
        if code := loaded.stencil(*pointers):
            raise RuntimeError(f"{library.name} returned {code}")

    return run
