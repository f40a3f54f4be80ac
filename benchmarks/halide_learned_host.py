"""Run times on this CPU of the learned scheduler's schedules, one shot, best of few, and tuned.

For every program, the cost model is fitted to the labels of all other pipelines
(``halide_model``), so that nothing of the program is in it. Both schedulers, the learned one and
the analytic one, plan `K` schedules (mode ``top``) and those of mode ``tune``, measure them, and
then `--evaluations` others. What they found takes part in the same interleaved rounds with
schedules of Halide's autoschedulers and with the one by hand, where it makes the choices of one of
Halide's own applications. Ratios are of times in these rounds, above 1 where ours is faster.

- ``oneshot``: the learned model's best schedule, unmeasured;
- ``top``: the fastest of the `K` that the learned scheduler planned, when measured;
- ``autotuned``: the learned scheduler's result of mode ``tune``;
- ``_vs_analytic``: over what the analytic scheduler gives in the same mode.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

import common
import halide_labels
import halide_model
from tilewright.halide.ir.plan import PlannedSchedule

Data = dict[str, Any]
K = 5
ANALYTIC_AMONG = 4  # of the learned scheduler's planned ones, as in mode `top`
ROUNDS = 15
SECONDS = 10.0  # of rounds, for each program
TIMING_SECONDS = 0.5  # of one schedule before the rounds
EVALUATIONS = 40
CANDIDATE_SECONDS = 60.0
SCHEDULERS = ("analytic", "learned")
MODES = ("oneshot", "top", "autotuned")
HAND = "hand-written"


def searched(name: str, labels: halide_model.Labels, args: argparse.Namespace) -> Data:
    """What both schedulers find for a program, and what it took, as JSON data."""
    from tilewright.halide.execution.session import Session
    from tilewright.halide.ir.json import to_data
    from tilewright.halide.options import TUNED_K
    from tilewright.halide.schedulers.learned.measured_search import MeasuredSearch
    from tilewright.halide.schedulers.learned.scheduler import plan_learned
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.search.autotune import measure_tuned
    from tilewright.halide.search.top_k import Watch, limits, timing

    task = halide_labels.task_of(name)
    model = halide_model.model_without(labels, name, args.work / "halide_model")
    found: Data = {"digest": task.algorithm.digest}
    for key in SCHEDULERS:
        learned = key == "learned"
        began = time.process_time()
        # Mode `tune` plans more than mode `top`; here it measures those of both.
        planned: list[PlannedSchedule] = []
        for k in (K, TUNED_K):
            if learned:
                least = k - (K - ANALYTIC_AMONG)
                more = plan_learned(task, k=k, least_analytic=least, model=model)
            else:
                more = plan(task, k=k)
            there = {each.schedule for each in planned}
            planned += [each for each in more if each.schedule not in there]
            if k == K:
                planning, first = time.process_time() - began, len(planned)
        began_wall = time.monotonic()
        with Session(
            task.algorithm, limits=limits(CANDIDATE_SECONDS), timing=timing(TIMING_SECONDS)
        ) as session:
            outcome, facts = measure_tuned(
                session,
                planned,
                task,
                watch=Watch(None),
                evaluations=args.evaluations,
                structures=MeasuredSearch(task, model) if learned else None,
            )
        best = outcome.best
        top = min(outcome.tried[:first], key=lambda t: t.seconds or np.inf)
        chosen = {"oneshot": planned[0], "top": top.planned, "autotuned": (best or top).planned}
        found[key] = {
            "schedules": {mode: to_data(each.schedule) for mode, each in chosen.items()},
            "planning_seconds": round(planning, 2),
            "search_seconds": round(time.process_time() - began, 2),
            "wall_seconds": round(time.monotonic() - began_wall, 1),
            "planned": len(planned),
            "evaluations": len(outcome.tried) - len(planned),
            "failed": sum(t.measurement is not None and not t.ok for t in outcome.tried),
            "found_by": "planned" if best is None or best.rank < len(planned) else "search",
            "facts": facts,
        }
    return found


def measure(name: str, made: Data, args: argparse.Namespace, peers: common.Pieces) -> Data:
    """One program's row."""
    from tilewright.halide.comparison import peer_variant, source_of
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.ir.json import from_data
    from tilewright.halide.search.top_k import limits

    task = halide_labels.task_of(name)
    ours: dict[Any, Variant] = {}
    keys = {}
    for scheduler in SCHEDULERS:
        for mode in MODES:
            schedule = from_data(made[scheduler]["schedules"][mode], task.algorithm)
            variant = Variant(schedule, name=f"{scheduler} {mode}")
            keys[scheduler, mode] = ours.setdefault(schedule, variant).name
    variants = list(ours.values())
    module = common.example(name) if name in common.PROGRAMS else None
    if module is not None and common.hand_written(module, "cpu"):
        variants.append(Variant(handwritten=source_of(module.hand), name=HAND))
    with Session(task.algorithm, limits=limits(CANDIDATE_SECONDS)) as session:
        found = common.peer_schedules(peers, task, session.inputs, args.peer_time)
        variants += [peer_variant(s, task.target) for s in found.values() if s.serialized]
        finals = session.finals(variants, ROUNDS, seconds=args.seconds)
    measured = {
        candidate.key: m
        for candidate, m in zip(finals.candidates, finals.measurements, strict=True)
    }
    running = {key: m.median for key, m in measured.items() if m.ok and m.times}
    best = min((p for p in found if p in running), key=running.__getitem__, default=None)
    row: Data = {
        "program": name,
        "seconds": running,
        "statuses": {key: m.status for key, m in measured.items()},
        "best_peer": best,
        "our_failures": sum(not m.ok for key, m in measured.items() if key in keys.values()),
        "searches": {s: {k: v for k, v in made[s].items() if k != "schedules"} for s in SCHEDULERS},
    }
    for mode in MODES:
        mine = keys["learned", mode]
        others = {"analytic": keys["analytic", mode], "best_peer": best, "hand": HAND}
        for label, other in others.items():
            row[f"{mode}_vs_{label}"] = _ratio(finals, other, mine, running)
        if mode == "autotuned":
            row["autotuned_vs_analytic_oneshot"] = _ratio(
                finals, keys["analytic", "oneshot"], mine, running
            )
            row["analytic_autotuned_vs_best_peer"] = _ratio(
                finals, best, keys["analytic", mode], running
            )
            row["analytic_autotuned_vs_hand"] = _ratio(
                finals, HAND, keys["analytic", mode], running
            )
    return row


def _ratio(finals: Any, other: str | None, mine: str, running: Iterable[str]) -> float | None:
    if other not in running or mine not in running:
        return None
    return 1.0 if other == mine else float(finals.ratio_interval(other, mine).estimate)


def summary(rows: list[Data]) -> Data:
    """The figures that the claim is about; a program that ended in an error is our failure."""
    failures = sum(row["our_failures"] for row in rows)
    tried, rows = len(rows), [row for row in rows if "error" not in row]
    result: Data = {
        "programs": len(rows),
        "programs_that_ended_in_errors": tried - len(rows),
        "our_failures": failures,
    }
    for key in [k for k in (rows[0] if rows else ()) if "_vs_" in k]:
        values = [row[key] for row in rows if row[key] is not None]
        result[key] = common.geometric_mean(values)
        result[f"{key}_min"] = min(values, default=None)
    result["hand_written"] = sum(row["autotuned_vs_hand"] is not None for row in rows)
    seconds = sorted(row["searches"]["learned"]["planning_seconds"] for row in rows)
    result["search_median_seconds"] = seconds[len(seconds) // 2] if seconds else None
    result["search_max_seconds"] = seconds[-1] if seconds else None
    return result


def main() -> None:
    """Search, measure, write."""
    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--data", type=halide_labels.Path, default=halide_labels.DATA)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, help="of each scheduler")
    parser.add_argument("--peer-time", type=float, default=common.PEER_SECONDS)
    common.add_prepare(parser)
    args = parser.parse_args()
    peers = common.Pieces(args.work, "peers", args.fresh, ours=False)
    names = common.chosen(args, common.PROGRAMS)
    if args.prepare:
        for name in names:
            common.prepare_peers(peers, common.build(name), name, args.peer_time)
        return
    _, everything = halide_model.table(args)
    labels = halide_model.Labels({k: d for k, d in everything.items() if halide_model.usable(d)})
    pieces = common.Pieces(args.work, "halide_learned_host", args.fresh)
    rows = []
    for name in names:
        key = f"{name}-{args.evaluations}"
        search = partial(searched, name, labels, args)

        def row(name: str = name, key: str = key, search: Any = search) -> Data:
            try:
                return measure(name, pieces.get(key, search), args, peers)
            except Exception as error:
                return {"program": name, "error": repr(error), "our_failures": 1}

        rows.append(pieces.get(f"{key}-row", row))
        print(line(rows[-1]), flush=True)
    common.write(args, "halide_learned_host", rows, summary(rows), evaluations=args.evaluations)


def line(row: Data) -> str:
    """One program, as it is finished."""
    if "error" in row:
        return f"{row['program']:16} {row['error']}"
    shown = (f"{mode} {common.shown(row[f'{mode}_vs_analytic'])}" for mode in MODES)
    tuned = (f"{k} {common.shown(row[f'autotuned_vs_{k}'])}" for k in ("best_peer", "hand"))
    return (
        f"{row['program']:16} over analytic: {', '.join(shown)}; autotuned over {', '.join(tuned)}"
    )


if __name__ == "__main__":
    main()
