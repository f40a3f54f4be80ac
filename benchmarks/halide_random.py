"""Random pipelines that no model was fitted to: whether they are scheduled, compiled and correct.

The pipelines are those of ``tilewright.halide.schedulers.learned.random_pipelines``, by seed; the
learned model was fitted to seeds below 100 (``halide_labels``), and these begin at 1000. On the
host, the learned scheduler's one-shot schedule is compiled and run, and its answers are compared
with those of a plain schedule. The same is done with the analytic schedule on OpenCL, with fewer
points, because the learned scheduler supports only CPUs. For CUDA, the analytic schedule of the
whole size is compiled to PTX.

Every pipeline and target runs in a separate process. A crash, an error, a time-out, a refusal by
Halide, a schedule that the model gave up on and a wrong answer are all recorded as failures. Time
is not measured, so the machine may be busy. Finished parts are kept, and a run that was killed
continues where it stopped; ``--count`` is the total number of pipelines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import common
import halide_labels

FIRST = 1000  # seed of the first pipeline
COUNT = 300
SMALL_WORK = (1e5, 1e6)  # operations of a run on OpenCL, which a CPU stands in for here
CHILD_SECONDS = 900.0  # of wall time on a machine that others use: more is a hang
MESSAGE = 300  # characters kept of an error
GPU = "a100"
# Target, machine, scheduler, and whether the pipeline is the one with fewer points.
CASES: Mapping[str, tuple[str, str | None, str, bool]] = {
    "host": ("host", None, "learned", False),
    "opencl, small": ("opencl", None, "analytic", True),
    "cuda": ("cuda", GPU, "analytic", False),
}


def tried(seed: int, case: str) -> dict[str, Any]:
    """Schedule, compile and check one pipeline for one target; errors are the caller's."""
    import halide_coverage
    from tilewright.halide.schedulers.learned.random_pipelines import (
        LEAST_WORK,
        MOST_WORK,
        build,
        random_pipeline,
    )
    from tilewright.halide.schedulers.registry import MODEL_FAILED
    from tilewright.halide.schedulers.task import make_task
    from tilewright.halide.search.one_shot import plan_checked

    target, machine, scheduler, small = CASES[case]
    recipe = random_pipeline(seed, SMALL_WORK if small else (LEAST_WORK, MOST_WORK))
    task = make_task(
        build(recipe, limited=True), target=target, machine=machine, name=f"random{seed}"
    )
    planned = plan_checked(task, scheduler=scheduler)[0]
    notes = list(planned.notes)
    given_up = next((n for n in notes if MODEL_FAILED in n or "refused" in n), None)
    check = halide_coverage.compile_only if target == "cuda" else halide_coverage.run_here
    result = check(task, planned.schedule)
    if result["status"] == "ok" and given_up:
        result |= {"status": "refused", "message": given_up}
    return {
        "status": result["status"],
        "message": (result["message"] or "")[:MESSAGE],
        "funcs": len(task.algorithm.funcs),
        "notes": notes,
    }


def child(seed: int, case: str) -> dict[str, Any]:
    """`tried` in a fresh process; however that ends is the result."""
    argv = [sys.executable, __file__, "--child", str(seed), case]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        out, err = process.communicate(timeout=CHILD_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.communicate()
        return {"status": "timeout", "message": f"not done in {CHILD_SECONDS:.0f} s"}
    lines = [line for line in out.splitlines() if line.startswith('{"status"')]
    if process.returncode != 0 or not lines:
        said = [line.strip() for line in err.splitlines() if line.strip()]
        message = (said or [f"exit status {process.returncode}"])[-1]
        return {"status": "crashed", "message": message[:MESSAGE]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    by_target: Counter[str] = Counter()
    by_status: Counter[str] = Counter()
    for row in rows:
        for case, result in row["cases"].items():
            by_status[result["status"]] += 1
            by_target[case] += result["status"] != "ok"
    return {
        "pipelines": len(rows),
        "asked": COUNT,
        "failures": sum(by_target.values()),
        "failures_by_target": dict(by_target),
        "by_status": dict(by_status),
        "funcs_max": max(r.get("funcs", 0) for row in rows for r in row["cases"].values()),
    }


def main() -> None:
    """Check, print, write."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(tried(int(sys.argv[2]), sys.argv[3])))
        return
    assert f"random:{FIRST}" not in halide_labels.RANDOM
    names = [f"random:{seed}" for seed in range(FIRST, FIRST + COUNT)]
    parser = common.arguments(__doc__.splitlines()[0], names)
    parser.add_argument("--count", type=int, default=COUNT, help="pipelines, from the first seed")
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_random", args.fresh)
    rows = []
    for name in common.chosen(args, names)[: args.count]:
        seed = int(name.removeprefix("random:"))
        results = {
            case: pieces.get(f"{seed}-{common.slug(case)}", partial(child, seed, case))
            for case in CASES
        }
        rows.append({"pipeline": name, "cases": results})
        failed = [
            f"{c}: {r['status']} {r['message']}" for c, r in results.items() if r["status"] != "ok"
        ]
        print(f"{name:12} {'; '.join(failed) or 'ok'}", flush=True)
    common.write(args, "halide_random", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
