"""The eight 2-D stencils of Lift's 2020 paper (Table 2), with their sources' formulas.

Weights are those of the sources (SHOC, Rodinia, PPCG), even if they do not sum to 1. If a source
computes only the interior of its grid, our program takes a grid that is larger by the halo on each
side, so that the result has N x M points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.arith import Poly, sizes
from tilewright.patterns.build import (
    TracedParameter,
    add,
    array,
    clamp,
    fork,
    fun,
    join,
    map,
    map2,
    mul,
    pad2,
    reduce,
    slide2,
    table,
    zip,
    zip2,
)
from tilewright.patterns.nodes import Pattern
from tilewright.patterns.scalar import Expr, maximum, minimum, sqrt
from tilewright.patterns.types import f32

N, M = sizes("N M")

SHOC_WEIGHTS = (0.05, 0.15, 0.05, 0.15, 0.25, 0.15, 0.05, 0.15, 0.05)
JACOBI9_WEIGHTS = ((7, 5, 9), (12, 15, 12), (9, 5, 7))
GAUSSIAN_WEIGHTS = (
    (2, 4, 5, 4, 2),
    (4, 9, 12, 9, 4),
    (5, 12, 15, 12, 5),
    (4, 9, 12, 9, 4),
    (2, 4, 5, 4, 2),
)
SRAD_Q0 = 0.053787220269  # the speckle scale of Rodinia's srad, squared
SRAD_LAMBDA_4 = 0.125  # a quarter of the update's weight, which is 0.5
HOTSPOT_AMBIENT = 80.0  # degrees
HOTSPOT_R = 0.1  # the inverse thermal resistance in x and y
# Step over heat capacity, and the inverse resistance to the package, for a grid of 1024 x 1024.
HOTSPOT_A, HOTSPOT_RZ = 1.365333, 4.882813e-5


@dataclass(frozen=True, slots=True)
class Stencil:
    """A stencil program.

    Args:
        build: returns the program for the rows and columns of its result.
        points: the number of points that the program uses of a neighbourhood.
        halo: the elements that the input has in addition to the result on each side.
    """

    name: str
    build: Callable[[Poly | int, Poly | int], Pattern]
    points: int
    halo: int


def _grid(name: str, rows: Poly | int, columns: Poly | int, halo: int = 0) -> Pattern:
    return array(name, f32[rows + 2 * halo, columns + 2 * halo])


def _around(grid: Pattern) -> Pattern:
    return grid >> pad2(1, 1, clamp) >> slide2(3, 1)


def stencil2d(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return SHOC's 9-point stencil: a weighted sum, as a reduction."""
    weighted = fork(table(SHOC_WEIGHTS, f32), join) >> zip >> map(mul) >> reduce(add, 0.0)
    return _grid("A", rows, columns, 1) >> slide2(3, 1) >> map2(weighted)


def _srad1(w: TracedParameter) -> Expr:
    c = w[1, 1]
    north, south, west, east = (w[i] - c for i in ((0, 1), (2, 1), (1, 0), (1, 2)))
    gradient = (north * north + south * south + west * west + east * east) / (c * c)
    laplacian = (north + south + west + east) / c
    top = 0.5 * gradient - (laplacian * laplacian) / 16
    bottom = 1 + 0.25 * laplacian
    q = top / (bottom * bottom)
    d = (q - SRAD_Q0) / (SRAD_Q0 * (1 + SRAD_Q0))
    return maximum(minimum(1 / (1 + d), 1), 0)


def srad1(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return the first kernel of Rodinia's srad: the diffusion coefficient from five points."""
    return _around(_grid("I", rows, columns)) >> map2(fun(_srad1, "srad1"))


def srad2(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return the second kernel of srad: an update from three coefficients and four differences."""
    image, k = _grid("I", rows, columns), _grid("K", rows, columns)
    differences = [_grid(f"d{side}", rows, columns) for side in "NSWE"]
    f = fun(
        lambda i, k, n, s, w, e: (
            i + SRAD_LAMBDA_4 * (k[1, 1] * n + k[2, 1] * s + k[1, 1] * w + k[1, 2] * e)
        ),
        "srad2",
    )
    return zip2(image, _around(k), *differences) >> map2(f)


def _hotspot(t: TracedParameter, p: TracedParameter) -> Expr:
    c = t[1, 1]
    vertical = (t[0, 1] + t[2, 1] - 2 * c) * HOTSPOT_R
    horizontal = (t[1, 2] + t[1, 0] - 2 * c) * HOTSPOT_R
    return c + HOTSPOT_A * (p + vertical + horizontal + (HOTSPOT_AMBIENT - c) * HOTSPOT_RZ)


def hotspot(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return Rodinia's hotspot: the temperature from five points and the power at one."""
    grids = _around(_grid("T", rows, columns)), _grid("P", rows, columns)
    return zip2(*grids) >> map2(fun(_hotspot, "hotspot"))


def _gradient(w: TracedParameter) -> Expr:
    c = w[1, 1]
    north, south, west, east = (c - w[i] for i in ((0, 1), (2, 1), (1, 0), (1, 2)))
    squares = north * north + south * south + west * west + east * east
    return c + 1 / sqrt(1e-4 + squares)


def gradient(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return PPCG's gradient of five points, for the interior."""
    return _grid("A", rows, columns, 1) >> slide2(3, 1) >> map2(fun(_gradient, "gradient"))


def jacobi5(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return PPCG's Jacobi iteration of five points."""
    f = fun(
        lambda w: (5 * w[0, 1] + 12 * w[1, 0] + 15 * w[1, 1] + 12 * w[1, 2] + 5 * w[2, 1]) / 118,
        "jacobi5",
    )
    return _grid("A", rows, columns, 1) >> slide2(3, 1) >> map2(f)


def _weighted(name: str, weights: tuple[tuple[int, ...], ...], divisor: int) -> Pattern:
    """Return a weighted sum of all points of a neighbourhood."""
    size = len(weights)

    def f(w: TracedParameter) -> Expr:
        terms = [weights[y][x] * w[y, x] for y in range(size) for x in range(size)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total / divisor

    return fun(f, name)


def jacobi9(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return PPCG's Jacobi iteration of nine points."""
    f = _weighted("jacobi9", JACOBI9_WEIGHTS, 118)
    return _grid("A", rows, columns, 1) >> slide2(3, 1) >> map2(f)


def gaussian(rows: Poly | int = N, columns: Poly | int = M) -> Pattern:
    """Return PPCG's Gaussian blur of 25 points."""
    f = _weighted("gaussian", GAUSSIAN_WEIGHTS, 159)
    return _grid("A", rows, columns, 2) >> slide2(5, 1) >> map2(f)


STENCILS = {
    s.name: s
    for s in (
        Stencil("stencil2d", stencil2d, 9, 1),
        Stencil("srad1", srad1, 5, 0),
        Stencil("srad2", srad2, 3, 0),
        Stencil("hotspot", hotspot, 5, 0),
        Stencil("gradient", gradient, 5, 1),
        Stencil("jacobi5", jacobi5, 5, 1),
        Stencil("jacobi9", jacobi9, 9, 1),
        Stencil("gaussian", gaussian, 25, 2),
    )
}
