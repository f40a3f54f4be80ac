"""How the time to schedule grows with the number of Funcs, for the host and for CUDA.

Residual networks, elementwise chains, pyramids, chains of stencils and many branches
(``tests/halide/large_pipelines.py``) of 50 to 400 Funcs, and of 300 (``seconds_at_300``; not in the
fit), are processed from pipeline to printed C++: import, search, legality check, emission of C++,
Python and JSON, explanation. Each runs in a separate process and reports CPU seconds (without the
start of the process). The fitted exponent is the slope of log(CPU seconds) over log(Funcs): 1 is
linear.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common

SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "halide" / "large_pipelines.py"
KINDS = ("residual_network", "elementwise_chain", "pyramids", "stencil_chain", "branches")
TARGETS = ("host", "cuda")
GPU = "a100"
SIZES = (50, 100, 200, 400)
# The size for which `seconds_at_300` is reported.
CLAIMED = 300
TIMEOUT = 300.0  # seconds of one pipeline


def phases(kind: str, least: int, target: str) -> dict[str, Any]:
    """CPU seconds of every phase for one pipeline; run in a process of its own."""
    from tilewright.halide.ir.json import to_json
    from tilewright.halide.legality.check import check
    from tilewright.halide.result import Result
    from tilewright.halide.schedulers.registry import device_limits, plan
    from tilewright.halide.schedulers.task import make_task

    output = common.load_module(SUPPORT).KINDS[kind](least)
    seconds: dict[str, float] = {}

    def timed(phase: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        done = work()
        seconds[phase] = time.process_time() - began
        return done

    machine = GPU if target == "cuda" else None
    task = timed("import", lambda: make_task(output, target=target, machine=machine))
    planned = timed("search", lambda: plan(task))[0]
    schedule = replace(planned.schedule, target=task.target)
    problems = timed("check", lambda: check(schedule, task.algorithm, device_limits(task)))
    result = Result(task, planned, "oneshot")
    timed("emit", lambda: (result.to_cpp(), result.to_python(), to_json(schedule)))
    timed("explain", result.explain)
    return {
        "funcs": len(task.algorithm.funcs),
        "problems": len(problems),
        "refused": not planned.groups,
        "seconds": seconds,
        "total": sum(seconds.values()),
    }


def child(kind: str, least: int, target: str) -> dict[str, Any]:
    """`phases` in a fresh process; a failure is a result too."""
    argv = [sys.executable, __file__, "--child", kind, str(least), target]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "message": f"not done in {TIMEOUT:g} seconds"}
    if done.returncode != 0:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return {"status": "failed", "message": (words or ["no message"])[-1][:300]}
    return {"status": "ok", **json.loads(done.stdout.splitlines()[-1])}


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of the line of least squares through (log x, log y); None for under two points.

    >>> round(exponent([(10, 3), (20, 12), (40, 48)]), 6)
    2.0
    """
    if len(points) < 2:
        return None
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    below = sum((x - mean_x) ** 2 for x in xs)
    return above / below if below else None


def row_of(kind: str, target: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One kind of pipeline on one target: its runs by size, and the exponent."""
    done = [run for run in runs if run["status"] == "ok" and run["least"] != CLAIMED]
    claimed = [run["total"] for run in runs if run["status"] == "ok" and run["least"] == CLAIMED]
    return {
        "kind": kind,
        "target": target,
        "runs": runs,
        "exponent": exponent([(run["funcs"], run["total"]) for run in done]),
        "seconds_at_300": claimed[0] if claimed else None,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim: the steepest growth, the longest time at 300 Funcs."""
    runs = [run for row in rows for run in row["runs"]]
    exponents = [row["exponent"] for row in rows if row["exponent"] is not None]
    seconds = [row["seconds_at_300"] for row in rows if row["seconds_at_300"] is not None]
    return {
        "pipelines": len(runs),
        "failures": sum(run["status"] != "ok" or run["refused"] for run in runs),
        "exponent_max": max(exponents, default=None),
        "seconds_at_300_max": max(seconds, default=None),
    }


def main() -> None:
    """Run, print, write."""
    if sys.argv[1:2] == ["--child"]:
        kind, number, target = sys.argv[2:]
        print(json.dumps(phases(kind, int(number), target)))
        return
    parser = common.arguments(__doc__.splitlines()[0], KINDS)
    parser.add_argument("--sizes", metavar="N,N", help="least numbers of Funcs, instead of all")
    args = parser.parse_args()
    sizes = [int(n) for n in args.sizes.split(",")] if args.sizes else [*SIZES, CLAIMED]
    if args.sizes and not args.only:
        args.only = ",".join(KINDS)  # a partial run, by its name too
    pieces = common.Pieces(args.work, "halide_scaling", args.fresh)
    rows = []
    for kind in common.chosen(args, KINDS):
        for target in TARGETS:
            runs = []
            for least in sorted(sizes):
                run = pieces.get(
                    f"{kind}-{target}-{least}",
                    partial(child, kind, least, target),
                )
                runs.append({"least": least, **run})
                said = f"{run['total']:.2f} s" if run["status"] == "ok" else run["message"]
                print(f"{kind}, {target}, {run.get('funcs', least)} Funcs: {said}", flush=True)
            rows.append(row_of(kind, target, runs))
    print()
    common.print_table(
        ["", "target", *(f"s at {n}" for n in sorted(sizes)), "exponent"],
        [
            [row["kind"], row["target"], *(r.get("total") for r in row["runs"]), row["exponent"]]
            for row in rows
        ],
    )
    common.write(args, "halide_scaling", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
