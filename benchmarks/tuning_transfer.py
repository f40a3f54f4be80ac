"""What a tuner gains from records of other GPUs, and what it loses if they mislead.

Kernels that are recorded on several GPUs (folder --data). Each GPU is left out in turn: runs of
SOURCE evaluations on each of the others are its records, and the tuner begins with them, as it does
by default (`WarmStart`). ``cold`` runs have no records. In ``misled`` runs the values of the
records are inverted, so that the best become the worst. A run ends when it reaches 95% of the best
known; one that does not within 240 evaluations counts as 480.

The figures of the summary are ratios of evaluations to 95% with sources to those without: the
geometric mean over problems of the medians over seeds, on the held-out kernels: settings of
transfer were chosen on the convolution alone. ``pooled`` is over all kernels. Intervals (``_low``,
``_high``) are 95% bootstrap intervals: problems are resampled, and their seeds within them.
``noticed_by_5`` is the share of misled runs that follow no source after five evaluations;
``trusted_by_5`` is the share of the other runs that still follow one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import tuning_common
from tilewright.tuning import FailedError, Settings, Trial, Tuner, WarmStart
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.warm import SourceModel
from tilewright.tuning.interop.replay import Replay
from tuning_problems import problems
from tuning_quality import OURS, evaluations_to, ratio, share
from tuning_runs import BUDGETS, LONGEST, PART, Run

SOURCE = 60  # the default budget
APART = 1000  # between the seeds of a run and of its sources
EARLY = 5
# Kernels that are recorded on several GPUs, in one space.
KERNELS = ("convolution_milo", "dedispersion_milo", "pnpoly")
CHOSE_TRANSFER = "convolution_milo"


def alike(one: Replay, other: Replay) -> bool:
    """Whether two recordings are of one kernel."""
    return any(one.name.startswith(k) and other.name.startswith(k) for k in KERNELS)


def run(
    problem: Replay, seed: int, budget: int, warm: list[WarmStart], part: float = 2.0
) -> tuple[Trial, ...]:
    """The trials of our tuner until ``part`` of the best known is reached."""
    tuner = Tuner(problem.space, seed=seed, warm=warm)
    while len(tuner.trials) < budget and (asked := tuner.ask()) is not None:
        try:
            told = tuner.tell(asked, problem(asked.configuration))
        except FailedError as failure:
            told = tuner.tell(asked, status=failure.status)
        if told.ok and problem.optimum / told.value >= part:
            break
    return tuple(tuner.trials)


def inverted(warm: WarmStart) -> WarmStart:
    """A source of which the best are the worst."""
    good = [v for _, v in warm.evaluations if v is not None]
    edge = min(good) * max(good)
    return WarmStart([(c, None if v is None else edge / v) for c, v in warm.evaluations])


def followed(problem: Replay, warm: list[WarmStart], trials: tuple[Trial, ...]) -> bool | None:
    """Whether a source is followed after `EARLY` evaluations; None for a shorter run."""
    good = [t for t in trials[:EARLY] if t.ok]
    if len(trials) < EARLY:
        return None
    encode = encoder(problem.space)
    model = SourceModel(warm, encode, Settings(), np.random.default_rng(0))
    points = encode(np.array([problem.space.encode(t.configuration) for t in good]))
    return model.belief(points, np.array([t.value for t in good])) is not None


def rows_of(problem: Replay, others: list[Replay], seeds: int) -> list[dict[str, Any]]:
    """The rows of a GPU that is left out: with the others' records, without, and misled."""
    worst = max(v for v in problem.values.values() if isinstance(v, float))
    found: dict[str, list[tuple[Run, bool | None]]] = {"cold": [], "warm": [], "misled": []}
    for seed in range(seeds):
        warm = [WarmStart.of(run(p, seed + APART, SOURCE, [])) for p in others]
        cases = {"cold": [], "warm": warm, "misled": [inverted(w) for w in warm]}
        for case, sources in cases.items():
            trials = run(problem, seed, LONGEST, sources, PART)
            values = [t.value if t.ok else None for t in trials]
            found[case].append((values, followed(problem, sources, trials) if sources else None))
    rows = []
    for case, runs in found.items():
        shares = {
            str(b): float(np.median([share(r, b, problem.optimum, worst) for r, _ in runs]))
            for b in (EARLY, 10, *BUDGETS)
        }
        rows.append(
            {
                "problem": problem.name,
                "case": case,
                "held_out": not problem.name.startswith(CHOSE_TRANSFER),
                "sources": [p.name for p in others],
                "seeds": seeds,
                "to_95": [evaluations_to(r, PART, problem.optimum) for r, _ in runs],
                "followed": [f for _, f in runs if f is not None],
                "median": {b: round(v, 5) for b, v in shares.items()},
            }
        )
    return rows


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the summary on some rows."""
    names = sorted({r["problem"] for r in rows})
    table = {(r["problem"], r["case"]): r for r in rows}

    def of(case: str, key: str) -> list[list[Any]]:
        return [table[name, case][key] for name in names]

    cold = of("cold", "to_95")
    known = {
        case: np.concatenate([np.array(f, dtype=bool) for f in of(case, "followed")])
        for case in ("warm", "misled")
    }
    return {
        "problems": len(names),
        **ratio("with_transfer_evals_to_95", {OURS: of("warm", "to_95"), "cold": cold}, -1.0),
        **ratio("misled_evals_to_95", {OURS: of("misled", "to_95"), "cold": cold}, -1.0),
        "noticed_by_5": round(float(1 - known["misled"].mean()), 4),
        "trusted_by_5": round(float(known["warm"].mean()), 4),
    }


def main() -> None:
    """Run every GPU that is left out and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of recordings")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--problems", default="", help="only those whose name holds this")
    parser.add_argument("--no-write", action="store_true", help="only show")
    args = parser.parse_args()
    recorded = problems(args.data)
    rows = []
    for problem in recorded:
        others = [p for p in recorded if p.name != problem.name and alike(p, problem)]
        if others and args.problems in problem.name:
            begun = time.process_time()
            rows += rows_of(problem, others, args.seeds)
            for row in rows[-3:]:
                print(row["problem"], row["case"], row["to_95"], row["median"])
            print(f"{time.process_time() - begun:.0f} CPU s", flush=True)
    apart = [r for r in rows if r["held_out"]]
    summary = {"seeds": args.seeds, "held_out": len({r["problem"] for r in apart})}
    summary |= (figures(apart) if apart else {}) | {"pooled": figures(rows)}
    if args.no_write:
        print(summary)
    else:
        tuning_common.write("tuning_transfer", rows, summary)


if __name__ == "__main__":
    main()
