from math import ceil, prod

import numpy as np
import pytest

from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.prediction.kernels import with_halide
from tilewright.prediction.models.complexity import Complexity

THREADS = 3
SIZES = [(1, 1, 1), (7, 40, 300), (16, 40, 16), (31, 5, 127), (32, 40, 128), (33, 9, 500)]


def output(splits, loops):
    stage = StageSchedule(tuple(splits), tuple(ScheduledLoop(*loop) for loop in loops))
    funcs = (FuncSchedule(0, INLINE, INLINE), FuncSchedule(1, ROOT, ROOT, stages=(stage,)))
    return Schedule("digest", "host", funcs)


def tiled(width, height, *, fused):
    splits = [
        Split("v0", "v0t", "v0n", width, "shift_inwards"),
        Split("v0n", "v0b", "v0v", 8, "shift_inwards"),
        Split("v1", "v1t", "v1n", height, "shift_inwards"),
    ]
    inner = [("v0v", "vectorized"), ("v0b", "serial"), ("v1n", "serial")]
    if fused:
        return output([*splits, Fuse("v1t", "v0t", "p")], [*inner, ("p", "parallel")])
    return output(splits, [*inner, ("v0t", "serial"), ("v1t", "parallel")])


def test_complexity_counts_the_vectors_of_the_busiest_thread(monkeypatch):
    made = {256: tiled(128, 32, fused=True), 32: tiled(16, 16, fused=False)}
    monkeypatch.setattr(with_halide, "_scheduled", lambda kernel, level: made[level])
    monkeypatch.setattr(with_halide.os, "cpu_count", lambda: THREADS)

    def right(m, n, k):
        if m >= 32 and k >= 128:
            return ceil(ceil(k / 128) * ceil(m / 32) / THREADS) * 128 * 32 / 8 * n
        if m >= 16 and k >= 16:
            return ceil(ceil(m / 16) / THREADS) * ceil(k / 16) * 16 * 16 / 8 * n
        return m * n * k

    counted = Complexity(with_halide.complexity("matmul"), ("m", "n", "k"))(np.array(SIZES, float))
    assert list(counted) == [right(*size) for size in SIZES]


@pytest.mark.parametrize("kernel", ["matmul", "convolution", "pooling"])
def test_without_a_fitting_schedule_every_number_counts(kernel, monkeypatch):
    never = tiled(1 << 20, 1 << 20, fused=True)
    monkeypatch.setattr(with_halide, "_scheduled", lambda kernel, level: never)
    names, sizes, count = {
        "matmul": ("mnk", (5, 7, 9), prod((5, 7, 9))),
        "convolution": ("mnr", (30, 20, 3), 28 * 18 * 9),
        "pooling": ("mns", (30, 21, 2), 15 * 11 * 4),
    }[kernel]
    text = with_halide.complexity(kernel)
    assert Complexity(text, tuple(names))(np.array([sizes], float)) == [count]
