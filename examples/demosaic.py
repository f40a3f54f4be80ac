"""Learned demosaicing of a Bayer mosaic.

Eight 5x5 filters propose values for the missing greens, eight more say how far each proposal can
be trusted, and a softmax mixes them. Red and blue follow from interpolating their difference to
green with one filter for each of the three ways in which neighbours lie: in the row, in the
column, on the diagonals. The structure is that of the learned demosaicing of Li, Gharbi, Adams,
Durand and Ragan-Kelley 2018 (*Differentiable Programming for Image Processing and Deep Learning
in Halide*); the filters are inputs, and random ones do. Part of the suite of Anderson 2021.

Usage: ``tilewright schedule examples/demosaic.py:demosaic``
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import numpy as np

SMALL: dict[str, Any] = {"width": 46, "height": 34}

# Halide has no application of this kind.
HAND_SOURCE = {"cpu": None, "gpu": None}

FILTERS = 8
SIZE = 5


def _algorithm(width: int, height: int) -> SimpleNamespace:
    mosaic = hl.ImageParam(hl.Float(32), 2, "mosaic")
    selection_filters = hl.ImageParam(hl.Float(32), 3, "selection_filters")
    green_filters = hl.ImageParam(hl.Float(32), 3, "green_filters")
    chroma_filters = {
        d: hl.ImageParam(hl.Float(32), 2, f"{d}_chroma_filter") for d in ("row", "column", "cross")
    }
    x, y, k, c = hl.vars("x y k c")
    bounded = hl.BoundaryConditions.repeat_edge(mosaic)
    half = SIZE // 2

    # How much to trust each filter, by a softmax over the (negated) sizes of its responses.
    r = hl.RDom([(0, SIZE), (0, SIZE)], "r")
    filters = hl.RDom([(0, FILTERS)], "filters")
    selection = hl.Func("selection")
    selection[x, y, k] = 0.0
    selection[x, y, k] += bounded[x + r.x - half, y + r.y - half] * selection_filters[r.x, r.y, k]
    least = hl.Func("least")
    least[x, y] = hl.minimum(hl.abs(selection[x, y, filters]), "least_response")
    exp_selection = hl.Func("exp_selection")
    exp_selection[x, y, k] = hl.exp(least[x, y] - hl.abs(selection[x, y, k]))
    normalizer = hl.Func("normalizer")
    normalizer[x, y] = 0.0
    normalizer[x, y] += exp_selection[x, y, filters]
    weights = hl.Func("weights")
    weights[x, y, k] = exp_selection[x, y, k] / normalizer[x, y]

    proposals = hl.Func("proposals")
    proposals[x, y, k] = 0.0
    proposals[x, y, k] += bounded[x + r.x - half, y + r.y - half] * green_filters[r.x, r.y, k]
    interpolated = hl.Func("interpolated_green")
    interpolated[x, y] = 0.0
    interpolated[x, y] += proposals[x, y, filters] * weights[x, y, filters]
    green = hl.Func("green")
    green[x, y] = hl.select(x % 2 == y % 2, bounded[x, y], interpolated[x, y])

    chroma = hl.Func("chroma")
    chroma[x, y] = bounded[x, y] - green[x, y]
    near = {}
    for direction, weight in chroma_filters.items():
        near[direction] = hl.Func(f"{direction}_chroma")
        near[direction][x, y] = 0.0
        near[direction][x, y] += chroma[x + r.x - half, y + r.y - half] * weight[r.x, r.y]

    # The mosaic's rows: green red, blue green.
    even_x, even_y = x % 2 == 0, y % 2 == 0
    odd_x, odd_y = x % 2 != 0, y % 2 != 0
    row, column, cross = (near[d][x, y] + green[x, y] for d in ("row", "column", "cross"))
    red, blue = hl.Func("red"), hl.Func("blue")
    own = bounded[x, y]
    red[x, y] = hl.select(even_x & even_y, row, odd_x & odd_y, column, even_x & odd_y, cross, own)
    blue[x, y] = hl.select(even_x & even_y, column, odd_x & odd_y, row, odd_x & even_y, cross, own)
    output = hl.Func("output")
    output[x, y, c] = hl.mux(c, [red[x, y], green[x, y], blue[x, y]])

    mosaic.set_estimates([(0, width), (0, height)])
    for bank in (selection_filters, green_filters):
        bank.set_estimates([(0, SIZE), (0, SIZE), (0, FILTERS)])
    for weight in chroma_filters.values():
        weight.set_estimates([(0, SIZE), (0, SIZE)])
    output.set_estimates([(0, width), (0, height), (0, 3)])
    return SimpleNamespace(output=output)


def demosaic(width: int = 1536, height: int = 2560) -> hl.Pipeline:
    """The pipeline, unscheduled."""
    return hl.Pipeline(_algorithm(width, height).output)


def hand(target: hl.Target, width: int = 1536, height: int = 2560) -> hl.Pipeline | None:
    """None: no hand-written schedule of this pipeline is published."""
    return None


def random_inputs(width: int = 1536, height: int = 2560, seed: int = 0) -> dict[str, Any]:
    """A random mosaic and random filters by name; arrays have x as their first axis."""
    rng = np.random.default_rng(seed)

    def normal(mean: float, deviation: float, *shape: int) -> np.ndarray:
        return np.asfortranarray(rng.normal(mean, deviation, shape).astype(np.float32))

    mean = 1 / SIZE**2
    return {
        "mosaic": np.asfortranarray(rng.random((width, height), dtype=np.float32)),
        "selection_filters": normal(0, 1, SIZE, SIZE, FILTERS),
        "green_filters": normal(mean, 1e-2, SIZE, SIZE, FILTERS),
        "row_chroma_filter": normal(mean, 1e-2, SIZE, SIZE),
        "column_chroma_filter": normal(mean, 1e-2, SIZE, SIZE),
        "cross_chroma_filter": normal(mean, 1e-2, SIZE, SIZE),
    }


def reference(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The result by NumPy, axes (x, y, c)."""
    half = SIZE // 2

    def convolve(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The valid part of a correlation in x and y; weights' further axes are kept."""
        w, h = image.shape[0] - 2 * half, image.shape[1] - 2 * half
        windows = np.lib.stride_tricks.sliding_window_view(image, (SIZE, SIZE))[:w, :h]
        return np.tensordot(windows, weights.astype(np.float64), axes=2)

    # Two rings of filters reach outside the image: one for the greens, one for the chroma.
    mosaic = np.pad(inputs["mosaic"].astype(np.float64), 2 * half, mode="edge")
    responses = np.abs(convolve(mosaic, inputs["selection_filters"]))
    weights = np.exp(-(responses - responses.min(axis=2, keepdims=True)))
    weights /= weights.sum(axis=2, keepdims=True)
    guess = (convolve(mosaic, inputs["green_filters"]) * weights).sum(axis=2)
    inner = mosaic[half:-half, half:-half]
    x, y = np.indices(inner.shape) - half
    green = np.where(x % 2 == y % 2, inner, guess)
    chroma = inner - green
    inner, green = inner[half:-half, half:-half], green[half:-half, half:-half]
    row, column, cross = (
        convolve(chroma, inputs[f"{d}_chroma_filter"]) + green for d in ("row", "column", "cross")
    )
    red, blue = inner.copy(), inner.copy()
    red[::2, ::2], red[1::2, 1::2], red[::2, 1::2] = (
        row[::2, ::2],
        column[1::2, 1::2],
        cross[::2, 1::2],
    )
    blue[::2, ::2], blue[1::2, 1::2], blue[1::2, ::2] = (
        column[::2, ::2],
        row[1::2, 1::2],
        cross[1::2, ::2],
    )
    return (np.stack([red, green, blue], axis=2).astype(np.float32),)
