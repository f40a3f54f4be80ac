"""Run times on this CPU: ours, Halide's autoschedulers', and schedules written by hand.

For every program, at full size: the schedules of the four autoschedulers (each given this
machine's parallelism and cache sizes), the hand-written one where it makes the choices of one
of Halide's own applications, our one-shot schedule, and the best of five that we measured
beforehand. All are built first; then they are timed in interleaved rounds, one at a time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import common
from tilewright.halide.comparison import peer_variant, source_of
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.prediction import with_prediction
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import Task, make_task
from tilewright.halide.search.top_k import Watch, limits, measure_top, timing
from tilewright.measure import Finals
from tilewright.records import Records

ROUNDS = 15
# Where the interval of one shot against the best peer is wider than this factor, rounds of this
# many times the number and seconds take the place of the first ones, whichever schedule was ahead.
WIDE = 1.3
LONGER = 4
SECONDS = 12.0  # of rounds, for each program
K = 5
HAND, ONESHOT, TOP = "hand-written", "one shot", f"top {K}"


def measure(name: str, args: argparse.Namespace, peers: common.Pieces) -> dict[str, Any]:
    """One program's row."""
    module = common.example(name)
    task = make_task(getattr(module, name)(), name=name)
    hand = None
    if common.hand_written(module, "cpu"):
        hand = Variant(handwritten=source_of(module.hand), name=HAND)
    return {"program": name, **timed(task, plan(task, k=K), args, peers, hand)}


def timed(
    task: Task,
    planned: Sequence[PlannedSchedule],
    args: argparse.Namespace,
    peers: common.Pieces,
    hand: Variant | None,
    *,
    contents: Mapping[str, Any] | None = None,
    records: str = "halide_host.sqlite",
) -> dict[str, Any]:
    """The schedules planned, the peers' and the one by hand, timed in interleaved rounds."""
    with (
        Records(args.work / records) as store,
        Session(
            task.algorithm,
            contents=contents,
            records=store,
            limits=limits(args.candidate_time),
            timing=timing(),
            remeasure=args.fresh,
        ) as session,
    ):
        searched = common.peer_schedules(peers, task, session.inputs, args.peer_time)
        outcome = measure_top(session, planned, target=task.target, watch=Watch(None))
        best = outcome.best
        variants = [peer_variant(s, task.target) for s in searched.values() if s.serialized]
        if hand is not None:
            variants.append(hand)
        variants.append(Variant(planned[0].schedule, name=ONESHOT))
        if best is not None and best.rank > 0:
            variants.append(Variant(best.planned.schedule, name=TOP))
        finals = session.finals(variants, ROUNDS, seconds=args.seconds)
        if _is_wide(finals, list(searched)):
            more = LONGER * args.seconds
            finals = session.finals(variants, LONGER * ROUNDS, seconds=more)
    entries = {
        peer: {"status": s.status, "message": s.message, "search_seconds": s.cpu_seconds}
        for peer, s in searched.items()
    }
    for candidate, measurement in zip(finals.candidates, finals.measurements, strict=True):
        entry = entries.setdefault(candidate.key, {})
        entry.update(status=measurement.status, message=measurement.message)
        if measurement.ok:
            interval = finals.interval(candidate.key)
            entry.update(
                seconds=measurement.median,
                low=interval.low,
                high=interval.high,
                minimum=measurement.minimum,
                cpu_seconds=measurement.cpu_median,
                rounds=len(measurement.times),
            )
    if TOP not in entries:
        entries[TOP] = entries[ONESHOT]
    return {
        "entries": entries,
        "tried": [
            {
                "rank": t.rank,
                "status": t.measurement.status if t.measurement is not None else "not tried",
                "seconds": t.seconds,
                "predicted": with_prediction(t.planned, task).seconds,
                "note": t.note,
            }
            for t in outcome.tried
        ],
        **_ratios(task, finals, entries, list(searched)),
    }


def _is_wide(finals: Finals, peers: list[str]) -> bool:
    """Return whether the rounds leave open how one shot compares with the best peer."""
    measured = {c.key: m for c, m in zip(finals.candidates, finals.measurements, strict=True)}
    running = [p for p in peers if p in measured and measured[p].ok]
    if not running or not measured[ONESHOT].ok:
        return False
    interval = finals.ratio_interval(min(running, key=lambda p: measured[p].median or 0), ONESHOT)
    return interval.high > WIDE * interval.low


def _ratios(
    task: Task, finals: Finals, entries: dict[str, Any], peers: list[str]
) -> dict[str, Any]:
    """Speedups of ours with their intervals, paired by round."""
    running = [p for p in peers if entries[p]["status"] == "ok"]
    best = min(running, key=lambda p: entries[p]["seconds"], default=None)
    keys = {candidate.key for candidate in finals.candidates}
    ratios: dict[str, Any] = {"best_peer": best}
    for ours, label in ((ONESHOT, "oneshot"), (TOP, "top")):
        key = ours if ours in keys else ONESHOT
        for other, against in ((best, "best_peer"), (HAND, "hand")):
            ok = (
                entries[ours]["status"] == "ok"
                and entries.get(other or "", {}).get("status") == "ok"
            )
            if other is None or not ok:
                ratios[f"{label}_vs_{against}"] = None
                continue
            interval = finals.ratio_interval(other, key)
            ratios[f"{label}_vs_{against}"] = interval.estimate
            ratios[f"{label}_vs_{against}_interval"] = [interval.low, interval.high]
    return ratios


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""

    def column(name: str) -> list[float]:
        return [row[name] for row in rows if row[name] is not None]

    peers = ("Mullapudi2016", "Adams2019", "Adams2019, beam 1", "Li2018")
    top = column("top_vs_best_peer")
    return {
        "programs": len(rows),
        "oneshot_vs_best_peer": common.geometric_mean(column("oneshot_vs_best_peer")),
        "top_vs_best_peer": common.geometric_mean(top),
        "top_vs_best_peer_min": min(top, default=None),
        "top_vs_hand": common.geometric_mean(column("top_vs_hand")),
        "oneshot_vs_hand": common.geometric_mean(column("oneshot_vs_hand")),
        "hand_written": len(column("top_vs_hand")),
        "peer_failures": sum(row["entries"][p]["status"] != "ok" for row in rows for p in peers),
        "our_failures": sum(
            row["entries"][o]["status"] != "ok" for row in rows for o in (ONESHOT, TOP)
        ),
        "peer_failures_by_peer": {
            p: sum(row["entries"][p]["status"] != "ok" for row in rows) for p in peers
        },
    }


def main() -> None:
    """Measure, print, write."""
    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--candidate-time", type=float, default=120.0, help="limit of a build")
    parser.add_argument(
        "--peer-time",
        type=float,
        default=common.PEER_SECONDS,
        help="CPU seconds of an autoscheduler (less than the default is for a quick look only)",
    )
    common.add_prepare(parser)
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_host", args.fresh)
    peers = common.Pieces(args.work, "peers", args.fresh, ours=False)
    if args.prepare:
        for name in common.chosen(args, common.PROGRAMS):
            common.prepare_peers(peers, common.build(name), name, args.peer_time)
        return
    rows = []
    for name in common.chosen(args, common.PROGRAMS):
        row = pieces.get(name, partial(measure, name, args, peers))
        rows.append(row)
        print(line(row), flush=True)
    print()
    labels = ["Mullapudi2016", "Adams2019", "Adams2019, beam 1", "Li2018", HAND, ONESHOT, TOP]
    common.print_table(
        ["milliseconds", *labels, "one shot/peer", "top/peer", "top/hand"],
        [
            [
                row["program"],
                *(_cell(row["entries"].get(label)) for label in labels),
                row["oneshot_vs_best_peer"],
                row["top_vs_best_peer"],
                row["top_vs_hand"],
            ]
            for row in rows
        ],
    )
    common.write(args, "halide_host", rows, summary(rows))


def line(row: dict[str, Any]) -> str:
    """One program, as it is finished."""
    against = common.shown(row["oneshot_vs_best_peer"]), common.shown(row["top_vs_best_peer"])
    return (
        f"{row['program']:16} one shot {against[0]} and top {K} {against[1]} times as fast as "
        f"{row['best_peer']}, {common.shown(row['top_vs_hand'])} as by hand"
    )


def _cell(entry: dict[str, Any] | None) -> Any:
    if entry is None:
        return None
    return 1e3 * entry["seconds"] if entry["status"] == "ok" else entry["status"]


if __name__ == "__main__":
    main()
