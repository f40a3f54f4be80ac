"""How good a configuration each tuner finds in 20, 40, 60 and 120 evaluations.

The problems are recorded search spaces (--data, a folder of T4 files with their T1
descriptions), replayed by look-up. Every distinct configuration that a tool asks costs one
evaluation, failing ones and ones that break a known constraint included; repeats are free, but
asks in all are capped at ten times the budget. Peers run in an environment of their own
(--peers PYTHON, see peers/tuning_requirements.txt).

Pieces are kept in --work, a JSON file a problem and tool, and taken up by the next run.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import tuning_common
from tilewright.tuning import Tuner
from tilewright.tuning.replay import Replay, read_t4
from tilewright.tuning.tune import FailedError

BUDGETS = (20, 40, 60, 120)
LONGEST = 240
NEVER = 480
OURS = "tilewright"
PEERS = (
    "random",
    "pyatf",
    "opentuner",
    "optuna_tpe",
    "optuna_gp",
    "kernel_tuner_genetic_algorithm",
    "kernel_tuner_simulated_annealing",
    "kernel_tuner_bayes_opt",
    "kernel_tuner_hybrid_vndx",
    "kernel_tuner_adaptive_tabu_greywolf",
)
# these plan their search for a budget, so they are given each one
PLANNERS = tuple(t for t in PEERS if t.startswith("kernel_tuner"))


def ours(problem: Replay, seed: int, budget: int) -> list[float | None]:
    """What our tuner's distinct configurations gave, in order, None for failures."""
    tuner = Tuner(problem.space, seed=seed)
    asked: list[float | None] = []
    while len(asked) < budget:
        suggestion = tuner.ask()
        if suggestion is None:
            break
        try:
            value = problem(suggestion.configuration)
        except FailedError as failure:
            tuner.tell(suggestion, status=failure.status)
            asked.append(None)
        else:
            tuner.tell(suggestion, value)
            asked.append(value)
    return asked


def peer_file(problem: Replay, folder: Path) -> Path:
    """The problem as the peers' script reads it."""
    space = problem.space
    table = {}
    for key, value in problem.values.items():
        code = np.frombuffer(key, dtype=np.int64).astype(float)
        configuration = space.decode(code)
        name = "|".join(str(configuration[p.name]) for p in space.parameters)
        table[name] = value if isinstance(value, float) else None
    path = folder / f"{problem.name}.problem.json"
    path.write_text(
        json.dumps(
            {
                "parameters": {p.name: list(p.values) for p in space.parameters},
                "constraints": list(space.constraint_sources),
                "table": table,
            }
        )
    )
    return path


def piece(
    tool: str, problem: Replay, budget: int, seeds: int, work: Path, python: str | None
) -> dict[int, list[float | None]]:
    """Runs of one tool on one problem, kept in a file."""
    path = work / f"{problem.name}--{tool}--{budget}.json"
    kept: dict[int, Any] = {}
    if path.exists():
        kept = {int(k): v for k, v in json.loads(path.read_text()).items()}
    missing = [seed for seed in range(seeds) if seed not in kept]
    for start in range(0, len(missing), 5):
        batch = missing[start : start + 5]
        if tool == OURS:
            kept |= {seed: ours(problem, seed, budget) for seed in batch}
        elif python is not None:
            script = Path(__file__).parent / "peers" / "tuning_peer.py"
            command = [python, str(script), tool, str(peer_file(problem, work)), str(budget)]
            done = subprocess.run(
                [*command, *map(str, batch)], capture_output=True, text=True, check=True, cwd=work
            )
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    found = json.loads(line)
                    if found["error"]:
                        print(f"{tool} on {problem.name}, seed {found['seed']}: {found['error']}")
                    kept[found["seed"]] = found["asked"]
        path.write_text(json.dumps(kept))
    return {seed: run for seed, run in kept.items() if seed < seeds}


def share(run: list[float | None], budget: int, optimum: float, worst: float) -> float:
    """Best known over best found within a budget; where nothing worked, over the worst."""
    good = [v for v in run[:budget] if v is not None]
    return optimum / min(good) if good else optimum / worst


def evaluations_to(run: list[float | None], part: float, optimum: float) -> int:
    """Evaluations until a share of the best known is reached, NEVER if it is not."""
    for count, value in enumerate(run[:LONGEST], 1):
        if value is not None and optimum / value >= part:
            return count
    return NEVER


def geometric(values: Any) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of T4 and T1 files")
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--tools", default=",".join((OURS, *PEERS)))
    parser.add_argument("--problems", default="", help="only those whose name holds this")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "tuning")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    files = sorted(p for p in args.data.glob("*_T4.json*") if args.problems in p.name)
    problems = [read_t4(path) for path in files]
    tools = [t for t in args.tools.split(",") if t == OURS or args.peers or t in PEERS]
    rows: list[dict[str, Any]] = []
    for problem in problems:
        optimum = problem.optimum
        worst = max(v for v in problem.values.values() if isinstance(v, float))
        for tool in tools:
            budgets = (*BUDGETS, LONGEST) if tool in PLANNERS else (LONGEST,)
            runs = {b: piece(tool, problem, b, args.seeds, args.work, args.peers) for b in budgets}
            long = list(runs[LONGEST].values())
            shares = {
                b: [share(run, b, optimum, worst) for run in runs.get(b, runs[LONGEST]).values()]
                for b in BUDGETS
            }
            rows.append(
                {
                    "problem": problem.name,
                    "tool": tool,
                    "seeds": len(long),
                    "shares": {str(b): [round(s, 5) for s in v] for b, v in shares.items()},
                    "geometric": {str(b): geometric(v) for b, v in shares.items() if v},
                    "to_90": [evaluations_to(run, 0.90, optimum) for run in long],
                    "to_95": [evaluations_to(run, 0.95, optimum) for run in long],
                }
            )
            means = " ".join(f"{rows[-1]['geometric'].get(str(b), math.nan):.3f}" for b in BUDGETS)
            medians = np.median(rows[-1]["to_90"]), np.median(rows[-1]["to_95"])
            print(f"{problem.name:28} {tool:38} {means}  90%/95%: {medians}", flush=True)
    tuning_common.write("tuning_quality", rows, summarise(rows))


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the comparison (see the module's text and the keys)."""
    table = {(r["problem"], r["tool"]): r for r in rows}
    problems = sorted({r["problem"] for r in rows})
    tools = sorted({r["tool"] for r in rows})
    peers = [t for t in tools if t not in (OURS, "random")]
    summary: dict[str, Any] = {"problems": len(problems), "seeds": min(r["seeds"] for r in rows)}
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
    """The 2.5 % bootstrap bound of ours over the peer's, seeds drawn anew a problem."""
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
