"""Random pipelines with several outputs on the host: schedules in which they share loops.

Each pipeline is drawn by its seed: one to three dimensions, two to four outputs of different types,
which read an input, common intermediate stages (pointwise functions, stencils, sums over a small
window), and sometimes each other; with and without clamped borders, from 2^15 to 2^23 points. The
one-shot schedule is verified and timed in the same rounds as the schedules of Halide's
autoschedulers, as our own without shared loops, and as the one with shared loops if it is not the
first.

The seeds begin at `FIRST`. No rule of the scheduler was chosen with them.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

import halide as hl

import common
from random_host import OURS, ratios, run, timed

FIRST = 230000
COUNT = 40
POINTS = (15, 23)  # log2 of the points of an output
TYPES = (hl.UInt(8), hl.UInt(16), hl.Int(32), hl.Float(32), hl.Float(32))
WIDTHS = (1, 2, 3, 4)  # channels, where there are three dimensions
BORDER = 2
APART, TOGETHER = "without shared loops", "with shared loops"

Stage = Any  # a Func or an input, read at coordinates


def _sizes(rng: random.Random) -> list[int]:
    """Draw the extents of the outputs, innermost first."""
    points = 1 << rng.randint(*POINTS)
    dims = rng.choice((1, 2, 2, 2, 3))
    if dims == 1:
        return [points]
    channels = [rng.choice(WIDTHS)] if dims == 3 else []
    width = 1 << rng.randint(6, 12)
    return [width, max(8, points // width), *channels]


def _stage(rng: random.Random, source: Stage, at: list[Any], name: str) -> hl.Func:
    """An intermediate stage: a function of a point, a stencil, or a sum over a window."""
    stage, x = hl.Func(name), at[0]
    rest = tuple(at[1:])
    kind = rng.choice(("root", "exp", "stencil", "column", "window"))
    value = hl.f32(source[(x, *rest)])
    if kind == "root":
        stage[tuple(at)] = hl.sqrt(hl.abs(value) + 1.0)
    elif kind == "exp":
        stage[tuple(at)] = hl.exp(-value * 0.001) + value
    elif kind == "stencil":
        stage[tuple(at)] = value * 0.5 + hl.f32(source[(x + 1, *rest)]) * 0.25
    elif kind == "column" and rest:
        beyond = (x, rest[0] + 1, *rest[1:])
        stage[tuple(at)] = value - hl.f32(source[beyond])
    else:
        r = hl.RDom([(0, BORDER + 1)], "r")
        stage[tuple(at)] = 0.0
        stage[tuple(at)] += hl.f32(source[(x + r.x, *rest)]) * (r.x + 1)
    return stage


def _value(rng: random.Random, stages: list[Stage], at: list[Any]) -> hl.Expr:
    """What an output computes from one or two of the stages."""
    x, rest = at[0], tuple(at[1:])
    one, other = rng.choice(stages), rng.choice(stages)
    first, second = hl.f32(one[(x, *rest)]), hl.f32(other[(x, *rest)])
    kind = rng.choice(("scale", "difference", "product", "next", "choose"))
    if kind == "scale":
        return first * rng.choice((0.5, 3.0)) + 1.0
    if kind == "difference":
        return first - second * 0.5
    if kind == "product":
        return first * second * 0.01
    if kind == "next":
        return first - hl.f32(one[(x + 1, *rest)])
    return hl.select(first > second, first, second * 0.25)


def build(seed: int) -> tuple[hl.Pipeline, str]:
    """Return the random pipeline of a seed and what it is, in words."""
    rng = random.Random(seed)
    sizes = _sizes(rng)
    at = list(hl.vars("x y c")[: len(sizes)]) if len(sizes) > 1 else [hl.Var("x")]
    kind = rng.choice(TYPES)
    image = hl.ImageParam(kind, len(sizes), "image")
    clamped = rng.random() < 0.4
    beyond = 0 if clamped else 4 * BORDER
    image.set_estimates([(0, extent + beyond) for extent in sizes])
    source: Stage = hl.BoundaryConditions.repeat_edge(image) if clamped else image
    stages: list[Stage] = [source]
    for number in range(rng.choice((0, 1, 1, 2, 2, 3))):
        stages.append(_stage(rng, rng.choice(stages[-2:]), at, f"stage{number}"))
    outputs: list[hl.Func] = []
    for number in range(rng.choice((2, 2, 3, 4))):
        output, to = hl.Func(f"out{number}"), rng.choice(TYPES)
        value = _value(rng, stages[-3:], at)
        if outputs and rng.random() < 0.15:
            value = value + hl.f32(rng.choice(outputs)[tuple(at)])
        output[tuple(at)] = value if to.is_float() else hl.saturating_cast(to, value)
        output.set_estimates([(0, extent) for extent in sizes])
        outputs.append(output)
    words = f"{len(outputs)} outputs of {sizes}, {len(stages) - 1} stages, {kind}"
    return hl.Pipeline(outputs), words + (", clamped" if clamped else "")


def row_of(seed: int, args: argparse.Namespace, peers: common.Pieces) -> dict[str, Any]:
    """The times of one pipeline's schedules, in seconds, or how it failed."""
    from tilewright.halide.ir.joint import shares_loops
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task

    pipeline, said = build(seed)
    row: dict[str, Any] = {"seed": seed, "pipeline": said, "status": {}, "seconds": {}}
    task = make_task(pipeline, target="host", name=f"outputs{seed}")
    plans = [each.schedule for each in plan(task, k=2)]
    together = next((each for each in plans if shares_loops(each)), None)
    row["shared"] = None if together is None else "chosen" if together is plans[0] else "offered"
    ours = [(OURS, plans[0])]
    if row["shared"] == "chosen":
        ours.append((APART, plan(task, shared=False)[0].schedule))
    elif together is not None:
        ours.append((TOGETHER, together))
    timed(row, task, ours, peers, args.seconds)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures: ratios of times, geometric means with intervals."""
    against: list[float] = []
    gains: list[float] = []
    refused: list[float] = []
    for row in rows:
        seconds = dict(row["seconds"])
        ours, apart = seconds.pop(OURS, None), seconds.pop(APART, None)
        together = seconds.pop(TOGETHER, None)
        if ours is None:
            continue
        if seconds:
            against.append(min(seconds.values()) / ours)
        if apart is not None:
            gains.append(apart / ours)
        if together is not None:
            refused.append(ours / together)
    return {
        "pipelines": len(rows),
        "failures": sum(status != "ok" for row in rows for status in _own(row["status"])),
        **ratios(against, "vs_best_peer"),
        "compared": len(against),
        "shared": len(gains),
        **ratios(gains, "vs_without_shared_loops"),
        "not_chosen": len(refused),
        "not_chosen_vs_ours": common.geometric_mean(refused),
        "not_chosen_vs_ours_max": max(refused, default=None),
    }


def _own(status: dict[str, str]) -> list[str]:
    """The status of each of our schedules; a failure if there is none."""
    return [status.get(OURS, "none"), *(status[n] for n in (APART, TOGETHER) if n in status)]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    title = __doc__.splitlines()[0]
    run("halide_outputs", title, FIRST, COUNT, row_of, summary, {"shared": None})
