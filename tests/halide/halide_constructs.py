"""Small pipelines, one for each thing that Halide can express, with estimates set.

`CONSTRUCTS` maps a name to a function that builds a fresh pipeline. `EVALUABLE` names those
that the reference evaluator understands.
"""

from __future__ import annotations

import halide as hl

x, y, c, u, v = (hl.Var(name) for name in "xycuv")
CONSTRUCTS: dict = {}
EVALUABLE: list = []


def construct(function, evaluable=True):
    name = function.__name__.strip("_")
    CONSTRUCTS[name] = function
    if evaluable:
        EVALUABLE.append(name)
    return function


def structural(function):
    return construct(function, evaluable=False)


def image(kind, name="im", dims=2):
    return hl.ImageParam(kind, dims, name)


def define(name, args, value):
    func = hl.Func(name)
    func[args] = value
    return func


def output(func, *extents):
    func.set_estimates([(0, extent) for extent in extents])
    return func


@construct
def pointwise():
    im = image(hl.UInt(8))
    return output(define("f", (x, y), im[x, y] * 2 + hl.u8(x)), 7, 5)


@construct
def stencil():
    im = image(hl.Float(32))
    g = define("g", (x, y), im[x - 1, y] + im[x, y] + im[x + 1, y])
    return output(define("f", (x, y), (g[x, y - 1] + g[x, y] + g[x, y + 1]) / 9.0), 6, 4)


@construct
def diamond():
    im = image(hl.Int(32))
    a = define("a", (x, y), im[x, y] + 1)
    b = define("b", (x, y), a[x, y] * 2)
    d = define("d", (x, y), a[x + 1, y] - 3)
    return output(define("f", (x, y), b[x, y] + d[x, y] + a[y, x]), 4, 4)


@construct
def tuples():
    im = image(hl.Int(16))
    t = define("t", (x, y), hl.Tuple([hl.f32(im[x, y]), hl.i32(im[x, y]) + y]))
    return output(define("f", (x, y), hl.Tuple([t[y, x][1], t[x, y][0] * 2.0])), 5, 5)


@construct
def reduction():
    im = image(hl.Float(32))
    r = hl.RDom([(0, 5), (1, 3)], "r")
    f = define("f", x, 0.0)
    f[x] += im[x + r.x, r.y]
    return output(f, 6)


@construct
def predicated_reduction():
    im = image(hl.Int(32))
    r = hl.RDom([(0, 8), (0, 8)], "r")
    r.where(r.x + r.y < 9)
    r.where(r.x >= r.y)
    f = define("f", x, 0)
    f[x] += im[r.x, r.y] * x
    return output(f, 3)


@construct
def predicate_on_data():
    im = image(hl.UInt(8), dims=1)
    r = hl.RDom([(0, 9)], "r")
    r.where(im[r.x] > 100)
    f = define("f", (), 0)
    f[()] += hl.i32(im[r.x])
    return f


@construct
def inline_sum():
    im = image(hl.Float(32))
    r = hl.RDom([(-1, 3), (-1, 3)], "r")
    return output(define("f", (x, y), hl.sum(im[x + r.x, y + r.y] * 0.5)), 4, 3)


@construct
def inline_extrema():
    im = image(hl.UInt(8))
    r = hl.RDom([(0, 4)], "r")
    low, high = hl.minimum(im[x + r.x, y]), hl.maximum(im[x, y + r.x])
    return output(define("f", (x, y), hl.u16(low) + hl.u16(high)), 4, 3)


@construct
def inline_argmin():
    im = image(hl.Int(16), dims=1)
    r = hl.RDom([(0, 6)], "r")
    low, high = hl.argmin(r, im[x + r.x]), hl.argmax(r, im[x + r.x])
    return output(define("f", x, hl.Tuple([low[0], low[1], high[0], high[1]])), 5)


@construct
def inline_product():
    im = image(hl.Int(32), dims=1)
    r = hl.RDom([(0, 3)], "r")
    return output(define("f", x, hl.product(im[r.x + x])), 4)


@construct
def factored_reduction():
    im = image(hl.Int(32))
    r = hl.RDom([(0, 6), (0, 5)], "r")
    f = define("f", x, 0)
    f[x] += im[r.x, r.y] * x
    f.update().rfactor(r.y, u)
    return output(f, 3)


@construct
def factored_split_reduction():
    im = image(hl.Int(32), dims=1)
    r = hl.RDom([(0, 12)], "r")
    f = define("f", (), 0)
    f[()] += im[r.x]
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    f.update().split(r.x, outer, inner, 4)
    f.update().rfactor([(outer, u)])
    return f


@construct
def histogram():
    im = image(hl.UInt(8))
    r = hl.RDom([(0, 6), (0, 5)], "r")
    h = define("h", x, 0)
    h[hl.i32(im[r.x, r.y]) / 16] += 1
    return output(define("f", x, h[x] * 3), 16)


@construct
def scan():
    im = image(hl.Int(32))
    r = hl.RDom([(1, 7)], "r")
    f = define("f", (x, y), im[x, y])
    f[r.x, y] = f[r.x - 1, y] + f[r.x, y]
    return output(f, 8, 3)


@construct
def two_scans():
    im = image(hl.Float(32))
    r = hl.RDom([(1, 5)], "r")
    f = define("f", (x, y), im[x, y])
    f[x, r.x] = 0.5 * f[x, r.x - 1] + f[x, r.x]
    f[x, 5 - r.x] = 0.25 * f[x, 6 - r.x] + f[x, 5 - r.x]
    return output(f, 3, 6)


@construct
def lookup_table():
    im, lut = image(hl.UInt(8)), image(hl.Int(16), "lut", 1)
    return output(define("f", (x, y), lut[hl.i32(im[x, y])]), 4, 4)


@construct
def clamped_gather():
    im, where = image(hl.Float(32)), image(hl.Int(32), "where")
    index = hl.clamp(where[x, y], 0, 5)
    return output(define("f", (x, y), im[index, y]), 4, 4)


@construct
def scatter():
    where = image(hl.UInt(8), "where", 1)
    r = hl.RDom([(0, 10)], "r")
    f = define("f", x, -1)
    f[hl.clamp(hl.i32(where[r.x]) / 20, 0, 11)] = r.x
    return output(f, 12)


def _boundary(condition, *args):
    im = image(hl.UInt(8))
    im.set_estimates([(0, 5), (0, 4)])
    bounded = getattr(hl.BoundaryConditions, condition)(im, *args)
    return output(define("f", (x, y), hl.u16(bounded[x - 2, y]) + bounded[x + 1, y + 3]), 6, 5)


@construct
def repeat_edge():
    return _boundary("repeat_edge")


@construct
def constant_exterior():
    return _boundary("constant_exterior", 7)


@construct
def repeat_image():
    return _boundary("repeat_image")


@construct
def mirror_image():
    return _boundary("mirror_image")


@construct
def mirror_interior():
    return _boundary("mirror_interior")


@construct
def scalars():
    im = image(hl.Float(32))
    gain, radius, on = hl.Param(hl.Float(32), "gain"), hl.Param(hl.Int(32), "radius"), None
    on = hl.Param(hl.Bool(), "on")
    gain.set_estimate(0.1)
    radius.set(2)
    on.set_estimate(True)
    return output(define("f", (x, y), hl.select(on, im[x + radius, y] * gain, 0.0)), 4, 3)


@construct
def reduction_over_parameter():
    im, taps = image(hl.Int(32), dims=1), hl.Param(hl.Int(32), "taps")
    taps.set_estimate(4)
    r = hl.RDom([(0, taps)], "r")
    f = define("f", x, 0)
    f[x] += im[x + r.x]
    return output(f, 5)


@construct
def reduction_over_input():
    im = image(hl.Int(32), dims=1)
    im.set_estimates([(0, 9)])
    r = hl.RDom([(im.dim(0).min(), im.dim(0).extent())], "r")
    f = define("f", (), 0)
    f[()] += im[r.x]
    return f


@construct
def embedded_buffer():
    table = hl.Buffer(hl.Int(32), [4, 3], "table")
    for i in range(4):
        for j in range(3):
            table[i, j] = 10 * i + j
    return output(define("f", (x, y), table[x % 4, y % 3] + x), 9, 5)


@construct
def integer_division():
    im = image(hl.Int(32))
    d = hl.i32(y) - 3
    value = hl.Tuple([im[x, y] / d, im[x, y] % d, im[x, y] / 7, im[x, y] % -7])
    return output(define("f", (x, y), value), 5, 7)


@construct
def float_modulus():
    im = image(hl.Float(32), dims=1)
    return output(define("f", x, (im[x] - 0.5) % hl.f32(0.3)), 9)


@construct
def selects():
    im = image(hl.UInt(8))
    p = im[x, y]
    value = hl.select(p < 50, hl.u8(1), p > 200, hl.u8(2), (p == 100) | (x != y), p, hl.u8(0))
    return output(define("f", (x, y), value), 6, 6)


@construct
def narrowing_casts():
    im = image(hl.Int(32))
    p = im[x, y]
    value = hl.Tuple([hl.u8(p), hl.i8(p * 3), hl.u8_sat(p), hl.i16(p * 100), hl.u32(p)])
    return output(define("f", (x, y), value), 5, 4)


@construct
def small_floats():
    im, b = image(hl.Float(16), dims=1), image(hl.BFloat(16), "b", 1)
    f = define("f", x, hl.Tuple([hl.f32(im[x]) * 2.0, hl.f32(b[x]) + 1.0]))
    return output(f, 6)


@construct
def wide_integers():
    im, un = image(hl.Int(64), dims=1), image(hl.UInt(64), "un", 1)
    big = hl.i64(1 << 20) * hl.i64(1 << 20)
    return output(define("f", x, hl.Tuple([im[x] * big, un[x] - hl.u64(40000)])), 6)


@construct
def doubles():
    im = image(hl.Float(64), dims=1)
    return output(define("f", x, hl.sqrt(im[x]) * hl.f64(1.0e-3) + hl.f64(0.1)), 6)


@construct
def booleans():
    im = image(hl.UInt(8))
    a, b = im[x, y] > 100, im[x, y] % 2 == 0
    both = define("both", (x, y), a & b)
    value = hl.Tuple([both[x, y], both[x, y] | hl.logical_not(a)])
    return output(define("f", (x, y), value), 5, 4)


@construct
def bit_operations():
    im = image(hl.UInt(8))
    p = im[x, y]
    value = hl.Tuple([p & 15, p | 3, p ^ 255, ~p, p >> hl.u8(2), p << hl.u8(1)])
    return output(define("f", (x, y), value), 5, 4)


@construct
def math_functions():
    im = image(hl.Float(32), dims=1)
    p = im[x] - 0.5
    value = hl.Tuple(
        [hl.abs(p), hl.floor(p * 9.0), hl.sin(p), hl.exp(p), hl.pow(im[x] + 1.0, p), hl.sqrt(im[x])]
    )
    return output(define("f", x, value), 6)


@construct
def differences():
    im = image(hl.UInt(8))
    return output(define("f", (x, y), hl.absd(im[x, y], im[x + 1, y])), 5, 4)


@construct
def interpolation():
    im = image(hl.Float(32))
    weight = hl.f32(x) / 8.0
    return output(define("f", (x, y), hl.lerp(im[x, y], im[x + 1, y], weight)), 5, 4)


@construct
def reinterpretation():
    im = image(hl.Float(32), dims=1)
    return output(define("f", x, hl.reinterpret(hl.UInt(32), im[x])), 5)


@construct
def several_outputs():
    im = image(hl.Int(32))
    a = output(define("a", (x, y), im[x, y] + 1), 5, 4)
    b = output(define("b", x, a[x, 2] * 2), 4)
    s = define("s", (), a[1, 1])
    return hl.Pipeline([b, a, s])


@construct
def no_dimensions():
    im = image(hl.Int(32), dims=1)
    return define("f", (), im[3] - im[0])


@construct
def wrapped_once():
    im = image(hl.Int(32))
    g = define("g", (x, y), im[x, y] * 3)
    a, b = define("a", (x, y), g[x, y] + 1), define("b", (x, y), g[x, y] + 2)
    g.in_(a)
    return output(define("f", (x, y), a[x, y] * b[x, y]), 4, 3)


@construct
def wrapped_everywhere():
    im = image(hl.Int(32))
    g = define("g", (x, y), im[x, y] * 3)
    a, b = define("a", (x, y), g[x, y] + 1), define("b", (x, y), g[x, y] + 2)
    g.in_()
    return output(define("f", (x, y), a[x, y] * b[x, y]), 4, 3)


@construct
def wrapped_twice():
    im = image(hl.Int(32))
    g = define("g", (x, y), im[x, y] * 3)
    f = define("f", (x, y), g[x, y] + g[x + 1, y])
    g.in_(f).in_(f)
    return output(f, 4, 3)


@construct
def wrapped_image():
    im = image(hl.Int(32))
    f = define("f", (x, y), im[x, y] + im[x + 1, y])
    im.in_()
    return output(f, 4, 3)


@construct
def cloned():
    im = image(hl.Int(32))
    g = define("g", (x, y), im[x, y] * 3)
    a, b = define("a", (x, y), g[x, y] + 1), define("b", (x, y), g[x, y] + 2)
    g.clone_in(a)
    return output(define("f", (x, y), a[x, y] * b[x, y]), 4, 3)


@construct
def shared_subexpressions():
    im = image(hl.Int(32), dims=1)
    e = im[x]
    for i in range(20):
        e = (e * e + i) % 1000
    return output(define("f", x, e), 5)


@construct
def partial_update():
    im = image(hl.Int(32))
    f = define("f", (x, y), im[x, y])
    f[x, 0] = -f[x, 1]
    f[3, y] = 9
    return output(f, 5, 4)


@construct
def undefined_initially():
    im = image(hl.Int(32), dims=1)
    r = hl.RDom([(0, 6)], "r")
    f = define("f", x, hl.undef(hl.Int(32)))
    f[r.x] = im[r.x] * 2
    return output(f, 6)


@construct
def negative_origin():
    im = image(hl.Int(32))
    f = define("f", (x, y), im[x, y] + x)
    f.set_estimates([(-3, 5), (2, 4)])
    return f


@construct
def bounded():
    im = image(hl.Int(32))
    f = define("f", (x, c), im[x, c] + c)
    f.bound(c, 0, 3)
    f.set_estimate(x, 0, 6)
    return f


@construct
def memoized():
    im, p = image(hl.Int(32)), hl.Param(hl.Int(32), "p")
    p.set(4)
    g = define("g", (x, y), x * p + y)
    g.compute_root().memoize()
    return output(define("f", (x, y), g[x, y] + im[x, y + 1]), 4, 4)


@construct
def strict():
    im = image(hl.Float(32), dims=1)
    return output(define("f", x, hl.strict_float((im[x] + 1.0e8) - 1.0e8)), 5)


@construct
def requirement():
    im = image(hl.Int(32), dims=1)
    im.set_estimates([(0, 8)])
    pipeline = hl.Pipeline(output(define("f", x, im[x + 1]), 5))
    pipeline.add_requirement(im.dim(0).extent() > 3, "too small")
    return pipeline


@construct
def interleaved():
    im = image(hl.UInt(8), dims=3)
    im.dim(0).set_stride(3)
    im.dim(2).set_stride(1).set_bounds(0, 3)
    f = define("f", (x, y, c), im[x, y, c] + 1)
    f.output_buffer().dim(0).set_stride(3)
    f.output_buffer().dim(2).set_stride(1)
    f.bound(c, 0, 3)
    return output(f, 6, 4, 3)


@construct
def unnamed():
    im = hl.ImageParam(hl.Int(32), 2)
    p = hl.Param(hl.Int(32))
    p.set(3)
    f = hl.Func()
    i, j = hl.Var(), hl.Var()
    r = hl.RDom([(0, 3)])
    f[i, j] = hl.sum(im[i + r.x, j]) * p
    return output(f, 4, 3)


@structural
def extern_stage():
    im, p = image(hl.Int(32)), hl.Param(hl.Int(32), "p")
    p.set(1)
    g = define("g", (x, y), im[x, y] + 1)
    table = hl.Buffer(hl.Int(32), [4], "table")
    table.fill(7)
    args = [hl.ExternFuncArgument(a) for a in (g, im, hl.Expr(p) + 1, table)]
    e = hl.Func("e")
    e.define_extern("user_stage", args, [hl.Int(32)], [x, y])
    return output(define("f", (x, y), e[x, y] * 2), 4, 3)


@structural
def random_numbers():
    return output(define("f", (x, y), hl.random_float() + hl.f32(hl.random_int())), 4, 3)


@structural
def handles():
    context = hl.Param(hl.Handle(), "context")
    f = define("f", x, hl.reinterpret(hl.UInt(64), context) + hl.u64(x))
    return output(f, 4)


@structural
def deep():
    im = image(hl.Float(32), dims=1)
    e = im[x]
    for i in range(3000):
        e = hl.sin(e) + float(i)
    return output(define("f", x, e), 4)


@structural
def long_chain():
    previous = image(hl.UInt(16))
    for i in range(40):
        previous = define(f"s{i}", (x, y), previous[x - 1, y] + previous[x + 1, y])
    return output(previous, 8, 8)


def pipeline(name):
    """A fresh ``halide.Pipeline`` of the construct."""
    built = CONSTRUCTS[name]()
    return built if isinstance(built, hl.Pipeline) else hl.Pipeline(built)
