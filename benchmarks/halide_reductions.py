"""Random reductions on the host: one-shot schedules against Halide's autoschedulers.

Each pipeline is a reduction drawn by its seed: a sum, an extreme, a Tuple, a position, a histogram,
two updates, or a condition, over one to three dimensions, for none to two dimensions of results.
These are the outermost dimensions of the input or, as in interleaved images, its innermost ones.
The result is an output or is read by another stage; some extents are only known at run time. The
one-shot schedule is verified and timed in the same rounds as the schedules of Halide's
autoschedulers, and as our own without partial results (``rfactor``), if that differs.

The seeds begin at `FIRST`. No rule of the scheduler was chosen with them.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable
from typing import Any

import halide as hl

import common
from random_host import OURS, ratios, run, timed

FIRST = 130000
COUNT = 60
BINS = 64
EXTENTS = (1, 2, 3, 5, 7, 16, 31, 64, 100, 255, 1000, 4096, 1 << 16)
WORK = (19, 22)  # log2 of the most iterations
TYPES = (hl.UInt(8), hl.Int(16), hl.UInt(16), hl.Int(32), hl.Float(32))
KINDS = ("sum", "sum", "max", "min", "tuple", "position", "histogram", "two", "where")
WHOLE = "without partial results"


def _extents(rng: random.Random, count: int) -> list[int]:
    """Draw the extents of `count` loops whose product is limited."""
    left = 1 << rng.randint(*WORK)
    found = []
    for _ in range(count):
        found.append(max(1, min(rng.choice(EXTENTS), left)))
        left = max(1, left // found[-1])
    return found


def _index(*coordinates: Any) -> Any:
    """Coordinates as Halide's Python bindings take them."""
    return coordinates[0] if len(coordinates) == 1 else coordinates


def _reduce(
    kind: str,
    f: hl.Func,
    results: list[Any],
    r: list[Any],
    value: hl.Expr,
    read: Callable[..., Any],
) -> None:
    """Define the reduction `f` of `value` over `r`, for each of `results`."""
    whole = hl.Float(32) if value.type() == hl.Float(32) else hl.Int(32)
    at, term = _index(*results), hl.cast(whole, value)
    if kind == "histogram":
        bin_, place = hl.Var("bin"), hl.i32(value) % BINS
        f[_index(bin_, *results)] = hl.u32(0)
        f[_index(place, *results)] += hl.u32(1)
    elif kind in ("max", "min"):
        f[at] = hl.cast(whole, 1 if kind == "max" else 100)
        f[at] = (hl.max if kind == "max" else hl.min)(f[at], term)
    elif kind == "tuple":
        f[at] = (hl.cast(whole, 0), hl.cast(whole, 0))
        f[at] = (f[at][0] + term, hl.max(f[at][1], term))
    elif kind == "position":
        f[at] = (hl.cast(whole, 0), 0)
        f[at] = (hl.max(f[at][0], term), hl.select(f[at][0] > term, f[at][1], r[0]))
    else:
        f[at] = hl.cast(whole, 3)
        f[at] += term
        if kind == "two":
            again = [hl.RDom([(0, 5)], "again").x, *[0] * (len(r) - 1)]
            f[at] += hl.cast(whole, read(*again, *results)) * 2


def _condition(which: int, r: list[Any], extents: list[int], value: hl.Expr) -> hl.Expr:
    """Return a condition on the loops of a reduction, or on the data."""
    if which == 0:
        return r[-1] % 3 != 1
    if which == 1:
        return r[0] * 2 < r[-1] + extents[0]
    return value > hl.cast(value.type(), 1 if value.type().is_float() else 50) / 2


def build(seed: int) -> tuple[hl.Pipeline, str]:
    """Return the random reduction of a seed and what it is, in words."""
    rng = random.Random(seed)
    depth, dims = rng.choice((1, 2, 2, 3)), rng.choice((0, 0, 1, 1, 2))
    extents = _extents(rng, depth + dims)
    kind, dtype = rng.choice(KINDS), rng.choice(TYPES)
    at_run_time, first, scaled, read_on = (rng.random() < p for p in (0.3, 0.3, 0.3, 0.4))
    inside, which = rng.random() < 0.3 and dims > 0, rng.randrange(3)
    image = hl.ImageParam(dtype, depth + dims, "image")
    # The input's dimensions: those of the reduction, then those of the results, or the reverse.
    order = [*range(depth, depth + dims), *range(depth)] if inside else list(range(depth + dims))
    started = first and not at_run_time
    room = [max(5, e) + 2 * (started and d < depth) for d, e in enumerate(extents)]
    image.set_estimates([(0, room[d]) for d in order])
    ranges: list[Any] = [(2 * started, extents[d]) for d in range(depth)]
    if at_run_time:
        ranges = [(0, image.dim(order.index(d)).extent()) for d in range(depth)]
    dom = hl.RDom(ranges, "r")
    r = [dom[d] for d in range(depth)]
    results: list[Any] = list(hl.vars("x y")[:dims])
    read: Callable[..., Any] = lambda *at: image[_index(*(at[d] for d in order))]  # noqa: E731
    if kind == "where":
        dom.where(_condition(which, r, extents, read(*r, *results)))
    if scaled:
        before, loops = hl.Func("before"), hl.vars(" ".join(f"a{d}" for d in range(depth + dims)))
        before[_index(*loops)] = image[_index(*loops)] * 2 + 1
        read = lambda *at: before[_index(*(at[d] for d in order))]  # noqa: E731
    f = hl.Func("f")
    _reduce(kind, f, results, r, hl.cast(dtype, read(*r, *results)), read)
    sizes = [*([BINS] if kind == "histogram" else []), *extents[depth:]]
    last = f
    if read_on:
        last = hl.Func("last")
        at = _index(*[hl.Var(f"b{d}") for d in range(len(sizes))]) if sizes else ()
        value = f[at][0] if kind in ("tuple", "position") else f[at]
        last[at] = value * 3
    last.set_estimates([(0, size) for size in sizes])
    said = f"{kind} of {dtype}, {extents[:depth]} for {extents[depth:]}"
    words = [said, *(["innermost"] if inside else []), *(["at run time"] if at_run_time else [])]
    return hl.Pipeline(last), ", ".join(words)


def row_of(seed: int, args: argparse.Namespace, peers: common.Pieces) -> dict[str, Any]:
    """The times of one pipeline's schedules, in seconds, or how it failed."""
    from tilewright.halide.schedulers.analytic.cpu import scheduler
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task

    pipeline, said = build(seed)
    row: dict[str, Any] = {"seed": seed, "pipeline": said, "status": {}, "seconds": {}}
    task = make_task(pipeline, target="host", name=f"reduction{seed}")
    ours = plan(task)[0].schedule
    split = scheduler.split_reductions
    scheduler.split_reductions = lambda *_: ()
    try:
        whole = plan(task)[0].schedule
    finally:
        scheduler.split_reductions = split
    row["split"] = ours != whole
    compared = [(OURS, ours), (WHOLE, whole)] if row["split"] else [(OURS, ours)]
    timed(row, task, compared, peers, args.seconds)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures: ratios of times, geometric means with intervals."""
    against: list[float] = []
    gains: list[float] = []
    for row in rows:
        seconds = dict(row["seconds"])
        ours, whole = seconds.pop(OURS, None), seconds.pop(WHOLE, None)
        if ours is None:
            continue
        if seconds:
            against.append(min(seconds.values()) / ours)
        if whole is not None:
            gains.append(whole / ours)
    return {
        "pipelines": len(rows),
        "our_failures": sum(row["status"].get(OURS) != "ok" for row in rows),
        **ratios(against, "vs_best_peer"),
        "compared": len(against),
        "split": len(gains),
        **ratios(gains, "vs_without_partial_results"),
    }


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    title = __doc__.splitlines()[0]
    run("halide_reductions", title, FIRST, COUNT, row_of, summary, {"split": False})
