"""Pipelines of reductions with few results, in integers, so that every order gives one answer."""

import halide as hl

from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine

MACHINE = CpuMachine("two cores", "x86-64", 2, ("sse4.1", "avx", "avx2"), 256, ())
WIDTH, HEIGHT = 203, 97  # no multiples of anything


def pipeline(kind, width=WIDTH, height=HEIGHT):
    """The task of one of `KINDS`; the reduction is an output, or an image is divided by it."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    image.set_estimates([(0, width), (0, height)])
    out = KINDS[kind](image, width, height)
    return make_task(out, machine=MACHINE, target="host")


def total(image, width, height):
    """The sum of an image, whose extents are those of the input at run time."""
    r = hl.RDom([(0, image.width()), (0, image.height())], "r")
    out = hl.Func("total")
    out[()] = hl.u32(0)
    out[()] += hl.u32(image[r.x, r.y])
    out.set_estimates([])
    return out


def dot(image, width, height):
    """The product of two rows, which all points of the output read."""
    r = hl.RDom([(0, width)], "r")
    value, out, x = hl.Func("value"), hl.Func("out"), hl.Var("x")
    value[()] = hl.i32(0)
    value[()] += hl.i32(image[r.x, 0]) * hl.i32(image[r.x, 1])
    out[x] = hl.i32(image[x, 0]) - value[()]
    out.set_estimates([(0, width)])
    return out


def rows(image, width, height):
    """The maxima of a few rows."""
    r = hl.RDom([(0, width)], "r")
    out, y = hl.Func("rows"), hl.Var("y")
    out[y] = hl.u8(0)
    out[y] = hl.max(out[y], image[r.x, y])
    out.set_estimates([(0, 3)])
    return out


def columns(image, width, height):
    """The sums of columns, of another Func."""
    r = hl.RDom([(0, height)], "r")
    double, out, x, y = hl.Func("double"), hl.Func("columns"), hl.Var("x"), hl.Var("y")
    double[x, y] = 2 * hl.i32(image[x, y])
    out[x] = hl.i32(0)
    out[x] += double[x, r.x]
    out.set_estimates([(0, 32)])
    return out


def histogram(image, width, height):
    """The histogram of an image."""
    r = hl.RDom([(0, width), (0, height)], "r")
    out, i = hl.Func("histogram"), hl.Var("i")
    out[i] = hl.u32(0)
    out[hl.i32(image[r.x, r.y])] += hl.u32(1)
    out.set_estimates([(0, 256)])
    return out


def position(image, width, height):
    """The last maximum of an image, among many equal ones: its column."""
    r = hl.RDom([(0, width), (0, height)], "r")
    best, out, x = hl.Func("best"), hl.Func("out"), hl.Var("x")
    best[()] = (hl.u8(0), 0)
    value = image[r.x, r.y]
    keeps = hl.select(best[()][0] > value, best[()][1], r.x)
    best[()] = (hl.max(best[()][0], value), keeps)
    out[x] = best[()][1] + x
    out.set_estimates([(0, 64)])
    return out


KINDS = {each.__name__: each for each in (total, dot, rows, columns, histogram, position)}
