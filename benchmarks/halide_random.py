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

A schedule whose answers are wrong on the OpenCL platform here is executed by Oclgrind as well, a
simulator that reports races, reads of uninitialised memory and accesses out of bounds. If the same
kernels give the right answers there and nothing is reported, the platform is at fault: this is
recorded as ``platform_fault`` and counted apart from the failures (`platform_faults`).
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import common
import halide_labels

FIRST = 1000  # seed of the first pipeline
COUNT = 300
SMALL_WORK = (1e5, 1e6)  # operations of a run on OpenCL, which a CPU stands in for here
CHILD_SECONDS = 900.0  # of wall time on a machine that others use: more is a hang
MESSAGE = 300  # characters kept of an error
GPU = "a100"
PLATFORM_FAULT = "platform_fault"
RIGHT = "the answers are right"
OCLGRIND = "Oclgrind"  # the name of its platform
OCLGRIND_LIBRARY = "liboclgrind-rt.so"  # which `oclgrind` puts into the process it runs
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
    if result["status"] == "wrong_answer" and target == "opencl":
        result |= second_opinion(task, planned.schedule, result)
    return {
        "status": result["status"],
        "message": (result["message"] or "")[:MESSAGE],
        "funcs": len(task.algorithm.funcs),
        "notes": notes,
    }


def second_opinion(task: Any, schedule: Any, first: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a wrong answer after executing the schedule by Oclgrind, if it is installed."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.execution.verification import tolerance
    from tilewright.halide.ir.json import to_json

    simulator = shutil.which("oclgrind")
    if simulator is None:
        return {}
    payload = {
        "serialized": base64.b64encode(task.algorithm.serialized).decode(),
        "schedule": to_json(schedule),
        "target": task.target,
        "inputs": make_inputs(task.algorithm).to_json(),
        "tolerance": dataclasses.asdict(tolerance(task.algorithm)),
    }
    with tempfile.TemporaryDirectory() as folder:
        log, path = Path(folder, "log"), Path(folder, "payload.json")
        path.write_text(json.dumps(payload))
        watched = [simulator, "--data-races", "--uninitialized", "--log", str(log)]
        done = subprocess.run(
            [*watched, sys.executable, __file__, "--simulated", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        said = log.read_text(errors="replace").strip() if log.exists() else ""
    verdict = done.stdout.splitlines()[-1:] or [f"exit status {done.returncode}"]
    if done.returncode == 0 and verdict == [RIGHT] and not said:
        message = f"{first['message']}; Oclgrind gives the right answer"
        return {"status": PLATFORM_FAULT, "message": message}
    return {"message": f"{first['message']}; in Oclgrind: {said or verdict[0]}"}


def simulated(path: str) -> str:
    """`RIGHT` if a payload's answers are those of a plain schedule; in a process under Oclgrind."""
    from tilewright.halide.execution.inputs import Inputs
    from tilewright.halide.execution.runner import Plain, Runner
    from tilewright.halide.execution.verification import Tolerance, accepted, compare
    from tilewright.machines import opencl

    # The environment may name the platform that gave the wrong answer.
    named = {"HL_OCL_PLATFORM_NAME": OCLGRIND}
    platform = opencl.OpenclPlatform(OCLGRIND, OCLGRIND_LIBRARY, named, ())
    os.environ[opencl.VARIABLE] = json.dumps(dataclasses.asdict(platform))
    payload = json.loads(Path(path).read_text())
    payload["serialized"] = base64.b64decode(payload["serialized"])
    plain = Plain({**payload, "target": "host"})
    expected = [answer.copy() for answer in plain.answers()]
    runner = Runner(payload)
    shapes = Inputs.from_json(payload["inputs"]).outputs
    kinds = [kind for shape in shapes for kind in shape.types]
    allowed = Tolerance(**payload["tolerance"])
    for answer, other, kind in zip(runner.answers(), expected, kinds, strict=True):
        comparison = compare(answer, other, kind, allowed)
        if not accepted(comparison, allowed):
            return f"{comparison.wrong} of {comparison.values} values are wrong"
    return RIGHT


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
            by_target[case] += result["status"] not in ("ok", PLATFORM_FAULT)
    return {
        "pipelines": len(rows),
        "asked": COUNT,
        "failures": sum(by_target.values()),
        "failures_by_target": dict(by_target),
        "platform_faults": by_status[PLATFORM_FAULT],
        "by_status": dict(by_status),
        "funcs_max": max(r.get("funcs", 0) for row in rows for r in row["cases"].values()),
    }


def main() -> None:
    """Check, print, write."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(tried(int(sys.argv[2]), sys.argv[3])))
        return
    if sys.argv[1:2] == ["--simulated"]:
        print(simulated(sys.argv[2]))
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
