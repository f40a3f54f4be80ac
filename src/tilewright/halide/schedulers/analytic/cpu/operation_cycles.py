"""Cycles of one operation, and of one load, for a vector of values.

| symbol | meaning | unit |
|---|---|---|
| `lanes` | elements of the vector (1: a scalar) | count |
| `registers` | vector registers that hold the vector | count |
| `c` | `CpuConstants`: cycles per register, or per lane for scalar code | cycles |
| `strides` | steps per lane in each storage dimension of the loaded buffer | elements |
| `step`, `stride` | the step in the contiguous dimension, and its absolute value | elements |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tilewright.halide.analysis.layouts import steps_in_memory
from tilewright.halide.analysis.operation_counts import TRANSCENDENTAL, OpCount
from tilewright.halide.analysis.summaries import Load
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel

# Functions that Halide calls in the C library, once per lane.
_LIBRARY = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf")
_LOGIC = frozenset(("and", "or", "not", "bitwise_and"))

Innermost = Callable[[str], int]


def op_cycles(op: OpCount, lanes: int, model: CpuModel) -> float:
    """Return cycles of one operation on a vector of `lanes` elements (1: a scalar)."""
    c = model.constants
    registers = float(math.ceil(lanes * op.type.bytes / model.vector_bytes))
    if op.name.startswith(_LIBRARY):
        return c.library_cycles * lanes
    if op.name.startswith("pow"):
        return c.pow_cycles * registers
    if op.name.startswith(TRANSCENDENTAL):
        return c.transcendental_cycles * registers
    if op.name.startswith("sqrt"):
        return c.sqrt_cycles * registers
    if op.name in ("div", "mod"):
        return _division(op, lanes, registers, c)
    if op.name == "mul":
        return _product(op, c) * registers
    return _simple(op, c) * registers


def _division(op: OpCount, lanes: int, registers: float, c: CpuConstants) -> float:
    if op.type.code == "float":
        each = c.divide_constant_cycles if op.constant_operand else c.divide_cycles
        return each * registers
    if op.constant_operand:
        narrow = op.type.bits <= c.narrow_bits
        return (c.divide_narrow_cycles if narrow else c.divide_wide_cycles) * registers
    return c.divide_integer_cycles * lanes


def _product(op: OpCount, c: CpuConstants) -> float:
    """Return cycles per register of a product."""
    if op.type.code == "float" or op.type.bits <= c.narrow_bits:
        return c.multiply_cycles
    return c.multiply32_cycles if op.type.bits == c.middle_bits else c.multiply64_cycles


def _simple(op: OpCount, c: CpuConstants) -> float:
    """Return cycles per register of operations other than products, quotients and functions."""
    name = op.name
    if name in _LOGIC:
        return c.logic_cycles
    if name == "rounding_halving_add" and (op.type.code != "uint" or op.type.bits > c.narrow_bits):
        return c.halving_cycles
    named = {
        "select": c.select_cycles,
        "cast": c.cast_cycles,
        "saturating_cast": c.cast_cycles,
        "halving_add": c.halving_cycles,
        "reinterpret": 0.0,
        "absd": c.absd_cycles,
        "lerp": c.lerp_cycles,
    }
    return named.get(name, c.simple_cycles)


def load_cycles(
    load: Load, vector: str | None, lanes: int, model: CpuModel, innermost: Innermost
) -> float:
    """Return cycles of one load of a vector along loop `vector` (None: one scalar).

    `innermost` returns the contiguous dimension of a Func or input, given its name.
    """
    c = model.constants
    if vector is None or lanes == 1 or vector not in load.strides:
        return c.scalar_load_cycles
    registers = math.ceil(lanes * load.type.bytes / model.vector_bytes)
    steps = load.strides[vector]
    divisor = load.divisors.get(vector, 1)
    if not separable(divisor, lanes, c.most_separated):
        if vector in load.aligned and _steps_are_known(divisor, lanes, steps is not None):
            return c.fraction_cycles * registers
        return c.gather_cycles * lanes
    if steps is None or across(load, steps, innermost):
        return c.gather_cycles * lanes
    step = steps_in_memory(load, steps)[innermost(load.callee)] if steps else 0.0
    stride = abs(step)
    if stride == 1:
        return (c.load_cycles if step > 0 else c.reversed_load_cycles) * registers
    if stride == 1 / 2:
        return c.doubled_load_cycles * registers + c.doubled_shuffle_cycles
    if 1 < stride <= c.longest_stride:
        return (c.load_cycles * stride + c.shuffle_cycles * (stride - 1)) * registers
    if 0 < stride < 1:
        return c.fraction_cycles * registers
    return c.gather_cycles * lanes


def separated_parts(divisor: int, lanes: int, model: CpuModel) -> int:
    """Return the number of vectors into which Halide separates lanes (1: none).

    It does so where ``x % divisor`` or ``x // divisor`` of the vector's loop occurs outside
    coordinates, and interleaves the results.
    """
    return divisor if separable(divisor, lanes, model.constants.most_separated) else 1


def separated(load: Load, vector: str, parts: int) -> Load:
    """Return a load as it is for every `parts`-th lane of a vector along loop `vector`."""
    steps = load.strides.get(vector)
    if steps is None:
        return load
    divisor = load.divisors.get(vector, 1)
    return replace(
        load,
        strides={**load.strides, vector: tuple(parts * step for step in steps)},
        divisors={**load.divisors, vector: divisor // math.gcd(divisor, parts)},
    )


def separable(divisor: int, lanes: int, most: int) -> bool:
    """Return whether Halide deinterleaves the lanes of ``x // divisor`` by remainder.

    For divisors up to `most` that divide the number of lanes, Halide 21 makes one dense load per
    remainder (``Interleaver`` in ``Deinterleave.cpp``).
    """
    return divisor == 1 or (divisor <= most and lanes % divisor == 0 and lanes > divisor)


def _steps_are_known(divisor: int, lanes: int, linear: bool) -> bool:
    """Return whether lanes have constant distances if the first is a multiple of `divisor`.

    Halide 21 then makes one dense load and a shuffle (``FlattenNestedRamps.cpp``). If the vector
    spans several multiples, the address must also be `linear`: it must not contain the remainder.
    """
    return divisor % lanes == 0 or (linear and lanes % divisor == 0)


def across(load: Load, steps: tuple[float, ...], innermost: Innermost) -> bool:
    """Return whether the step between lanes leaves the contiguous row."""
    if not any(steps):
        return False
    inner = innermost(load.callee)
    return any(step for d, step in enumerate(steps_in_memory(load, steps)) if d != inner)
