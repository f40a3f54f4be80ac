"""How good a configuration each tuner finds in 20, 40, 60 and 120 evaluations.

The problems are recorded search spaces, replayed by look-up (`tuning_problems.py`): those of the
folder --data, the package's own, and RISE's kernels. Larger ones, evaluated while the tuners run
(`tuning_large.py`), have figures of their own (``large``, ``large_pooled``). Every distinct
configuration that a tool evaluates costs one evaluation, failing ones included. Repeats and
violations of known constraints are free, but the total number of requests is limited to ten times
the budget. Peers run in a separate environment (--peers PYTHON, see peers/tuning_requirements.txt)
and are used as their documentation advises.

The figures of the summary are for the held-out problems: no recording of their kernels was used to
choose a setting of the tuner. ``pooled`` has the same figures for all problems. A tool's score at a
budget is the geometric mean over problems of the median over seeds of (best known / best found);
ours is compared with the best peer's. Intervals (``_low``, ``_high``) are 95% bootstrap intervals:
problems are resampled, their seeds within them, and the best peer is chosen in each draw. The
``ceiling_at_`` a budget is the ratio that a tuner would have which always finds the best known.

A peer's run is ended if it requests nothing new for four minutes of CPU time, which happens only
with Optuna's Gaussian process. Runs are kept in --work and continued by the next call; --seconds
limits the time of a call. A run that has reached 95% of the best known by evaluation 120 is not
continued, and no run on the large problems is. With --keep, rows of tools that have no runs in
--work are taken from the previous result; they have its date as ``kept_from``. (Run ours again
after a change of the tuner that concerns these problems.) Those of 2026-11-21 were run under less
favourable conditions: a violation of a known constraint cost an evaluation, Optuna had no
``constraints_func``, OpenTuner had permutations as enumerations. A problem on which at most
`FEWEST` tools other than ours have been run is left out of the comparison (``compared`` counts the
others), and a peer without runs on one of the others is ``not_compared``. Kernel Tuner lists every
configuration before it starts, so it cannot search the large problems. BaCO's own code and ytopt
cannot be installed from packages.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import tuning_common
import tuning_large
from tilewright.tuning.interop.replay import Replay
from tuning_large import Live
from tuning_problems import held_out, problems, within
from tuning_runs import BUDGETS, LONGEST, OURS, PART, PLANNERS, Run, Store

NEVER = 480
ROUND = 5
DRAWS = 2000
FEWEST = 5
HARD = 20  # evaluations that random search needs to 95% on problems where the count is compared
VAST = 100_000  # configurations of a space that counts as large
RARE = 0.01  # share of configurations within 10% of the optimum, below which they count as rare
PEERS = (
    "random",
    "pyatf",
    "opentuner",
    "optuna_tpe",
    "kernel_tuner_genetic_algorithm",
    "kernel_tuner_simulated_annealing",
    "kernel_tuner_hybrid_vndx",
    "kernel_tuner_adaptive_tabu_greywolf",
    "kernel_tuner_bayes_opt",
    "optuna_gp",
)


def share(run: Run, budget: int, optimum: float, worst: float) -> float:
    """Best known over best found within a budget; where nothing worked, over the worst."""
    good = [v for v in run[:budget] if v is not None]
    return optimum / min(good) if good else optimum / worst


def evaluations_to(run: Run, part: float, optimum: float) -> int:
    """Evaluations until a share of the best known is reached, NEVER if it is not."""
    for count, value in enumerate(run[:LONGEST], 1):
        if value is not None and optimum / value >= part:
            return count
    return NEVER


def geometric(values: Any) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def row(tool: str, problem: Replay | Live, store: Store, seeds: int) -> dict[str, Any] | None:
    """What is known of a tool on a problem, or None before its first runs."""
    optimum = problem.optimum
    worst = worst_of(problem)
    longest = BUDGETS[-1] if isinstance(problem, Live) else LONGEST
    kept = {
        b: {s: r for s, r in store.runs(tool, problem, b).items() if s < seeds}
        for b in (*BUDGETS, longest)
    }
    if not tool.startswith(PLANNERS):
        kept = dict.fromkeys(kept, kept[longest])
    if not all(kept.values()):
        return None
    shares = {
        str(b): [round(share(r, b, optimum, worst), 5) for r in kept[b].values()] for b in BUDGETS
    }
    long = list(kept[longest].values())
    return {
        "problem": problem.name,
        "tool": tool,
        **about(problem),
        "seeds": min(len(runs) for runs in kept.values()),
        "shares": shares,
        "median": {b: float(np.median(v)) for b, v in shares.items()},
        "geometric": {b: geometric(v) for b, v in shares.items()},
        "to_90": [evaluations_to(run, 0.90, optimum) for run in long],
        "to_95": [evaluations_to(run, PART, optimum) for run in long],
    }


def worst_of(problem: Replay | Live) -> float:
    """The largest objective that is known."""
    if isinstance(problem, Live):
        return problem.worst
    return max(v for v in problem.values.values() if isinstance(v, float))


def about(problem: Replay | Live) -> dict[str, Any]:
    """What a row says of its problem; of a large one, the share of a sample that fails."""
    if isinstance(problem, Live):
        return {
            "held_out": held_out(problem.name),
            "large": True,
            "configurations": float(problem.space.count),
            "failing_share": problem.known["failing"],
            "within_10_percent": round(within(problem, 0.9), 5),
            "best": problem.optimum,
        } | {k: v for k, v in problem.known.items() if k == "compiler"}
    good = sum(isinstance(v, float) for v in problem.values.values())
    return {
        "held_out": held_out(problem.name),
        "configurations": len(problem.values),
        "failing": len(problem.values) - good,
        "within_10_percent": round(within(problem, 0.9), 5),
    }


def earlier(problem: Replay | Live, tool: str, path: Path) -> dict[str, Any] | None:
    """The row of a tool in the previous result, or None."""
    data = json.loads(path.read_text())
    for found in data["rows"]:
        if (found["problem"], found["tool"]) == (problem.name, tool):
            since = {"kept_from": found.get("kept_from", data["date"][:10])}
            middle = {b: float(np.median(v)) for b, v in found["shares"].items()}
            return dict(found) | about(problem) | {"median": middle} | since
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of T4 and T1 files")
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--tools", default=",".join((OURS, *PEERS)))
    parser.add_argument("--problems", default="", help="only those whose name holds this")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "tuning")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop filling after these")
    parser.add_argument("--keep", action="store_true", help="take rows without runs")
    parser.add_argument("--no-write", action="store_true", help="only fill and show")
    args = parser.parse_args()
    every: list[Replay | Live] = [*problems(args.data), *tuning_large.problems()]
    chosen = [p for p in every if args.problems in p.name]
    tools = args.tools.split(",")
    store = Store(args.work, args.peers, time.monotonic() + args.seconds)
    for first in range(0, args.seeds, ROUND):
        for problem in chosen:
            for tool in tools:
                store.fill(tool, problem, range(first, min(first + ROUND, args.seeds)))
    rows = []
    previous = tuning_common.RESULTS / "tuning_quality.json"
    for problem in chosen:
        for tool in (OURS, *PEERS):
            found = row(tool, problem, store, args.seeds)
            if found is None and args.keep:
                found = earlier(problem, tool, previous)
            if found is None:
                continue
            rows.append(found)
            means = " ".join(f"{found['median'][str(b)]:.3f}" for b in BUDGETS)
            medians = np.median(found["to_90"]), np.median(found["to_95"])
            print(
                f"{problem.name:28} {tool:36} {found['seeds']:3} seeds  {means}  "
                f"90%/95%: {medians[0]:g} {medians[1]:g}",
                flush=True,
            )
    summary = summarise(rows)
    if args.no_write:
        print(summary)
    else:
        tuning_common.write("tuning_quality", rows, summary)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the comparison (see the module's text and the keys).

    A tool is compared where it has been run on all of the problems compared.
    """
    every = {r["problem"] for r in rows}
    vast = [r for r in rows if r.get("large")]
    rare = {
        r["problem"] for r in rows if r["configurations"] > VAST or r["within_10_percent"] < RARE
    }
    slow = {r["problem"] for r in rows if r["tool"] == "random" and np.median(r["to_95"]) > 100}
    counted = {
        "problems": len(every),
        "over_1e5_or_under_1_percent": len(rare),
        "random_needs_over_100": len(slow),
    }
    summary = counted | _recorded([r for r in rows if not r.get("large")])
    return summary | _large(vast)


def _large(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the large problems: held out, and all."""
    table = {(r["problem"], r["tool"]): r for r in rows}
    apart = sorted({r["problem"] for r in rows if r["held_out"]})
    every = sorted({r["problem"] for r in rows})
    seeds = {
        t: min((r["seeds"] for r in rows if r["tool"] == t), default=0) for t in (OURS, *PEERS)
    }
    return {
        "large": {"compared": len(apart), "seeds": seeds} | compared(table, apart),
        "large_pooled": {"compared": len(every)} | compared(table, every),
    }


def _recorded(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the recorded problems."""
    table = {(r["problem"], r["tool"]): r for r in rows}
    every = {r["problem"] for r in rows}
    names = sorted(p for p in every if sum((p, t) in table for t in PEERS) > FEWEST)
    mine = [r for r in rows if r["tool"] == OURS]
    apart = [r["problem"] for r in mine if r["held_out"]]
    chosen = [p for p in names if p in apart]
    summary: dict[str, Any] = {
        "held_out": len(apart),
        "seeds": min((r["seeds"] for r in mine), default=0),
        "peer_seeds": {
            t: min((r["seeds"] for r in rows if r["tool"] == t), default=0) for t in PEERS
        },
        "not_compared": [t for t in PEERS if not all((p, t) in table for p in names)],
    }
    conv = [n for r in mine if r["problem"].startswith("convolution_milo") for n in r["to_90"]]
    if conv:
        summary["conv_median_evals_to_90"] = float(np.median(conv))
    summary |= {"compared": len(chosen)} | compared(table, chosen)
    return summary | {"pooled": {"compared": len(names)} | compared(table, names)}


def compared(table: Any, names: list[str]) -> dict[str, Any]:
    """Ours against the best peer on some problems, by the medians over seeds."""
    peers = [t for t in PEERS if t != "random" and all((p, t) in table for p in names)]
    if not peers or not names:
        return {}
    figures: dict[str, Any] = {}
    for budget in map(str, BUDGETS):
        values = {t: [table[p, t]["shares"][budget] for p in names] for t in (OURS, *peers)}
        figures |= ratio(f"vs_best_peer_at_{budget}", values, 1.0)
        best = figures[f"best_peer_at_{budget}"] = best_of(values)
        figures[f"ceiling_at_{budget}"] = 1.0 / score(values[best])
        means = {t: geometric([geometric(v) for v in values[t]]) for t in values}
        figures[f"mean_vs_best_peer_at_{budget}"] = means[OURS] / max(means[t] for t in peers)
    hard = [p for p in names if np.median(table[p, "random"]["to_95"]) >= HARD]
    if hard:
        counts = {t: [table[p, t]["to_95"] for p in hard] for t in (OURS, *peers)}
        figures |= ratio("evals_to_95_vs_best_peer", counts, -1.0)
        figures["evals_to_95"] = {t: score(counts[t]) for t in counts}
    return figures


def score(values: list[list[float]]) -> float:
    """The geometric mean over problems of the medians over seeds."""
    return geometric([np.median(v) for v in values])


def best_of(values: dict[str, list[list[float]]]) -> str:
    """The peer of the highest score."""
    return max((t for t in values if t != OURS), key=lambda t: score(values[t]))


def ratio(name: str, values: dict[str, list[list[float]]], sign: float) -> dict[str, float]:
    """Our score over the best peer's, with its bootstrap interval.

    Args:
        name: of the figure.
        values: for each tool, for each problem the values of its seeds.
        sign: 1 where larger is better, -1 where smaller is.
    """
    rng = np.random.default_rng(0)
    picked = rng.integers(0, len(values[OURS]), (DRAWS, len(values[OURS])))

    def logs(tool: str) -> tuple[float, Any]:
        """The logarithm of the score, and those of the draws, times the sign."""
        medians = np.stack(
            [np.median(rng.choice(v, (DRAWS, len(v))), axis=1) for v in values[tool]], axis=1
        )
        drawn = np.take_along_axis(np.log(medians), picked, axis=1).mean(axis=1)
        return sign * math.log(score(values[tool])), sign * drawn

    peers = [logs(t) for t in values if t != OURS]
    middle, drawn = logs(OURS)
    best = max(m for m, _ in peers), np.max([d for _, d in peers], axis=0)
    low, high = sorted(np.exp(sign * np.percentile(drawn - best[1], [2.5, 97.5])))
    found = math.exp(sign * (middle - best[0]))
    return {name: found, f"{name}_low": float(low), f"{name}_high": float(high)}


if __name__ == "__main__":
    main()
