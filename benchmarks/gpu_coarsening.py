"""What the choice by predicted time changes in CUDA schedules, counted without a GPU.

Every program is scheduled at full size for four GPUs, by predicted time (``ours``) and by the cost
of Sioutas 2020 (``before``, ``objective="sioutas"``). From the loop nests of both: the PTX
instructions of all threads per value of the outputs, the sectors that a warp's load or store of
memory touches, and the predicted time. Ours is also compiled and run against a driver that
records launches and computes nothing: launches are compared with what was predicted, grids with
CUDA's limits, and ``ptxas`` reports spills (for `OLDEST` where it no longer takes the capability).

The counts are checked on six programs: against the instructions that recorded schedules of them
executed in a simulator (``benchmarks/data/gpu_sim``).
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import common
import gpu_time_model as time_model
import halide_cuda_static as static

GPUS = ("v100", "rtx2080ti", "a100", "h100")
OBJECTIVES = {"ours": "time", "before": "sioutas"}
# Programs with recorded schedules of every kind: stencils, reductions in registers, histograms.
CHECKED = ("blur", "unsharp", "harris", "stencil_chain", "matmul", "bilateral_grid")
OLDEST = "sm_75"  # of the ptxas of CUDA 13
# CUDA C++ Programming Guide, Technical Specifications per Compute Capability.
MOST_GRID = (2**31 - 1, 65_535, 65_535)
MOST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024

Data = dict[str, Any]


# --- in processes of their own --------------------------------------------------------------------


def counted(task: Any, objective: str) -> tuple[Any, Data]:
    """A schedule, and what its loop nest says of it."""
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.kernel_time import thread_instructions
    from tilewright.halide.schedulers.analytic.gpu.nest_costs import kernels_of, times_of
    from tilewright.halide.schedulers.analytic.gpu.nest_work import nest_work
    from tilewright.halide.schedulers.prediction import schedule_nest
    from tilewright.halide.schedulers.registry import plan

    planned = plan(task, objective=objective)[0]
    nest = schedule_nest(task, planned.schedule)
    constants = GpuConstants()
    kernels, _ = kernels_of(nest, task.machine, constants)
    parts = times_of(nest_work(nest, task.machine.warp_size), task.machine, constants)
    threads = [(kernel, thread_instructions(kernel, constants)) for kernel in kernels]
    requests, sectors = 0.0, 0.0
    for kernel in kernels:
        for stage in kernel.stages:
            for access in stage.accesses:
                if access.place == "memory":
                    times = kernel.runs * kernel.blocks * stage.warps * access.count
                    requests += times
                    sectors += times * access.touched.sectors
    return planned, {
        "instructions_per_value": sum(k.runs * n for k, n in threads) / values(nest, task),
        "sectors_per_request": sectors / max(requests, 1.0),
        "seconds": sum(part.seconds for part in parts),
        "kernels": sum(k.runs for k in kernels),
    }


def values(nest: Any, task: Any) -> float:
    """The values of all outputs."""
    regions = nest.analysis.output_boxes
    found = (math.prod(float(p.extent) for p in regions[name]) for name in task.algorithm.outputs)
    return sum(found)


def one(name: str, gpu: str) -> Data:
    """Both schedules of a program for a GPU; ours run against the recording driver."""
    recording = common.load_module(static.SUPPORT / "recording_cuda.py")
    recorder = recording.Recorder()  # before anything of Halide runs for CUDA
    from tilewright.halide.execution.runner import Runner
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.ir.json import to_json
    from tilewright.halide.schedulers.task import make_task

    task = make_task(common.build(name), machine=gpu, name=name)
    found = {label: counted(task, objective) for label, objective in OBJECTIVES.items()}
    planned = found["ours"][0]
    runner = Runner(
        {
            "serialized": task.algorithm.serialized,
            "schedule": to_json(planned.schedule),
            "target": planned.schedule.target,
            "inputs": make_inputs(task.algorithm).to_json(),
        }
    )
    runner.run()
    recorded = recorder.launches()
    predicted = Counter(
        (group.threads, group.shared_bytes) for group in planned.groups if group.threads
    )
    launched = static.launched_kernels(recorded)
    major, minor = task.machine.compute_capability or (0, 0)
    architecture = max(f"sm_{major}{minor}", OLDEST)
    names = {str(item["kernel"]) for item in recorded}
    spilled = static.spills([path.read_text() for path in recorder.modules()], names, architecture)
    return {
        **{label: data for label, (_, data) in found.items()},
        "launch_mismatches": max((predicted - launched).total(), (launched - predicted).total()),
        "grid_violations": sum(not within_limits(item, task.machine) for item in recorded),
        "spill_bytes": spilled["spill_bytes_launched"],
        "spilling": spilled["spilling"],
    }


def within_limits(launch: Data, machine: Any) -> bool:
    """Whether CUDA takes a launch."""
    blocks, threads = launch["blocks"], launch["threads"]
    pairs = [*zip(blocks, MOST_GRID, strict=True), *zip(threads, MOST_BLOCK, strict=True)]
    fits = all(1 <= extent <= most for extent, most in pairs)
    return (
        fits and math.prod(threads) <= MOST_THREADS and launch["shared"] <= machine.shared_per_block
    )


def checked() -> list[Data]:
    """How far the count of a nest is from what recorded schedules executed in a simulator."""
    rows = time_model.recorded(time_model.DATA, CHECKED)
    time_model.observed(rows)
    found = []
    for name in CHECKED:
        pairs = [pair for r in rows if r["program"] == name for pair in r["instructions_of"]]
        logs = [abs(math.log(predicted / simulated)) for predicted, simulated in pairs]
        factor = math.exp(statistics.median(logs))
        found.append({"program": name, "kernels": len(pairs), "counts_differ_by": factor})
    return found


# --- figures --------------------------------------------------------------------------------------


def summary(rows: list[Data], checks: list[Data]) -> Data:
    """The figures of the claim; `spill_bytes` are those of the GPU with most."""
    done = [row for row in rows if row["status"] == "ok"]
    by_gpu = Counter[str]()
    for row in done:
        by_gpu[row["gpu"]] += row["spill_bytes"]
    return {
        "programs": len({row["program"] for row in rows}),
        "gpus": len({row["gpu"] for row in rows}),
        "failures": len(rows) - len(done),
        "instructions_vs_before": over(done, "instructions_per_value"),
        "sectors_per_request_vs_before": over(done, "sectors_per_request"),
        "predicted_vs_before": over(done, "seconds"),
        "launch_mismatches": sum(row["launch_mismatches"] for row in done),
        "grid_violations": sum(row["grid_violations"] for row in done),
        "spill_bytes": max(by_gpu.values(), default=0),
        "spill_bytes_of": dict(sorted(by_gpu.items())),
        "programs_checked": len(checks),
        # The median factor between counted and executed instructions of a kernel, and the largest.
        "counts_differ_by": statistics.median(check["counts_differ_by"] for check in checks),
        "counts_differ_by_most": max(check["counts_differ_by"] for check in checks),
    }


def over(rows: Iterable[Data], key: str) -> float | None:
    """Ours over before, the geometric mean."""
    return common.geometric_mean(row["ours"][key] / row["before"][key] for row in rows)


def main() -> None:
    """Count, print, write."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(one(*sys.argv[3:])))
        return
    args = common.arguments(__doc__.splitlines()[0], common.PROGRAMS).parse_args()
    pieces = common.Pieces(args.work, "gpu_coarsening", args.fresh)
    run = partial(static.child, script=__file__)
    rows = []
    for name in common.chosen(args, common.PROGRAMS):
        for gpu in GPUS:
            row = pieces.get(f"{name}-{gpu}", partial(run, "one", name, gpu))
            rows.append({"program": name, "gpu": gpu, **row})
        print(f"{name}: {', '.join(row['status'] for row in rows[-len(GPUS) :])}", flush=True)
    print()
    common.print_table(
        ["", "GPU", "instructions", "sectors", "time", "kernels", "before", "spill bytes"],
        [
            [
                row["program"],
                row["gpu"],
                *(
                    row["ours"][key] / row["before"][key]
                    for key in ("instructions_per_value", "sectors_per_request", "seconds")
                ),
                row["ours"]["kernels"],
                row["before"]["kernels"],
                row["spill_bytes"],
            ]
            for row in rows
            if row["status"] == "ok"
        ],
    )
    checks = pieces.get("checked", checked)
    common.write(args, "gpu_coarsening", rows, summary(rows, checks), checks=checks)


if __name__ == "__main__":
    main()
