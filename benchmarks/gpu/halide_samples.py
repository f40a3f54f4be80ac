"""Random legal schedules of a program, timed: what a learned model can be trained on.

Drawing them takes as long as measuring them, so ``--prepare`` draws the first rounds, with the
default constants of the model. ``training.jsonl.gz`` gets one line per schedule: the schedule
itself, the model's view of every kernel, how it was drawn, and how it did. A line before has the
pipeline's bytes.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import os
import pickle
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu.halide_peers import task_of
from gpu.pieces import Setting
from support.gpu_sample import Sample, sample_gpu
from tilewright.halide.execution.session import Measured, Session, Variant
from tilewright.halide.ir.json import to_data
from tilewright.halide.schedulers.prediction import with_prediction
from tilewright.halide.search.top_k import limits
from tilewright.measure import Timing

TIMING = Timing(min_samples=5, max_samples=20, seconds=0.2, precision=0.01)
# Samples per program in a round.
PER_ROUND = 25
# Rounds that --prepare draws.
PREPARED_ROUNDS = 2
# Seconds kept at the end of a piece for what is under way.
SPARE = 10.0


def draw_all(setting: Setting) -> int:
    """Draw the first rounds of all programs into the campaign's folder; gives how many are new."""
    wanted = [
        (name, number, setting)
        for number in range(PREPARED_ROUNDS)
        for name in setting.programs
        if not draws_path(name, number, setting).exists()
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_draw_into, *zip(*wanted, strict=True)) if wanted else ())
    return len(wanted)


def _draw_into(name: str, number: int, setting: Setting) -> None:
    path = draws_path(name, number, setting)
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(list(_new_draws(name, number, setting))))
    partial.replace(path)


def _new_draws(name: str, number: int, setting: Setting) -> Iterator[Sample]:
    task = task_of(name, setting)
    wanted = min(PER_ROUND, setting.samples - number * PER_ROUND)
    for sample in sample_gpu(
        task.algorithm, setting.machine, wanted, seed=number, constants=setting.constants
    ):
        planned = with_prediction(sample.planned, task, setting.constants)
        yield replace(sample, planned=planned)


def draws(name: str, number: int, setting: Setting) -> Iterator[Sample]:
    """Yield a round's schedules of a program: those that were prepared, else new ones."""
    path = draws_path(name, number, setting)
    if path.exists():
        yield from pickle.loads(path.read_bytes())[: setting.samples - number * PER_ROUND]
    else:
        yield from _new_draws(name, number, setting)


def draws_path(name: str, number: int, setting: Setting) -> Path:
    """The file of a round's schedules of a program."""
    return setting.out / f"draws-{name}-{number}.pickle"


def measure(names: Sequence[str], number: int, setting: Setting) -> list[dict[str, Any]]:
    """One round of samples of some programs, each with an equal share of the time left.

    Args:
        names: the programs.
        number: the round; another round draws other schedules.
        setting: the campaign's.

    Returns:
        Per program how many samples ended with which status.

    Raises:
        RuntimeError: no sample of any program ran.
    """
    rows = []
    for i, name in enumerate(names):
        now = time.monotonic()
        share = (setting.deadline - SPARE - now) / (len(names) - i)
        rows.append(_one(name, number, setting, now + share))
    if not any(row["statuses"].get("ok") for row in rows):
        raise RuntimeError(f"no sample ran: {rows}")
    return rows


def _one(name: str, number: int, setting: Setting, deadline: float) -> dict[str, Any]:
    """Draw, measure, write; ends at the deadline with what there is by then."""
    task = task_of(name, setting)
    drawn: dict[str, Sample] = {}
    statuses: Counter[str] = Counter()

    def variants() -> Iterator[Variant]:
        for sample in draws(name, number, setting):
            if time.monotonic() > deadline:
                return
            label = f"sample {number}.{sample.index}"
            drawn[label] = sample
            yield Variant(sample.planned.schedule, target=task.target, name=label)

    path = setting.out / "training.jsonl.gz"
    repair(path)
    with (
        gzip.open(path, "at") as file,
        Session(
            task.algorithm,
            targets=[task.target],
            verify=not setting.small,
            limits=limits(30.0),
            timing=TIMING,
            references=setting.reference_folder,
            deadline=deadline,
        ) as session,
    ):
        pipeline = {
            "pipeline": name,
            "digest": task.algorithm.digest,
            "serialized": base64.b64encode(task.algorithm.serialized).decode(),
            "machine": asdict(setting.machine),
            "target": task.target,
            "small": setting.small,
        }
        file.write(json.dumps(pipeline) + "\n")
        for measured in session.measure(variants()):
            statuses[measured.measurement.status] += 1
            sample = drawn[measured.variant.name]
            file.write(json.dumps(line(name, number, sample, measured)) + "\n")
            file.flush()  # what is measured is kept, whatever happens to this process
    return {"program": name, "drawn": len(drawn), "statuses": dict(statuses)}


def repair(path: Path) -> None:
    """Keep the whole lines of a file whose writer was killed: others can be added then.

    Nothing can be read behind a compressed stream that ends too soon.
    """
    if not path.exists():
        return
    kept: list[bytes] = []
    with contextlib.suppress(EOFError, gzip.BadGzipFile, zlib.error):
        with gzip.open(path, "rb") as file:
            kept.extend(iter(file.readline, b""))
        return
    if kept and not kept[-1].endswith(b"\n"):
        kept.pop()
    partial = path.with_suffix(".partial")
    partial.write_bytes(gzip.compress(b"".join(kept)))
    partial.replace(path)


def line(name: str, number: int, sample: Sample, measured: Measured) -> dict[str, Any]:
    """One schedule with what is known of it.

    `cost` is the search's, in its own unit; `predicted` and `seconds` are seconds. Schedules that
    were drawn by ``--prepare`` have their cost and prediction with the default constants.
    """
    measurement = measured.measurement
    return {
        "program": name,
        "round": number,
        "index": sample.index,
        "temperature": sample.temperature,
        "spread": sample.spread,
        "schedule": to_data(sample.planned.schedule),
        "cost": sample.planned.cost,
        "predicted": sample.planned.seconds,
        "groups": [asdict(group) for group in sample.planned.groups],
        "features": sample.features,
        "status": measurement.status,
        "message": measurement.message[:300],
        "seconds": measurement.median if measurement.times else None,
        "minimum": measurement.minimum if measurement.times else None,
        "times": list(measurement.times),
        "kernels": measurement.details.get("kernels", []),
    }
