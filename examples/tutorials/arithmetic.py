"""Every type and most operators: one function a pipeline.

After ``python_bindings/test/correctness`` and ``test/correctness`` of Halide v21.0.0. Every
function gives an unscheduled pipeline with estimates on all inputs and outputs.

Usage: ``tilewright schedule examples/tutorials/arithmetic.py:saturating``
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

WIDTH, HEIGHT = 70, 40
SIZE = 500


def _vector(dtype: hl.Type, name: str = "input") -> hl.ImageParam:
    vector = hl.ImageParam(dtype, 1, name)
    vector.set_estimates([(0, SIZE)])
    return vector


def _outputs(**values: hl.Expr | tuple[hl.Expr, ...]) -> hl.Pipeline:
    """A pipeline of vectors, one a keyword."""
    i = hl.Var("i")
    outputs = []
    for name, value in values.items():
        f = hl.Func(name)
        f[i] = value
        f.set_estimates([(0, SIZE)])
        outputs.append(f)
    return hl.Pipeline(outputs)


def saturating() -> hl.Pipeline:
    """Casts that saturate, and additions and subtractions that do."""
    a, b = _vector(hl.Int(16), "a"), _vector(hl.Int(16), "b")
    i = hl.Var("i")
    return _outputs(
        to_u8=hl.u8_sat(a[i]),
        to_i8=hl.i8_sat(a[i]),
        added=hl.saturating_add(a[i], b[i]),
        subtracted=hl.saturating_sub(a[i], b[i]),
    )


def _saturating(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, b = inputs["a"].astype(np.int32), inputs["b"].astype(np.int32)
    return (
        np.clip(a, 0, 255).astype(np.uint8),
        np.clip(a, -128, 127).astype(np.int8),
        np.clip(a + b, -32768, 32767).astype(np.int16),
        np.clip(a - b, -32768, 32767).astype(np.int16),
    )


def fixed_point() -> hl.Pipeline:
    """Widening, halving, rounding and high-half operations of fixed-point arithmetic."""
    a, b = _vector(hl.UInt(8), "a"), _vector(hl.UInt(8), "b")
    i = hl.Var("i")
    wide = hl.i16(a[i]) * hl.i16(64)
    return _outputs(
        product=hl.widening_mul(a[i], b[i]),
        difference=hl.widening_sub(a[i], b[i]),
        mean=hl.halving_add(a[i], b[i]),
        rounded_mean=hl.rounding_halving_add(a[i], b[i]),
        shifted=hl.rounding_shift_right(wide, hl.u16(3)),
        scaled=hl.mul_shift_right(wide, hl.i16(12345), hl.u16(15)),
        distance=hl.absd(a[i], b[i]),
    )


def _fixed_point(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, b = inputs["a"].astype(np.int64), inputs["b"].astype(np.int64)
    return (
        (a * b).astype(np.uint16),
        (a - b).astype(np.int16),
        ((a + b) // 2).astype(np.uint8),
        ((a + b + 1) // 2).astype(np.uint8),
        ((a * 64 + 4) >> 3).astype(np.int16),
        ((a * 64 * 12345) >> 15).astype(np.int16),
        np.abs(a - b).astype(np.uint8),
    )


def division() -> hl.Pipeline:
    """Division and remainder of negative numbers: down by default, towards zero on request."""
    a = _vector(hl.Int(32), "a")
    i = hl.Var("i")
    b = i % 13 + 1
    return _outputs(
        by_seven=a[i] // 7,
        by_minus_seven=a[i] // -7,
        by_power=a[i] // 16,
        remainder=a[i] % 7,
        by_value=a[i] // b,
        remainder_by_value=a[i] % b,
        towards_zero=hl.div_round_to_zero(a[i], b),
        remainder_towards_zero=hl.mod_round_to_zero(a[i], b),
    )


def _division(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["a"].astype(np.int64)
    b = np.arange(SIZE) % 13 + 1
    # The remainder is never negative; the quotient follows from it.
    truncated = np.sign(a) * (np.abs(a) // b)
    results = (
        a // 7,
        (a - a % 7) // -7,
        a // 16,
        a % 7,
        a // b,
        a % b,
        truncated,
        a - truncated * b,
    )
    return tuple(r.astype(np.int32) for r in results)


def unsigned_division() -> hl.Pipeline:
    """Unsigned division by constants in four widths."""
    i = hl.Var("i")
    values = {}
    for bits in (8, 16, 32, 64):
        v = _vector(hl.UInt(bits), f"u{bits}")
        values[f"div{bits}"] = v[i] // hl.cast(hl.UInt(bits), 11)
        values[f"mod{bits}"] = v[i] % hl.cast(hl.UInt(bits), 11)
    return _outputs(**values)


def _unsigned_division(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    results = []
    for bits in (8, 16, 32, 64):
        v = inputs[f"u{bits}"]
        results += [v // v.dtype.type(11), v % v.dtype.type(11)]
    return tuple(results)


def bitwise() -> hl.Pipeline:
    """Logic, shifts and counts of bits."""
    a, b = _vector(hl.UInt(32), "a"), _vector(hl.UInt(32), "b")
    i = hl.Var("i")
    return _outputs(
        both=a[i] & b[i],
        either=a[i] | b[i],
        one=a[i] ^ b[i],
        neither=~(a[i] | b[i]),
        left=a[i] << hl.u32(i % 31),
        right=a[i] >> hl.u32(i % 31),
        ones=hl.popcount(a[i]),
        leading=hl.count_leading_zeros(a[i] | hl.u32(1)),
        trailing=hl.count_trailing_zeros(a[i] | hl.u32(1 << 20)),
    )


def _bitwise(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, b = inputs["a"], inputs["b"]
    shift = (np.arange(SIZE) % 31).astype(np.uint32)
    ints = [int(v) for v in a]
    return (
        a & b,
        a | b,
        a ^ b,
        ~(a | b),
        a << shift,
        a >> shift,
        np.array([v.bit_count() for v in ints], np.uint32),
        np.array([32 - (v | 1).bit_length() for v in ints], np.uint32),
        np.array([((v | 1 << 20) & -(v | 1 << 20)).bit_length() - 1 for v in ints], np.uint32),
    )


def hash_64() -> hl.Func:
    """A mixing function on unsigned 64-bit integers."""
    a = _vector(hl.UInt(64))
    i = hl.Var("i")
    f = hl.Func("hash")
    h = a[i] ^ (a[i] >> hl.u64(33))
    h = h * hl.u64(0x62A9D9ED)
    h = h ^ (h >> hl.u64(29))
    f[i] = h * hl.u64(0x1B873593) + hl.u64(i)
    f.set_estimates([(0, SIZE)])
    return f


def _hash_64(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"]
    h = (a ^ (a >> np.uint64(33))) * np.uint64(0x62A9D9ED)
    h ^= h >> np.uint64(29)
    return (h * np.uint64(0x1B873593) + np.arange(SIZE, dtype=np.uint64),)


def narrow_and_wide() -> hl.Pipeline:
    """Casts between signed, unsigned, narrow and wide integers, which wrap."""
    a = _vector(hl.Int(32))
    i = hl.Var("i")
    types = [("i8", hl.Int(8)), ("u8", hl.UInt(8)), ("i16", hl.Int(16)), ("u16", hl.UInt(16))]
    types += [("u32", hl.UInt(32)), ("i64", hl.Int(64)), ("u64", hl.UInt(64))]
    return _outputs(**{f"to_{n}": hl.cast(t, a[i]) for n, t in types})


def booleans() -> hl.Pipeline:
    """Comparisons, logic, and an intermediate stage and an output of type bool."""
    a, b = _vector(hl.Int(8), "a"), _vector(hl.Int(8), "b")
    i = hl.Var("i")
    less, f, g = hl.Func("less"), hl.Func("f"), hl.Func("g")
    less[i] = (a[i] < b[i]) | (a[i] == hl.i8(0))
    f[i] = less[i] & ~(b[i] > hl.i8(50))
    g[i] = hl.select(less[i] != f[i], a[i], b[i])
    for func in (f, g):
        func.set_estimates([(0, SIZE)])
    return hl.Pipeline([f, g])


def _booleans(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a, b = inputs["a"], inputs["b"]
    less = (a < b) | (a == 0)
    f = less & ~(b > 50)
    return f, np.where(less != f, a, b)


def selects() -> hl.Pipeline:
    """Chains of selects, choice by index, clamps, minima and maxima of several values."""
    a, b = _vector(hl.Float(32), "a"), _vector(hl.Float(32), "b")
    i = hl.Var("i")
    x, y = a[i], b[i]
    return _outputs(
        chain=hl.select(x < 0.25, y, x < 0.5, -y, x < 0.75, 2.0 * y, 0.5),
        index=hl.mux(i % 4, [x, y, x + y, hl.f32(1.0)]),
        clamped=hl.clamp(2.0 * x - y, hl.f32(0.1), hl.f32(0.9)),
        smallest=hl.min(x, y, 0.5),
        largest=hl.max(x, y, 0.5),
        between=hl.lerp(x, y, hl.f32(0.3)),
    )


def _selects(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    x, y, i = inputs["a"], inputs["b"], np.arange(SIZE)
    half = np.float32(0.5)
    results = (
        np.select([x < 0.25, x < 0.5, x < 0.75], [y, -y, 2 * y], half),
        np.choose(i % 4, [x, y, x + y, np.float32(1)]),
        np.clip(2 * x - y, 0.1, 0.9),
        np.minimum(np.minimum(x, y), half),
        np.maximum(np.maximum(x, y), half),
        x + (y - x) * np.float32(0.3),
    )
    return tuple(r.astype(np.float32) for r in results)


def rounding() -> hl.Pipeline:
    """Ways to round, fractions, absolute values and tests for what is no number."""
    a = _vector(hl.Float(32))
    i = hl.Var("i")
    v = (a[i] - 0.5) * 20.0
    odd = hl.select(i % 7 == 0, v / hl.f32(i % 2), v)
    return _outputs(
        down=hl.floor(v),
        up=hl.ceil(v),
        nearest=hl.round(v),
        towards_zero=hl.trunc(v),
        fraction=hl.fract(v),
        magnitude=hl.abs(v),
        integer=hl.i32(v),
        infinite=hl.select(hl.is_inf(odd), 1, hl.is_finite(odd), 2, hl.is_nan(odd), 3, 4),
    )


def _rounding(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    v = (inputs["input"] - np.float32(0.5)) * np.float32(20)
    i = np.arange(SIZE)
    infinite = np.where((i % 14 == 0) & (v != 0), 1, 2)
    return (
        np.floor(v),
        np.ceil(v),
        np.rint(v),
        np.trunc(v),
        v - np.trunc(v),
        np.abs(v),
        v.astype(np.int32),
        infinite.astype(np.int32),
    )


def transcendental() -> hl.Pipeline:
    """Functions of the mathematics library in single precision."""
    a = _vector(hl.Float(32))
    i = hl.Var("i")
    v = a[i] + 0.125
    return _outputs(
        exp=hl.exp(v),
        log=hl.log(v),
        sqrt=hl.sqrt(v),
        power=hl.pow(v, 2.5),
        cube=hl.pow(v, 3),
        sin=hl.sin(v),
        cos=hl.cos(v),
        tan=hl.tan(v),
        asin=hl.asin(v - 0.5),
        atan=hl.atan(v),
        atan2=hl.atan2(v, v - 0.5),
        sinh=hl.sinh(v),
        tanh=hl.tanh(v),
        hypot=hl.hypot(v, 3.0),
        erf=hl.erf(v),
    )


def _transcendental(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    v = inputs["input"].astype(np.float64) + 0.125
    results = [np.exp(v), np.log(v), np.sqrt(v), v**2.5, v**3, np.sin(v), np.cos(v), np.tan(v)]
    results += [np.arcsin(v - 0.5), np.arctan(v), np.arctan2(v, v - 0.5), np.sinh(v), np.tanh(v)]
    results += [np.hypot(v, 3.0), np.array([math.erf(x) for x in v])]
    return tuple(r.astype(np.float32) for r in results)


def double_precision() -> hl.Func:
    """Calls into the mathematics library in double precision, in two stages."""
    a = _vector(hl.Float(64))
    i = hl.Var("i")
    g, f = hl.Func("g"), hl.Func("f")
    g[i] = hl.sin(a[i]) * hl.exp(-a[i]) + hl.f64(1.5)
    f[i] = hl.sqrt(g[i]) + hl.log(g[i + 1])
    f.set_estimates([(0, SIZE - 1)])
    return f


def _double_precision(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    a = inputs["input"]
    g = np.sin(a) * np.exp(-a) + 1.5
    return (np.sqrt(g[:-1]) + np.log(g[1:]),)


def half_precision() -> hl.Func:
    """Numbers stored in 16 bits between two stages."""
    a = _vector(hl.Float(32))
    i = hl.Var("i")
    stored, f = hl.Func("stored"), hl.Func("f")
    stored[i] = hl.cast(hl.Float(16), a[i] * 100.0)
    f[i] = hl.f32(stored[i]) + hl.f32(stored[i + 1])
    f.set_estimates([(0, SIZE - 1)])
    return f


def _half_precision(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    stored = (inputs["input"] * np.float32(100)).astype(np.float16).astype(np.float32)
    return (stored[:-1] + stored[1:],)


def approximations() -> hl.Pipeline:
    """Fast approximations of exp, log, pow, sine and cosine."""
    a = _vector(hl.Float(32))
    i = hl.Var("i")
    v = a[i] + 0.5
    return _outputs(
        exp=hl.fast_exp(v),
        log=hl.fast_log(v),
        power=hl.fast_pow(v, hl.f32(1.7)),
        sin=hl.fast_sin(v),
    )


def _approximations(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    v = inputs["input"].astype(np.float64) + 0.5
    return tuple(r.astype(np.float32) for r in (np.exp(v), np.log(v), v**1.7, np.sin(v)))


def embedded_table() -> hl.Func:
    """Constants that are part of the pipeline, as a table and as a small filter."""
    table = hl.Buffer(hl.UInt(8), [256], "table")
    np.asarray(table)[...] = (np.arange(256) * 7 + 3) % 251
    taps = hl.Buffer(hl.Int(32), [3], "taps")
    np.asarray(taps)[...] = (1, -2, 4)
    image = hl.ImageParam(hl.UInt(8), 2, "input")
    image.set_estimates([(0, WIDTH), (0, HEIGHT)])
    x, y = hl.vars("x y")
    mapped, f = hl.Func("mapped"), hl.Func("f")
    mapped[x, y] = table[hl.i32(image[x, y])]
    r = hl.RDom([(0, 3)], "r")
    f[x, y] = hl.sum(hl.i32(mapped[x + r, y]) * taps[r], "filtered")
    f.set_estimates([(0, WIDTH - 2), (0, HEIGHT)])
    return f


def _embedded_table(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    m = ((np.arange(256) * 7 + 3) % 251).astype(np.int32)[inputs["input"]]
    return (m[:-2] - 2 * m[1:-1] + 4 * m[2:],)


def several_outputs() -> hl.Pipeline:
    """Outputs of different dimensions and types that share a stage."""
    image = hl.ImageParam(hl.UInt(8), 2, "input")
    image.set_estimates([(0, WIDTH), (0, HEIGHT)])
    gain = hl.Param(hl.Float(32), "gain", 1.5)
    gain.set_estimate(1.5)
    x, y = hl.vars("x y")
    shared, pixels, columns, total = (hl.Func(n) for n in ("shared", "pixels", "columns", "total"))
    shared[x, y] = hl.f32(image[x, y]) * gain
    pixels[x, y] = hl.u16(shared[x, y])
    r = hl.RDom([(0, HEIGHT)], "r")
    columns[x] = 0.0
    columns[x] += shared[x, r]
    s = hl.RDom([(0, WIDTH), (0, HEIGHT)], "s")
    total[()] = hl.cast(hl.Int(64), 0)
    total[()] += hl.cast(hl.Int(64), image[s.x, s.y])
    pixels.set_estimates([(0, WIDTH), (0, HEIGHT)])
    columns.set_estimates([(0, WIDTH)])
    return hl.Pipeline([pixels, columns, total])


def _several_outputs(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    shared = inputs["input"].astype(np.float32) * np.float32(inputs["gain"])
    total = np.array(inputs["input"].astype(np.int64).sum())
    return shared.astype(np.uint16), shared.sum(axis=1), total


def scalar_parameters() -> hl.Pipeline:
    """Scalar parameters of many types."""
    kinds = {"p_i8": hl.Int(8), "p_u16": hl.UInt(16), "p_i32": hl.Int(32), "p_i64": hl.Int(64)}
    kinds |= {"p_f32": hl.Float(32), "p_f64": hl.Float(64)}
    i = hl.Var("i")
    values = {}
    for k, (name, dtype) in enumerate(kinds.items()):
        p = hl.Param(dtype, name)
        p.set(k + 3)
        p.set_estimate(k + 3)
        values[f"out_{name}"] = p * hl.cast(dtype, i % 10) + hl.cast(dtype, 1)
    return _outputs(**values)


def _scalar_parameters(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    kinds = {"p_i8": np.int8, "p_u16": np.uint16, "p_i32": np.int32, "p_i64": np.int64}
    kinds |= {"p_f32": np.float32, "p_f64": np.float64}
    i = np.arange(SIZE) % 10
    return tuple((inputs[name] * i + 1).astype(kind) for name, kind in kinds.items())


# What each pipeline gives, by NumPy, axes in Halide's order.
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    "saturating": _saturating,
    "fixed_point": _fixed_point,
    "division": _division,
    "unsigned_division": _unsigned_division,
    "bitwise": _bitwise,
    "hash_64": _hash_64,
    "narrow_and_wide": lambda inputs: tuple(
        inputs["input"].astype(t)
        for t in (np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64, np.uint64)
    ),
    "booleans": _booleans,
    "selects": _selects,
    "rounding": _rounding,
    "transcendental": _transcendental,
    "double_precision": _double_precision,
    "half_precision": _half_precision,
    "approximations": _approximations,
    "embedded_table": _embedded_table,
    "several_outputs": _several_outputs,
    "scalar_parameters": _scalar_parameters,
}
