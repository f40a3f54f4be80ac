"""Halide's 3 x 3 blur with the split factors of the paper's Section V as its schedule."""

from __future__ import annotations

from typing import Any

from tilewright.halide.ir import (
    INLINE,
    ROOT,
    Algorithm,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.prediction.data import instances
from tilewright.prediction.kernels.schedules import Factors, ScheduleFamily

SIZES = (1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15)
TILE, ROW, INLINED = range(3)  # where blur_x is computed
# A pixel's share of vectors of blur_x, with its rows that tiles compute twice and the columns
# beyond a tile, of its loop's iterations, of vectors of blur_y; tiles, those of a row, and the
# bytes of one.
LANES = 32  # 16-bit pixels in a register of 512 bits
_INLINED, _ROW, _TILE = "max(0, fusion - 1)", "min(fusion, 2 - fusion)", "max(0, 1 - fusion)"
WORK = (
    f"(1 - {_INLINED}) * (s3 + 2) / s3 * max(1, s1 / s2) * max(1 / s1, 1 / {LANES})"
    f" + {_INLINED} * 3 * max(1 / s4, 1 / {LANES})",
    f"(1 - {_INLINED}) * (s3 + 2) / s3 * max(1 / s1, 1 / s2)",
    f"max(1 / s4, 1 / {LANES})",
    "max(1, n / s2) * max(1, n / s3)",
    "max(1, n / s2)",
    f"2 * max(s1, s2) * ({_TILE} * (s3 + 2) + {_ROW} * 4)",
)
# The choice of Mullapudi2016 on the paper's machine.
MULLAPUDI = {"s1": 8, "s2": 256, "s3": 128, "s4": 8, "fusion": TILE}


def family(*, gpu: bool = False) -> ScheduleFamily:
    """Return the schedules of Table IV, for the CPU or for a CUDA GPU.

    On the CPU, there are two choices that the paper lacks. `fusion` says where blur_x is computed:
    before each tile (0), each row at its first use (1), or at every use (2). And `s2` may be `n`,
    so that threads have whole rows: large blurs wait for memory, which is fastest in one stream.
    """
    names = ["s1", "s2", "s3"] if gpu else ["s1", "s2", "s3", "s4"]
    units = {"n": "pixels", **dict.fromkeys(names, "iterations")}
    return ScheduleFamily(
        "halide_blur_gpu" if gpu else "halide_blur",
        units if gpu else {**units, "fusion": "0, 1 or 2"},
        "n**2",
        SIZES,
        pipeline,
        schedule_gpu if gpu else schedule_cpu,
        instances.blur_gpu if gpu else instances.blur_cpu,
        "cuda" if gpu else "host",
        () if gpu else WORK,
    )


def pipeline(n: int) -> Any:
    """Return an n x n blur of 16-bit pixels: three across, then three down."""
    import halide as hl

    image = hl.ImageParam(hl.UInt(16), 2, "image")
    x, y = hl.Var("x"), hl.Var("y")
    blur_x, blur_y = hl.Func("blur_x"), hl.Func("blur_y")
    blur_x[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blur_y[x, y] = (blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]) // 3
    image.set_estimates([(0, n + 2), (0, n + 2)])
    blur_y.set_estimates([(0, n), (0, n)])
    return hl.Pipeline(blur_y)


def schedule_cpu(algorithm: Algorithm, factors: Factors) -> Schedule:
    """Return the paper's listing: tiles of s2 x s3 in parallel, vectors of s4, of s1 within blur_x.

    Tails are Halide's defaults: an output's shift inwards, others are rounded up. With blur_x by
    rows, the tile keeps the last of them, and each row of blur_y computes the one it adds.
    """
    s1, s2, s3, s4 = (factors[f"s{i}"] for i in range(1, 5))
    image, blur_x, blur_y = _places(algorithm)
    outer = StageSchedule(
        splits=(
            Split("v0", "xo", "xi", s2, "shift_inwards"),
            Split("v1", "yo", "yi", s3, "shift_inwards"),
            Split("xi", "xv", "xl", s4, "round_up"),
        ),
        loops=(
            ScheduledLoop("xl", "vectorized"),
            ScheduledLoop("xv"),
            ScheduledLoop("yi"),
            ScheduledLoop("xo", "parallel"),
            ScheduledLoop("yo", "parallel"),
        ),
    )
    inner = StageSchedule(
        splits=(Split("v0", "xv", "xl", s1, "round_up"),),
        loops=(ScheduledLoop("xl", "vectorized"), ScheduledLoop("xv"), ScheduledLoop("v1")),
    )
    tile, row = Level("at", blur_y, 0, "xo"), Level("at", blur_y, 0, "yi")
    fused = {
        TILE: FuncSchedule(blur_x, tile, tile, stages=(inner,)),
        ROW: FuncSchedule(blur_x, row, tile, stages=(inner,)),
        INLINED: FuncSchedule(blur_x, INLINE, INLINE),
    }
    return Schedule(
        algorithm.digest,
        "host",
        (
            FuncSchedule(image, INLINE, INLINE),
            fused[factors["fusion"]],
            FuncSchedule(blur_y, ROOT, ROOT, stages=(outer,)),
        ),
    )


def schedule_gpu(algorithm: Algorithm, factors: Factors) -> Schedule:
    """Return blocks of s2 x s3 threads, each thread with s1 pixels of a row; blur_x inlined."""
    s1, s2, s3 = (factors[f"s{i}"] for i in range(1, 4))
    image, blur_x, blur_y = _places(algorithm)
    stage = StageSchedule(
        splits=(
            Split("v0", "x", "xu", s1, "shift_inwards"),
            Split("x", "xb", "xt", s2, "guard_with_if"),
            Split("v1", "yb", "yt", s3, "guard_with_if"),
        ),
        loops=(
            ScheduledLoop("xu", "unrolled"),
            ScheduledLoop("xt", "gpu_thread"),
            ScheduledLoop("yt", "gpu_thread"),
            ScheduledLoop("xb", "gpu_block"),
            ScheduledLoop("yb", "gpu_block"),
        ),
    )
    return Schedule(
        algorithm.digest,
        "cuda",
        (
            FuncSchedule(image, INLINE, INLINE),
            FuncSchedule(blur_x, INLINE, INLINE),
            FuncSchedule(blur_y, ROOT, ROOT, stages=(stage,)),
        ),
    )


def _places(algorithm: Algorithm) -> tuple[int, ...]:
    """Return the Funcs' places in realisation order: the input's wrapper, blur_x, blur_y."""
    return tuple(range(len(algorithm.funcs)))
