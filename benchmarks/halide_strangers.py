"""Pipelines that the scheduler was not made for: do they schedule, lower, run right, run fast.

Every program of ``strangers`` is read, scheduled and lowered for this host at full size, for a
V100 with CUDA at full size and for OpenCL at its reduced one, in a process of its own; where the
program has a reference in NumPy, a plain schedule is compared with it. Then the one-shot
schedule is run and verified at the reduced size, on the host and on OpenCL where a platform works.
At full size the one-shot schedule and the best of five are timed on the host against Halide's
autoschedulers and, where there is one, a schedule by hand, in interleaved rounds.

``--static`` leaves out all that runs schedules; ``--prepare`` only searches the autoschedulers'
schedules and needs no quiet machine. Finished pieces are kept: a run that is killed
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import common

GPU = "v100"
OPENCL = "pocl"
K = 5
SECONDS = 4.0  # of rounds, for each program
PEER_SECONDS = 60.0  # CPU seconds of one autoscheduler
CHILD_SECONDS = 300.0  # for scheduling and lowering one program for every device
RELATIVE = 2e-4  # of a reference in double precision
SHARE = 1e-3  # of the values may differ, where floats decide between integers

# Which device, at which size, for which machine.
STATIC: dict[str, tuple[str, bool, str | None]] = {
    "host": ("host", False, None),
    "cuda": ("cuda", False, GPU),
    "opencl": ("opencl", True, OPENCL),
}
# Where it is counted how many schedules there are of the five asked for.
PLANNED = ("host", "cuda")


# --- in a process of its own ------------------------------------------------------------------


def scheduled(name: str, device: str) -> dict[str, Any]:
    """Schedule one program as one shot does: CPU seconds, what was refused, how many of five.

    `seconds` is everything, `halide_seconds` the part that Halide takes to lower the schedule. The
    report on the schedule, its code and its requirements must be made, and Halide has to lower all
    five, too, but that is not timed.
    """
    from strangers import PROGRAMS
    from tilewright.errors import TilewrightError
    from tilewright.halide.execution import lowering
    from tilewright.halide.ir import Algorithm, Schedule
    from tilewright.halide.result import Result
    from tilewright.halide.schedulers.registry import MODEL_FAILED, plan
    from tilewright.halide.schedulers.task import make_task
    from tilewright.halide.search import one_shot

    target, small, machine = STATIC[device]
    pipeline = PROGRAMS[name].pipeline(small)
    lowered = 0.0

    def refusal(schedule: Schedule, algorithm: Algorithm, threads: int | None = None) -> str:
        nonlocal lowered
        began = common.cpu_seconds()
        reason = lowering.refusal(schedule, algorithm, threads)
        lowered += common.cpu_seconds() - began
        return reason

    one_shot.refusal = refusal
    began = common.cpu_seconds()
    try:
        task = make_task(pipeline, target=target, machine=machine, name=name)
    except TilewrightError as error:  # Halide's code for this target would be wrong
        return {"status": "refused", "message": str(error)}
    found = one_shot.plan_checked(task)[0]
    seconds = common.cpu_seconds() - began
    Result(task, found, "oneshot").report()
    notes = list(found.notes)
    top = plan(task, k=K) if device in PLANNED else None
    failed = next((note for note in notes if MODEL_FAILED in note), None)
    refused = next((note for note in notes if "refused" in note), None)
    for other in top or ():
        refused = refused or lowering.refusal(other.schedule, task.algorithm)
    status = "crashed" if failed else "refused" if refused else "ok"
    return {
        "status": status,
        "message": failed or refused or "",
        "seconds": seconds,
        "halide_seconds": lowered,
        "funcs": len(task.algorithm.funcs),
        "groups": len(found.groups),
        "plans": None if top is None else len(top),
    }


def referenced(name: str) -> dict[str, Any]:
    """A plain schedule's answers compared with NumPy's at the reduced size."""
    import halide as hl
    import numpy as np

    from strangers import PROGRAMS
    from tilewright.halide.emit.apply import apply
    from tilewright.halide.execution.binding import bind, deserialize, output_array
    from tilewright.halide.execution.inputs import describe_inputs
    from tilewright.halide.schedulers.naive import naive_schedule
    from tilewright.halide.schedulers.task import make_task

    program = PROGRAMS[name]
    if program.expected is None or (program.extern and "LD_PRELOAD" not in os.environ):
        return {"status": "none", "message": ""}
    algorithm = make_task(program.pipeline(True), name=name).algorithm
    inputs = describe_inputs(algorithm, contents=dict(program.contents))
    live = deserialize(algorithm.serialized, inputs)
    apply(naive_schedule(algorithm), algorithm, live.pipeline, same_bytes=True)
    outputs = bind(live, inputs, hl.Target("host"))
    live.pipeline.realize(outputs, hl.Target("host"))
    kinds = [kind for output in inputs.outputs for kind in output.types]
    answers = [output_array(o, kind) for o, kind in zip(outputs, kinds, strict=True)]
    given = {
        buffer.name: part_of(array, live.boxes[buffer.name], buffer.dims)
        for buffer, array in zip(inputs.buffers, live.arrays, strict=True)
    }
    expected = program.expected(given, **program.sizes(True))
    for i, (answer, right) in enumerate(zip(answers, expected, strict=True)):
        wrong = differing(answer, np.asarray(right))
        if wrong:
            return {"status": "wrong_answer", "message": f"output {i}: {wrong}"}
    return {"status": "ok", "message": ""}


def part_of(array: Any, box: Any, dims: Any) -> Any:
    """The elements of an input at the program's own size, in a dense array."""
    slices = tuple(
        slice(want.min - have.min, want.min - have.min + want.extent)
        for have, want in zip(box, dims, strict=True)
    )
    return array[slices].copy()


def differing(answer: Any, expected: Any) -> str:
    """How an output differs from its reference; empty where it does not."""
    import numpy as np

    if answer.shape != expected.shape:
        return f"the shape is {answer.shape}, not {expected.shape}"
    if answer.dtype.kind == "f":
        scale = float(np.abs(expected).mean()) if expected.size else 0.0
        bad = ~(np.abs(answer - expected) <= RELATIVE * (np.abs(expected) + scale))
        allowed = 0.0
    else:
        bad = np.abs(answer.astype(np.int64) - expected.astype(np.int64)) > 0
        near = np.abs(answer.astype(np.int64) - expected.astype(np.int64)) <= 1
        # A value halfway between two integers may go to either.
        bad, allowed = (bad & ~near, SHARE) if (bad & near).mean() <= 0.01 else (bad, 0.0)
    wrong = int(bad.sum())
    return f"{wrong} of {bad.size} values differ" if wrong > allowed * bad.size else ""


def child(kind: str, name: str, *more: str) -> dict[str, Any]:
    """One of the functions above in a fresh process; however it ends is the result."""
    argv = [sys.executable, __file__, "--child", kind, name, *more]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=CHILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "message": f"not done in {CHILD_SECONDS:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        message = (said or [f"exit status {done.returncode}"])[-1]
        return {"status": "crashed", "message": message[:300]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# --- runs -------------------------------------------------------------------------------------


def run_small(name: str, target: str) -> dict[str, Any]:
    """The one-shot schedule at the reduced size, run and verified."""
    from strangers import PROGRAMS
    from tilewright.errors import TilewrightError
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.schedulers.task import make_task
    from tilewright.halide.search.one_shot import plan_checked
    from tilewright.halide.search.top_k import limits
    from tilewright.measure import Timing

    program = PROGRAMS[name]
    once = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)
    try:
        task = make_task(program.pipeline(True), target=target, name=name)
    except TilewrightError as error:
        return {"status": "refused", "message": str(error)[:300]}
    try:
        planned = plan_checked(task)[0]
        with Session(
            task.algorithm,
            targets=[task.target],
            contents=dict(program.contents),
            limits=limits(120.0),
            timing=once,
        ) as session:
            (done,) = session.measure([Variant(planned.schedule, target=task.target)])
    except Exception as error:
        traceback.print_exc()
        return {"status": "failed", "message": f"{type(error).__name__}: {error}"[:300]}
    return {"status": done.measurement.status, "message": done.measurement.message[:300]}


def run_full(name: str, args: argparse.Namespace, peers: common.Pieces) -> dict[str, Any]:
    """The times at full size, with the peers' in the same rounds."""
    import halide_host
    from strangers import PROGRAMS
    from tilewright.halide.comparison import source_of
    from tilewright.halide.execution.session import Variant
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task

    program = PROGRAMS[name]
    try:
        task = make_task(program.pipeline(False), target="host", name=name)
        hand = None
        if program.hand:
            build = partial(program.build, **program.full)
            hand = Variant(handwritten=source_of(build), name=halide_host.HAND)
        return halide_host.timed(
            task,
            plan(task, k=K),
            args,
            peers,
            hand,
            contents=dict(program.contents),
            records="halide_strangers.sqlite",
        )
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"[:300]
        return {"entries": {}, "tried": [], "status": "failed", "message": message}


def opencl_works() -> bool:
    """Whether OpenCL schedules can be run here: a trivial one is."""
    return run_small("axpy", "opencl")["status"] == "ok"


def load_externs(work: Path) -> bool:
    """Compile ``externs.c`` and have every process from here on load it."""
    import halide as hl

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return False
    work.mkdir(parents=True, exist_ok=True)
    library = (work / "strangers_externs.so").resolve()
    source = common.HERE / "strangers" / "externs.c"
    include = Path(hl.install_dir()) / "include"
    command = [compiler, "-shared", "-fPIC", "-O2", f"-I{include}", "-o", str(library), str(source)]
    if subprocess.run(command, check=False).returncode != 0:
        return False
    os.environ["LD_PRELOAD"] = str(library)
    return True


def row_of(
    name: str,
    args: argparse.Namespace,
    pieces: common.Pieces,
    peers: common.Pieces,
    can: Mapping[str, bool],
) -> dict[str, Any]:
    """Everything about one program, each part kept as soon as it is known."""
    from strangers import PROGRAMS, family, held_out

    row: dict[str, Any] = {
        "program": name,
        "family": family(name),
        "held_out": held_out(name),
        "static": {
            device: pieces.get(f"{name}-{device}", partial(child, "scheduled", name, device))
            for device in STATIC
        },
        "reference": pieces.get(f"{name}-reference", partial(child, "referenced", name)),
        "small": {},
        "timed": None,
    }
    runs = can["extern"] or not PROGRAMS[name].extern
    if not runs or args.static:
        return row
    for target in ("host", "opencl"):
        if target == "host" or can["opencl"]:
            key = f"{name}-small-{target}"
            row["small"][target] = pieces.get(key, partial(run_small, name, target))
    if not args.small:
        row["timed"] = pieces.get(f"{name}-timed", partial(run_full, name, args, peers))
    return row


# --- figures ----------------------------------------------------------------------------------


def statuses(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How everything that was tried of ours ended: where, and the status."""
    found = [(f"{d}, lowered", r["status"]) for d, r in row["static"].items()]
    found += [(f"{d}, small", r["status"]) for d, r in row["small"].items()]
    if row["reference"]["status"] != "none":
        found.append(("reference", row["reference"]["status"]))
    timed = row["timed"] or {}
    if "status" in timed:
        found.append(("timed", timed["status"]))
    found += [(f"top {t['rank'] + 1}", t["status"]) for t in timed.get("tried", ())]
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    ended = [status for row in rows for _, status in statuses(row)]
    static = [result for row in rows for result in row["static"].values()]
    plans = {
        device: [n for row in rows if (n := row["static"][device].get("plans")) is not None]
        for device in PLANNED
    }

    def ratios(key: str, held_out: bool = False) -> list[float]:
        timed = [row["timed"] for row in rows if row["timed"] and row["held_out"] >= held_out]
        return [t[key] for t in timed if t.get(key) is not None]

    every = ratios("oneshot_vs_best_peer")
    crashing = ("crashed", "failed", "run_failed", "timeout", "out_of_memory")
    return {
        "programs": len(rows),
        "crashes": sum(status in crashing for status in ended),
        "refused_by_halide": sum(status in ("refused", "build_failed") for status in ended),
        "wrong": ended.count("wrong_answer"),
        "plans_of_5_median": _median(plans["host"]),
        "plans_fewer_than_5": sum(count < K for count in plans["host"]),
        "plans_of_5_median_cuda": _median(plans["cuda"]),
        "plans_fewer_than_5_cuda": sum(count < K for count in plans["cuda"]),
        "max_seconds": max((r["seconds"] for r in static if "seconds" in r), default=None),
        "max_seconds_without_lowering": max(
            (r["seconds"] - r["halide_seconds"] for r in static if "seconds" in r), default=None
        ),
        "oneshot_vs_best_peer": common.geometric_mean(every),
        "oneshot_vs_best_peer_min": min(every, default=None),
        "oneshot_vs_best_peer_held_out": common.geometric_mean(
            ratios("oneshot_vs_best_peer", held_out=True)
        ),
        "top_vs_best_peer": common.geometric_mean(ratios("top_vs_best_peer")),
        "top_vs_best_peer_min": min(ratios("top_vs_best_peer"), default=None),
        "oneshot_vs_hand": common.geometric_mean(ratios("oneshot_vs_hand")),
        "top_vs_hand": common.geometric_mean(ratios("top_vs_hand")),
        "top_vs_hand_min": min(ratios("top_vs_hand"), default=None),
        "top_vs_hand_held_out": common.geometric_mean(ratios("top_vs_hand", held_out=True)),
        "hand_written": len(ratios("top_vs_hand")),
        "timed": len(every),
        "ran_on_opencl": sum("opencl" in row["small"] for row in rows),
        "compared_with_numpy": sum(row["reference"]["status"] == "ok" for row in rows),
    }


def _median(counts: list[int]) -> float | None:
    return statistics.median(counts) if counts else None


def line(row: Mapping[str, Any]) -> str:
    """One program, as it is finished."""
    good = ("ok", "not tried")
    bad = [f"{where}: {status}" for where, status in statuses(row) if status not in good]
    seconds = row["static"]["host"].get("seconds")
    ratio = (row["timed"] or {}).get("oneshot_vs_best_peer")
    shown = f"{common.shown(seconds)} s, {row['static']['host'].get('plans')} plans"
    return f"{row['program']:24} {shown:22} {common.shown(ratio):>6}  {'; '.join(bad) or 'ok'}"


def main() -> None:
    """Measure, print, write."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(common.HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    if sys.argv[1:2] == ["--child"]:
        kind, *rest = sys.argv[2:]
        print(json.dumps(scheduled(*rest) if kind == "scheduled" else referenced(*rest)))
        return
    from strangers import PROGRAMS

    parser = common.arguments(__doc__.splitlines()[0], list(PROGRAMS))
    parser.add_argument("--static", action="store_true", help="run no schedule of ours")
    parser.add_argument("--small", action="store_true", help="no timings at full size")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--candidate-time", type=float, default=120.0, help="limit of a build")
    parser.add_argument(
        "--peer-time", type=float, default=PEER_SECONDS, help="CPU seconds of an autoscheduler"
    )
    common.add_prepare(parser)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    pieces = common.Pieces(args.work, "halide_strangers", args.fresh)
    peers = common.Pieces(args.work, "peers", args.fresh, ours=False)
    can = {"extern": load_externs(args.work), "opencl": False}
    can["opencl"] = not (args.static or args.prepare) and opencl_works()
    if not can["extern"]:
        print("no C compiler: programs with extern stages are not run", flush=True)
    if not can["opencl"] and not args.static and not args.prepare:
        print("no OpenCL platform works here: OpenCL schedules are lowered only", flush=True)
    if args.prepare:
        for name in common.chosen(args, list(PROGRAMS)):
            if can["extern"] or not PROGRAMS[name].extern:
                program = PROGRAMS[name].pipeline(False)
                contents = dict(PROGRAMS[name].contents)
                common.prepare_peers(peers, program, name, args.peer_time, contents)
        return
    rows = []
    for name in common.chosen(args, list(PROGRAMS)):
        row = row_of(name, args, pieces, peers, can)
        rows.append(row)
        print(line(row), flush=True)
    kind = "-static" if args.static else "-small" if args.small else ""
    common.write(args, f"halide_strangers{kind}", rows, summary(rows), gpu=GPU)


if __name__ == "__main__":
    main()
