"""Deliberate faults in the cost models of CPU and GPU: how many the models' unit tests notice.

Constants are scaled, terms and factors dropped, operators and comparisons swapped, minimum and
maximum exchanged, one at a time and drawn by a seed, in a copy of the tree. The tests of the models
alone are run on each; a fault counts as killed if one fails or runs into the time limit. Faults
that change nothing (equivalent mutants) are counted as survivors unless `EQUIVALENT` argues for
them one by one.

The seed of the result was drawn only after the tests had been written with other seeds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import common
from support.mutants import Mutant, mutants

ROOT = common.HERE.parent
MODELS = Path("src/tilewright/halide/schedulers/analytic")
COUNT = 60
SEED = 20261125
SECONDS = 120.0  # of one mutant's tests; alone on a core they take some ten
# The search's limits are no part of what a tiling costs.
SKIPPED = frozenset(["CpuSearch", "GpuSearch"])
MODULES = {
    "cpu": (
        "constants machine_model traffic cost register_block inline operation_cycles nested "
        "sliding nest_costs cache_sets reduction_steps"
    ).split(),
    "gpu": (
        "constants cost roofline loads occupancy inline nest_costs kernel_time stage_work warps "
        "traffic nest_work"
    ).split(),
}
TESTS = {
    "cpu": [
        "tests/halide/cpu/test_machine_model.py",
        "tests/halide/cpu/test_traffic.py",
        "tests/halide/cpu/test_register_block.py",
        "tests/halide/cpu/test_group_costs.py",
        "tests/halide/cpu/test_sliding.py",
        "tests/halide/cpu/test_cache_sets.py",
        "tests/halide/cpu/test_reduction_steps.py",
        "tests/halide/test_prediction.py",
    ],
    "gpu": [
        "tests/halide/gpu/test_gpu_formulas.py",
        "tests/halide/gpu/test_gpu_inlining.py",
        "tests/halide/gpu/test_gpu_choices.py",
        "tests/halide/gpu/test_cost.py",
        "tests/halide/gpu/test_inline.py",
        "tests/halide/gpu/test_residency.py",
        "tests/halide/gpu/test_kernel_time.py",
        "tests/halide/gpu/test_warps.py",
        "tests/halide/gpu/test_gpu_traffic.py",
        "tests/halide/gpu/test_nest_work.py",
        "tests/halide/gpu/test_seconds.py",
        "tests/halide/test_prediction.py",
    ],
}
# Mutants that compute the same, by key, and why.
EQUIVALENT: dict[str, str] = {}


def drawn(model: str, count: int, seed: int) -> list[Mutant]:
    """`count` faults of one model: expressions first, then what is wrong with each."""
    places: dict[tuple[str, str, int, str], list[Mutant]] = {}
    for module in MODULES[model]:
        path = MODELS / model / f"{module}.py"
        for fault in mutants(str(path), (ROOT / path).read_text(), SKIPPED):
            places.setdefault((fault.path, fault.place, fault.line, fault.before), []).append(fault)
    generator = random.Random(f"{model} {seed}")
    chosen = generator.sample(list(places.values()), min(count, len(places)))
    return [generator.choice(faults) for faults in chosen]


def copied(folder: Path) -> Path:
    """What the tests need, compiled so that only a changed file is compiled again."""
    for name in ("src", "tests"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([*command, str(folder / "src")], check=True)
    return folder


def tested(folder: Path, model: str, seconds: float) -> tuple[str, str]:
    """`killed`, `timeout` or `survived`, and the test that failed."""
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n0"]
    try:
        done = subprocess.run(
            [*command, *TESTS[model]],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout", ""
    if done.returncode == 0:
        return "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return "killed", failed.group(1) if failed else done.stdout[-200:]


def tried(model: str, mutant: Mutant, trees: Queue[Path], seconds: float) -> dict[str, Any]:
    """A mutant's row."""
    folder = trees.get()
    path = folder / mutant.path
    original = path.read_text()
    start = time.perf_counter()
    try:
        path.write_text(mutant.text)
        status, test = tested(folder, model, seconds)
    finally:
        path.write_text(original)
        trees.put(folder)
    if status == "survived" and mutant.key in EQUIVALENT:
        status = "equivalent"
    return {
        "model": model,
        "file": str(Path(mutant.path).relative_to(MODELS)),
        "place": mutant.place,
        "line": mutant.line,
        "kind": mutant.kind,
        "before": mutant.before,
        "after": mutant.after,
        "key": mutant.key,
        "status": status,
        "test": test,
        "why": EQUIVALENT.get(mutant.key, ""),
        "seconds": round(time.perf_counter() - start, 1),
    }


def summary(rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The figures that the claim is about."""

    def share(some: list[dict[str, Any]]) -> float | None:
        judged = [row for row in some if row["status"] != "equivalent"]
        return sum(row["status"] != "survived" for row in judged) / len(judged) if judged else None

    return {
        "mutants": len(rows),
        "killed": share(rows),
        "killed_cpu": share([row for row in rows if row["model"] == "cpu"]),
        "killed_gpu": share([row for row in rows if row["model"] == "gpu"]),
        "survivors": sum(row["status"] == "survived" for row in rows),
        "timeouts": sum(row["status"] == "timeout" for row in rows),
        "equivalent": sum(row["status"] == "equivalent" for row in rows),
        "seed": seed,
    }


def main() -> None:
    """Draw, run, write."""
    parser = common.arguments(__doc__.splitlines()[0], list(MODULES))
    parser.add_argument("--seed", type=int, default=SEED, help="that the faults are drawn by")
    parser.add_argument("--count", type=int, default=COUNT, help="faults, half of each model")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults at a time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of one fault's tests")
    args = parser.parse_args()
    chosen = [
        (model, mutant)
        for model in common.chosen(args, list(MODULES))
        for mutant in drawn(model, args.count // len(MODULES), args.seed)
    ]
    rows = run(chosen, args)
    for row in rows:
        if row["status"] == "survived":
            place = f"{row['file']}:{row['line']} {row['place']}"
            print(f"survived: {place}: {row['kind']}: {row['before']} -> {row['after']}")
    common.write(args, "halide_model_mutants", rows, summary(rows, args.seed))


def run(chosen: list[tuple[str, Mutant]], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every mutant's row; without a fault all tests must pass."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: Queue[Path] = Queue()
        for i in range(args.jobs):
            trees.put(copied(Path(folder) / str(i)))
        first = trees.get()
        trees.put(first)
        for model in {model for model, _ in chosen}:
            status, test = tested(first, model, 4 * args.seconds)
            if status != "survived":
                sys.exit(f"the tests of the {model} model fail without any fault: {test}")
        rows = []
        with ThreadPoolExecutor(args.jobs) as pool:
            waiting = [pool.submit(tried, m, f, trees, args.seconds) for m, f in chosen]
            for done in waiting:
                rows.append(done.result())
                row = rows[-1]
                print(f"{len(rows):3} {row['status']:9} {row['file']}:{row['line']}", flush=True)
    return rows


if __name__ == "__main__":
    main()
