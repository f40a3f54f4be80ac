"""Pipelines that the tests of the GPU scheduler share."""

import halide as hl

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel


def khwz(width=1024, height=1024):
    """The example of Sioutas 2020, Figures 2 to 4: K, H and W feed Z."""
    x, y, c = hl.vars("x y c")
    e = hl.ImageParam(hl.Float(32), 2, "E")
    k, h, w, z = (hl.Func(name) for name in "KHWZ")
    k[x, y, c] = (e[x, y] + e[x + 1, y] + e[x + 2, y]) * hl.f32(c)
    h[x, y] = e[x, y] * 4.0
    w[x, y] = k[x, y, 0] + k[x, y, 1] + k[x, y, 2] + 2.0 * h[x, y]
    z[x, y] = w[x, y - 2] + w[x, y - 1] + w[x, y] + w[x, y + 1] + w[x, y + 2]
    z.set_estimates([(0, width), (0, height)])
    return load(z)


def matmul(size=512):
    x, y = hl.vars("x y")
    a, b = hl.ImageParam(hl.Float(32), 2, "A"), hl.ImageParam(hl.Float(32), 2, "B")
    k = hl.RDom([(0, size)], "k")
    prod, out = hl.Func("prod"), hl.Func("out")
    prod[x, y] = 0.0
    prod[x, y] += a[x, k] * b[k, y]
    out[x, y] = prod[x, y]
    out.set_estimates([(0, size), (0, size)])
    return load(out)


def pyramid(width=512, height=512):
    """Two levels down, one up: coordinates are divided and multiplied."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    down, downy, up, out = (hl.Func(name) for name in ("down", "downy", "up", "out"))
    down[x, y] = (image[2 * x - 1, y] + 2.0 * image[2 * x, y] + image[2 * x + 1, y]) * 0.25
    downy[x, y] = (down[x, 2 * y - 1] + 2.0 * down[x, 2 * y] + down[x, 2 * y + 1]) * 0.25
    up[x, y] = downy[x // 2, y] + downy[x // 2 + 1, y]
    out[x, y] = up[x, y // 2] + up[x, y // 2 + 1]
    out.set_estimates([(0, width), (0, height)])
    return load(out)


def bare(name):
    """A Func's name without the number that Halide adds to make it the only one."""
    return name.split("$")[0]


def full(algorithm, name):
    """The full name of the Func that the test calls `name`."""
    (found,) = [func.name for func in algorithm.funcs if bare(func.name) == name]
    return found


def analysed(algorithm, *inlined, specialize=False):
    """An analysis at the estimated sizes, with the Funcs named inlined."""
    view = View(algorithm, frozenset(full(algorithm, name) for name in inlined))
    return Analysis(view, estimated_boxes(view), algorithm.symbols, specialize)


def kernel_of(algorithm, output, members=(), inlined=()):
    """The kernel of the pure stage of `output`, with the Funcs of `members` in its blocks."""
    names = tuple(full(algorithm, name) for name in (*members, output))
    return FusedKernel(analysed(algorithm, *inlined), names[-1], 0, names)


def barely(nested):
    """Nested members by bare names."""
    return {bare(member): bare(anchor) for member, anchor in nested.items()}
