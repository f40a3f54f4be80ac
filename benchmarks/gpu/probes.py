"""Small pipelines that each show one thing that a device can do, with their schedules by hand.

Worker processes load this file by itself: it imports nothing but Halide. Every function that
ends in ``_by_hand`` builds the pipeline of the same name and schedules it.
"""

from __future__ import annotations

from typing import Any

import halide as hl

# Multiply-adds per value of `chain`.
CHAIN = 256
THREADS = 256
# Threads of a warp on every CUDA device.
WARP = 32
# Entries of the table in shared memory: 4 KiB.
TABLE = 1024
# Bins of the histogram: enough that additions seldom meet.
BINS = 4096


def copy(size: int) -> Any:
    """Copies `size` floats through memory."""
    return _pointwise(size, lambda value: value + 1.0)


def chain(size: int) -> Any:
    """Computes a chain of `CHAIN` multiply-adds of each of `size` floats."""

    def compute(value: Any) -> Any:
        result = value
        for _ in range(CHAIN):
            result = result * value + 0.5
        return result

    return _pointwise(size, compute)


def launches(size: int) -> Any:
    """Computes `size` kernels one after the other, each of one warp."""
    x = hl.Var("x")
    image = _image(hl.Float(32), WARP)
    stage = hl.Func("stage_0")
    stage[x] = image[x]
    for i in range(1, size):
        last, stage = stage, hl.Func(f"stage_{i}")
        stage[x] = last[x] * 0.5 + 1.0
    return _output(stage, WARP)


def second_cache(size: int, passes: int) -> Any:
    """Adds up `passes` values of an array of `size` floats that the second cache holds."""
    x = hl.Var("x")
    image = _image(hl.Float(32), size)
    r = hl.RDom([(0, passes)], "r")
    total = hl.Func("total")
    total[x] = 0.0
    total[x] += image[(x + r.x * (size // passes + THREADS)) % size]
    return _through(total, size)


def dependent(size: int, steps: int) -> Any:
    """Computes `steps` multiply-adds, each of which waits for the last, in `size` threads."""
    x = hl.Var("x")
    image = _image(hl.Float(32), size)
    r = hl.RDom([(0, steps)], "r")
    value = hl.Func("value")
    value[x] = image[x]
    value[x] = value[x] * 0.75 + hl.f32(r.x)
    return _through(value, size)


def chase(size: int, steps: int) -> Any:
    """Follows `steps` links through an array of `size` indices in memory, in one thread."""
    x = hl.Var("x")
    image = _image(hl.Int(32), size)
    r = hl.RDom([(0, steps)], "r")
    place = hl.Func("place")
    place[x] = 0
    place[x] = hl.select(r.x >= 0, image[hl.clamp(place[x], 0, size - 1)], 0)
    return _through(place, 1)


def shared_chase(size: int, steps: int) -> Any:
    """Follows `steps` links through a table in shared memory, in `size` threads of a block."""
    x, i = hl.Var("x"), hl.Var("i")
    r = hl.RDom([(0, steps)], "r")
    image = _image(hl.Int(32), TABLE)
    table, place = hl.Func("table"), hl.Func("place")
    table[i] = image[i]
    place[x] = x % TABLE
    place[x] = hl.select(r.x >= 0, table[hl.clamp(place[x], 0, TABLE - 1)], 0)
    return _through(place, size)


def shared_reads(size: int) -> Any:
    """Adds up all `TABLE` values of a table in shared memory, in each of `size` threads."""
    x, i = hl.Var("x"), hl.Var("i")
    r = hl.RDom([(0, TABLE)], "r")
    image = _image(hl.Float(32), TABLE)
    table, total = hl.Func("table"), hl.Func("total")
    table[i] = image[i]
    total[x] = 0.0
    total[x] += table[(x + r.x) % TABLE]
    return _through(total, size)


def additions(size: int) -> Any:
    """Adds one to a random bin `size` times, atomically."""
    x = hl.Var("x")
    r = hl.RDom([(0, size)], "r")
    image = _image(hl.Int(32), size)
    bins = hl.Func("bins")
    bins[x] = 0
    bins[hl.clamp(image[r.x], 0, BINS - 1)] += 1
    return _output(bins, BINS)


def copy_by_hand(target: Any, size: int) -> Any:
    """Schedules one thread per element."""
    return _tiled(copy(size))


def chain_by_hand(target: Any, size: int) -> Any:
    """Schedules one thread per element."""
    return _tiled(chain(size))


def launches_by_hand(target: Any, size: int) -> Any:
    """Schedules one kernel per Func."""
    pipeline = launches(size)
    for i in range(size - 1):
        stage = pipeline.get_func(i + 1)
        if stage.name().startswith("stage_"):
            _tile(stage.compute_root(), WARP)
    return _tiled(pipeline, WARP)


def second_cache_by_hand(target: Any, size: int, passes: int) -> Any:
    """Schedules one thread per element, its sum in a register."""
    return _tiled(second_cache(size, passes))


def dependent_by_hand(target: Any, size: int, steps: int) -> Any:
    """Schedules one warp per block, the chain unrolled."""
    pipeline = dependent(size, steps)
    _inner(pipeline).update().unroll(_reduction(pipeline), 16)
    return _tiled(pipeline, WARP)


def chase_by_hand(target: Any, size: int, steps: int) -> Any:
    """Schedules one thread."""
    pipeline = chase(size, steps)
    return _tiled(pipeline, 1)


def shared_chase_by_hand(target: Any, size: int, steps: int) -> Any:
    """Schedules one warp per block and the table in shared memory."""
    return _with_table(shared_chase(size, steps), WARP)


def shared_reads_by_hand(target: Any, size: int) -> Any:
    """Schedules blocks of `THREADS` and the table in shared memory."""
    return _with_table(shared_reads(size), THREADS)


def additions_by_hand(target: Any, size: int) -> Any:
    """Schedules one thread per addition."""
    pipeline = additions(size)
    bins = pipeline.outputs()[0]
    _tile(bins, THREADS)
    r, block, thread = bins.rvars(0)[0], hl.RVar("block"), hl.RVar("thread")
    update = bins.update().atomic()
    update.split(r, block, thread, THREADS).gpu_blocks(block).gpu_threads(thread)
    return pipeline


def _image(kind: Any, size: int) -> Any:
    image = hl.ImageParam(kind, 1, "input")
    image.set_estimates([(0, size)])
    return image


def _pointwise(size: int, compute: Any) -> Any:
    x = hl.Var("x")
    image = _image(hl.Float(32), size)
    out = hl.Func("output")
    out[x] = compute(image[x])
    return _output(out, size)


def _through(func: Any, size: int) -> Any:
    """Stores a Func with updates by another one, so that it can live in registers."""
    x = hl.Var("x")
    out = hl.Func("output")
    out[x] = func[x]
    return _output(out, size)


def _output(func: Any, size: int) -> Any:
    func.set_estimates([(0, size)])
    return hl.Pipeline(func)


def _inner(pipeline: Any) -> Any:
    """The Func with updates: the last before the output."""
    funcs = []
    for i in range(100):
        try:
            funcs.append(pipeline.get_func(i))
        except hl.HalideError:
            break
    return next(f for f in funcs if f.has_update_definition())


def _reduction(pipeline: Any) -> Any:
    return _inner(pipeline).rvars(0)[0]


def _tile(func: Any, threads: int) -> None:
    block, thread = hl.Var("block"), hl.Var("thread")
    func.gpu_tile(func.args()[0], block, thread, threads)


def _tiled(pipeline: Any, threads: int = THREADS) -> Any:
    out = pipeline.outputs()[0]
    _tile(out, threads)
    return pipeline


def _with_table(pipeline: Any, threads: int) -> Any:
    out = pipeline.outputs()[0]
    block, thread, inside = hl.Var("block"), hl.Var("thread"), hl.Var("inside")
    out.gpu_tile(out.args()[0], block, thread, threads)
    table = next(
        f for f in (pipeline.get_func(i) for i in range(4)) if f.name().startswith("table")
    )
    table.compute_at(out, block).store_in(hl.MemoryType.GPUShared)
    i = table.args()[0]
    table.split(i, i, inside, threads).gpu_threads(inside)
    return pipeline
