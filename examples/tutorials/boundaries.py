"""Boundary conditions, sampling, and accesses of every shape: one function a pipeline.

After ``python_bindings/test/correctness`` and ``test/correctness`` of Halide v21.0.0. Every
function gives an unscheduled pipeline with estimates on all inputs and outputs.

Usage: ``tilewright schedule examples/tutorials/boundaries.py:mirror_interior``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

WIDTH, HEIGHT = 72, 44


def _image(width: int = WIDTH, height: int = HEIGHT, name: str = "input") -> hl.ImageParam:
    image = hl.ImageParam(hl.UInt(8), 2, name)
    image.set_estimates([(0, width), (0, height)])
    return image


def _with_boundary(condition: Callable[[hl.ImageParam], hl.Func]) -> hl.Func:
    """The image with ten pixels around it, less what lies diagonally below."""
    bounded = condition(_image())
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = bounded[x, y] - bounded[x + 1, y + 1]
    f.set_estimates([(-10, WIDTH + 20), (-10, HEIGHT + 20)])
    return f


def _padded(mode: str, **options: Any) -> Callable[[dict[str, Any]], tuple[np.ndarray, ...]]:
    def expected(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
        a = np.pad(inputs["input"], ((10, 11), (10, 11)), mode, **options)
        return (a[:-1, :-1] - a[1:, 1:],)

    return expected


def repeat_edge() -> hl.Func:
    """The edge repeated without end."""
    return _with_boundary(hl.BoundaryConditions.repeat_edge)


def repeat_image() -> hl.Func:
    """The image repeated without end."""
    return _with_boundary(hl.BoundaryConditions.repeat_image)


def mirror_image() -> hl.Func:
    """The image mirrored, edges twice."""
    return _with_boundary(hl.BoundaryConditions.mirror_image)


def mirror_interior() -> hl.Func:
    """The image mirrored at the centres of its edge pixels."""
    return _with_boundary(hl.BoundaryConditions.mirror_interior)


def constant_exterior() -> hl.Func:
    """One value everywhere outside."""
    return _with_boundary(lambda image: hl.BoundaryConditions.constant_exterior(image, hl.u8(42)))


def negative_minimum() -> hl.Func:
    """An input that is read at negative coordinates."""
    image = hl.ImageParam(hl.UInt(8), 2, "input")
    image.set_estimates([(-5, WIDTH), (3, HEIGHT)])
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = image[x - 5, y + 3] + hl.u8(1)
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def downsample() -> hl.Func:
    """Every second column and third row, averaged over a block of 2x3."""
    image = _image()
    x, y = hl.vars("x y")
    f = hl.Func("f")
    r = hl.RDom([(0, 2), (0, 3)], "r")
    f[x, y] = hl.u8(hl.sum(hl.u16(image[2 * x + r.x, 3 * y + r.y]), "block") // hl.u16(6))
    f.set_estimates([(0, WIDTH // 2), (0, HEIGHT // 3)])
    return f


def _downsample(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    w, h = WIDTH // 2, HEIGHT // 3
    blocks = inputs["input"][: 2 * w, : 3 * h].reshape(w, 2, h, 3).astype(np.uint16)
    return ((blocks.sum(axis=(1, 3)) // 6).astype(np.uint8),)


def upsample() -> hl.Func:
    """Twice as large in x and three times in y, by linear interpolation in x."""
    image = _image()
    bounded = hl.BoundaryConditions.repeat_edge(image)
    x, y = hl.vars("x y")
    wide, f = hl.Func("wide"), hl.Func("f")
    here, there = hl.u16(bounded[x // 2, y]), hl.u16(bounded[x // 2 + x % 2, y])
    wide[x, y] = hl.u8((here + there) // hl.u16(2))
    f[x, y] = wide[x, y // 3]
    f.set_estimates([(0, WIDTH * 2), (0, HEIGHT * 3)])
    return f


def _upsample(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"].astype(np.uint16)
    following = np.concatenate([a[1:], a[-1:]])
    wide = np.stack([a, (a + following) // 2], axis=1).reshape(2 * WIDTH, HEIGHT)
    return (np.repeat(wide.astype(np.uint8), 3, axis=1),)


def transpose() -> hl.Func:
    """Rows become columns."""
    image = _image()
    x, y = hl.vars("x y")
    f = hl.Func("f")
    f[x, y] = image[y, x]
    f.set_estimates([(0, HEIGHT), (0, WIDTH)])
    return f


def flip() -> hl.Func:
    """Accesses with negative strides, in two stages."""
    image = _image()
    x, y = hl.vars("x y")
    mirrored, f = hl.Func("mirrored"), hl.Func("f")
    mirrored[x, y] = image[WIDTH - 1 - x, y]
    f[x, y] = mirrored[x, HEIGHT - 1 - y] ^ mirrored[x, y]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def interleave() -> hl.Func:
    """Even columns from one Func, odd ones from another."""
    image = _image()
    x, y = hl.vars("x y")
    even, odd, f = hl.Func("even"), hl.Func("odd"), hl.Func("f")
    even[x, y] = image[x, y] // hl.u8(2)
    odd[x, y] = image[x, y] * hl.u8(3)
    f[x, y] = hl.select(x % 2 == 0, even[x // 2, y], odd[x // 2, y])
    f.set_estimates([(0, 2 * WIDTH), (0, HEIGHT)])
    return f


def _interleave(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"]
    return (np.stack([a // 2, a * np.uint8(3)], axis=1).reshape(2 * WIDTH, HEIGHT),)


def space_to_depth() -> hl.Func:
    """A four-dimensional output from a two-dimensional input."""
    image = _image()
    x, y, i, j = hl.vars("x y i j")
    f = hl.Func("f")
    f[x, y, i, j] = image[4 * x + i, 4 * y + j]
    f.set_estimates([(0, WIDTH // 4), (0, HEIGHT // 4), (0, 4), (0, 4)])
    return f


def _space_to_depth(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    blocks = inputs["input"].reshape(WIDTH // 4, 4, HEIGHT // 4, 4)
    return (np.transpose(blocks, (0, 2, 1, 3)),)


def diagonal() -> hl.Func:
    """One dimension of the consumer in both of the producer's."""
    image = _image()
    x = hl.Var("x")
    y = hl.Var("y")
    doubled, f = hl.Func("doubled"), hl.Func("f")
    doubled[x, y] = hl.u16(image[x, y]) * hl.u16(2)
    f[x] = doubled[x, x] + doubled[x + 1, HEIGHT - 1 - x]
    f.set_estimates([(0, HEIGHT)])
    return f


def _diagonal(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, i = inputs["input"].astype(np.uint16) * 2, np.arange(HEIGHT)
    return ((a[i, i] + a[i + 1, HEIGHT - 1 - i]).astype(np.uint16),)


def gather_warp() -> hl.Func:
    """Pixels fetched from where two other images say, kept inside by clamping."""
    image, dx, dy = _image(), _image(name="dx"), _image(name="dy")
    x, y = hl.vars("x y")
    source, f = hl.Func("source"), hl.Func("f")
    source[x, y] = hl.u16(image[x, y]) + hl.u16(7)
    sx = hl.clamp(x + hl.i32(dx[x, y]) % 16 - 8, 0, WIDTH - 1)
    sy = hl.clamp(y + hl.i32(dy[x, y]) % 16 - 8, 0, HEIGHT - 1)
    f[x, y] = source[sx, sy]
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _gather_warp(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT), indexing="ij")
    sx = np.clip(x + inputs["dx"].astype(int) % 16 - 8, 0, WIDTH - 1)
    sy = np.clip(y + inputs["dy"].astype(int) % 16 - 8, 0, HEIGHT - 1)
    return (inputs["input"][sx, sy].astype(np.uint16) + np.uint16(7),)


def bilinear_resize() -> hl.Func:
    """Resampling by a factor that is no integer, with interpolation in both directions."""
    image = _image()
    scale = hl.Param(hl.Float(32), "scale", 0.625)
    scale.set_estimate(0.625)
    bounded = hl.BoundaryConditions.repeat_edge(image)
    x, y = hl.vars("x y")
    f = hl.Func("f")
    fx, fy = hl.f32(x) * scale, hl.f32(y) * scale
    ix, iy = hl.i32(hl.floor(fx)), hl.i32(hl.floor(fy))
    tx, ty = fx - hl.f32(ix), fy - hl.f32(iy)
    corner = [[hl.f32(bounded[ix + i, iy + j]) for j in (0, 1)] for i in (0, 1)]
    top = hl.lerp(corner[0][0], corner[1][0], tx)
    bottom = hl.lerp(corner[0][1], corner[1][1], tx)
    f[x, y] = hl.lerp(top, bottom, ty)
    f.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return f


def _bilinear_resize(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = np.pad(inputs["input"].astype(np.float64), ((0, 1), (0, 1)), "edge")
    fx, fy = np.arange(WIDTH) * inputs["scale"], np.arange(HEIGHT) * inputs["scale"]
    ix, iy = fx.astype(int), fy.astype(int)
    tx, ty = (fx - ix)[:, None], (fy - iy)[None, :]
    top = a[np.ix_(ix, iy)] * (1 - tx) + a[np.ix_(ix + 1, iy)] * tx
    bottom = a[np.ix_(ix, iy + 1)] * (1 - tx) + a[np.ix_(ix + 1, iy + 1)] * tx
    return ((top * (1 - ty) + bottom * ty).astype(np.float32),)


def pyramid() -> hl.Func:
    """Three levels down and up again, added at every level."""
    image = hl.ImageParam(hl.Float(32), 2, "input")
    image.set_estimates([(0, 64), (0, 32)])
    x, y = hl.vars("x y")
    down = [hl.BoundaryConditions.repeat_edge(image)]
    for level in range(1, 4):
        across, f = hl.Func(f"across_{level}"), hl.Func(f"down_{level}")
        across[x, y] = (down[-1][2 * x, y] + down[-1][2 * x + 1, y]) * 0.5
        f[x, y] = (across[x, 2 * y] + across[x, 2 * y + 1]) * 0.5
        down.append(f)
    up = down[-1]
    for level in reversed(range(3)):
        f = hl.Func(f"up_{level}")
        f[x, y] = 0.5 * down[level][x, y] + 0.5 * up[x // 2, y // 2]
        up = f
    up.set_estimates([(0, 64), (0, 32)])
    return up


def _pyramid(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    down = [inputs["input"].astype(np.float64)]
    for _ in range(3):
        w, h = down[-1].shape
        down.append(down[-1].reshape(w // 2, 2, h // 2, 2).mean(axis=(1, 3)))
    up = down[-1]
    for level in reversed(range(3)):
        up = 0.5 * down[level] + 0.5 * np.repeat(np.repeat(up, 2, axis=0), 2, axis=1)
    return (up.astype(np.float32),)


# What each pipeline gives, by NumPy, axes in Halide's order.
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    "repeat_edge": _padded("edge"),
    "repeat_image": _padded("wrap"),
    "mirror_image": _padded("symmetric"),
    "mirror_interior": _padded("reflect"),
    "constant_exterior": _padded("constant", constant_values=42),
    "negative_minimum": lambda inputs: (inputs["input"] + np.uint8(1),),
    "downsample": _downsample,
    "upsample": _upsample,
    "transpose": lambda inputs: (inputs["input"].T,),
    "flip": lambda inputs: (inputs["input"][::-1, ::-1] ^ inputs["input"][::-1],),
    "interleave": _interleave,
    "space_to_depth": _space_to_depth,
    "diagonal": _diagonal,
    "gather_warp": _gather_warp,
    "bilinear_resize": _bilinear_resize,
    "pyramid": _pyramid,
}
