"""Every program and the pipelines of Halide's tutorials: imported, scheduled, compiled, right.

For the host at full size and at the reduced one, for OpenCL on PoCL at the reduced one: the
one-shot schedule is compiled, run, and its answers compared with those of a plain schedule. For
CUDA, at full size: it is compiled to PTX, of which every kernel must have made it into the
module.
"""

from __future__ import annotations

import argparse
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import common
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import Task, make_task
from tilewright.halide.search.top_k import limits
from tilewright.measure import Candidate, RunLimits, Timing, measure_all

GPU = "a100"
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


class CompilePtx:
    """A schedule compiled for CUDA, in a worker; running it does nothing."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile to assembly, in which the PTX is embedded."""
        import halide as hl

        from tilewright.halide.emit.apply import apply
        from tilewright.halide.execution.binding import deserialize
        from tilewright.halide.execution.inputs import Inputs
        from tilewright.halide.frontend.importer import import_pipeline
        from tilewright.halide.ir.json import from_json

        algorithm = import_pipeline(payload["serialized"])
        live = deserialize(payload["serialized"], Inputs.from_json(payload["inputs"]))
        apply(from_json(payload["schedule"], algorithm), algorithm, live.pipeline, same_bytes=True)
        target = hl.Target(payload["target"])
        arguments = live.pipeline.infer_arguments()
        with tempfile.TemporaryDirectory() as folder:
            stmt, assembly = Path(folder, "p.stmt"), Path(folder, "p.s")
            live.pipeline.compile_to(
                {hl.OutputFileType.stmt: str(stmt), hl.OutputFileType.assembly: str(assembly)},
                arguments,
                "tilewright_pipeline",
                target,
            )
            launches = stmt.read_text().count("halide_cuda_run(")
            self.kernels = assembly.read_bytes().count(b".visible .entry ")
        if self.kernels == 0 and launches > 0:
            raise RuntimeError("no kernel in the PTX")

    def run(self) -> None:
        """Nothing: compiling was the work."""

    def details(self) -> dict[str, Any]:
        """How many kernels there are."""
        return {"kernels": self.kernels}


def pipelines() -> dict[str, Any]:
    """Each pipeline by name: functions of ``small`` that build it."""
    found: dict[str, Any] = {
        name: lambda small, name=name: common.build(name, small) for name in common.ALL_PROGRAMS
    }
    tutorials = common.load_module(common.EXAMPLES / "tutorials" / "__init__.py", "tutorials")
    for name, make in tutorials.PIPELINES.items():
        found[f"tutorials.{name}"] = lambda small, make=make: make()
    return found


def scheduled(build: Any, small: bool, target: str, machine: str | None, name: str) -> Any:
    """The task and its one-shot schedule."""
    task = make_task(build(small), target=target, machine=machine, name=name)
    return task, plan(task)[0]


def run_here(task: Task, schedule: Any) -> dict[str, Any]:
    """Compile, run, compare."""
    with Session(
        task.algorithm, targets=[task.target], limits=limits(300.0), timing=ONCE
    ) as session:
        (done,) = session.measure([Variant(schedule, target=task.target)])
    measurement = done.measurement
    return {
        "status": measurement.status,
        "message": measurement.message,
        "verified": measurement.verified,
        "max_error": measurement.max_error,
        "build_seconds": measurement.build_seconds,
    }


def compile_only(task: Task, schedule: Any) -> dict[str, Any]:
    """Compile to PTX."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.ir.json import to_json

    payload = {
        "serialized": task.algorithm.serialized,
        "inputs": make_inputs(task.algorithm).to_json(),
        "schedule": to_json(schedule),
        "target": task.target,
    }
    candidate = Candidate(f"{__file__}:CompilePtx", payload, task.name)
    ((_, measurement),) = measure_all(
        [candidate], limits=RunLimits(build_seconds=300.0), timing=ONCE, preload=["halide"]
    )
    return {
        "status": measurement.status,
        "message": measurement.message,
        "kernels": measurement.details.get("kernels"),
        "build_seconds": measurement.build_seconds,
    }


CASES = {
    "host": (False, "host", None, run_here),
    "host, small": (True, "host", None, run_here),
    "opencl, small": (True, "opencl", None, run_here),
    "cuda": (False, "cuda", GPU, compile_only),
}


def try_case(build: Any, case: str, name: str) -> dict[str, Any]:
    """One pipeline for one target; whatever goes wrong is the result."""
    small, target, machine, check = CASES[case]
    try:
        task, planned = scheduled(build, small, target, machine, name)
        result = check(task, planned.schedule)
    except Exception as error:
        traceback.print_exc()
        return {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    result["groups"] = len(planned.groups)
    result["notes"] = list(planned.notes)
    return result


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    failures: Counter[str] = Counter()
    checks = 0
    for row in rows:
        for case, result in row["cases"].items():
            checks += 1
            failures[case] += result["status"] != "ok"
    return {
        "programs": len(rows),
        "examples": sum(not row["program"].startswith("tutorials.") for row in rows),
        "checks": checks,
        "failures": sum(failures.values()),
        "failures_by_target": dict(failures),
    }


def main() -> None:
    """Check, print, write."""
    known = pipelines()
    parser = common.arguments(__doc__.splitlines()[0], list(known))
    parser.add_argument("--case", action="append", choices=CASES, help="one target only")
    args: argparse.Namespace = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_coverage", args.fresh)
    cases = args.case or list(CASES)
    rows = []
    for name in common.chosen(args, list(known)):
        results = {}
        for case in cases:
            key = f"{name}-{common.slug(case)}"
            results[case] = pieces.get(key, partial(try_case, known[name], case, name))
        rows.append({"program": name, "cases": results})
        failed = [
            f"{c}: {r['status']} {r['message']}" for c, r in results.items() if r["status"] != "ok"
        ]
        print(f"{name:40} {'; '.join(failed) or 'ok'}", flush=True)
    common.write(args, "halide_coverage", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
