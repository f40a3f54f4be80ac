"""Schedule templates of Halide pipelines, timed on this machine's CPU.

Each template is a pipeline whose schedule has holes: tile sizes, vector widths, unrolling, the
order of loops, and where stages are computed. A schedule that Halide rejects is a failed build, one
that reads beyond its image a failed run: both are hidden constraints. Every answer is compared with
NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tilewright.measure import VerifyResult
from tilewright.tuning.problems.measured import MeasuredProblem, compared
from tilewright.tuning.space.parameters import Categorical, Ordinal, Permutation
from tilewright.tuning.space.space import Space

Array: TypeAlias = np.ndarray[Any, Any]
Choices: TypeAlias = Mapping[str, Any]
_VECTORS = (4, 8, 16, 32)
_LEVELS = 3
_TONES = 8


def halide_blur(width: int = 1536, height: int = 1024) -> MeasuredProblem:
    """Return a 3x3 box blur: four split factors and the order of its loops."""
    space = Space(
        [
            Ordinal("tile_x", (32, 64, 128, 256), scale="log", default=128),
            Ordinal("tile_y", (4, 8, 16, 32), scale="log", default=32),
            Ordinal("vector", _VECTORS, scale="log", default=8),
            Ordinal("unroll", (1, 2, 4), scale="log", default=1),
            Permutation("order", ("xi", "yi", "xo"), default=("xi", "yi", "xo")),
        ]
    )
    return _template("blur", space, (width, height))


def halide_matmul(size: int = 256) -> MeasuredProblem:
    """Return a matrix product: tiles, vector width, unrolling and a permutation of its loops."""
    space = Space(
        [
            Ordinal("tile_x", (16, 32, 64, 128), scale="log", default=32),
            Ordinal("tile_y", (8, 16, 32, 64), scale="log", default=32),
            Ordinal("vector", _VECTORS[:3], scale="log", default=8),
            Ordinal("unroll", (1, 2, 4, 8), scale="log", default=1),
            Permutation("order", ("x", "y", "k"), default=("x", "y", "k")),
        ],
        ["tile_x % vector == 0", "tile_y % unroll == 0"],
    )
    return _template("matmul", space, (size, size))


def halide_harris(width: int = 1024, height: int = 768) -> MeasuredProblem:
    """Harris corners: tiles, vector width, and where gradients and their products are kept."""
    space = Space(
        [
            Ordinal("tile_x", (32, 64, 128, 256), scale="log", default=128),
            Ordinal("tile_y", (4, 8, 16, 32, 64), scale="log", default=32),
            Ordinal("vector", _VECTORS, scale="log", default=8),
            Categorical("gradients", ("root", "tile", "row", "inline"), default="tile"),
            Categorical("products", ("root", "tile", "row", "inline"), default="inline"),
        ]
    )
    return _template("harris", space, (width, height))


def halide_laplacian(width: int = 384, height: int = 256) -> MeasuredProblem:
    """Return a local Laplacian filter on one channel: strips, vector widths and what is stored."""
    space = Space(
        [
            Ordinal("strip", (2, 4, 8, 16, 32, 64), scale="log", default=16),
            Ordinal("vector", _VECTORS[:3], scale="log", default=8),
            Ordinal("narrow", (4, 8), scale="log", default=8),
            Categorical("first_tone", ("inline", "root"), default="inline"),
            Categorical("tones", ("k", "y"), default="k"),
            Categorical("results", ("parallel", "serial"), default="parallel"),
        ]
    )
    return _template("laplacian", space, (width, height))


def _template(name: str, space: Space, size: tuple[int, ...]) -> MeasuredProblem:
    builder = f"{__name__}:Scheduled"
    arguments = {"template": name, "size": size}
    preload = ("tilewright.halide.execution.runner:warm:host", __name__)
    return MeasuredProblem(f"halide_{name}", space, builder, arguments, preload)


class Scheduled:
    """A template scheduled by a configuration and compiled, in a worker."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take ``{"template": name, "size": extents, "configuration": choices}``.

        Raises:
            HalideError: Halide refuses the schedule.
        """
        import halide as hl

        inputs, build, self._reference = _TEMPLATES[payload["template"]]
        size = tuple(payload["size"])
        rng = np.random.default_rng(0)
        # Halide's first dimension is NumPy's last
        self._arrays = [rng.random(extents[::-1], dtype=np.float32) for extents in inputs(size)]
        self._pipeline = hl.Pipeline(
            build(payload["configuration"], [hl.Buffer(a) for a in self._arrays], size)
        )
        self._pipeline.compile_jit()
        self._answer = np.full(size[::-1], np.nan, np.float32)
        self._output = hl.Buffer(self._answer)

    def run(self) -> None:
        """Realise it once."""
        self._pipeline.realize(self._output)

    def verify(self) -> VerifyResult:
        """Return whether the answer is NumPy's."""
        self.run()
        return VerifyResult(*compared(self._answer, self._reference(*self._arrays), 1e-4))


def _blur(c: Choices, images: list[Any], size: tuple[int, ...]) -> Any:
    import halide as hl

    (image,) = images
    x, y, xo, yo, xi, yi, xv, yu = hl.vars("x y xo yo xi yi xv yu")
    rows, out = hl.Func("blur_x"), hl.Func("blur_y")
    rows[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    out[x, y] = rows[x, y] + rows[x, y + 1] + rows[x, y + 2]
    loops = {"xi": xi, "yi": yi, "xo": xo}
    out.split(x, xo, xi, c["tile_x"]).split(y, yo, yi, c["tile_y"])
    out.split(xi, xi, xv, c["vector"]).split(yi, yi, yu, c["unroll"])
    out.reorder(xv, yu, *(loops[name] for name in c["order"]), yo)
    out.vectorize(xv).unroll(yu).parallel(yo)
    rows.compute_at(out, loops[c["order"][2]]).vectorize(x, c["vector"])
    return out


def _blurred(image: Array) -> Array:
    rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
    return np.asarray(rows[:-2] + rows[1:-1] + rows[2:])


def _matmul(c: Choices, images: list[Any], size: tuple[int, ...]) -> Any:
    import halide as hl

    a, b = images
    x, y, xo, yo, xi, yi, xv, yu = hl.vars("x y xo yo xi yi xv yu")
    k = hl.RDom([(0, size[0])], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[x, y] = 0.0
    product[x, y] += a[k, y] * b[x, k]
    out[x, y] = product[x, y]
    out.tile(x, y, xo, yo, xi, yi, c["tile_x"], c["tile_y"])
    out.vectorize(xi, c["vector"]).parallel(yo)
    product.compute_at(out, xo).vectorize(x, c["vector"])
    loops = {"x": xi, "y": yi, "k": k.x}
    update = product.update()
    update.split(x, xi, xv, c["vector"]).split(y, yi, yu, c["unroll"])
    update.reorder(xv, yu, *(loops[name] for name in c["order"]))
    update.vectorize(xv).unroll(yu)
    return out


def _harris(c: Choices, images: list[Any], size: tuple[int, ...]) -> Any:
    import halide as hl

    (image,) = images
    x, y, xo, yo, xi, yi = hl.vars("x y xo yo xi yi")
    dx, dy, xx, yy, xy, out = (hl.Func(n) for n in ("dx", "dy", "xx", "yy", "xy", "out"))
    p = hl.Func("shifted")
    p[x, y] = image[x + 2, y + 2]
    right = p[x + 1, y - 1] + 2 * p[x + 1, y] + p[x + 1, y + 1]
    dx[x, y] = right - p[x - 1, y - 1] - 2 * p[x - 1, y] - p[x - 1, y + 1]
    below = p[x - 1, y + 1] + 2 * p[x, y + 1] + p[x + 1, y + 1]
    dy[x, y] = below - p[x - 1, y - 1] - 2 * p[x, y - 1] - p[x + 1, y - 1]
    xx[x, y] = dx[x, y] * dx[x, y]
    yy[x, y] = dy[x, y] * dy[x, y]
    xy[x, y] = dx[x, y] * dy[x, y]

    def window(f: Any) -> Any:
        terms = [f[x + i, y + j] for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return sum(terms[1:], terms[0])

    sxx, syy, sxy = map(window, (xx, yy, xy))
    trace = sxx + syy
    out[x, y] = sxx * syy - sxy * sxy - hl.f32(0.04) * trace * trace
    out.tile(x, y, xo, yo, xi, yi, c["tile_x"], c["tile_y"])
    out.vectorize(xi, c["vector"]).parallel(yo)
    for stages, place in (((dx, dy), c["gradients"]), ((xx, yy, xy), c["products"])):
        for f in stages:
            if place == "root":
                f.compute_root().parallel(y).vectorize(x, c["vector"])
            elif place != "inline":
                f.compute_at(out, {"tile": xo, "row": yi}[place]).vectorize(x, c["vector"])
    return out


def _corners(image: Array) -> Array:
    image = image[:, : image.shape[1] - _VECTORS[-1]]

    def at(array: Array, i: int, j: int) -> Array:
        return array[1 + j : array.shape[0] - 1 + j, 1 + i : array.shape[1] - 1 + i]

    around, smooth = (-1, 0, 1), np.array((1, 2, 1), np.float32)
    dx = np.tensordot(smooth, [at(image, 1, j) - at(image, -1, j) for j in around], 1)
    dy = np.tensordot(smooth, [at(image, i, 1) - at(image, i, -1) for i in around], 1)

    def window(f: Array) -> Array:
        return np.asarray(np.sum([at(f, i, j) for i in around for j in around], axis=0))

    sxx, syy, sxy = window(dx * dx), window(dy * dy), window(dx * dy)
    return np.asarray(sxx * syy - sxy * sxy - 0.04 * (sxx + syy) ** 2)


def _laplacian(c: Choices, images: list[Any], size: tuple[int, ...]) -> Any:
    import halide as hl

    x, y, k, yo, yi = hl.vars("x y k yo yi")

    def down(f: Any, *rest: Any) -> Any:
        total = f[(2 * x - 1, 2 * y, *rest)] + f[(2 * x + 1, 2 * y, *rest)]
        total += 2 * f[(2 * x, 2 * y, *rest)]
        return total + f[(2 * x, 2 * y - 1, *rest)] + f[(2 * x, 2 * y + 1, *rest)]

    def up(f: Any, *rest: Any) -> Any:
        return (f[(x // 2, y // 2, *rest)] + f[((x + 1) // 2, (y + 1) // 2, *rest)]) / 2

    gray = hl.BoundaryConditions.repeat_edge(images[0])
    tone, plain, detail, result = (
        [hl.Func(f"{name}_{j}") for j in range(_LEVELS)]
        for name in ("tone", "plain", "detail", "result")
    )
    apart = gray[x, y] - hl.f32(k) / (_TONES - 1)
    tone[0][x, y, k] = gray[x, y] + apart * hl.exp(-apart * apart * hl.f32(8.0))
    plain[0][x, y] = gray[x, y]
    for j in range(1, _LEVELS):
        tone[j][x, y, k] = down(tone[j - 1], k) / hl.f32(6.0)
        plain[j][x, y] = down(plain[j - 1]) / hl.f32(6.0)
    for j in range(_LEVELS):
        shade = hl.clamp(plain[j][x, y] * (_TONES - 1), 0.0, hl.f32(_TONES - 1.001))
        lower = hl.i32(shade)
        share = shade - hl.f32(lower)
        here = [tone[j][x, y, lower + i] for i in (0, 1)]
        if j + 1 < _LEVELS:
            here = [h - up(tone[j + 1], lower + i) for i, h in enumerate(here)]
        detail[j][x, y] = here[0] * (1 - share) + here[1] * share
    result[-1][x, y] = detail[-1][x, y]
    for j in range(_LEVELS - 2, -1, -1):
        result[j][x, y] = up(result[j + 1]) + detail[j][x, y]
    out = result[0]
    out.split(y, yo, yi, c["strip"]).parallel(yo).vectorize(x, c["vector"])
    if c["first_tone"] == "root":
        tone[0].compute_root().parallel(k).vectorize(x, c["vector"])
    for j in range(1, _LEVELS):
        width = c["vector"] if j == 1 else c["narrow"]
        tone[j].compute_root().parallel(k if c["tones"] == "k" else y).vectorize(x, width)
        plain[j].compute_root().vectorize(x, width)
        result[j].compute_root().vectorize(x, width)
        if c["results"] == "parallel":
            result[j].parallel(y)
    return out


def _enhanced(image: Array) -> Array:
    """Return the local Laplacian filter; the image is padded so that edges need no special case."""
    margin = 8 << _LEVELS
    gray = np.pad(image, margin, mode="edge").astype(np.float64)

    def down(f: Array) -> Array:
        near = np.roll(f, 1, -1) + np.roll(f, -1, -1) + np.roll(f, 1, -2) + np.roll(f, -1, -2)
        return np.asarray((near + 2 * f)[..., ::2, ::2] / 6)

    def up(f: Array) -> Array:
        rows, columns = (np.arange(2 * n) for n in f.shape[-2:])
        last_row, last_column = f.shape[-2] - 1, f.shape[-1] - 1
        here = f[..., rows[:, None] // 2, columns // 2]
        next_row = np.minimum((rows + 1) // 2, last_row)
        next_column = np.minimum((columns + 1) // 2, last_column)
        return np.asarray((here + f[..., next_row[:, None], next_column]) / 2)

    apart = gray - np.arange(_TONES)[:, None, None] / (_TONES - 1)
    tone, plain = [gray + apart * np.exp(-8 * apart * apart)], [gray]
    for _ in range(1, _LEVELS):
        tone.append(down(tone[-1]))
        plain.append(down(plain[-1]))
    result: Array | None = None
    for j in reversed(range(_LEVELS)):
        shade = np.clip(plain[j] * (_TONES - 1), 0.0, _TONES - 1.001)
        lower = shade.astype(int)[None]
        share = shade - lower[0]
        bands = tone[j] if j == _LEVELS - 1 else tone[j] - up(tone[j + 1])
        first, second = (np.take_along_axis(bands, lower + i, 0)[0] for i in (0, 1))
        detail = first * (1 - share) + second * share
        result = detail if result is None else up(result) + detail
    assert result is not None
    return np.asarray(result[margin:-margin, margin:-margin])


def _beside(width: int, height: int) -> list[tuple[int, int]]:
    return [(width + 2, height + 2)]


def _around(width: int, height: int) -> list[tuple[int, int]]:
    # vectorised stages read up to one vector beyond the image
    return [(width + 4 + _VECTORS[-1], height + 4)]


# extents of the inputs (innermost first) for an output's, the scheduled Func, the answer
_TEMPLATES: dict[str, tuple[Callable[[Any], Any], Callable[..., Any], Callable[..., Array]]] = {
    "blur": (lambda size: _beside(*size), _blur, _blurred),
    "matmul": (lambda size: [size, size], _matmul, np.matmul),
    "harris": (lambda size: _around(*size), _harris, _corners),
    "laplacian": (lambda size: [size], _laplacian, _enhanced),
}
