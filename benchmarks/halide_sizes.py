"""Schedules at sizes other than their estimates, and the cost of this at the estimates.

Every program and every pipeline of the tutorials is scheduled once for its estimates and run at 40
sizes of its outputs, including odd ones and ones below a tile. They range from a single point to
twice the estimate, but have at most 400,000 points: larger ones are halved, the longest dimension
first, so that large programs run well below their estimates. Inputs have exactly the size that a
plain schedule requires, and answers are compared with those of the plain schedule. If the plain
schedule fails as well, the pipeline itself does not allow the size, which the row says. On OpenCL,
if a platform works, fewer sizes are run; for CUDA the schedule is lowered. For the programs, the
schedule for any size and the bare one are timed at the estimates, in rounds.

glibc returns freed memory to the system beyond a limit that depends on the sizes freed before, and
whether a run reaches this limit depends on what the process compiled: the same allocations may
take twice as many page faults in one process as in another. So the loss is measured twice: with the
default limits of the C library (`loss_at_estimates`), and with limits so high that it keeps all
memory (`loss_at_estimates_memory_kept`).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

import common
from tilewright.halide.execution.at_sizes import payload
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.json import to_json
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.top_k import limits, timing
from tilewright.measure import Candidate, RunLimits, Timing, measure_all

GPU = "a100"
SIZES = {"host": 40, "opencl": 8}
# Points of an output that are computed at most at a size other than the estimate, and seconds
# that compiling a program, and running it at all sizes, may take.
POINTS = 400_000
BUILD_SECONDS, RUN_SECONDS = 300.0, 600.0
ROUNDS = 15
SECONDS = 12.0  # of rounds, for each program
ANY, EXACT = "any size", "exact sizes"
# Limits of glibc, in bytes, above which it returns freed memory: beyond all memory used here.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}
# The first sizes: single points, odd ones, around vectors and tiles.
FIRST = ((1, 1), (2, 1), (1, 2), (3, 3), (7, 5), (15, 17), (16, 16), (31, 33), (33, 1), (1, 65))
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


class Lowered:
    """A schedule lowered for a GPU, in a worker; running it does nothing."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Lower it; no code is generated."""
        import os

        import halide as hl

        from tilewright.halide.emit.apply import apply, halide_target
        from tilewright.halide.execution.binding import deserialize
        from tilewright.halide.execution.inputs import Inputs
        from tilewright.halide.frontend.importer import import_pipeline
        from tilewright.halide.ir.json import from_json

        algorithm = import_pipeline(payload["serialized"])
        live = deserialize(payload["serialized"], Inputs.from_json(payload["sizes"][0]))
        apply(from_json(payload["schedule"], algorithm), algorithm, live.pipeline, same_bytes=True)
        live.pipeline.compile_to_lowered_stmt(
            os.devnull,
            live.pipeline.infer_arguments(),
            hl.StmtOutputFormat.Text,
            halide_target(payload["target"]),
        )

    def run(self) -> None:
        """Nothing: lowering was the work."""


def sizes(algorithm: Algorithm, count: int, name: str) -> list[dict[str, list[int]]]:
    """Extents of every output, the same for the same dimension of outputs that are equally large.

    They depend on the pipeline's name alone. The last is the estimate, where it is small enough.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    found = []
    for number in range(count):
        shared: dict[tuple[int, int], int] = {}
        extents: dict[str, list[int]] = {}
        for output in algorithm.outputs:
            func = algorithm.by_name[output]
            chosen = []
            for d, arg in enumerate(func.args):
                estimate = func.estimates[arg].extent
                if arg in func.bounds or number == count - 1:
                    chosen.append(estimate)
                    continue
                if number < len(FIRST):
                    extent = FIRST[number][d] if d < 2 else min(estimate, 1 + number % 3)
                else:
                    extent = int(math.exp(random.uniform(0.0, math.log(2.0 * estimate + 1.0))))
                chosen.append(shared.setdefault((d, estimate), max(1, extent)))
            bound = [arg in func.bounds for arg in func.args]
            while math.prod(chosen) > POINTS and not all(bound):
                free = [d for d in range(len(chosen)) if not bound[d]]
                largest = max(free, key=lambda d: chosen[d])
                if chosen[largest] == 1:
                    break
                chosen[largest] = (chosen[largest] + 1) // 2
            extents[output] = chosen
        found.append(extents)
    return found


def check(build: Any, target: str, name: str, count: int) -> dict[str, Any]:
    """One pipeline's schedule for one target; whatever goes wrong is the result."""
    machine = None if target == "host" else GPU if target == "cuda" else None
    try:
        task = make_task(build(), target=target, machine=machine, name=name)
        data = payload(
            task.algorithm,
            to_json(plan(task)[0].schedule),
            task.target,
            sizes(task.algorithm, count, name) if target != "cuda" else [{}],
        )
    except Exception as error:
        return {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    runner = "tilewright.halide.execution.at_sizes:AtSizes"
    candidate = Candidate(f"{__file__}:Lowered" if target == "cuda" else runner, data, name)
    ((_, measurement),) = measure_all(
        [candidate],
        limits=RunLimits(build_seconds=BUILD_SECONDS, run_seconds=RUN_SECONDS),
        timing=ONCE,
        preload=["halide"],
    )
    return {
        "status": measurement.status,
        "message": measurement.message,
        "sizes": measurement.details.get("sizes", []),
    }


def losses(name: str, seconds: float, candidate_time: float) -> dict[str, Any]:
    """`loss` with the C library's default limits and, as `memory_kept`, with `KEEP_MEMORY`.

    The processes that are measured start within, and read the environment then.
    """
    result = loss(name, seconds, candidate_time)
    with mock.patch.dict(os.environ, KEEP_MEMORY):
        result["memory_kept"] = loss(name, seconds, candidate_time)
    return result


def loss(name: str, seconds: float, candidate_time: float) -> dict[str, Any]:
    """Time of the schedule for any size over that of the bare one, at the estimates."""
    module = common.example(name)
    task = make_task(getattr(module, name)(), name=name)
    exact = make_task(getattr(module, name)(), name=name, exact_sizes=True)
    variants = [
        Variant(plan(task)[0].schedule, name=ANY),
        Variant(plan(exact)[0].schedule, name=EXACT),
    ]
    with Session(task.algorithm, limits=limits(candidate_time), timing=timing()) as session:
        finals = session.finals(variants, ROUNDS, seconds=seconds)
    result: dict[str, Any] = {}
    for candidate, measurement in zip(finals.candidates, finals.measurements, strict=True):
        result[candidate.key] = {
            "status": measurement.status,
            "message": measurement.message,
            "seconds": measurement.median if measurement.ok else None,
            "build_seconds": measurement.build_seconds,
        }
    if all(measurement.ok for measurement in finals.measurements):
        interval = finals.ratio_interval(ANY, EXACT)
        result["loss"] = interval.estimate
        result["loss_interval"] = [interval.low, interval.high]
    return result


def failed(result: Mapping[str, Any]) -> list[str]:
    """What went wrong for one target, a sentence per size."""
    if result["status"] != "ok":
        return [f"{result['status']}: {result['message']}"]
    return [
        f"{'x'.join(map(str, size['extents'][0]))} {size['status']}: {size['message']}"
        for size in result.get("sizes", [])
        if size["status"] not in ("ok", "barred")
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    statuses: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for row in rows:
        for target, result in row["targets"].items():
            failures[target] += len(failed(result))
            statuses.update(size["status"] for size in result.get("sizes", []))
    timings = [row.get("timing", {}) for row in rows]
    found = [timing["loss"] for timing in timings if timing.get("loss")]
    kept = [timing.get("memory_kept", {}) for timing in timings]
    found_kept = [timing["loss"] for timing in kept if timing.get("loss")]
    return {
        "programs": len(rows),
        "runs": sum(statuses.values()),
        "barred_by_the_pipeline": statuses["barred"],
        "failures": sum(failures.values()),
        "failures_by_target": dict(failures),
        "timed": len(found),
        "loss_at_estimates": common.geometric_mean(found),
        "largest_loss": max(found, default=None),
        "loss_at_estimates_memory_kept": common.geometric_mean(found_kept),
        "largest_loss_memory_kept": max(found_kept, default=None),
    }


def _targets(wanted: str) -> list[str]:
    targets = [target.strip() for target in wanted.split(",") if target.strip()]
    unknown = [target for target in targets if target not in ("host", "opencl", "cuda")]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are host, opencl, cuda")
    if "opencl" in targets:
        from tilewright.machines import opencl_failure

        why = opencl_failure()
        if why:
            print(f"OpenCL is left out: {why}", flush=True)
            targets.remove("opencl")
    return targets


def main() -> None:
    """Check, time, print, write."""
    from halide_coverage import pipelines

    known = {name: lambda build=build: build(False) for name, build in pipelines().items()}
    parser = common.arguments(__doc__.splitlines()[0], list(known))
    parser.add_argument("--targets", default="host,opencl,cuda", help="of host, opencl, cuda")
    parser.add_argument("--count", type=int, default=SIZES["host"], help="sizes on the host")
    parser.add_argument("--no-timing", action="store_true", help="only check")
    parser.add_argument("--only-timing", action="store_true", help="only time")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--candidate-time", type=float, default=120.0, help="limit of a build")
    args: argparse.Namespace = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_sizes", args.fresh)
    targets = [] if args.only_timing else _targets(args.targets)
    rows = []
    for name in common.chosen(args, list(known)):
        if args.only_timing and name not in common.PROGRAMS:
            continue
        row: dict[str, Any] = {"program": name, "targets": {}}
        for target in targets:
            count = min(args.count, SIZES.get(target, args.count))
            row["targets"][target] = pieces.get(
                f"{name}-{target}-{count}",
                partial(check, known[name], target, name, count),
            )
        if name in common.PROGRAMS and not args.no_timing:
            row["timing"] = pieces.get(
                f"{name}-timing", partial(losses, name, args.seconds, args.candidate_time)
            )
        rows.append(row)
        print(line(row), flush=True)
    common.write(args, "halide_sizes", rows, summary(rows), gpu=GPU)


def line(row: Mapping[str, Any]) -> str:
    """One program, as it is finished."""
    said = []
    for target, result in row["targets"].items():
        bad = failed(result)
        barred = sum(size["status"] == "barred" for size in result.get("sizes", []))
        text = f"{len(bad)} failed ({bad[0]})" if bad else "ok"
        said.append(f"{target} {text}" + (f", {barred} barred" if barred else ""))
    lost = row.get("timing", {}).get("loss")
    if "timing" in row:
        said.append(f"loss {common.shown(lost)}" if lost else f"not timed: {row['timing']}")
    return f"{row['program']:32} {'; '.join(said)}"


if __name__ == "__main__":
    main()
