"""Labels for the learned scheduler: run times of random schedules, over an anchor's.

For every pipeline, random schedules (`tilewright.halide.schedulers.learned.sampling`) are compiled
into one process, verified against the reference, and then timed in interleaved rounds; a label is
the median over the rounds of the time over that of the anchor, the analytic search's best schedule.
The anchor is compiled and timed twice: how far its second copy's label is from 1 is the noise.

Compiling does not need a quiet machine, and timing does: processes are compiled in batches and
wait; then each is timed by itself. ``--quiet FILE`` creates that file while timing, after waiting
for another's to go, so that other work can stop. Pipelines are random ones by seed (``random:7``),
programs of ``examples/`` and of ``benchmarks/strangers``. What is recorded is not timed again; a
pipeline that is recorded on another machine than the first has that machine in its entry.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import common

DATA = common.HERE / "data" / "halide_labels.json.gz"
SCHEMA = 1
RANDOM = [f"random:{seed}" for seed in range(340)]
SCHEDULES = 14  # of each pipeline
MORE_SCHEDULES = 24  # of each program that is not random
SECONDS = 0.25  # of rounds, for each schedule
ROUNDS = (3, 15)  # least and most
SLOWEST = 12.0  # times the anchor's time; slower schedules are timed once
LEAST_SAMPLE = 1e-3  # seconds; shorter runs are repeated within a sample
LONGEST_RUN = 1.5  # seconds; programs whose anchor takes longer are left out
WAITING = 24  # compiled processes that wait at a time
BUILD_SECONDS = 3600.0  # of building and verifying a pipeline's schedules, others' turns included

Data = dict[str, Any]


def task_of(name: str) -> Any:
    """The task of a pipeline by name."""
    from tilewright.halide.schedulers.learned import random_pipelines
    from tilewright.halide.schedulers.task import make_task

    if name.startswith("random:"):
        recipe = random_pipelines.random_pipeline(int(name.removeprefix("random:")))
        return make_task(random_pipelines.build(recipe))
    if name in common.PROGRAMS:
        return make_task(common.build(name))
    import strangers

    return make_task(strangers.PROGRAMS[name].pipeline(False))


# --- one pipeline, in its own process -------------------------------------------------------------


def work(name: str, count: int, seed: int, others: Path | None) -> None:
    """Compile and verify a pipeline's schedules, wait for a line, time them, print the labels."""
    from tilewright.halide.execution.runner import Runner
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.ir.json import to_data
    from tilewright.halide.schedulers.learned.sampling import sampled

    task = task_of(name)
    began = time.process_time()
    schedules = [replace(s, target="host") for s in sampled(task, count, seed)]
    sampling = time.process_time() - began
    with Session(task.algorithm, jobs=1) as session:
        problem = session.prepare()
    built: list[tuple[Data, Any]] = []
    for i, schedule in enumerate([*schedules, schedules[0]]):
        while others is not None and others.exists():
            time.sleep(2.0)
        began = time.process_time()
        entry: Data = {"schedule": to_data(schedule), "status": "ok"}
        try:
            runner = Runner(problem.candidate(Variant(schedule)).payload)
            entry["compile"] = round(time.process_time() - began, 3)
            if built:
                runner.share_buffers(built[0][1])
            if not runner.verify().ok and not runner.recheck().ok:
                entry["status"] = "wrong"
        except Exception as error:
            entry |= {"status": "failed", "message": str(error)[:300]}
            runner = None
        if i == 0 and entry["status"] != "ok":
            print(json.dumps({"error": f"the anchor {entry['status']}"}), flush=True)
            return
        built.append((entry, runner))
    print("built", flush=True)
    if not sys.stdin.readline():
        return
    timed(built)
    *entries, again = [entry for entry, _ in built]
    found = {
        "pipeline": name,
        "digest": task.algorithm.digest,
        "sampling": round(sampling, 2),
        "again": again.get("ratio"),
        "schedules": entries,
    }
    print(json.dumps(found), flush=True)


def timed(built: list[tuple[Data, Any]]) -> None:
    """Enter the labels: medians of ratios to the first in the same round."""
    running = [(entry, runner) for entry, runner in built if entry["status"] == "ok"]
    once = []
    for _, runner in running:
        runner.run()
        once.append(sample(runner, 1))
    entry = running[0][0]
    entry["seconds"] = once[0]
    if once[0] > LONGEST_RUN:
        entry["ratio"] = 1.0
        return
    slow = {i for i, seconds in enumerate(once) if seconds > SLOWEST * once[0]}
    inner = [max(1, int(LEAST_SAMPLE / seconds)) for seconds in once]
    each = sum(max(s, LEAST_SAMPLE) for i, s in enumerate(once) if i not in slow)
    rounds = int(min(max(SECONDS * len(running) / each, ROUNDS[0]), ROUNDS[1]))
    ratios: list[list[float]] = [[] for _ in running]
    anchors = []
    for _ in range(rounds):
        times = [sample(r, inner[i]) if i not in slow else 0.0 for i, (_, r) in enumerate(running)]
        anchors.append(times[0])
        for i, seconds in enumerate(times):
            ratios[i].append(seconds / times[0] if i not in slow else once[i] / once[0])
    for (entry, _), found in zip(running, ratios, strict=True):
        entry["ratio"] = round(statistics.median(found), 4)
    running[0][0]["seconds"] = float(f"{statistics.median(anchors):.4g}")
    running[0][0]["rounds"] = rounds


def sample(runner: Any, count: int) -> float:
    """Seconds of one run, as a mean of `count`."""
    began = time.perf_counter()
    for _ in range(count):
        runner.run()
    return (time.perf_counter() - began) / count


# --- all pipelines --------------------------------------------------------------------------------


def started(name: str, args: argparse.Namespace) -> subprocess.Popen[str]:
    """A process that compiles a pipeline's schedules."""
    count = args.count or (SCHEDULES if name.startswith("random:") else MORE_SCHEDULES)
    command = [sys.executable, __file__, "--work-on", name, "--count", str(count)]
    command += ["--seed", str(args.seed), *(["--quiet", str(args.quiet)] if args.quiet else [])]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def compiled(name: str, args: argparse.Namespace) -> subprocess.Popen[str] | None:
    """The process of a pipeline, when it waits to be timed; a line is printed if it failed."""
    while args.quiet is not None and args.quiet.exists():
        time.sleep(2.0)
    process = started(name, args)
    assert process.stdout is not None
    late = threading.Timer(BUILD_SECONDS, process.kill)
    late.start()
    said = ""
    for text in process.stdout:  # Halide's warnings come before
        said = text.strip()
        if said == "built":
            break
    late.cancel()
    if said == "built":
        return process
    process.kill()
    print(f"{name}: {said or 'the process ended'}", flush=True)
    return None


def batch(names: list[str], args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The processes of some pipelines, compiled; those that failed are left out."""
    with ThreadPoolExecutor(args.jobs) as pool:
        made = pool.map(lambda name: compiled(name, args), names)
        yield from ((n, process) for n, process in zip(names, made, strict=True) if process)


@contextlib.contextmanager
def quiet(path: Path | None) -> Iterator[None]:
    """Wait until the file is not there, and create it meanwhile."""
    while path is not None:
        try:
            path.open("x").write("halide_labels")
            break
        except FileExistsError:
            time.sleep(5.0)
    if path is not None:
        time.sleep(10.0)  # others notice
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def record(args: argparse.Namespace, names: list[str]) -> None:
    """Record what is missing, and write the file after every batch."""
    from tilewright.machines import detect_cpu, machine_to_dict

    data = {"schema": SCHEMA, "pipelines": []} if args.fresh else read(args.data)
    machine = machine_to_dict(detect_cpu())
    of_all = data.setdefault("machine", machine)
    known = {pipeline["pipeline"] for pipeline in data["pipelines"]}
    left = [name for name in names if name not in known]
    while left:
        now, left = left[: args.waiting], left[args.waiting :]
        waiting = list(batch(now, args))
        print(f"{len(waiting)} of {len(now)} compiled", flush=True)
        with quiet(args.quiet):
            began = time.perf_counter()
            for name, process in waiting:
                said, _ = process.communicate("go\n")
                lines = said.strip().splitlines()
                if lines and lines[-1].startswith("{"):
                    found = json.loads(lines[-1])
                    if machine != of_all:
                        found["machine"] = machine
                    data["pipelines"].append(found)
                    print(line(found), flush=True)
                else:
                    print(f"{name}: the process ended", flush=True)
            print(f"{time.perf_counter() - began:.0f} s of timing", flush=True)
        write(args.data, data)


def line(found: Data) -> str:
    """One pipeline, as it is finished."""
    entries = found["schedules"]
    ratios = sorted(e["ratio"] for e in entries if "ratio" in e)
    bad = [e for e in entries if e["status"] != "ok"]
    return (
        f"{found['pipeline']:24} {len(ratios):3} right, {len(bad)} not, best {ratios[0]:.2f}, "
        f"median {ratios[len(ratios) // 2]:.2f}, anchor {1e3 * entries[0]['seconds']:.2f} ms, "
        f"again {found['again']}"
    )


def read(path: Path) -> Data:
    """The recorded labels."""
    if not path.exists():
        return {"schema": SCHEMA, "pipelines": []}
    data: Data = json.loads(gzip.decompress(path.read_bytes()))
    if data.get("schema") != SCHEMA:
        sys.exit(f"{path} has another schema: record again (--fresh)")
    return data


def write(path: Path, data: Data) -> None:
    """Write the file; the same data give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    text = json.dumps(data, separators=(",", ":"))
    partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    partial.replace(path)


def main() -> None:
    """Record the labels that are missing."""
    import strangers

    names = [*RANDOM, *common.PROGRAMS, *strangers.PROGRAMS]
    parser = common.arguments(__doc__.splitlines()[0], names)
    parser.add_argument("--data", type=Path, default=DATA, help="the recorded labels")
    parser.add_argument("--count", type=int, help="schedules of each pipeline")
    parser.add_argument("--seed", type=int, default=0, help="of the random walks")
    parser.add_argument("--quiet", type=Path, help="a file that is there while timing")
    parser.add_argument("--waiting", type=int, default=WAITING, help="processes compiled at once")
    parser.add_argument("--jobs", type=int, default=1, help="pipelines compiled side by side")
    parser.add_argument("--work-on", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work_on:
        work(args.work_on, args.count or SCHEDULES, args.seed, args.quiet)
        return
    record(args, common.chosen(args, names))


if __name__ == "__main__":
    main()
