"""Reductions, updates and recurrences of every shape: one function a pipeline.

After ``python_bindings/test/correctness`` and ``test/correctness`` of Halide v21.0.0. Every
function gives an unscheduled pipeline with estimates on all inputs and outputs.

Usage: ``tilewright schedule examples/tutorials/reductions.py:integral_image``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

WIDTH, HEIGHT = 60, 36


def _image(dtype: hl.Type | None = None, name: str = "input") -> hl.ImageParam:
    image = hl.ImageParam(dtype or hl.UInt(8), 2, name)
    image.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return image


def _vector(size: int, name: str, dtype: hl.Type | None = None) -> hl.ImageParam:
    vector = hl.ImageParam(dtype or hl.Float(32), 1, name)
    vector.set_estimates([(0, size)])
    return vector


def dot_product() -> hl.Func:
    """An output with no dimensions."""
    a, b = _vector(1000, "a"), _vector(1000, "b")
    f = hl.Func("dot")
    r = hl.RDom([(0, 1000)], "r")
    f[()] = 0.0
    f[()] += a[r] * b[r]
    return f


def matrix_vector() -> hl.Func:
    """A matrix times a vector, the sum along the rows of memory."""
    matrix, vector = _image(hl.Float(32), "matrix"), _vector(WIDTH, "vector")
    y = hl.Var("y")
    f = hl.Func("product")
    r = hl.RDom([(0, WIDTH)], "r")
    f[y] = 0.0
    f[y] += matrix[r, y] * vector[r]
    f.set_estimates([(0, HEIGHT)])
    return f


def gemm() -> hl.Func:
    """``alpha A B + beta C`` with scalar parameters."""
    n = 48
    a, b, c = (hl.ImageParam(hl.Float(32), 2, name) for name in "ABC")
    for matrix in (a, b, c):
        matrix.set_estimates([(0, n), (0, n)])
    alpha, beta = hl.Param(hl.Float(32), "alpha", 1.25), hl.Param(hl.Float(32), "beta", -0.5)
    alpha.set_estimate(1.25)
    beta.set_estimate(-0.5)
    x, y = hl.vars("x y")
    product, f = hl.Func("product"), hl.Func("f")
    k = hl.RDom([(0, n)], "k")
    product[x, y] = 0.0
    product[x, y] += a[x, k] * b[k, y]
    f[x, y] = alpha * product[x, y] + beta * c[x, y]
    f.set_estimates([(0, n), (0, n)])
    return f


def _gemm(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    product = inputs["A"].astype(np.float64) @ inputs["B"]
    return ((inputs["alpha"] * product + inputs["beta"] * inputs["C"]).astype(np.float32),)


def column_scan() -> hl.Func:
    """Cumulative sums along x: the recurrence runs along the innermost dimension."""
    image = _image()
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(1, WIDTH - 1)], "r")
    f[x, y] = hl.i32(image[x, y])
    f[r, y] += f[r - 1, y]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def row_scan() -> hl.Func:
    """Cumulative sums along y: every column on its own."""
    image = _image()
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(1, HEIGHT - 1)], "r")
    f[x, y] = hl.i32(image[x, y])
    f[x, r] += f[x, r - 1]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def integral_image() -> hl.Func:
    """Both scans, and box sums as differences of four of their values."""
    image = _image()
    x, y = hl.vars("x y")
    total, f = hl.Func("total"), hl.Func("boxes")
    r, s = hl.RDom([(1, WIDTH)], "r"), hl.RDom([(1, HEIGHT)], "s")
    inside = (x >= 1) & (y >= 1)
    cx, cy = hl.clamp(x - 1, 0, WIDTH - 1), hl.clamp(y - 1, 0, HEIGHT - 1)
    total[x, y] = hl.select(inside, hl.i32(image[cx, cy]), 0)
    total[r, y] += total[r - 1, y]
    total[x, s] += total[x, s - 1]
    f[x, y] = total[x + 4, y + 4] - total[x, y + 4] - total[x + 4, y] + total[x, y]
    f.set_estimates([(0, WIDTH - 3), (0, HEIGHT - 3)])
    return f


def _integral_image(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    windows = np.lib.stride_tricks.sliding_window_view(inputs["input"].astype(np.int32), (4, 4))
    return (windows.sum(axis=(2, 3)).astype(np.int32),)


def recursive_filter() -> hl.Func:
    """A first-order filter forwards and backwards, the second pass reading mirrored places."""
    values = _vector(400, "input")
    decay = hl.Param(hl.Float(32), "decay", 0.75)
    decay.set_estimate(0.75)
    i = hl.Var("i")
    f = hl.Func("f")
    forwards, backwards = hl.RDom([(1, 399)], "forwards"), hl.RDom([(1, 399)], "backwards")
    f[i] = values[i]
    ahead, back = forwards.x, 399 - backwards.x
    f[ahead] = decay * f[ahead - 1] + (1.0 - decay) * f[ahead]
    f[back] = decay * f[back + 1] + (1.0 - decay) * f[back]
    f.set_estimates([(0, 400)])
    return f


def _recursive_filter(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    f, decay = inputs["input"].astype(np.float64), inputs["decay"]
    for i in range(1, 400):
        f[i] = decay * f[i - 1] + (1 - decay) * f[i]
    for i in reversed(range(399)):
        f[i] = decay * f[i + 1] + (1 - decay) * f[i]
    return (f.astype(np.float32),)


def game_of_life() -> hl.Func:
    """Three generations on a torus, each a stage."""
    image = _image()
    x, y = hl.vars("x y")
    seed = hl.Func("generation_0")
    seed[x, y] = image[x, y] % hl.u8(2)
    board = hl.BoundaryConditions.repeat_image(seed, [(0, WIDTH), (0, HEIGHT)])
    for generation in range(1, 4):
        count, f = hl.Func(f"count_{generation}"), hl.Func(f"generation_{generation}")
        r = hl.RDom([(-1, 3), (-1, 3)], f"r_{generation}")
        r.where((r.x != 0) | (r.y != 0))
        count[x, y] = hl.u8(0)
        count[x, y] += board[x + r.x, y + r.y]
        alive = (count[x, y] == hl.u8(3)) | ((count[x, y] == hl.u8(2)) & (board[x, y] == hl.u8(1)))
        f[x, y] = hl.select(alive, hl.u8(1), hl.u8(0))
        board = hl.BoundaryConditions.repeat_image(f, [(0, WIDTH), (0, HEIGHT)])
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _game_of_life(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    board = inputs["input"] % 2
    moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    for _ in range(3):
        count = sum(np.roll(board, move, axis=(0, 1)) for move in moves)
        board = ((count == 3) | ((count == 2) & (board == 1))).astype(np.uint8)
    return (board,)


def several_domains() -> hl.Func:
    """Updates over different reduction domains, rows, columns and a corner."""
    x, y = hl.vars("x y")
    f = hl.Func("f")
    a, b = hl.RDom([(5, 20)], "a"), hl.RDom([(0, 10), (3, 7)], "b")
    f[x, y] = x * 2 + y
    f[a, y] += 100
    f[x, a] *= 3
    f[b.x, b.y] = f[b.y, b.x] - f[b.x + 20, b.y + 20]
    f[x, 0] = f[x, 1] + f[x, 2]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _several_domains(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT), indexing="ij")
    f = (x * 2 + y).astype(np.int32)
    f[5:25] += 100
    f[:, 5:25] *= 3
    for by in range(3, 10):
        for bx in range(10):
            f[bx, by] = f[by, bx] - f[bx + 20, by + 20]
    f[:, 0] = f[:, 1] + f[:, 2]
    return (f,)


def undefined_start() -> hl.Func:
    """No pure definition to compute: even columns, then odd ones from their neighbours."""
    image = _image()
    x, y = hl.vars("x y")
    f = hl.Func("f")
    even, odd = hl.RDom([(0, WIDTH // 2)], "even"), hl.RDom([(0, WIDTH // 2 - 1)], "odd")
    f[x, y] = hl.undef(hl.UInt(16))
    f[2 * even, y] = hl.u16(image[2 * even, y])
    f[2 * odd + 1, y] = (f[2 * odd, y] + f[2 * odd + 2, y]) // hl.u16(2)
    f[WIDTH - 1, y] = f[WIDTH - 2, y]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _undefined_start(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    f = inputs["input"].astype(np.uint16)
    f[1:-1:2] = (f[:-2:2] + f[2::2]) // 2
    f[-1] = f[-2]
    return (f,)


def scatter_permutation() -> hl.Func:
    """Each value written to where another vector says, with later writes on top."""
    values, places = _vector(300, "input"), _vector(300, "places", hl.UInt(8))
    i = hl.Var("i")
    f = hl.Func("f")
    r = hl.RDom([(0, 300)], "r")
    f[i] = -1.0
    f[hl.i32(places[r])] = values[r] * 2.0
    f.set_estimates([(0, 256)])
    return f


def _scatter_permutation(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    f = np.full(256, -1, np.float32)
    for place, value in zip(inputs["places"], inputs["input"], strict=True):
        f[place] = value * 2
    return (f,)


def sparse_times_dense() -> hl.Func:
    """A sparse matrix in coordinates times a dense one, by accumulating rows."""
    entries, n = 200, 32
    rows, columns = (_vector(entries, name, hl.UInt(8)) for name in ("rows", "columns"))
    values = _vector(entries, "values")
    dense = hl.ImageParam(hl.Float(32), 2, "dense")
    dense.set_estimates([(0, 24), (0, n)])
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(0, entries)], "r")
    f[x, y] = 0.0
    f[x, hl.i32(rows[r]) % n] += values[r] * dense[x, hl.i32(columns[r]) % n]
    f.set_estimates([(0, 24), (0, n)])
    return f


def _sparse_times_dense(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    f = np.zeros((24, 32))
    for row, column, value in zip(*(inputs[k] for k in ("rows", "columns", "values")), strict=True):
        f[:, row % 32] += value * inputs["dense"][:, column % 32]
    return (f.astype(np.float32),)


def tuple_argmin() -> hl.Pipeline:
    """Where the least and the largest value of every row are, and what they are."""
    image = _image(hl.Float(32))
    y = hl.Var("y")
    r = hl.RDom([(0, WIDTH)], "r")
    s = hl.RDom([(0, WIDTH)], "s")
    least, largest = hl.Func("least"), hl.Func("largest")
    least[y] = tuple(hl.argmin(r, image[r, y], "argmin_row"))
    largest[y] = tuple(hl.argmax(s, image[s, y], "argmax_row"))
    for f in (least, largest):
        f.set_estimates([(0, HEIGHT)])
    return hl.Pipeline([least, largest])


def _tuple_argmin(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"]
    return (
        a.argmin(axis=0).astype(np.int32),
        a.min(axis=0),
        a.argmax(axis=0).astype(np.int32),
        a.max(axis=0),
    )


def complex_multiply() -> hl.Func:
    """A product of complex numbers, both parts of a Tuple updated together."""
    re, im = _image(hl.Float(32), "re"), _image(hl.Float(32), "im")
    x = hl.Var("x")
    f = hl.Func("f")
    r = hl.RDom([(0, 8)], "r")
    f[x] = (hl.f32(1.0), hl.f32(0.0))
    a, b, c, d = f[x][0], f[x][1], re[x, r] + 0.25, im[x, r] - 0.5
    f[x] = (a * c - b * d, a * d + b * c)
    f.set_estimates([(0, WIDTH)])
    return f


def _complex_multiply(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    z = (inputs["re"] + 0.25 + 1j * (inputs["im"] - 0.5))[:, :8].prod(axis=1)
    return z.real.astype(np.float32), z.imag.astype(np.float32)


def tuple_of_types() -> hl.Pipeline:
    """A stage with values of three types, one of which only steers the others."""
    image = _image()
    x, y = hl.vars("x y")
    stage, f = hl.Func("stage"), hl.Func("f")
    stage[x, y] = (image[x, y], hl.f32(image[x, y]) * 0.5, image[x, y] > hl.u8(99))
    here, there = stage[x, y], stage[x + 1, y]
    f[x, y] = hl.select(here[2], hl.f32(there[0]), there[1])
    f.set_estimates([(0, WIDTH - 1), (0, HEIGHT)])
    return hl.Pipeline(f)


def _tuple_of_types(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"].astype(np.float32)
    return (np.where(a[:-1] > 99, a[1:], a[1:] * np.float32(0.5)),)


def norms() -> hl.Pipeline:
    """Inline reductions of every kind over the same neighbourhood."""
    image = _image(hl.Float(32))
    x, y = hl.vars("x y")
    r = hl.RDom([(0, 3), (0, 3)], "r")
    value = image[x + r.x, y + r.y] + 0.5
    outputs = []
    for kind in (hl.sum, hl.product, hl.maximum, hl.minimum):
        f = hl.Func(f"by_{kind.__name__}")
        f[x, y] = kind(value, f"inner_{kind.__name__}")
        f.set_estimates([(0, WIDTH - 2), (0, HEIGHT - 2)])
        outputs.append(f)
    return hl.Pipeline(outputs)


def _norms(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    w = np.lib.stride_tricks.sliding_window_view(inputs["input"] + np.float32(0.5), (3, 3))
    return tuple(f(axis=(2, 3)) for f in (w.sum, w.prod, w.max, w.min))


def nested_reductions() -> hl.Func:
    """A maximum of sums of products, all inline."""
    image = _image()
    x, y = hl.vars("x y")
    outer, inner = hl.RDom([(0, 4)], "outer"), hl.RDom([(0, 5)], "inner")
    f, g = hl.Func("f"), hl.Func("g")
    g[x, y] = hl.sum(hl.i32(image[x + inner, y]) * (inner + 1), "weighted")
    f[x, y] = hl.maximum(g[x, y + outer], "largest") - hl.minimum(g[x, y + outer], "least")
    f.set_estimates([(0, WIDTH - 4), (0, HEIGHT - 3)])
    return f


def _nested_reductions(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"].astype(np.int32)
    g = sum(a[k : k + WIDTH - 4] * (k + 1) for k in range(5))
    rows = np.lib.stride_tricks.sliding_window_view(g, 4, axis=1)
    return ((rows.max(axis=2) - rows.min(axis=2)).astype(np.int32),)


def convolution_by_input() -> hl.Func:
    """A filter whose size is read from the input that holds it."""
    image, taps = _image(), hl.ImageParam(hl.Float(32), 2, "taps")
    taps.set_estimates([(0, 5), (0, 3)])
    bounded = hl.BoundaryConditions.constant_exterior(image, hl.u8(0))
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(0, taps.dim(0).extent()), (0, taps.dim(1).extent())], "r")
    f[x, y] = 0.0
    f[x, y] += hl.f32(bounded[x + r.x - 2, y + r.y - 1]) * taps[r.x, r.y]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _convolution_by_input(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.float64), ((2, 2), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(a, (5, 3))
    return (np.tensordot(windows, inputs["taps"], axes=2).astype(np.float32),)


def pascal() -> hl.Func:
    """A triangle of binomial coefficients: each row from the one before, both places of it."""
    n = 20
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(1, n - 1), (1, n - 1)], "r")
    r.where(r.x <= r.y)
    f[x, y] = hl.select(x == 0, 1, 0)
    f[r.x, r.y] = f[r.x - 1, r.y - 1] + f[r.x, r.y - 1]
    f.set_estimates([(0, n), (0, n)])
    return f


def _pascal(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    f = np.zeros((20, 20), np.int32)
    f[0] = 1
    for y in range(1, 20):
        for x in range(1, y + 1):
            f[x, y] = f[x - 1, y - 1] + f[x, y - 1]
    return (f,)


def edit_distance() -> hl.Func:
    """Dynamic programming over a table, with clamped reads and a single number at the end."""
    n, m = 40, 30
    a, b = _vector(n, "a", hl.UInt(8)), _vector(m, "b", hl.UInt(8))
    i, j = hl.vars("i j")
    table, f = hl.Func("table"), hl.Func("distance")
    r = hl.RDom([(1, n), (1, m)], "r")
    table[i, j] = hl.select(j == 0, i, i == 0, j, 0)
    differ = hl.select(a[r.x - 1] % hl.u8(4) == b[r.y - 1] % hl.u8(4), 0, 1)
    table[r.x, r.y] = hl.min(
        table[r.x - 1, r.y] + 1, table[r.x, r.y - 1] + 1, table[r.x - 1, r.y - 1] + differ
    )
    f[()] = table[n, m]
    return f


def _edit_distance(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, b = inputs["a"] % 4, inputs["b"] % 4
    row = list(range(len(b) + 1))
    for i, p in enumerate(a, 1):
        previous, row = row, [i]
        for j, q in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + int(p != q)))
    return (np.array(row[-1], np.int32),)


def median() -> hl.Func:
    """The median of five values by a network of minima and maxima."""
    image = _image()
    bounded = hl.BoundaryConditions.mirror_interior(image)
    x, y = hl.vars("x y")
    f = hl.Func("median")
    v = [bounded[x + i, y] for i in range(-2, 3)]
    for i, j in ((0, 1), (3, 4), (2, 4), (2, 3), (1, 4), (0, 3), (0, 2), (1, 3), (1, 2)):
        v[i], v[j] = hl.min(v[i], v[j]), hl.max(v[i], v[j])
    f[x, y] = v[2]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _median(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"], ((2, 2), (0, 0)), "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(a, 5, axis=0)
    return (np.median(windows, axis=2).astype(np.uint8),)


def memoized() -> hl.Func:
    """A stage that is kept in a cache between runs."""
    image = _image()
    gain = hl.Param(hl.Int(32), "gain", 3)
    gain.set_estimate(3)
    x, y = hl.vars("x y")
    table, f = hl.Func("table"), hl.Func("f")
    table[x] = hl.i32(hl.sqrt(hl.f32(x * gain)) * 16.0)
    table.compute_root().memoize()
    f[x, y] = table[hl.i32(image[x, y])]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def bubble_pass() -> hl.Func:
    """Simultaneous writes to two places of a Func by gather and scatter."""
    values = _vector(64, "input", hl.Int(32))
    i = hl.Var("i")
    f = hl.Func("f")
    r = hl.RDom([(0, 63), (0, 63)], "r")
    f[i] = values[i]
    lower, upper = hl.min(f[r.x], f[r.x + 1]), hl.max(f[r.x], f[r.x + 1])
    f[hl.scatter([r.x, r.x + 1])] = hl.gather([lower, upper])
    f.set_estimates([(0, 64)])
    return f


def batched_attention() -> hl.Func:
    """Three- and four-dimensional stages: scores, softmax and a weighted mean."""
    d, n, heads = 8, 12, 3
    q, k, v = (hl.ImageParam(hl.Float(32), 3, name) for name in ("q", "k", "v"))
    for image in (q, k, v):
        image.set_estimates([(0, d), (0, n), (0, heads)])
    i, x, y, h = hl.vars("i x y h")
    rd, rn = hl.RDom([(0, d)], "rd"), hl.RDom([(0, n)], "rn")
    scores, top, weights, total, f = (
        hl.Func(s) for s in ("scores", "top", "weights", "total", "f")
    )
    scores[x, y, h] = 0.0
    scores[x, y, h] += q[rd, y, h] * k[rd, x, h]
    top[y, h] = hl.maximum(scores[rn, y, h], "top_score")
    weights[x, y, h] = hl.exp(scores[x, y, h] - top[y, h])
    total[y, h] = hl.sum(weights[rn, y, h], "total_weight")
    f[i, y, h] = 0.0
    f[i, y, h] += weights[rn, y, h] / total[y, h] * v[i, rn, h]
    f.set_estimates([(0, d), (0, n), (0, heads)])
    return f


def _batched_attention(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    q, k, v = (inputs[s].astype(np.float64) for s in "qkv")
    w = np.exp(np.einsum("iyh,ixh->xyh", q, k))
    w /= w.sum(axis=0)
    return (np.einsum("xyh,ixh->iyh", w, v).astype(np.float32),)


# What each pipeline gives, by NumPy, axes in Halide's order.
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    "dot_product": lambda inputs: (np.dot(inputs["a"], inputs["b"]),),
    "matrix_vector": lambda inputs: (inputs["matrix"].T @ inputs["vector"],),
    "gemm": _gemm,
    "column_scan": lambda inputs: (np.cumsum(inputs["input"], axis=0, dtype=np.int32),),
    "row_scan": lambda inputs: (np.cumsum(inputs["input"], axis=1, dtype=np.int32),),
    "integral_image": _integral_image,
    "recursive_filter": _recursive_filter,
    "game_of_life": _game_of_life,
    "several_domains": _several_domains,
    "undefined_start": _undefined_start,
    "scatter_permutation": _scatter_permutation,
    "sparse_times_dense": _sparse_times_dense,
    "tuple_argmin": _tuple_argmin,
    "complex_multiply": _complex_multiply,
    "tuple_of_types": _tuple_of_types,
    "norms": _norms,
    "nested_reductions": _nested_reductions,
    "convolution_by_input": _convolution_by_input,
    "pascal": _pascal,
    "edit_distance": _edit_distance,
    "median": _median,
    "memoized": lambda inputs: (
        (np.sqrt(inputs["input"].astype(np.float32) * inputs["gain"]) * 16).astype(np.int32),
    ),
    "bubble_pass": lambda inputs: (np.sort(inputs["input"]),),
    "batched_attention": _batched_attention,
}
