"""The schedules of Halide's autoschedulers for the device, searched for all programs at once."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
from gpu.pieces import Setting
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.schedulers.halide_autoschedulers import (
    MEMORY_BYTES,
    Peer,
    PeerSchedule,
    peers,
    run_peers,
)
from tilewright.halide.schedulers.task import Task, make_task


def task_of(name: str, setting: Setting) -> Task:
    """A program for the campaign's device, at its size."""
    pipeline = common.build(name, setting.small)
    return make_task(pipeline, target=setting.target, machine=setting.machine, name=name)


def found(setting: Setting) -> dict[str, Any]:
    """What is known so far, by `key`."""
    path = path_of(setting)
    if not path.exists():
        return {}
    known = {}
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut short by a kill
        known[entry["key"]] = entry["schedule"]
    return known


def schedules(task: Task, setting: Setting) -> dict[str, PeerSchedule]:
    """The peers' schedules for a program, by peer; those not searched for say so."""
    known = found(setting)
    result = {}
    for peer in peers(task.target, task.machine, published=True):
        data = known.get(key(task, peer))
        if data is None:
            result[peer.name] = PeerSchedule(peer, "timeout", message="it was not searched for")
            continue
        serialized = data["serialized"]
        decoded = None if serialized is None else base64.b64decode(serialized)
        result[peer.name] = PeerSchedule(**{**data, "serialized": decoded, "peer": peer})
    return result


def prepared(name: str, setting: Setting) -> dict[str, bool]:
    """Whether there is a schedule of each peer that was searched for, by the search's key."""
    return {
        searched: data["serialized"] is not None
        for searched, data in found(setting).items()
        if searched.startswith(f"{name}/")
    }


def search_all(setting: Setting) -> dict[str, Any]:
    """Search for what is not known yet; as many at a time as there are cores and memory."""
    known = found(setting)
    lock = threading.Lock()

    def search(job: tuple[Task, Peer]) -> str:
        task, peer = job
        for schedule in run_peers(
            task.algorithm,
            make_inputs(task.algorithm),
            [peer],
            target=task.target,
            cpu_seconds=setting.peer_seconds,
            deadline=setting.deadline,
        ):
            data = {**dataclasses.asdict(schedule), "peer": None}
            data["source"] = ""
            if schedule.serialized is not None:
                data["serialized"] = base64.b64encode(schedule.serialized).decode()
            with lock, path_of(setting).open("a") as file:
                file.write(json.dumps({"key": key(task, peer), "schedule": data}) + "\n")
            return f"{task.name}, {peer.name}: {schedule.status}"
        return f"{task.name}, {peer.name}: not done in time"

    tasks = [task_of(name, setting) for name in setting.programs]
    jobs = [
        (task, peer)
        for task in tasks
        for peer in peers(task.target, task.machine, published=True)
        if key(task, peer) not in known
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    at_once = max(1, min(len(os.sched_getaffinity(0)) - 1, int(0.8 * memory / MEMORY_BYTES)))
    with ThreadPoolExecutor(at_once) as pool:
        said = list(pool.map(search, jobs))
    if any(text.endswith("not done in time") for text in said):
        raise RuntimeError("; ".join(said))
    return {"searched": said, "at_once": at_once}


def key(task: Task, peer: Peer) -> str:
    """What tells one search from another."""
    parameters = ",".join(f"{k}={v}" for k, v in sorted(peer.parameters.items()))
    return f"{task.name}/{peer.name}/{task.algorithm.digest[:16]}/{task.target}/{parameters}"


def path_of(setting: Setting) -> Path:
    """The file of all schedules found, a line each."""
    return setting.out / "peers.jsonl"
