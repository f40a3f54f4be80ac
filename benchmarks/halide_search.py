"""The cost of one-shot search: CPU seconds from serialised bytes to schedule, and memory.

Each of our searches runs in a fresh process, whose imports are not timed; memory is the largest
resident size of that process. Halide's autoschedulers also run in separate processes, with a limit
of 120 CPU seconds and 8 GB. Tilings per second counts complete cost evaluations of distinct
tilings, as arrays, of each group of the schedules found, on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import common

GPU = "a100"
REPEATS = 3
TILINGS = 20_000
CPU_LIMIT = 120.0


def searching(request: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: search once, and say what it took."""
    import halide  # noqa: F401

    from tilewright.halide.ir.json import to_json
    from tilewright.halide.schedulers.task import make_task
    from tilewright.halide.search.one_shot import plan_checked
    from tilewright.machines import detect_cpu, gpu

    if request["scheduler"] == "learned":
        import tilewright.halide.schedulers.learned.scheduler
    if request["machine"] is None:
        import tilewright.halide.schedulers.analytic.cpu.scheduler

        machine: Any = detect_cpu()
    else:
        import tilewright.halide.schedulers.analytic.gpu.scheduler  # noqa: F401

        machine = gpu(request["machine"])
    serialized = Path(request["pipeline"]).read_bytes()
    imported = peak_mb()
    began, wall = time.process_time(), time.perf_counter()
    task = make_task(serialized, machine=machine, estimates=request["estimates"])
    # As for a user, but without lowering, which the peers' searches do not include either.
    planned = plan_checked(task, scheduler=request["scheduler"], check=False)
    to_json(planned[0].schedule)
    return {
        "cpu_seconds": time.process_time() - began,
        "wall_seconds": time.perf_counter() - wall,
        "peak_mb": peak_mb(),
        "imports_mb": imported,
        "funcs": len(task.algorithm.funcs),
        "groups": len(planned[0].groups),
        "notes": list(planned[0].notes),
    }


def peak_mb() -> float:
    """The largest resident size of this process so far.

    (That of getrusage is at least what the process that started this one had then.)
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def search(
    name: str,
    machine: str | None,
    work: Path,
    *,
    scheduler: str = "analytic",
    program: Any = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """One program's search, `REPEATS` times by default; the median of the times.

    `program` is the unscheduled pipeline, by default the example called `name`.
    """
    from tilewright.halide.frontend.source import load

    algorithm = load(common.build(name) if program is None else program)
    pipeline = work / f"{name}.hlpipe"
    pipeline.write_bytes(algorithm.serialized)
    request = {
        "pipeline": str(pipeline),
        "machine": machine,
        "estimates": estimates(algorithm),
        "scheduler": scheduler,
    }
    runs = []
    for _ in range(REPEATS if repeats is None else repeats):
        done = subprocess.run(
            [sys.executable, __file__, "--child", json.dumps(request)],
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "cpu_seconds_all": [run["cpu_seconds"] for run in runs],
        "peak_mb": max(run["peak_mb"] for run in runs),
        "imports_mb": runs[0]["imports_mb"],
        "funcs": runs[0]["funcs"],
        "groups": runs[0]["groups"],
        "notes": runs[0]["notes"],
    }


def estimates(algorithm: Any) -> dict[str, Any]:
    """What serialisation loses: the inputs' sizes and the scalars' values."""
    found: dict[str, Any] = dict(algorithm.scalars)
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            found[parameter.name] = [
                None if span is None else (span.min, span.extent) for span in parameter.estimates
            ]
    return found


def peers(
    name: str,
    target: str,
    machine: str | None,
    pieces: common.Pieces,
    only: Container[str] | None = None,
) -> dict[str, Any]:
    """The CPU seconds and memory of Halide's autoschedulers, or of those in `only`."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.schedulers.task import make_task

    task = make_task(common.build(name), target=target, machine=machine, name=name)
    found = common.peer_schedules(pieces, task, make_inputs(task.algorithm), only=only)
    return {
        peer: {
            "status": s.status,
            "message": s.message,
            "cpu_seconds": s.cpu_seconds,
            "peak_mb": s.memory_bytes / 2**20,
        }
        for peer, s in found.items()
    }


def tilings(name: str) -> list[dict[str, Any]]:
    """For each group of the CPU schedule: full costs of distinct tilings a second."""
    import numpy as np

    from tilewright.halide.analysis.inlining import View
    from tilewright.halide.analysis.summaries import estimated_boxes
    from tilewright.halide.frontend.source import load
    from tilewright.halide.schedulers.analytic.cpu.scheduler import POLICIES, schedule_with
    from tilewright.machines import detect_cpu

    algorithm = load(common.build(name))
    _, grouping, costs = schedule_with(
        algorithm,
        detect_cpu(),
        estimated_boxes(View(algorithm)),
        algorithm.symbols,
        POLICIES[0],
    )
    rows = []
    random = np.random.default_rng(0)
    for group, plan in zip(grouping.groups, grouping.plans, strict=True):
        region = costs.analysis.regions[group.output]
        extents = [max(1, int(np.max(interval.extent))) for interval in region]
        if not extents:
            continue
        drawn = [random.integers(1, extent + 1, 4 * TILINGS) for extent in extents]
        tiles = np.unique(np.stack(drawn, axis=1), axis=0)
        tiles = random.permutation(tiles)[:TILINGS].astype(np.float64)
        order = plan.tiling.order
        sliding = plan.tiling.sliding
        windows = () if sliding is None else (sliding,)
        costs.costs(group, costs.regions(group, tiles[:16], order, windows), sliding)
        began = time.process_time()
        costs.costs(group, costs.regions(group, tiles, order, windows), sliding)
        seconds = time.process_time() - began
        rows.append(
            {
                "group": group.output,
                "members": len(group.members),
                "tilings": len(tiles),
                "seconds": seconds,
            }
        )
    return rows


def row_of(name: str, args: argparse.Namespace, peer_pieces: common.Pieces) -> dict[str, Any]:
    """Everything about one program."""
    return {
        "program": name,
        "host": search(name, None, args.work),
        "cuda": search(name, GPU, args.work),
        "host_peers": peers(name, "host", None, peer_pieces),
        "cuda_peers": peers(name, "cuda", GPU, peer_pieces),
        "tilings": tilings(name),
    }


def ratios(rows: list[dict[str, Any]], device: str, peer: str) -> list[float]:
    """Ours over theirs where the peer finished, or ran out of time: that counts in full."""
    found = []
    for row in rows:
        found += ratio(row[device]["cpu_seconds"], row[f"{device}_peers"][peer])
    return found


def ratio(ours: float, peer: dict[str, Any]) -> list[float]:
    """Our CPU seconds over a peer's, which count as the limit if it ran out of time; or nothing."""
    if peer["status"] == "timeout":
        return [ours / CPU_LIMIT]
    return [ours / max(peer["cpu_seconds"], 1e-3)] if peer["status"] == "ok" else []


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    searches = [row[device] for row in rows for device in ("host", "cuda")]
    groups = [
        group for row in rows if row["program"] in common.PROGRAMS for group in row["tilings"]
    ]
    rates = [group["tilings"] / max(group["seconds"], 1e-6) for group in groups]
    adams = ratios(rows, "host", "Adams2019")
    anderson = ratios(rows, "cuda", "Anderson2021")

    def status(device: str, peer: str) -> dict[str, int]:
        found = [row[f"{device}_peers"][peer]["status"] for row in rows]
        return {name: found.count(name) for name in sorted(set(found))}

    return {
        "programs": len(rows),
        "max_seconds": max(s["cpu_seconds"] for s in searches),
        "max_seconds_host": max(row["host"]["cpu_seconds"] for row in rows),
        "max_seconds_cuda": max(row["cuda"]["cpu_seconds"] for row in rows),
        "max_memory_mb": max(s["peak_mb"] for s in searches),
        "vs_adams2019": common.geometric_mean(adams),
        "vs_adams2019_programs": len(adams),
        "adams2019_status": status("host", "Adams2019"),
        "vs_anderson2021": common.geometric_mean(anderson),
        "vs_anderson2021_programs": len(anderson),
        "anderson2021_status": status("cuda", "Anderson2021"),
        "tilings_per_second": statistics.mean(rates) if rates else None,
        "tilings_per_second_overall": sum(g["tilings"] for g in groups)
        / max(sum(g["seconds"] for g in groups), 1e-6),
        "groups": len(groups),
    }


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(searching(json.loads(sys.argv[2]))))
        return
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # one core; set before NumPy is imported
    args = common.arguments(__doc__.splitlines()[0], common.ALL_PROGRAMS).parse_args()
    pieces = common.Pieces(args.work, "halide_search", args.fresh)
    peer_pieces = common.Pieces(args.work, "peers", args.fresh, ours=False)
    rows = []
    for name in common.chosen(args, common.ALL_PROGRAMS):
        row = pieces.get(name, partial(row_of, name, args, peer_pieces))
        rows.append(row)
        print(f"{name}: {row['host']['cpu_seconds']:.2f} s host", flush=True)
    print()

    def cell(peer: dict[str, Any]) -> Any:
        return peer["cpu_seconds"] if peer["status"] == "ok" else peer["status"]

    common.print_table(
        [
            "CPU seconds",
            "host",
            "Adams2019",
            "Adams beam 1",
            "Mullapudi2016",
            "Li2018",
            "CUDA",
            "Anderson2021",
            "peak MB",
        ],
        [
            [
                row["program"],
                row["host"]["cpu_seconds"],
                *(
                    cell(row["host_peers"][peer])
                    for peer in ("Adams2019", "Adams2019, beam 1", "Mullapudi2016", "Li2018")
                ),
                row["cuda"]["cpu_seconds"],
                cell(row["cuda_peers"]["Anderson2021"]),
                max(row["host"]["peak_mb"], row["cuda"]["peak_mb"]),
            ]
            for row in rows
        ],
    )
    common.write(args, "halide_search", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
