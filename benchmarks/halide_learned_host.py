"""Run times on this CPU of the learned scheduler's schedules, over those of the analytic one.

For every program, the cost model is fitted to the labels of all other pipelines
(``halide_model``), so that nothing of the program is in it. The best `K` schedules of both
schedulers are built, verified and timed in the same interleaved rounds. ``oneshot`` compares the
first of each, ``top`` the fastest of each, and ``auto`` takes the learned one only where its model
expects a clear gain. ``--prepare`` searches, which needs no quiet machine, and keeps the schedules
for the run that times them.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np

import common
import halide_labels
import halide_model

Data = dict[str, Any]
K = 5
ROUNDS = 12
SECONDS = 12.0  # of rounds, for each program
RUN_SECONDS = 20.0  # that one run of one schedule may take
SCHEDULERS = ("analytic", "learned", "auto")


def searched(name: str, labels: halide_model.Labels) -> Data:
    """The schedules of both schedulers for a program, with what the searches took."""
    from tilewright.halide.ir.json import to_data
    from tilewright.halide.schedulers.learned.cost_model import LearnedModel
    from tilewright.halide.schedulers.learned.scheduler import plan_learned
    from tilewright.halide.schedulers.registry import plan

    task = halide_labels.task_of(name)
    others = np.array([halide_model.program_of(group) != name for group in labels.groups])
    sizes, schedules = (labels.fit(others, array) for array in (True, False))
    model = LearnedModel(sizes, schedules, halide_model.residual(labels, name))
    made = {
        "analytic": lambda: plan(task, k=K),
        "learned": lambda: plan_learned(task, k=K, model=model),
        "auto": lambda: plan_learned(task, auto=True, model=model),
    }
    found: Data = {"digest": task.algorithm.digest}
    for key, make in made.items():
        began = time.process_time()
        planned = make()
        found[key] = [to_data(each.schedule) for each in planned]
        found[f"{key}_seconds"] = round(time.process_time() - began, 2)
        found[f"{key}_notes"] = list(planned[0].notes)
    return found


def measure(name: str, made: Data, args: argparse.Namespace) -> Data:
    """One program's row: speedups over the analytic schedules."""
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.ir.json import from_data
    from tilewright.measure import RunLimits

    task = halide_labels.task_of(name)
    plans = {k: [from_data(d, task.algorithm) for d in made[k]] for k in SCHEDULERS}
    variants: dict[Any, Variant] = {}
    for key in SCHEDULERS:
        for i, schedule in enumerate(plans[key]):
            variants.setdefault(schedule, Variant(schedule, name=f"{key} {i + 1}"))
    with Session(task.algorithm, limits=RunLimits(run_seconds=args.run_seconds)) as session:
        finals = session.finals(list(variants.values()), ROUNDS, seconds=args.seconds)
    times = {
        candidate.key: found.median if found.ok else None
        for candidate, found in zip(finals.candidates, finals.measurements, strict=True)
    }
    seconds = {k: [times[variants[schedule].name] for schedule in plans[k]] for k in SCHEDULERS}
    row: Data = {
        "program": name,
        "seconds": seconds,
        "failures": sum(value is None for value in times.values()),
        "search_seconds": made["learned_seconds"],
        "auto_is_analytic": plans["auto"][0] == plans["analytic"][0],
        "notes": made["learned_notes"],
    }
    first = {key: found[0] for key, found in seconds.items()}
    for label, key in (("oneshot", "learned"), ("auto", "auto")):
        row[label] = _ratio(first["analytic"], first[key])
    best = [min((s for s in seconds[k] if s is not None), default=None) for k in SCHEDULERS[:2]]
    return {**row, "top": _ratio(*best)}


def _ratio(analytic: float | None, ours: float | None) -> float | None:
    return None if analytic is None or ours is None else analytic / ours


def summary(rows: list[Data]) -> Data:
    """The figures that the claim is about; above 1 is a gain over the analytic scheduler."""
    result: Data = {"programs": len(rows), "failures": sum(row["failures"] for row in rows)}
    for key in ("oneshot", "auto", "top"):
        values = [row[key] for row in rows if row[key] is not None]
        result[f"{key}_vs_analytic"] = common.geometric_mean(values)
        result[f"{key}_vs_analytic_min"] = min(values, default=None)
        result[f"{key}_vs_analytic_max"] = max(values, default=None)
    seconds = sorted(row["search_seconds"] for row in rows)
    result["auto_is_analytic"] = sum(row["auto_is_analytic"] for row in rows)
    result["search_median_seconds"] = seconds[len(seconds) // 2] if seconds else None
    result["search_max_seconds"] = seconds[-1] if seconds else None
    return result


def main() -> None:
    """Search, measure, write."""
    import strangers

    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--data", type=halide_labels.Path, default=halide_labels.DATA)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--run-seconds", type=float, default=RUN_SECONDS, help="limit of one run")
    parser.add_argument("--prepare", action="store_true", help="search only")
    args = parser.parse_args()
    names = common.chosen(args, [*common.PROGRAMS, *strangers.PROGRAMS])
    if not args.only:
        names = list(common.PROGRAMS)
    _, everything = halide_model.table(args)
    labels = halide_model.Labels(
        {name: data for name, data in everything.items() if halide_model.usable(data)}
    )
    pieces = common.Pieces(args.work, "halide_learned_host", args.fresh)
    rows = []
    for name in names:
        made = pieces.get(name, partial(searched, name, labels))
        print(f"{name:20} searched in {made['learned_seconds']} CPU seconds", flush=True)
        if not args.prepare:
            rows.append(measure(name, made, args))
            print(line(rows[-1]), flush=True)
    if not args.prepare:
        common.write(args, "halide_learned_host", rows, summary(rows))


def line(row: Data) -> str:
    """One program, as it is finished."""
    shown = ", ".join(f"{key} {common.shown(row[key])}" for key in ("oneshot", "auto", "top"))
    return f"{row['program']:20} over the analytic: {shown}; {row['failures']} failures"


if __name__ == "__main__":
    main()
