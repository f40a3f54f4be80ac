"""Whether the tuner knows how much the rest of its budget will gain, and what stopping loses.

The runs are those of ``tuning_quality.py`` (call it first, with the same --work), with the gain
that the model expected of each evaluation. At each evaluation of a run and for each of BUDGETS,
`Tuner.remaining_gain` is compared with the actual gain until that budget: the logarithm of the best
value now over the best at the end. A row is a class of expected gains, on the held-out problems and
on all. If the expectation is calibrated, ``realised`` is near ``expected``.

The figures of the summary are for the held-out problems, ``pooled`` for all. For each budget, with
runs stopped by `Tuner.exhausted` at its default tolerance: the median of evaluations used, and the
mean and largest loss of the best value relative to the whole budget.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tuning_common
from tilewright.tuning import Categorical, Space, Suggestion, Trial, Tuner
from tilewright.tuning.interop.replay import Replay
from tuning_problems import held_out, problems
from tuning_runs import LONGEST, OURS, Run, Store

BUDGETS = (40, 60, 120)
TOLERANCE = 0.005  # the default of `Tuner.exhausted`
EDGES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, np.inf)


class Point(NamedTuple):
    """An evaluation of a run: how many were made, of how many, and both gains."""

    problem: str
    seed: int
    made: int
    budget: int
    expected: float
    realised: float


def points(problem: Replay, seed: int, run: Run, expected: Sequence[float | None]) -> list[Point]:
    """Return what was expected of the rest of the budgets, and what it was."""
    tuner = Tuner(Space([Categorical("x", (0,))]))
    best = np.minimum.accumulate([np.inf if v is None else v for v in run])
    found = []
    for made, (value, gain) in enumerate(zip(run, expected, strict=True)):
        for budget in BUDGETS:
            left = tuner.remaining_gain(budget - made) if made < budget <= len(run) else None
            if left is not None and np.isfinite(best[made - 1]):
                real = float(np.log(best[made - 1] / best[budget - 1]))
                found.append(Point(problem.name, seed, made, budget, left, real))
        origin = "random" if gain is None else "model"
        asked = Suggestion(made, {"x": 0}, origin, expected=gain)
        values = () if value is None else (value,)
        tuner.trials.append(Trial(asked, "run_failed" if value is None else "ok", values))
    return found


def stopped(found: Sequence[Point], budget: int) -> Iterator[tuple[int, float]]:
    """Yield for each run the evaluations made until it is stopped, and the logarithm it loses."""
    runs: dict[tuple[str, int], list[Point]] = {}
    for point in found:
        if point.budget == budget:
            runs.setdefault((point.problem, point.seed), []).append(point)
    for run in runs.values():
        ends = [p for p in run if p.expected < TOLERANCE]
        yield (ends[0].made, ends[0].realised) if ends else (budget, 0.0)


def figures(found: Sequence[Point]) -> dict[str, Any]:
    """The figures of the summary."""
    result: dict[str, Any] = {}
    for budget in BUDGETS:
        ends = np.array(list(stopped(found, budget)))
        result[f"used_of_{budget}"] = float(np.median(ends[:, 0]))
        result[f"stopped_of_{budget}"] = round(float((ends[:, 0] < budget).mean()), 4)
        result[f"loss_of_{budget}"] = round(float(1 - np.exp(-ends[:, 1].mean())), 5)
        result[f"worst_loss_of_{budget}"] = round(float(1 - np.exp(-ends[:, 1].max())), 5)
    return result


def classes(found: Sequence[Point], name: str) -> list[dict[str, Any]]:
    """The rows: what was expected and what came of it, by class of expectation."""
    expected = np.array([p.expected for p in found])
    realised = np.array([p.realised for p in found])
    rows = []
    for low, high in itertools.pairwise(EDGES):
        inside = (expected >= low) & (expected < high)
        if inside.any():
            row = {
                "problems": name,
                "from": low,
                "points": int(inside.sum()),
                "expected": round(float(expected[inside].mean()), 5),
                "realised": round(float(realised[inside].mean()), 5),
                "median_realised": round(float(np.median(realised[inside])), 5),
            }
            rows.append(row)
    return rows


def main() -> None:
    """Read the kept runs and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of recordings")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "tuning")
    parser.add_argument("--no-write", action="store_true", help="only show")
    args = parser.parse_args()
    store = Store(args.work, None, 0.0)
    found = []
    for problem in problems(args.data):
        gains = store.runs(f"{OURS}_expected", problem, LONGEST)
        for seed, run in store.runs(OURS, problem, LONGEST).items():
            found += points(problem, seed, run, gains[seed])
    apart = [p for p in found if held_out(p.problem)]
    rows = classes(apart, "held out") + classes(found, "all")
    summary = {
        "held_out": len({p.problem for p in apart}),
        "problems": len({p.problem for p in found}),
        "seeds": len({p.seed for p in found}),
        **figures(apart),
        "pooled": figures(found),
    }
    if args.no_write:
        print(*rows, summary, sep="\n")
    else:
        tuning_common.write("tuning_stopping", rows, summary)


if __name__ == "__main__":
    main()
