"""RISE's programs of BaCO's evaluation, with their results by NumPy.

Sources: the scripts with which the published spaces were tuned and the programs that they call, in
the public repository of RISE's compiler (rise-lang/shine, ``src/test/scala/apps/autotuning`` and
``src/main/scala/apps``). A reference computes in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import Poly
from tilewright.patterns.build import (
    TracedParameter,
    add,
    array,
    fork,
    fun,
    get,
    join,
    map,
    map2,
    mul,
    pad2,
    reduce,
    slide2,
    transpose,
)
from tilewright.patterns.nodes import Pattern
from tilewright.patterns.programs.applications import HARRIS_KAPPA, SOBEL_SCALE, nearest
from tilewright.patterns.scalar import Expr
from tilewright.patterns.types import f32
from tilewright.patterns.verification import relative_error

Array: TypeAlias = np.ndarray[Any, Any]
Reference: TypeAlias = Callable[[Sequence[Array], Any], float]

WINDOW = 11  # points of the stencil in each dimension (`stencilTuning`)
GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue (`harrisCornerDetectionHalide`)
POINTS = 1 << 14  # points whose distances the reference of K-means holds at once


def centres_of(n: Poly | int, m: Poly | int, k: Poly | int) -> Pattern:
    """Return K-means' nearest of m centres for n points, given as k arrays of coordinates."""
    return nearest(array("features", f32[k, n]) >> transpose, n, m, k)


def box11(n: Poly | int, m: Poly | int) -> Pattern:
    """Return sums of 11 x 11 neighbours; beyond the border there are zeros."""
    padded = array("A", f32[n, m]) >> pad2(WINDOW // 2, WINDOW // 2, 0.0)
    return padded >> slide2(WINDOW, 1) >> map2(join >> reduce(add, 0.0))


def colour_harris(n: Poly | int, m: Poly | int) -> Pattern:
    """Return the Harris corner response of the interior of a colour image.

    The image has three planes of n + 4 rows and m + 4 columns. The stages are those that RISE
    computes in a tile: grey values, their derivatives, and the response of each 3 x 3 neighbours.
    """

    def across(w: TracedParameter) -> Expr:
        return (w[0, 2] - w[0, 0] + 2 * (w[1, 2] - w[1, 0]) + w[2, 2] - w[2, 0]) * SOBEL_SCALE

    def down(w: TracedParameter) -> Expr:
        return (w[2, 0] - w[0, 0] + 2 * (w[2, 1] - w[0, 1]) + w[2, 2] - w[0, 2]) * SOBEL_SCALE

    grey = fun(lambda c: c[0] * GREY[0] + c[1] * GREY[1] + c[2] * GREY[2], "grey")
    square = fun(lambda v: v * v, "square")
    products = (get(0) >> square, mul, get(1) >> square)
    sums = fork(*(join >> map(product) >> reduce(add, 0.0) for product in products))
    response = fun(
        lambda xx, xy, yy: xx * yy - xy * xy - HARRIS_KAPPA * (xx + yy) * (xx + yy), "response"
    )
    return (
        array("image", f32[3, n + 4, m + 4])
        >> transpose
        >> map(transpose)
        >> map2(grey)
        >> slide2(3, 1)
        >> map2(fork(fun(across), fun(down)))
        >> slide2(3, 1)
        >> map2(sums >> response)
    )


def compared_with(formula: Callable[..., Array]) -> Reference:
    """Return the error of a result relative to a formula of NumPy (`relative_error`)."""

    def error(inputs: Sequence[Array], result: Any) -> float:
        return relative_error(result, formula(*(np.asarray(a, np.float64) for a in inputs)))

    return error


def product(a: Array, b: Array) -> Array:
    """Return ``a.T @ b``."""
    return np.asarray(a.T @ b)


def absolute_sum(x: Array) -> Array:
    """Return the sum of absolute values."""
    return np.asarray(np.abs(x).sum())


def scaled(x: Array, alpha: Array) -> Array:
    """Return ``alpha * x``."""
    return np.asarray(alpha * x)


def box_sums(a: Array) -> Array:
    """Return `box11` from running sums."""
    half = WINDOW // 2
    for axis in (0, 1):
        edges = [(0, 0), (0, 0)]
        edges[axis] = (half + 1, half)
        total = np.cumsum(np.pad(a, edges), axis)
        ends = np.take(total, range(WINDOW, total.shape[axis]), axis)
        a = ends - np.take(total, range(total.shape[axis] - WINDOW), axis)
    return a


def corner_response(image: Array) -> Array:
    """Return `colour_harris`."""
    grey = np.tensordot(GREY, image, 1)

    def three(g: Array, weights: Sequence[float], axis: int) -> Array:
        parts = [np.take(g, range(k, g.shape[axis] - 2 + k), axis) for k in range(3)]
        return np.asarray(sum(w * part for w, part in zip(weights, parts, strict=True)))

    slope, smooth, box = (-1, 0, 1), (1, 2, 1), (1, 1, 1)
    dx = three(three(grey, smooth, 0), slope, 1) * SOBEL_SCALE
    dy = three(three(grey, slope, 0), smooth, 1) * SOBEL_SCALE
    xx, xy, yy = (three(three(v, box, 0), box, 1) for v in (dx * dx, dx * dy, dy * dy))
    return np.asarray(xx * yy - xy * xy - HARRIS_KAPPA * (xx + yy) ** 2)


def centres_error(inputs: Sequence[Array], result: Any) -> float:
    """Return by how much a chosen centre is farther than the nearest one, relative to the scale.

    Two centres may be equally near up to rounding; either is right.
    """
    features, centres = (np.asarray(a, np.float64) for a in inputs)
    chosen = np.asarray(result)
    if chosen.shape != features.shape[1:] or chosen.min() < 0 or chosen.max() >= len(centres):
        return float("inf")
    worst = scale = 0.0
    for first in range(0, len(chosen), POINTS):
        points = features[:, first : first + POINTS].T
        apart = ((points[:, None] - centres) ** 2).sum(2)
        mine = np.take_along_axis(apart, chosen[first : first + POINTS, None], 1)[:, 0]
        worst = max(worst, float((mine - apart.min(1)).max()))
        scale = max(scale, float(apart.max()))
    return worst / (scale or 1.0)
