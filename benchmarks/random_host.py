"""What the benchmarks of random pipelines on the host share: times, intervals, rows by seed."""

from __future__ import annotations

import argparse
import random
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import common

SECONDS = 1.5  # of rounds, for each pipeline
ROUNDS = 7
PEER_SECONDS = 20.0  # CPU seconds of one autoscheduler
CANDIDATE_SECONDS = 60.0
OURS = "one shot"

Row = dict[str, Any]


def timed(
    row: Row, task: Any, ours: Sequence[tuple[str, Any]], peers: common.Pieces, seconds: float
) -> None:
    """Verify and time our schedules, by name, and those of the autoschedulers in common rounds.

    The status of each, and the median of its times in seconds, are added to the row.
    """
    import halide_host
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.search.top_k import limits

    with Session(task.algorithm, limits=limits(CANDIDATE_SECONDS)) as session:
        found = common.peer_schedules(peers, task, session.inputs, PEER_SECONDS)
        variants = [
            halide_host.peer_variant(s, task.target) for s in found.values() if s.serialized
        ]
        variants += [Variant(schedule, name=name) for name, schedule in ours]
        finals = session.finals(variants, ROUNDS, seconds=seconds)
    for candidate, measurement in zip(finals.candidates, finals.measurements, strict=True):
        row["status"][candidate.key] = measurement.status
        if measurement.ok:
            row["seconds"][candidate.key] = measurement.median


def ratios(values: Sequence[float], name: str) -> Row:
    """The geometric mean of ratios, its interval and the least, by `name`."""
    return {
        name: common.geometric_mean(values),
        f"{name}_interval": interval(values),
        f"{name}_min": min(values, default=None),
    }


def interval(values: Sequence[float], draws: int = 2000) -> list[float] | None:
    """The 95% interval of a geometric mean, by bootstrap over the pipelines."""
    rng = random.Random(0)
    means = sorted(
        value
        for _ in range(draws if values else 0)
        if (value := common.geometric_mean(rng.choices(values, k=len(values)))) is not None
    )
    return [means[int(share * len(means))] for share in (0.025, 0.975)] if means else None


def run(
    name: str,
    title: str,
    first: int,
    count: int,
    row_of: Callable[[int, argparse.Namespace, common.Pieces], Row],
    summary: Callable[[list[Row]], Row],
    failed: Row,
) -> None:
    """Measure the pipelines of `count` seeds from `first` on, print, write.

    Args:
        name: the name of the benchmark.
        title: what it measures, in a line.
        first: the first seed.
        count: the number of seeds.
        row_of: measures one pipeline.
        summary: the figures of all rows.
        failed: the fields that the row of a pipeline has if measuring it raises an error.
    """
    parser = common.arguments(title, [])
    parser.add_argument("--count", type=int, default=count, help="number of pipelines")
    parser.add_argument("--first", type=int, default=first, help="the first seed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, per pipeline")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    pieces = common.Pieces(args.work, name, args.fresh)
    peers = common.Pieces(args.work, "peers", args.fresh, ours=False)
    rows = []
    for seed in range(args.first, args.first + args.count):

        def made(seed: int = seed) -> Row:
            try:
                return row_of(seed, args, peers)
            except Exception as error:
                traceback.print_exc()
                message = f"{type(error).__name__}: {error}"[:300]
                return {"seed": seed, "status": {OURS: message}, "seconds": {}, **failed}

        row = pieces.get(f"{seed}", made)
        rows.append(row)
        times = ", ".join(f"{k} {1e6 * v:.1f}" for k, v in row["seconds"].items())
        print(f"{seed} {row.get('pipeline', '')}: {times} {row['status'].get(OURS)}", flush=True)
    common.write(args, name, rows, summary(rows))
