"""Lift's eight stencils as loops for Numba; rows are shared out among its threads.

Weights and formulas are those of `tilewright.patterns.programs.stencils`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

F = np.float32
SHOC = np.array([[0.05, 0.15, 0.05], [0.15, 0.25, 0.15], [0.05, 0.15, 0.05]], np.float32)
GAUSSIAN = np.array(
    [[2, 4, 5, 4, 2], [4, 9, 12, 9, 4], [5, 12, 15, 12, 5], [4, 9, 12, 9, 4], [2, 4, 5, 4, 2]],
    np.float32,
)
compiled: Any = numba.njit(parallel=True, fastmath=True, error_model="numpy")


@compiled
def stencil2d(a, out):
    for y in numba.prange(out.shape[0]):
        for x in range(out.shape[1]):
            total = F(0)
            for i in range(3):
                for j in range(3):
                    total += SHOC[i, j] * a[y + i, x + j]
            out[y, x] = total


@compiled
def srad1(a, out):
    n, m = out.shape
    for y in numba.prange(n):
        for x in range(m):
            c = a[y, x]
            north, south = a[max(y - 1, 0), x] - c, a[min(y + 1, n - 1), x] - c
            west, east = a[y, max(x - 1, 0)] - c, a[y, min(x + 1, m - 1)] - c
            g = (north * north + south * south + west * west + east * east) / (c * c)
            s = (north + south + west + east) / c
            bottom = F(1) + F(0.25) * s
            q = (F(0.5) * g - s * s / F(16)) / (bottom * bottom)
            d = (q - F(0.053787220269)) / F(0.053787220269 * 1.053787220269)
            k = F(1) / (F(1) + d)
            out[y, x] = min(max(k, F(0)), F(1))


@compiled
def srad2(image, k, dn, ds, dw, de, out):
    n, m = out.shape
    for y in numba.prange(n):
        for x in range(m):
            south, east = k[min(y + 1, n - 1), x], k[y, min(x + 1, m - 1)]
            flow = k[y, x] * dn[y, x] + south * ds[y, x] + k[y, x] * dw[y, x] + east * de[y, x]
            out[y, x] = image[y, x] + F(0.125) * flow


@compiled
def hotspot(t, p, out):
    n, m = out.shape
    for y in numba.prange(n):
        for x in range(m):
            c = t[y, x]
            v = (t[max(y - 1, 0), x] + t[min(y + 1, n - 1), x] - F(2) * c) * F(0.1)
            h = (t[y, min(x + 1, m - 1)] + t[y, max(x - 1, 0)] - F(2) * c) * F(0.1)
            out[y, x] = c + F(1.365333) * (p[y, x] + v + h + (F(80) - c) * F(4.882813e-5))


@compiled
def gradient(a, out):
    for y in numba.prange(out.shape[0]):
        for x in range(out.shape[1]):
            c = a[y + 1, x + 1]
            north, south = c - a[y, x + 1], c - a[y + 2, x + 1]
            west, east = c - a[y + 1, x], c - a[y + 1, x + 2]
            total = north * north + south * south + west * west + east * east
            out[y, x] = c + F(1) / np.sqrt(F(1e-4) + total)


@compiled
def jacobi5(a, out):
    for y in numba.prange(out.shape[0]):
        for x in range(out.shape[1]):
            row = F(12) * (a[y + 1, x] + a[y + 1, x + 2]) + F(15) * a[y + 1, x + 1]
            out[y, x] = (F(5) * (a[y, x + 1] + a[y + 2, x + 1]) + row) / F(118)


@compiled
def jacobi9(a, out):
    for y in numba.prange(out.shape[0]):
        for x in range(out.shape[1]):
            top = F(7) * a[y, x] + F(5) * a[y, x + 1] + F(9) * a[y, x + 2]
            middle = F(12) * a[y + 1, x] + F(15) * a[y + 1, x + 1] + F(12) * a[y + 1, x + 2]
            bottom = F(9) * a[y + 2, x] + F(5) * a[y + 2, x + 1] + F(7) * a[y + 2, x + 2]
            out[y, x] = (top + middle + bottom) / F(118)


@compiled
def gaussian(a, out):
    for y in numba.prange(out.shape[0]):
        for x in range(out.shape[1]):
            total = F(0)
            for i in range(5):
                for j in range(5):
                    total += GAUSSIAN[i, j] * a[y + i, x + j]
            out[y, x] = total / F(159)


def bound(name: str, arrays: list[Any], threads: int) -> Any:
    """A function that runs a stencil on arrays, the last one its result."""
    function = globals()[name]

    def run() -> None:
        numba.set_num_threads(threads)
        function(*arrays)

    return run
