"""The contents of inputs: a hash of seed and coordinates, or the elements of a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.halide.execution.inputs import BufferInput, InputError
from tilewright.halide.ir.algorithm import Span, Type
from tilewright.halide.ir.types import numpy_type

# Number of elements generated at a time; they stay in a core's cache.
_CHUNK = 1 << 15


def fill(array: npt.NDArray[Any], buffer: BufferInput, box: tuple[Span, ...], seed: int) -> None:
    """Write the contents of `box` to `array`; axis d is dimension d.

    An element depends on its coordinates, not on the box. bfloat16 is written as bits.
    """
    if buffer.path is not None:
        _fill_from_file(array, buffer, box)
        return
    if 0 in array.shape:
        return
    keys = [_keys(span, seed, d) for d, span in enumerate(box)]
    shape = tuple(span.extent for span in box)
    if not shape:
        array[()] = _values(np.array([_seed_key(seed, 0)], np.uint32), buffer)[0]
        return
    # The dimension with the smallest stride becomes the innermost loop.
    order = sorted(range(len(shape)), key=lambda d: -abs(array.strides[d]))
    target = array.transpose(order)
    keys = [keys[d] for d in order]
    shape = target.shape
    outer = math.prod(shape[:-2]) if len(shape) > 1 else 1
    rows = shape[-2] if len(shape) > 1 else 1
    step = max(1, _CHUNK // shape[-1])
    for index in range(outer):
        at = np.unravel_index(index, shape[:-2]) if len(shape) > 2 else ()
        key = np.uint32(0)
        with np.errstate(over="ignore"):
            for axis, i in enumerate(at):
                key = key + keys[axis][i]
        plane = target[at] if at else target
        if len(shape) == 1:
            for start in range(0, shape[0], _CHUNK):
                part = keys[-1][start : start + _CHUNK].copy()
                plane[start : start + _CHUNK] = _values(part, buffer)
            continue
        for start in range(0, rows, step):
            stop = min(rows, start + step)
            part = keys[-2][start:stop, None] + (keys[-1] + key)[None, :]
            plane[start:stop] = _values(part, buffer)


def thin(array: npt.NDArray[Any], first: tuple[int, ...], share: float) -> None:
    """Set all elements to zero but for a random `share` of them; axis d is dimension d.

    Whether an element is kept depends on its coordinates, which start at `first`.
    """
    if not array.ndim or 0 in array.shape:
        return
    *keys, last = (
        _keys(Span(low, extent), 0, d)
        for d, (low, extent) in enumerate(zip(first, array.shape, strict=True))
    )
    inner = np.zeros(array.shape[:-1], np.uint32)
    for d, key in enumerate(keys):
        inner += key.reshape([-1 if axis == d else 1 for axis in range(len(keys))])
    limit = np.uint32(min(share, 1.0) * 0xFFFFFFFF)
    step = max(1, _CHUNK // max(inner.size, 1))
    for start in range(0, last.size, step):
        hashes = _mix(inner[..., None] + last[start : start + step])
        array[..., start : start + step][hashes > limit] = 0


def _seed_key(seed: int, d: int) -> int:
    return (seed * 0x9E3779B1 + (d + 1) * 0x85EBCA77) & 0xFFFFFFFF


def _keys(span: Span, seed: int, d: int) -> npt.NDArray[np.uint32]:
    """Return a hash of each coordinate of dimension `d`."""
    coordinates = np.arange(span.min, span.min + span.extent, dtype=np.int64)
    keys = (coordinates & 0xFFFFFFFF).astype(np.uint32)
    keys ^= np.uint32(_seed_key(seed, d))
    return _mix(keys)


def _mix(h: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Apply Chris Wellons' lowest-bias 32-bit hash of two rounds, in place."""
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x7FEB352D)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x846CA68B)
    h ^= h >> np.uint32(16)
    return h


def _values(keys: npt.NDArray[np.uint32], buffer: BufferInput) -> npt.NDArray[Any]:
    """Return uniform values of the buffer's type and range; `keys` are overwritten."""
    h = _mix(keys)
    kind = buffer.type
    low, high = buffer.low, buffer.high
    if kind.code in ("float", "bfloat"):
        unit = (h >> np.uint32(8)).astype(np.float32)
        unit *= np.float32(2.0**-24)
        if kind.bits == 16:
            # Rounding to few bits must not give 1, which is outside the range.
            digits = 8 if kind.code == "bfloat" else 11
            np.minimum(unit, np.float32(1 - 2.0**-digits), out=unit)
        if (low, high) != (0.0, 1.0):
            return _as_stored(unit.astype(np.float64) * (high - low) + low, kind)
        return _as_stored(unit, kind)
    span = math.ceil(high) - math.ceil(low)
    if span == 1 << kind.bits and kind.bits <= 16:
        unsigned = (h >> np.uint32(32 - kind.bits)).astype(f"uint{max(8, kind.bits)}")
        return unsigned.view(numpy_type(kind)) if kind.bits > 1 else unsigned != 0
    wide = h.astype(np.uint64)
    wide *= np.uint64(min(span, 1 << 32))
    wide >>= np.uint64(32)
    return (wide.astype(np.int64) + math.ceil(low)).astype(numpy_type(kind))


def _as_stored(values: npt.NDArray[Any], kind: Type) -> npt.NDArray[Any]:
    if kind.code == "bfloat":
        return to_bfloat16(values.astype(np.float32))
    return values.astype(numpy_type(kind), copy=False)


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the values of bfloat16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _fill_from_file(array: npt.NDArray[Any], buffer: BufferInput, box: tuple[Span, ...]) -> None:
    try:
        source = np.load(str(buffer.path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"the contents of {buffer.name} cannot be read: {error}") from None
    if source.ndim != len(box):
        raise InputError(
            f"the contents of {buffer.name} in {buffer.path} have {source.ndim} axes, but the "
            f"input has {len(box)} dimensions"
        )
    indices = []
    for span, base, size in zip(box, buffer.dims, source.shape, strict=True):
        wanted = np.arange(span.min, span.min + span.extent) - base.min
        indices.append(np.clip(wanted, 0, size - 1))
    found = source[np.ix_(*indices)] if indices else source[()]
    array[...] = to_bfloat16(np.asarray(found)) if buffer.type.code == "bfloat" else found
