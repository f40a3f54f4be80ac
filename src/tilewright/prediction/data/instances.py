"""Instances drawn as in Tables II and IV of the paper, from a seed and the instance's index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.data.kernel import Instance, Kernel, KernelVariant, Operands
from tilewright.prediction.errors import PredictionError

Array: TypeAlias = np.ndarray[Any, Any]

# Table II draws dimensions up to 1024. A matrix product of uBLAS then takes a quarter of a
# second on average, so products are drawn up to 512.
LARGEST = 1024
LARGEST_PRODUCT = 512
FILTERS = (3, 5, 7)
WINDOWS = (1, 2)
LINE = 64  # bytes of a cache line


def drawn(
    kernel: Kernel, variant: KernelVariant, count: int, seed: int
) -> Iterator[tuple[Instance, dict[str, int], Operands]]:
    """Yield `count` instances with settings and operands.

    Each depends on the seed and its index alone, and its operands and features do not depend
    on the variant: row i is the same work for every variant of a kernel.
    """
    for index in range(count):
        yield drawn_at(kernel, variant, index, seed)


def drawn_at(
    kernel: Kernel, variant: KernelVariant, index: int, seed: int
) -> tuple[Instance, dict[str, int], Operands]:
    """Return the instance of that index, its settings and its operands."""
    instance = kernel.draw(np.random.default_rng([seed, index, 0]))
    rng = np.random.default_rng([seed, index, 1])
    settings = {name: int(rng.choice(values)) for name, values in sorted(variant.settings.items())}
    try:
        operands = kernel.make(instance, np.random.default_rng([seed, index, 2]))
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        values = ", ".join(f"{name}={value:g}" for name, value in instance.items())
        raise PredictionError(
            f"{kernel.name}: operands for {values} cannot be made: {type(error).__name__}: {error}"
        ) from error
    return instance, settings, {name: placed(thing) for name, thing in operands.items()}


def placed(thing: Any) -> Any:
    """Return a dense array in its own memory, aligned to a cache line; anything else unchanged.

    The allocator's placement of an array changes the time to read it by up to a fifth. Zeros that
    were never written share one page, which stays in the cache.
    """
    if type(thing) is not np.ndarray or not thing.flags.c_contiguous or thing.dtype.hasobject:
        return thing
    raw = np.empty(thing.nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    array = raw[start : start + thing.nbytes].view(thing.dtype).reshape(thing.shape)
    array[...] = thing
    return array


def dimension(rng: np.random.Generator, low: int = 1, high: int = LARGEST) -> int:
    """Draw a whole number from `low` to `high`, uniformly."""
    return int(rng.integers(low, high + 1))


def density(rng: np.random.Generator, entries: int, first: int = 0) -> float:
    """Return 2^-j, j uniform from `first` to floor(log2(entries))."""
    last = max(first, entries.bit_length() - 1)
    return float(2.0 ** -int(rng.integers(first, last + 1)))


def matrix(rng: np.random.Generator, rows: int, columns: int, share: float) -> Array:
    """Return an array with round(share * entries) non-zeros, at least one, from 0.5 to 1.5.

    The places of the non-zeros are uniform without repetition.
    """
    entries = rows * columns
    count = nonzeros(entries, share)
    if count == entries:
        return rng.uniform(0.5, 1.5, (rows, columns))
    flat = np.zeros(entries)
    flat[rng.choice(entries, count, replace=False, shuffle=False)] = rng.uniform(0.5, 1.5, count)
    return flat.reshape(rows, columns)


def nonzeros(entries: int, share: float) -> int:
    """Return the number of non-zeros for a density."""
    return min(max(round(entries * share), 1), entries)


def blur_cpu(rng: np.random.Generator, n: int) -> Mapping[str, int]:
    """Split factors of blur on a CPU: powers of two, s1 and s2 in 2 to 1024, s3 <= s2, s4 <= s3.

    Two choices are not in the paper: in every second instance `s2` is `n` (whole rows), and
    `fusion` is 0 to 2 (`tilewright.prediction.kernels.halide_blur.family`). An inlined blur_x has
    no `s1` of its own, which then is `s4`.
    """
    s1, s2 = power(rng, 1, 10), power(rng, 1, 10)
    if rng.random() < 1 / 2:
        s2 = n
    s3 = power(rng, 1, min(s2.bit_length() - 1, 10))
    s4 = power(rng, 1, s3.bit_length() - 1)
    fusion = int(rng.integers(3))
    return {"n": n, "s1": s4 if fusion == 2 else s1, "s2": s2, "s3": s3, "s4": s4, "fusion": fusion}


def blur_gpu(rng: np.random.Generator, n: int) -> Mapping[str, int]:
    """Split factors of blur on a GPU: s1 in 2 to 16, s2 and s3 in 1 to 64, powers of two.

    s2 and s3 are a block's extents here, so their product is at most 1024.
    """
    while True:
        s2, s3 = power(rng, 0, 6), power(rng, 0, 6)
        if s2 * s3 <= 1024:
            return {"n": n, "s1": power(rng, 1, 4), "s2": s2, "s3": s3}


def fft_cpu(rng: np.random.Generator, n: int) -> Mapping[str, int]:
    """Split factors of the FFT: s1 in 2 to n/2, s2 to s6 in 2 to n, powers of two."""
    bits = n.bit_length() - 1
    rest = {f"s{i}": power(rng, 1, bits) for i in range(2, 7)}
    return {"n": n, "s1": power(rng, 1, bits - 1), **rest}


def power(rng: np.random.Generator, low: int, high: int) -> int:
    """Return a power of two, its exponent uniform from `low` to `high`."""
    return int(1 << int(rng.integers(low, high + 1)))
