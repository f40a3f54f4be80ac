"""How good a configuration each tuner finds in 20, 40, 60 and 120 evaluations.

The problems are recorded search spaces, replayed by look-up: those of the folder --data (T4
files with their T1 descriptions) and the package's own recordings. Every distinct
configuration that a tool asks costs one evaluation, failing ones and ones that break a known
constraint included; repeats are free, but asks in all are capped at ten times the budget.
Peers run in an environment of their own (--peers PYTHON, see peers/tuning_requirements.txt).

A peer's run that for four minutes of CPU time asks nothing new is ended, which only Optuna's
Gaussian process needs. Runs are kept in --work and taken up by the next call; --seconds ends a
call in time. Of a run that has reached 95% of the best known by evaluation 120, no more is asked.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

import tuning_common
from tilewright.tuning.interop.replay import Replay, read_t4
from tilewright.tuning.problems import recorded
from tuning_runs import BUDGETS, LONGEST, OURS, PART, PLANNERS, Run, Store

NEVER = 480
ROUND = 5
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


def row(tool: str, problem: Replay, store: Store, seeds: int) -> dict[str, Any] | None:
    """What is known of a tool on a problem, or None before its first runs."""
    optimum = problem.optimum
    worst = max(v for v in problem.values.values() if isinstance(v, float))
    kept = {
        b: {s: r for s, r in store.runs(tool, problem, b).items() if s < seeds}
        for b in (*BUDGETS, LONGEST)
    }
    if not tool.startswith(PLANNERS):
        kept = dict.fromkeys(kept, kept[LONGEST])
    if not all(kept.values()):
        return None
    shares = {
        str(b): [round(share(r, b, optimum, worst), 5) for r in kept[b].values()] for b in BUDGETS
    }
    long = list(kept[LONGEST].values())
    return {
        "problem": problem.name,
        "tool": tool,
        "seeds": min(len(runs) for runs in kept.values()),
        "shares": shares,
        "geometric": {b: geometric(v) for b, v in shares.items()},
        "to_90": [evaluations_to(run, 0.90, optimum) for run in long],
        "to_95": [evaluations_to(run, PART, optimum) for run in long],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of T4 and T1 files")
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--tools", default=",".join((OURS, *PEERS)))
    parser.add_argument("--problems", default="", help="only those whose name holds this")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "tuning")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop filling after these")
    parser.add_argument("--no-write", action="store_true", help="only fill and show")
    args = parser.parse_args()
    problems = [read_t4(path) for path in sorted(args.data.glob("*_T4.json*"))] if args.data else []
    problems = [p for p in problems + recorded() if args.problems in p.name]
    tools = args.tools.split(",")
    store = Store(args.work, args.peers, time.monotonic() + args.seconds)
    for first in range(0, args.seeds, ROUND):
        for problem in problems:
            for tool in tools:
                store.fill(tool, problem, range(first, min(first + ROUND, args.seeds)))
    rows = []
    for problem in problems:
        for tool in (OURS, *PEERS):
            found = row(tool, problem, store, args.seeds)
            if found is None:
                continue
            rows.append(found)
            means = " ".join(f"{found['geometric'][str(b)]:.3f}" for b in BUDGETS)
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

    A tool is compared on the problems that it and ours have been run on; a tool that has not
    been run on all of them is left out.
    """
    table = {(r["problem"], r["tool"]): r for r in rows}
    problems = sorted({r["problem"] for r in rows})
    tools = [t for t in (OURS, *PEERS) if all((p, t) in table for p in problems)]
    peers = [t for t in tools if t not in (OURS, "random")]
    summary: dict[str, Any] = {
        "problems": len(problems),
        "seeds": min(r["seeds"] for r in rows if r["tool"] == OURS),
        "peer_seeds": {t: min(table[p, t]["seeds"] for p in problems) for t in tools if t != OURS},
        "not_compared": [t for t in PEERS if t not in tools],
    }
    conv = [n for p in problems if "convolution" in p for n in table[p, OURS]["to_90"]]
    if conv:
        summary["conv_median_evals_to_90"] = float(np.median(conv))
    if not peers:
        return summary
    for budget in map(str, BUDGETS):
        score = {t: geometric([table[p, t]["geometric"][budget] for p in problems]) for t in tools}
        best = max(peers, key=lambda t: score[t])
        summary[f"vs_best_peer_at_{budget}"] = score[OURS] / score[best]
        summary[f"best_peer_at_{budget}"] = best
        if budget == "60":
            summary["vs_best_peer_at_60_low"] = lower_bound(table, problems, best, budget)
    hard = [
        p for p in problems if "random" in tools and np.median(table[p, "random"]["to_95"]) >= 20
    ]
    if hard:
        medians = {
            t: geometric([np.median(table[p, t]["to_95"]) for p in hard]) for t in (OURS, *peers)
        }
        best = min(peers, key=lambda t: medians[t])
        summary["evals_to_95_vs_best_peer"] = medians[OURS] / medians[best]
        summary["evals_to_95"] = medians
    return summary


def lower_bound(table: Any, problems: list[str], peer: str, budget: str) -> float:
    """The 2.5 % bootstrap bound of ours over the peer's, seeds resampled per problem."""
    rng = np.random.default_rng(0)
    logs = {(p, t): np.log(table[p, t]["shares"][budget]) for p in problems for t in (OURS, peer)}
    draws = []
    for _ in range(2000):
        difference = [
            rng.choice(logs[p, OURS], len(logs[p, OURS])).mean()
            - rng.choice(logs[p, peer], len(logs[p, peer])).mean()
            for p in problems
        ]
        draws.append(math.exp(float(np.mean(difference))))
    return float(np.percentile(draws, 2.5))


if __name__ == "__main__":
    main()
