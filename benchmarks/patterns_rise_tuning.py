"""RISE's seven kernels tuned: ours, random search, pyATF, OpenTuner and an expert's schedule.

Each configuration of ``support/rise_kernels.py`` is a derivation of a RISE program by our rules,
compiled as C for this machine. With ``--record``, every configuration is compared with the
interpreter and timed: in `ROUNDS` rounds in alternating order, each next to an anchor, which is the
expert's configuration, so a machine whose speed drifts does not change the order. A time is the
median ratio to the anchor, times the anchor's median. The records are in ``data/rise``; without
``--record``, tuners are run on them.

Every distinct configuration that a tuner asks costs one evaluation, failing ones included. Budgets
are BaCO's: full is that of the paper (60 to 120), small two thirds and tiny one third of it. Peers
run in an environment of their own (--peers PYTHON, see peers/tuning_requirements.txt).

A row is a kernel and a tuner: ``vs_expert`` is the expert's time over the best found, the geometric
mean over seeds at each budget. Keys of the summary:

- ``vs_expert_tiny``, ``_small``, ``_full``: of ours, the geometric mean over kernels; with a prefix
  for peers. ``vs_best_peer_full``: ours over the peer that is best over all kernels.
- ``evals_to_best_peer``: evaluations until ours reaches what the best peer of the kernel reaches at
  the full budget, over that budget: the median over seeds, and of it the geometric mean over
  kernels. A seed that does not reach it counts `NEVER` budgets.
- ``reached``: share of our runs that do.
- ``configurations``, ``failed``: recorded, and those of them that are refused or wrong.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
from patterns_ranking import library, timed
from tuning_runs import OURS, Run, ours, write_problem

DATA = common.HERE / "data" / "rise"
NAMES = ("mm_cpu", "mm_gpu", "asum", "scal", "kmeans", "harris", "stencil")
PEERS = ("random", "pyatf", "opentuner")
SEEDS = 10
BUDGETS = {"tiny": 1 / 3, "small": 2 / 3, "full": 1.0}  # of BaCO's full one
NEVER = 2.0
PART = 24  # configurations that are timed in turn: each has arrays for its results
ROUNDS = 5
SLOW = 8.0  # times the anchor, from which on the first run is the only one
TOLERANCE = 1e-4  # of the largest number, as in patterns_correct


def kernel_of(name: str) -> Any:
    """A kernel of the support module."""
    return common.load_module(common.HERE / "support" / "rise_kernels.py").KERNELS[name]()


def built(kernel: Any, configuration: dict[str, Any], work: Path) -> Any:
    """A configuration's compiled kernel; None if the compiler refuses it."""
    from tilewright.patterns.codegen.c import print_c
    from tilewright.patterns.codegen.generate import generate
    from tilewright.patterns.compiling import CKernel

    program = kernel.derive(configuration)
    code = generate(program)
    text = print_c(code)
    path = library(work, text)
    return None if path is None else CKernel(program, code, text, path)


def expected_of(name: str, kernel: Any, work: Path) -> Any:
    """The interpreter's result, kept between runs: it takes half a minute for a sum."""
    from tilewright.patterns import interpret, random_inputs

    path = work / f"rise-{name}-{digest(kernel.program)}.npy"
    if not path.exists():
        np.save(path, interpret(kernel.program, *random_inputs(kernel.program, None, 0)))
    return np.load(path)


def measured(name: str, part: list[dict[str, Any]], work: Path) -> list[float | str]:
    """The ratio of each configuration's time to the expert's, or why it has none."""
    from tilewright.patterns import PatternError, random_inputs, relative_error

    kernel = kernel_of(name)
    inputs = random_inputs(kernel.program, None, 0)
    expected = expected_of(name, kernel, work)
    anchor = built(kernel, dict(kernel.expert), work).bound(
        *inputs, threads=kernel.expert["threads"]
    )
    anchor.run()
    assert relative_error(anchor.result(), expected) <= TOLERANCE, name
    usual = min(timed(anchor.run) for _ in range(3))
    found: list[float | str] = []
    runs: dict[int, Callable[[], Any]] = {}
    for number, configuration in enumerate(part):
        found.append("build_failed")
        try:
            made = built(kernel, configuration, work)
        except PatternError:
            continue
        if made is None:
            continue
        bound = made.bound(*inputs, threads=configuration["threads"])
        bound.run()
        if relative_error(bound.result(), expected) > TOLERANCE:
            found[number] = "wrong_answer"
            continue
        found[number] = timed(bound.run) / usual
        if found[number] <= SLOW:
            runs[number] = bound.run
    ratios: dict[int, list[float]] = {number: [] for number in runs}
    for turn in range(ROUNDS):
        for number in list(runs)[:: 1 if turn % 2 else -1]:
            beside = timed(anchor.run)
            runs[number]()
            ratios[number].append(timed(runs[number]) / beside)
    for number, values in ratios.items():
        found[number] = statistics.median(values)
    return found


def record(name: str, args: Any) -> None:
    """Measure every configuration of a kernel, and write the record."""
    from tilewright.measure import machine_id
    from tilewright.patterns.compiling import options
    from tilewright.tuning.problems.recordings import configurations, write_recording

    kernel = kernel_of(name)
    everything = list(configurations(kernel.space))
    pieces = common.Pieces(args.work, "patterns_rise_records", args.fresh, ours=False)
    found: list[float | str] = []
    for first in range(0, len(everything), PART):
        part = everything[first : first + PART]
        found += pieces.get(
            f"{name}-{first}-{digest(kernel.program)}", partial(measured, name, part, args.work)
        )
    threads = kernel.expert["threads"]
    anchor = built(kernel, dict(kernel.expert), args.work)
    from tilewright.patterns import random_inputs

    bound = anchor.bound(*random_inputs(kernel.program, None, 0), threads=threads)
    seconds = statistics.median(timed(bound.run) for _ in range(4 * ROUNDS))
    space = kernel.space
    outcomes = {
        space.key(space.encode(c)): value if isinstance(value, str) else value * seconds
        for c, value in zip(everything, found, strict=True)
    }
    about = {
        "written_by": "benchmarks/patterns_rise_tuning.py --record",
        "program": str(kernel.program),
        "machine": machine_id(),
        "options": " ".join(options()),
        "objective": "seconds: the median ratio to the expert's schedule times its median",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    DATA.mkdir(parents=True, exist_ok=True)
    write_recording(DATA / f"{name}.json.gz", space, outcomes, about)
    good = [v for v in outcomes.values() if isinstance(v, float)]
    print(f"{name}: {len(good)} of {len(everything)}, best {min(good):.3g} s, expert {seconds:.3g}")


def compile_all(name: str, args: Any) -> None:
    """Compile every kernel; the machine may be busy."""
    from tilewright.patterns import PatternError
    from tilewright.tuning.problems.recordings import configurations

    kernel = kernel_of(name)
    expected_of(name, kernel, args.work)
    refused = 0
    for configuration in configurations(kernel.space):
        if configuration["threads"] == 2:
            try:
                refused += built(kernel, configuration, args.work) is None
            except PatternError:
                refused += 1
    print(f"{name}: {refused} refused", flush=True)


def runs_of(tool: str, problem: Any, budget: int, seeds: int, args: Any) -> list[Run]:
    """A tuner's runs, one for each seed; what it asked, in order."""
    pieces = common.Pieces(args.work, "patterns_rise_runs", args.fresh, ours=tool == OURS)
    if tool == OURS:
        return [
            pieces.get(f"{problem.name}-{seed}", partial(ours, problem, seed, budget))
            for seed in range(seeds)
        ]

    def peer() -> list[Run]:
        path = args.work / f"{problem.name}.problem.json"
        write_problem(problem, path)
        script = common.HERE / "peers" / "tuning_peer.py"
        command = [args.peers, str(script), tool, str(path), str(budget), *map(str, range(seeds))]
        done = subprocess.run(command, capture_output=True, text=True, cwd=args.work, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return [line["asked"] for line in sorted(lines, key=lambda line: line["seed"])]

    return pieces.get(
        f"{tool}-{problem.name}-{budget}-{seeds}-{digest(sorted(problem.values.items()))}", peer
    )


def digest(of: Any) -> str:
    """Of a program or a record: what was made of another one is not taken."""
    return hashlib.sha256(str(of).encode()).hexdigest()[:12]


def best_at(run: Run, budget: int, worst: float) -> float:
    """The best time within a budget; the worst of the record where nothing worked."""
    return min((v for v in run[:budget] if v is not None), default=worst)


def rows_of(name: str, args: Any) -> list[dict[str, Any]]:
    """The rows of a kernel: one for each tuner that has been run."""
    from tilewright.tuning.problems.recordings import read_recording

    problem, kernel = read_recording(DATA / f"{name}.json.gz"), kernel_of(name)
    expert = problem(kernel.expert)
    times = [v for v in problem.values.values() if isinstance(v, float)]
    budgets = {label: round(kernel.budget * share) for label, share in BUDGETS.items()}
    rows = []
    for tool in (OURS, *(PEERS if args.peers else ())):
        runs = runs_of(tool, problem, kernel.budget, args.seeds, args)
        found = {
            label: [expert / best_at(run, budget, max(times)) for run in runs]
            for label, budget in budgets.items()
        }
        rows.append(
            {
                "kernel": name,
                "tool": tool,
                "seeds": len(runs),
                "budget": kernel.budget,
                "configurations": len(problem.values),
                "failed": len(problem.values) - len(times),
                "optimum_vs_expert": expert / min(times),
                "vs_expert": {k: common.geometric_mean(v) for k, v in found.items()},
                "vs_expert_seeds": {k: [round(x, 4) for x in v] for k, v in found.items()},
            }
        )
        print(name, tool, rows[-1]["vs_expert"], flush=True)
        if tool == OURS:
            mine = runs
    peers = [row for row in rows if row["tool"] != OURS]
    if peers:
        level = max(row["vs_expert"]["full"] for row in peers)
        counts = [evaluations_to(run, expert / level, kernel.budget) for run in mine]
        rows[0] |= {"best_peer": level, "evals_to_best_peer": counts}
    return rows


def evaluations_to(run: Run, seconds: float, budget: int) -> float:
    """Evaluations until a time is reached, over the budget; NEVER if it is not."""
    reached = (i for i, v in enumerate(run[:budget], 1) if v is not None and v <= seconds)
    return next((i / budget for i in reached), NEVER)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim."""
    found: dict[str, Any] = {}
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    for tool in tools:
        prefix = "" if tool == OURS else f"{tool}_"
        for label in BUDGETS:
            values = [row["vs_expert"][label] for row in rows if row["tool"] == tool]
            found[f"{prefix}vs_expert_{label}"] = common.geometric_mean(values)
    mine = [row for row in rows if row["tool"] == OURS]
    if all("evals_to_best_peer" in row for row in mine):
        best = max(found[f"{tool}_vs_expert_full"] for tool in tools if tool != OURS)
        found["vs_best_peer_full"] = found["vs_expert_full"] / best
        medians = [float(np.median(row["evals_to_best_peer"])) for row in mine]
        found["evals_to_best_peer"] = common.geometric_mean(medians)
        counts = [c for row in mine for c in row["evals_to_best_peer"]]
        found["reached"] = sum(c < NEVER for c in counts) / len(counts)
    found["seeds"] = min(row["seeds"] for row in rows)
    found["configurations"] = sum(row["configurations"] for row in mine)
    found["failed"] = sum(row["failed"] for row in mine)
    return found


def main() -> None:
    """Record the kernels' configurations, or compare tuners on the records."""
    parser = common.arguments(__doc__.splitlines()[0], NAMES)
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--prepare", action="store_true", help="only compile the kernels")
    parser.add_argument("--record", action="store_true", help="measure every configuration")
    args = parser.parse_args()
    args.work = args.work.resolve()
    names = common.chosen(args, NAMES)
    if args.prepare or args.record:
        for name in names:
            (compile_all if args.prepare else record)(name, args)
        return
    rows = [row for name in names for row in rows_of(name, args)]
    common.write(args, "patterns_rise_tuning", rows, summary(rows))


if __name__ == "__main__":
    main()
