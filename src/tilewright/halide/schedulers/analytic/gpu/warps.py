"""Count the active warps of a block and the lines, sectors and banks that a warp's access touches.

Threads are numbered x first, then y, then z; 32 consecutive threads are a warp. An array over
threads has one row per warp, with NaN for inactive threads.

| symbol | meaning | unit |
|---|---|---|
| `block` | threads of the block in x, y, z | count |
| `active` | threads that a stage uses in x, y, z, from 0 on | count |
| `addresses` | address that each thread accesses, from an arbitrary origin | bytes |
| `width` | size of an element | bytes |
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.halide.ir.algorithm import Call, Const, Expr, Variable, walk

Threads = tuple[int, int, int]
Array = npt.NDArray[np.float64]

SECTOR_BYTES = 32.0  # the unit of traffic between caches (CUDA C++ Best Practices Guide)
LINE_BYTES = 128.0  # size of an L1 cache line (CUDA C++ Best Practices Guide)
BANKS, BANK_BYTES = 32, 4.0  # shared memory: banks and their width (CUDA C++ Programming Guide)
SAMPLED_WARPS = 8  # most warps of a block whose addresses are evaluated (chosen)


class TouchedLines(NamedTuple):
    """What one access by a warp touches, on average.

    Attributes:
        lines: Cache lines of 128 bytes.
        sectors: Sectors of 32 bytes.
        passes: Passes through the banks of shared memory.
        sharing: Number of warps that touch the same sector.
    """

    lines: float
    sectors: float
    passes: float
    sharing: float


@functools.lru_cache(maxsize=4096)
def active_warps(block: Threads, active: Threads, warp: int) -> int:
    """Return the warps of a block that have an active thread.

    >>> active_warps((16, 4, 1), (16, 2, 1), 32), active_warps((16, 4, 1), (2, 4, 1), 32)
    (1, 2)
    """
    x, y, z = (np.arange(min(a, b)) for a, b in zip(active, block, strict=True))
    numbers = x + block[0] * (y[:, None] + block[1] * z[:, None, None])
    return len(_distinct_values(numbers // warp))


@functools.lru_cache(maxsize=1024)
def threads_of(block: Threads, warp: int) -> tuple[Array, Array, Array]:
    """Return x, y and z of a block's threads, each of shape (warps, `warp`).

    Only a sample of the warps is included if there are more than `SAMPLED_WARPS`.
    """
    count = math.prod(block)
    number: Any = np.arange(math.ceil(count / warp) * warp).reshape(-1, warp)
    number = number[:: math.ceil(len(number) / SAMPLED_WARPS)]
    x, y, z = number % block[0], number // block[0] % block[1], number // (block[0] * block[1])
    inside = number < count
    return np.where(inside, x, np.nan), np.where(inside, y, np.nan), np.where(inside, z, np.nan)


def touched(addresses: Array, width: int) -> TouchedLines:
    """Return what an access touches, given the addresses of its warps.

    The offset of the first address within its line is unknown. So the next address is taken to lie
    in another line with a probability of gap / line size.

    >>> touched(4.0 * np.arange(32.0)[None], 4)
    TouchedLines(lines=1.9921875, sectors=4.96875, passes=1.0, sharing=1.0)
    """
    return _touched(addresses.tobytes(), addresses.shape, width)


@functools.lru_cache(maxsize=2048)
def _touched(data: bytes, shape: tuple[int, ...], width: int) -> TouchedLines:
    addresses = np.frombuffer(data).reshape(shape)
    rows = addresses[(~np.isnan(addresses)).any(axis=1)]
    if not len(rows):
        return TouchedLines(1.0, 1.0, 1.0, 1.0)
    gaps = np.nan_to_num(np.diff(np.sort(rows, axis=1), axis=1))
    lines = _crossed(gaps, LINE_BYTES, width) / len(rows)
    sectors = _crossed(gaps, SECTOR_BYTES, width)
    together = _crossed(np.diff(np.sort(rows[~np.isnan(rows)]))[None], SECTOR_BYTES, width)
    passes = [_passes(row) for row in rows[:2]]
    return TouchedLines(lines, sectors / len(rows), sum(passes) / len(passes), sectors / together)


def _crossed(gaps: Array, unit: float, width: int) -> float:
    """Return the units of `unit` bytes that all rows touch, given the gaps between addresses."""
    each = 1.0 + (width - 1.0) / unit
    return float(len(gaps) * each + (np.minimum(gaps, unit) / unit).sum())


def _passes(addresses: Array) -> float:
    """Return the passes of one shared memory access: the most distinct words in one bank."""
    words = _distinct_values(
        np.floor(addresses[~np.isnan(addresses)] / BANK_BYTES).astype(np.int64)
    )
    return float(np.max(np.bincount((words - words[0]) % BANKS)))


def _distinct_values(values: Array) -> Array:
    """Return the distinct values in order; `np.unique` would import numpy.ma, which takes 30 ms."""
    return np.array(sorted(set(values.ravel().tolist())), dtype=np.int64)


def gathered(addresses: Array, width: int, places: float) -> TouchedLines:
    """Return what an access touches if loaded data selects each address among `places`."""
    known = touched(addresses, width)
    threads = max(float((~np.isnan(addresses)).sum(axis=1).max()), 1.0)
    lines, sectors = (_distinct(n * places, threads) for n in (known.lines, known.sectors))
    return TouchedLines(lines, sectors, max(sectors / 8.0, 1.0), 1.0)


def _distinct(units: float, draws: float) -> float:
    """Return how many distinct units `draws` random draws from `units` hit, on average."""
    return units * (1.0 - math.pow(1.0 - 1.0 / units, draws))


def addresses_of(
    args: tuple[Expr, ...], env: Mapping[str, Array], steps: tuple[float, ...], whole: float
) -> tuple[Array, float]:
    """Return the addresses of an access and the number of places each may lie at.

    Args:
        args: The coordinates of the access.
        env: Values of the variables per thread.
        steps: Strides of the dimensions, in bytes.
        whole: Size of the Func or input, in bytes.

    Returns:
        The addresses in bytes, and the number of places that each may lie at: more than 1 if some
        coordinates depend on data that each thread loads from its own place.
    """
    known: dict[int, Array | None] = {}
    for node in walk(*args):
        known[id(node)] = _value(node, env, known)
    total: Array = np.zeros(1)
    places = 1.0
    for arg, step, end in zip(args, steps, (*steps[1:], whole), strict=False):
        found = known[id(arg)]
        if found is None:
            places *= max(end / step, 1.0)
        else:
            total = total + found * step
    return total, places


def _value(node: Expr, env: Mapping[str, Array], known: Mapping[int, Array | None]) -> Array | None:
    """Return the value of an expression for all threads; None if unknown data decides it.

    What all threads load from one place is the same for all of them, so it does not spread their
    addresses. Its value is unknown too, but any will do; 1 leaves products as they are.
    """
    if isinstance(node, Const):
        return None if isinstance(node.value, str) else np.array([float(node.value)])
    if isinstance(node, Variable):
        return env.get(node.name, np.zeros(1))
    args = [known[id(arg)] for arg in node.args]
    if isinstance(node, Call):
        clear = node.kind == "intrinsic" and node.name.startswith(("likely", "promise", "unsafe"))
        if clear:
            return args[0]
        shared = all(arg is not None and np.nanmin(arg) == np.nanmax(arg) for arg in args)
        return np.ones(1) if shared else None
    rule = _RULES.get(node.name)
    if rule is None or any(arg is None for arg in args):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.asarray(rule(*args), dtype=np.float64), posinf=0.0, neginf=0.0)


_RULES: dict[str, Callable[..., Any]] = {
    "cast": lambda a: a,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": lambda a, b: np.floor(a / b),
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "select": lambda c, a, b: np.where(c != 0, a, b),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}
