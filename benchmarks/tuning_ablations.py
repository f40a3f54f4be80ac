"""What each piece of the search is worth: the directions of the BaCO paper's Figures 8 to 10.

Every ablation is the tuner with one piece switched off or exchanged (`full` is the tuner as it
is), run on problems where the piece matters: recorded search spaces (those of the folder --data
and the package's own) and analytic stand-ins for the paper's compilers, with permutations (TACO)
and hidden failures (RISE). Reported is the best that the ablation has found over the best that
the full tuner has found within 20, 40 and 60 evaluations: the geometric mean over problems and
seeds, above 1 where the piece helps, with the 95 % bootstrap interval over the seeds of each
problem. The stand-ins' order of loops costs by squared displacement, which favours the Spearman
metric; they say that a metric works, not that compilers prefer it. RISE's real kernels need a GPU
(`tilewright.patterns.rise`), so its spaces have stand-ins here, too.

Runs are kept in --work and taken up by the next call; --seconds ends a call in time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tuning_common
from tilewright.tuning import Settings
from tilewright.tuning.bayes.gp import Priors
from tilewright.tuning.interop.replay import read_t4
from tilewright.tuning.problems import recorded
from tilewright.tuning.problems.standins import landscape
from tuning_runs import Run, ours

BUDGETS = (20, 40, 60)
FULL = "full"
Array: TypeAlias = np.ndarray[Any, Any]

RECORDED = (
    "convolution_milo_A4000",
    "convolution_milo_W7800",
    "dedispersion_milo_W7800",
    "cc_flags",
)
PERMUTATIONS = ("taco_spmm", "taco_sddmm", "taco_mttkrp")
HIDDEN = ("rise_mm_gpu", "rise_scal_gpu", "convolution_milo_A6000")
FLAT = Priors(lengthscale=None, signal=None)


@dataclass(frozen=True)
class Ablation:
    """Settings in place of the full tuner's, and the problems to compare them on."""

    about: str
    settings: Settings
    problems: tuple[str, ...]


ABLATIONS: Mapping[str, Ablation] = {
    FULL: Ablation("the tuner as it is", Settings(), (*RECORDED, *PERMUTATIONS, *HIDDEN)),
    # Figure 8
    "forest_surrogate": Ablation(
        "Fig. 8: a random forest in the Gaussian process's place",
        Settings(surrogate="rf"),
        (*RECORDED, *PERMUTATIONS),
    ),
    "bare": Ablation(
        "Fig. 8: no transforms, priors, local search or permutation metric (BaCO--)",
        Settings(
            objective="plain",
            log_parameters=False,
            alignment=False,
            metric="naive",
            priors=FLAT,
            local_search=False,
            design="uniform",
        ),
        (*RECORDED, *PERMUTATIONS),
    ),
    "no_local_search": Ablation(
        "the best of the sampled configurations, without climbing",
        Settings(local_search=False),
        (*RECORDED, *PERMUTATIONS),
    ),
    # Figure 9
    "kendall": Ablation("Fig. 9: Kendall's metric", Settings(metric="kendall"), PERMUTATIONS),
    "hamming": Ablation("Fig. 9: Hamming's metric", Settings(metric="hamming"), PERMUTATIONS),
    "naive": Ablation("Fig. 9: permutations as categories", Settings(metric="naive"), PERMUTATIONS),
    "no_logarithms": Ablation(
        "Fig. 9: neither the objective nor parameters on a log scale",
        Settings(objective="plain", log_parameters=False),
        (*RECORDED, *PERMUTATIONS),
    ),
    "no_priors": Ablation(
        "Fig. 9: flat priors of length scales and signal",
        Settings(priors=FLAT),
        (*RECORDED, *PERMUTATIONS),
    ),
    # Figure 10
    "no_feasibility": Ablation(
        "Fig. 10: no model of hidden constraints",
        Settings(feasibility=False),
        HIDDEN,
    ),
    "biased_sampling": Ablation(
        "walks down the chain of trees in place of uniform samples",
        Settings(biased_sampling=True),
        (*RECORDED, "rise_mm_gpu", "rise_scal_gpu"),
    ),
    # beyond the paper
    "no_alignment": Ablation(
        "numbers told apart by size alone", Settings(alignment=False), RECORDED
    ),
    "uniform_design": Ablation(
        "the paper's uniform start", Settings(design="uniform"), (*RECORDED, *PERMUTATIONS)
    ),
    "no_stagnation": Ablation(
        "the Gaussian process alone, however long nothing is found",
        Settings(stagnation=0),
        (*RECORDED, *PERMUTATIONS, "convolution_milo_A6000"),
    ),
    "whole_logarithm": Ablation(
        "the paper's logarithm, the slow half not drawn in",
        Settings(objective="log"),
        (*RECORDED, *PERMUTATIONS),
    ),
}


def load(data: Path | None) -> dict[str, Any]:
    """Every problem of the ablations that there is, by name."""
    found: dict[str, Any] = {p.name: p for p in recorded()}
    for path in sorted(data.glob("*_T4.json*")) if data else ():
        problem = read_t4(path)
        found[problem.name] = problem
    wanted = dict.fromkeys(name for a in ABLATIONS.values() for name in a.problems)
    for name in wanted:
        if name.startswith(("taco", "rise")):
            found[name] = landscape(name)
    return {name: found[name] for name in wanted if name in found}


class Kept:
    """The kept runs of a folder: a file for each ablation and problem, runs by seed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def runs(self, ablation: str, problem: str) -> dict[int, Run]:
        """What is kept, by seed."""
        path = self.folder / f"{problem}--{ablation}.json"
        return {int(k): v for k, v in json.loads(path.read_text()).items()} if path.exists() else {}

    def keep(self, ablation: str, problem: str, seed: int, run: Run) -> None:
        """Add a run."""
        path = self.folder / f"{problem}--{ablation}.json"
        kept = self.runs(ablation, problem) | {seed: run}
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(dict(sorted(kept.items()))))
        draft.replace(path)


def fill(kept: Kept, problems: Mapping[str, Any], seeds: int, over: Callable[[], bool]) -> None:
    """Run what is missing, seed by seed, until the time is up."""
    for seed in range(seeds):
        for name, ablation in ABLATIONS.items():
            for problem in ablation.problems:
                if over():
                    return
                if problem in problems and seed not in kept.runs(name, problem):
                    run = ours(problems[problem], seed, BUDGETS[-1], ablation.settings)
                    kept.keep(name, problem, seed, run)


def best_logs(runs: Sequence[Run]) -> Array:
    """Logarithm of the best found within each of BUDGETS, shape (runs, budgets).

    Where nothing had worked by then, the run's first success counts.
    """
    rows = []
    for run in runs:
        good = [v for v in run if v is not None]
        row = []
        for budget in BUDGETS:
            found = [v for v in run[:budget] if v is not None] or good[:1]
            row.append(math.log(min(found)) if found else math.nan)
        rows.append(row)
    return np.array(rows)


def ratios(pairs: Sequence[tuple[Array, Array]]) -> list[list[float]]:
    """For each budget: ablated over full, and the bounds of its interval.

    Args:
        pairs: for each problem what `best_logs` gives of the ablation and of the full tuner,
            the same seeds in the same rows.
    """
    rng = np.random.default_rng(0)
    differences = [ablated - full for ablated, full in pairs]
    middle = np.mean([d.mean(axis=0) for d in differences], axis=0)
    draws = np.array(
        [
            np.mean([d[rng.integers(0, len(d), len(d))].mean(axis=0) for d in differences], axis=0)
            for _ in range(2000)
        ]
    )
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    return [
        [round(float(np.exp(v)), 4) for v in row] for row in zip(middle, low, high, strict=True)
    ]


def compare(kept: Kept, problems: Mapping[str, Any], seeds: int) -> list[dict[str, Any]]:
    """A row for every ablation and problem, and one for its problems together."""
    rows = []
    for name, ablation in ABLATIONS.items():
        pairs: dict[str, tuple[Array, Array]] = {}
        for problem in ablation.problems if name != FULL else ():
            if problem not in problems:
                continue
            one, full = kept.runs(name, problem), kept.runs(FULL, problem)
            common = sorted(s for s in one.keys() & full.keys() if s < seeds)
            if len(common) > 1:
                pairs[problem] = (
                    best_logs([one[s] for s in common]),
                    best_logs([full[s] for s in common]),
                )
        groups = [(problem, [pair]) for problem, pair in pairs.items()]
        groups += [("all", list(pairs.values()))] if pairs else []
        for problem, group in groups:
            found = ratios(group)
            rows.append(
                {
                    "ablation": name,
                    "problem": problem,
                    "seeds": min(len(one) for one, _ in group),
                    **{f"at_{b}": found[i][0] for i, b in enumerate(BUDGETS)},
                    **{f"at_{b}_interval": found[i][1:] for i, b in enumerate(BUDGETS)},
                }
            )
    return rows


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each ablation its ratios over all of its problems, with the interval at the last."""
    pooled = [row for row in rows if row["problem"] == "all"]
    summary: dict[str, Any] = {"seeds": min((row["seeds"] for row in pooled), default=0)}
    for row in pooled:
        low, high = row[f"at_{BUDGETS[-1]}_interval"]
        summary[row["ablation"]] = {
            **{f"at_{b}": row[f"at_{b}"] for b in BUDGETS},
            "low": low,
            "high": high,
        }
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of T4 and T1 files")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "ablations")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop filling after these")
    parser.add_argument("--no-write", action="store_true", help="only fill and show")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    problems = load(args.data)
    kept = Kept(args.work)
    fill(kept, problems, args.seeds, lambda: time.monotonic() > end)
    rows = compare(kept, problems, args.seeds)
    summary = summarise(rows)
    if args.no_write:
        for name, value in summary.items():
            print(name, value)
        return
    about = {name: ablation.about for name, ablation in ABLATIONS.items()}
    tuning_common.write("tuning_ablations", rows, summary, ablations=about)


if __name__ == "__main__":
    main()
