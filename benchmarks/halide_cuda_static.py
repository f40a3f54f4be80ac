"""CUDA schedules without a GPU: do they compile, are launches predicted, do registers spill.

Every program is scheduled for an A100 in each of the three modes, compiled and run against a CUDA
driver that records launches and computes nothing (``support/recording_cuda.c``); what it was
asked to launch is compared with what the model said, kernel by kernel. ``ptxas`` compiles the PTX
for sm_80 with 64 registers a thread, the cap of Halide's runtime, and the same is done with the
schedules of Anderson2021, which run in processes of their own with 120 CPU seconds and 8 GB.

``spill_bytes`` covers every kernel that is compiled. Some of ours are variants for small outputs,
which the peer's schedules do not have; ``spill_bytes_at_estimates`` covers the kernels that run at
the pipeline's estimates.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Container
from functools import partial
from pathlib import Path
from typing import Any

import common

GPU = "a100"
PEER = "Anderson2021"
ARCHITECTURE = "sm_80"
REGISTERS = 64
# Seconds of wall time for ``ptxas`` and for a whole process. Nothing here is timed by the wall, so
# that another program's load must not make a piece fail.
PTXAS_SECONDS, CHILD_SECONDS = 900.0, 3600.0
MODES = ("nested", "overlapped", "none")
CPU_SECONDS = 120
MEMORY_BYTES = 8 << 30
SUPPORT = Path(__file__).resolve().parent / "support"


# --- in processes of their own ----------------------------------------------------------------


def ours(name: str, mode: str) -> dict[str, Any]:
    """Schedule, run against the recording driver, compare the launches, count spills."""
    recording = common.load_module(SUPPORT / "recording_cuda.py")
    recorder = recording.Recorder()  # before anything of Halide runs for CUDA

    from tilewright.halide.execution.runner import Runner
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.ir.json import to_json
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task

    task = make_task(common.build(name), machine=GPU, name=name)
    began = time.process_time()
    planned = plan(task, fusion=mode)[0]
    searched = time.process_time() - began
    refused = not planned.groups
    began = time.process_time()
    runner = Runner(
        {
            "serialized": task.algorithm.serialized,
            "schedule": to_json(planned.schedule),
            "target": planned.schedule.target,
            "inputs": make_inputs(task.algorithm).to_json(),
        }
    )
    compiled = time.process_time() - began
    runner.run()
    predicted = Counter(
        (group.threads, group.shared_bytes) for group in planned.groups if group.threads
    )
    recorded = recorder.launches()
    launched = launched_kernels(recorded)
    return {
        "refused": refused,
        "search_seconds": searched,
        "compile_seconds": compiled,
        "kernels": len(recorded),
        "mismatches": max((predicted - launched).total(), (launched - predicted).total()),
        "predicted": [[*key, n] for key, n in (predicted - launched).items()],
        "launched": [[*key, n] for key, n in (launched - predicted).items()],
        **spills(
            [path.read_text() for path in recorder.modules()],
            {str(item["kernel"]) for item in recorded},
        ),
    }


def launched_kernels(recorded: list[dict[str, Any]]) -> Counter[tuple[tuple[int, ...], int]]:
    """Count kernels by their threads and bytes of shared memory; rounds launch one repeatedly."""
    kernels = {(item["kernel"], tuple(item["threads"]), item["shared"]) for item in recorded}
    return Counter((threads, shared) for _, threads, shared in kernels)


def scheduled(path: str) -> dict[str, Any]:
    """Compile a pipeline that is scheduled already, and count spills."""
    import halide as hl

    from tilewright.halide.execution.cuda_kernels import device_code
    from tilewright.machines import gpu

    pipeline = hl.deserialize_pipeline(Path(path).read_bytes(), {})
    ptx, _ = device_code(pipeline, hl.Target(gpu(GPU).halide_target))
    return spills([ptx])


def spills(
    modules: list[str],
    launched: Container[str] | None = None,
    architecture: str = ARCHITECTURE,
) -> dict[str, Any]:
    """What ``ptxas`` says of PTX modules; `launched` names the kernels that ran, by default all."""
    from tilewright.halide.execution.cuda_kernels import assembled, entries, find_ptxas

    ptxas = find_ptxas()
    if ptxas is None:
        sys.exit("no ptxas: install the CUDA toolkit or the package nvidia-cuda-nvcc")
    kernels = []
    for ptx in modules:
        found = assembled(ptx, ptxas, architecture, REGISTERS, PTXAS_SECONDS)
        if len(found) != len(entries(ptx)):
            raise RuntimeError("ptxas does not take the code")
        kernels += found
    return {
        "spill_bytes": sum(kernel.spill_bytes or 0 for kernel in kernels),
        "spill_bytes_launched": sum(
            kernel.spill_bytes or 0
            for kernel in kernels
            if launched is None or kernel.name in launched
        ),
        "spilling": {k.name: k.spill_bytes for k in kernels if k.spill_bytes},
        "registers": max((kernel.registers or 0 for kernel in kernels), default=0),
        "entries": len(kernels),
    }


def limited() -> None:
    """The limits that Halide's autoschedulers have, for compiling what they made."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def child(*request: str, limits: bool = False, script: str = __file__) -> dict[str, Any]:
    """Run one of a script's functions in a fresh process; a failure is a result too."""
    argv = [sys.executable, script, "--child", *request]
    # Anderson2021 unrolls loops whose extent Halide cannot always prove constant.
    env = {**os.environ, "HL_PERMIT_FAILED_UNROLL": "1"} if limits else None
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
            check=False,
            env=env,
            preexec_fn=limited if limits else None,
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "message": f"not compiled in {CHILD_SECONDS:g} seconds"}
    if done.returncode != 0:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        message = (words or [f"exit status {done.returncode}"])[-1][:300]
        return {"status": "failed", "message": message}
    return {"status": "ok", **json.loads(done.stdout.splitlines()[-1])}


# --- one program ------------------------------------------------------------------------------


def anderson(name: str, pieces: common.Pieces) -> dict[str, Any]:
    """The schedule of Anderson2021: how its search ended, and what its kernels spill."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.schedulers.task import make_task

    task = make_task(common.build(name), machine=GPU, name=name)
    inputs = make_inputs(task.algorithm)
    peer = common.peer_schedules(pieces, task, inputs, only=(PEER,))[PEER]
    row = {"status": peer.status, "message": peer.message, "search_seconds": peer.cpu_seconds}
    if peer.serialized is None:
        return row
    with tempfile.NamedTemporaryFile(suffix=".hlpipe") as file:
        file.write(peer.serialized)
        file.flush()
        return {**row, **child("scheduled", file.name, limits=True)}


def row_of(name: str, pieces: common.Pieces, peer_pieces: common.Pieces) -> dict[str, Any]:
    """Everything about one program, each part kept as soon as it is known."""
    return {
        "program": name,
        "ours": {
            mode: pieces.get(f"{name}-{mode}", partial(child, "ours", name, mode)) for mode in MODES
        },
        "anderson2021": peer_pieces.get(f"{name}-static", lambda: anderson(name, peer_pieces)),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim: spills over the programs that both finish."""
    runs = [run for row in rows for run in row["ours"].values()]
    done = [run for run in runs if run["status"] == "ok" and not run["refused"]]
    both = [
        row
        for row in rows
        if row["ours"]["nested"]["status"] == "ok" and row["anderson2021"]["status"] == "ok"
    ]
    own = [row["ours"]["nested"] for row in rows]
    peers = Counter(row["anderson2021"]["status"] for row in rows)
    return {
        "programs": len(rows),
        "failures": len(runs) - len(done),
        "launches": sum(run["kernels"] for run in done),
        "launch_mismatches": sum(run["mismatches"] for run in done),
        "spill_bytes": sum(row["ours"]["nested"]["spill_bytes"] for row in both),
        "spill_bytes_at_estimates": sum(
            row["ours"]["nested"]["spill_bytes_launched"] for row in both
        ),
        "spill_bytes_anderson2021": sum(row["anderson2021"]["spill_bytes"] for row in both),
        "programs_both_finish": len(both),
        "anderson2021_status": dict(sorted(peers.items())),
        "spill_bytes_all_programs": sum(run.get("spill_bytes", 0) for run in own),
    }


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] == ["--child"]:
        kind, *rest = sys.argv[2:]
        print(json.dumps(ours(*rest) if kind == "ours" else scheduled(*rest)))
        return
    args = common.arguments(__doc__.splitlines()[0], common.ALL_PROGRAMS).parse_args()
    pieces = common.Pieces(args.work, "halide_cuda_static", args.fresh)
    peer_pieces = common.Pieces(args.work, "peers", args.fresh, ours=False)
    rows = []
    for name in common.chosen(args, common.ALL_PROGRAMS):
        row = row_of(name, pieces, peer_pieces)
        rows.append(row)
        print(f"{name}: {row['ours']['nested']['status']}", flush=True)
    print()
    common.print_table(
        ["", "kernels", "mismatches", "failures", "spill bytes", "Anderson2021", "its spills"],
        [
            [
                row["program"],
                row["ours"]["nested"].get("kernels"),
                sum(run.get("mismatches", 0) for run in row["ours"].values()),
                sum(run["status"] != "ok" for run in row["ours"].values()),
                row["ours"]["nested"].get("spill_bytes"),
                row["anderson2021"]["status"],
                row["anderson2021"].get("spill_bytes"),
            ]
            for row in rows
        ],
    )
    common.write(args, "halide_cuda_static", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
