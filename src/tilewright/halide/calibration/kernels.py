"""The kernels that a calibration times, compiled by Halide.

Each kernel repeats its work in an internal loop, so that the time to start it is negligible. The
time of a call is divided by its amount of work: bytes, steps, values or loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np

FLOAT_BYTES = 4
LINE_BYTES = 64
# Elements per row of copied arrays: a multiple of all vector lengths and of a cache line.
ROW = 1024
# Vectors copied per iteration of the unrolled loop.
UNROLLED = 4
# Shifts of xorshift (Marsaglia 2003): each operation depends on the previous one, latency 1 cycle.
SHIFTS = (13, 17)
SHIFT_ROUNDS = 8
CYCLES_PER_STEP = 2.0 * len(SHIFTS) * SHIFT_ROUNDS + 1.0
# Multiplications and additions per value of a task.
TASK_DEGREE = 12


@dataclass(frozen=True)
class Microbenchmark:
    """A compiled function to time: `run` does `amount` units of the measured work.

    With `parallel` it runs on all cores and must be timed by wall time.
    """

    name: str
    pipeline: Any
    output: Any
    amount: float
    parallel: bool = False
    keep: tuple[Any, ...] = ()

    def run(self) -> None:
        """Run the function once."""
        self.pipeline.realize(self.output)


def copying(name: str, size: int, passes: int, tasks: int, lanes: int) -> Microbenchmark:
    """Return a kernel that copies arrays and adds a number.

    Each of `tasks` parallel tasks makes `passes` passes over separate arrays. A pass reads `size` /
    2 bytes and writes as many. The amount is the bytes read and written.
    """
    rows = max(1, size // (2 * ROW * FLOAT_BYTES))
    x, y, t = hl.vars("x y t")
    r = hl.RDom([(0, rows), (0, passes)], "r")
    source = hl.Buffer(np.ones((tasks, rows, ROW), dtype=np.float32))
    out = hl.Func(name)
    out[x, y, t] = hl.undef(hl.Float(32))
    out[x, r.x, t] = source[x, r.x, t] + hl.f32(r.y)
    out.bound(x, 0, ROW)
    update = out.update()
    update.reorder(x, r.x, r.y, t).vectorize(x, lanes)
    update.unroll(x, UNROLLED)
    if tasks > 1:
        update.parallel(t)
    result = hl.Buffer(np.ones((tasks, rows, ROW), dtype=np.float32))
    amount = 2.0 * tasks * rows * ROW * FLOAT_BYTES * passes
    return _compiled(name, [out], result, amount, tasks > 1, (source,))


def chasing(name: str, size: int, steps: int) -> Microbenchmark:
    """Return a kernel that follows a random chain of cache lines in `size` bytes.

    The amount is in steps, one line each.
    """
    lines = max(2, size // LINE_BYTES)
    stride = LINE_BYTES // FLOAT_BYTES
    order = np.random.default_rng(0).permutation(lines)
    chain = np.zeros(lines * stride, dtype=np.int32)
    chain[order * stride] = np.roll(order, -1) * stride
    source = hl.Buffer(chain)
    r = hl.RDom([(0, steps)], "r")
    out = hl.Func(name)
    out[()] = 0
    # The loop variable prevents hoisting; it does not change the cache line.
    index = hl.unsafe_promise_clamped(out[()] | (r.x & 1), 0, lines * stride - 1)
    out[()] = source[index & ~(stride - 1)]
    return _compiled(name, [out], hl.Buffer(hl.Int(32), []), float(steps), keep=(source,))


def counting(name: str, steps: int) -> Microbenchmark:
    """Return a kernel with a chain of shifts and exclusive ors; the amount is in cycles."""
    r = hl.RDom([(0, steps)], "r")
    out = hl.Func(name)
    out[()] = hl.u32(1)
    state = out[()] ^ hl.u32(r.x)
    for _ in range(SHIFT_ROUNDS):
        state = state ^ (state << SHIFTS[0])
        state = state ^ (state >> SHIFTS[1])
    out[()] = state
    return _compiled(name, [out], hl.Buffer(hl.UInt(32), []), CYCLES_PER_STEP * steps)


def gathering(name: str, passes: int, lanes: int) -> Microbenchmark:
    """Return a kernel of vector gathers from a small table; the amount is in values."""
    order = np.random.default_rng(0).permutation(ROW).astype(np.int32)
    indices, source = hl.Buffer(order), hl.Buffer(np.ones(ROW, dtype=np.float32))
    x = hl.Var("x")
    r = hl.RDom([(0, passes)], "r")
    out = hl.Func(name)
    out[x] = hl.undef(hl.Float(32))
    index = hl.unsafe_promise_clamped(indices[x] ^ (r.x & 1), 0, ROW - 1)
    out[x] = source[index] + hl.f32(r.x)
    out.bound(x, 0, ROW)
    out.update().reorder(x, r.x).vectorize(x, lanes)
    result = hl.Buffer(np.zeros(ROW, dtype=np.float32))
    return _compiled(name, [out], result, float(passes * ROW), keep=(indices, source))


def tasking(name: str, tasks: int, passes: int, lanes: int, parallel: bool) -> Microbenchmark:
    """Return a kernel of loops over `tasks` short tasks; the amount is in loops."""
    x, t = hl.vars("x t")
    r = hl.RDom([(0, passes)], "r")
    out = hl.Func(name)
    out[x, t] = hl.f32(1.0)
    value = out[x, t]
    for _ in range(TASK_DEGREE):
        value = value * hl.f32(0.5) + hl.f32(r.x)
    out[x, t] = value
    out.bound(x, 0, ROW).bound(t, 0, tasks)
    update = out.update()
    update.reorder(x, t, r.x).vectorize(x, lanes)
    if parallel:
        update.parallel(t)
    result = hl.Buffer(np.zeros((tasks, ROW), dtype=np.float32))
    return _compiled(name, [out], result, float(passes), parallel)


def faulting(name: str, size: int, fresh: bool) -> Microbenchmark:
    """Return a kernel that writes `size` bytes and reads one element per cache line.

    The array is allocated by each run if it is `fresh`, and reused otherwise. The amount is in
    bytes.
    """
    rows = size // (ROW * FLOAT_BYTES)
    x, y = hl.vars("x y")
    stride = LINE_BYTES // FLOAT_BYTES
    r = hl.RDom([(0, ROW // stride), (0, rows)], "r")
    inner, out = hl.Func(name + "_inner"), hl.Func(name)
    inner[x, y] = hl.f32(x) + hl.f32(y)
    out[()] = hl.f32(0)
    out[()] += inner[stride * r.x, r.y]
    inner.compute_root().bound(x, 0, ROW).bound(y, 0, rows).vectorize(x, stride)
    amount = float(rows * ROW * FLOAT_BYTES)
    total = hl.Buffer(hl.Float(32), [])
    if fresh:
        return _compiled(name, [out], total, amount)
    kept = hl.Buffer(np.ones((rows, ROW), dtype=np.float32))
    return _compiled(name, [inner, out], [kept, total], amount)


def _compiled(
    name: str,
    funcs: list[Any],
    result: Any,
    amount: float,
    parallel: bool = False,
    keep: tuple[Any, ...] = (),
) -> Microbenchmark:
    pipeline = hl.Pipeline(funcs)
    pipeline.compile_jit(hl.get_host_target())
    return Microbenchmark(name, pipeline, result, amount, parallel, keep)
