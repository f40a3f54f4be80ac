"""Mode ``tune`` on the device: structures by sampled constants, then factors of the best ones.

What is measured first needs no GPU: ``--prepare`` makes it (`Searched`), since drawing constants
and planning with them takes longer than measuring. All that is measured is a label.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import pickle
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu import halide_samples
from gpu.halide_peers import task_of
from gpu.pieces import Setting
from gpu.sessions import opened
from support.gpu_sample import Sample
from tilewright.errors import TilewrightError
from tilewright.halide.execution.session import Measured, Variant
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.learned.gpu.published_search.constants import PUBLISHED
from tilewright.halide.schedulers.learned.gpu.scheduler import plan_released
from tilewright.halide.schedulers.registry import device_limits, plan
from tilewright.halide.search.autotune import measure_tuned
from tilewright.halide.search.finals import Rounds
from tilewright.halide.search.gpu_structures import SampledStructures
from tilewright.halide.search.spills import spill_filter
from tilewright.halide.search.top_k import Outcome, Watch, timing

# Schedules that are measured first: the model's best, and the best by constants from the prior.
PLANNED, DRAWN = 5, 16
# Schedules measured after these, half of them structures by sampled constants and half with other
# factors; and how many structures are proposed at a time.
EVALUATIONS, BATCH = 20, 10
# Seconds of a candidate, and the final rounds, which only choose the schedule to compare.
SECONDS = 0.1
ROUNDS = Rounds(number=5, seconds=1.5)


@dataclass(frozen=True)
class Searched:
    """What searches without a GPU found for a program.

    Attributes:
        planned: the analytic scheduler's best, in the order of the model.
        drawn: its best by constants drawn without measurements.
        published: the choice of the search of Anderson 2021 as published; None where it fails.
        failure: why there is no `published`.
    """

    planned: tuple[PlannedSchedule, ...]
    drawn: tuple[PlannedSchedule, ...]
    published: PlannedSchedule | None
    failure: str = ""


def search_all(setting: Setting) -> int:
    """Search for all programs that are not searched for yet, on all cores; gives how many."""
    wanted = [name for name in setting.programs if not path_of("searched", name, setting).exists()]
    # New processes: a fork of this one would inherit an initialised CUDA driver.
    with ProcessPoolExecutor(
        len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")
    ) as pool:
        for job in [pool.submit(_search, name, setting) for name in wanted]:
            job.result()
    return len(wanted)


def _search(name: str, setting: Setting) -> None:
    task = task_of(name, setting)
    published, failure = None, ""
    try:
        published = plan_released(task, settings=PUBLISHED, spilled=spill_filter(task, True))[0]
    except TilewrightError as error:
        failure = str(error)
    planned = plan(task, k=PLANNED)
    drawn = SampledStructures(task, known={each.schedule for each in planned}).propose(DRAWN)
    _write(path_of("searched", name, setting), Searched((*planned,), (*drawn,), published, failure))


def searched(name: str, setting: Setting) -> Searched | None:
    """What `search_all` found for a program; None where it did not run."""
    found = _read(path_of("searched", name, setting))
    return found if isinstance(found, Searched) else None


def tuned(name: str, setting: Setting) -> PlannedSchedule | None:
    """The schedule that `tune` chose for a program; None where it did not run."""
    found = _read(path_of("tuned", name, setting))
    return found if isinstance(found, PlannedSchedule) else None


def tune(name: str, setting: Setting) -> dict[str, Any]:
    """Tune one program, and keep the schedule for its comparison.

    Raises:
        RuntimeError: no schedule ran.
    """
    task = task_of(name, setting)
    before = searched(name, setting)
    planned = [*before.planned, *before.drawn] if before else plan(task, k=PLANNED)
    cores = len(os.sched_getaffinity(0))
    structures = SampledStructures(task)
    with (
        ProcessPoolExecutor(min(BATCH, cores), multiprocessing.get_context("spawn")) as pool,
        opened(task, setting, timing(SECONDS), build_seconds=30.0) as session,
    ):
        structures.executor = pool
        for _ in range(BATCH):
            pool.submit(os.getpid)  # the processes start while the first schedules are built
        outcome, facts = measure_tuned(
            session,
            planned,
            task,
            watch=Watch(None),
            evaluations=EVALUATIONS,
            limits=device_limits(task),
            structures=structures,
            batch=BATCH,
            rounds=ROUNDS,
        )
    _keep_labels(name, outcome, task.target, setting)
    best = outcome.best
    if best is None or best.seconds is None:
        raise RuntimeError(f"no schedule of {name} ran: {[each.note for each in outcome.tried]}")
    _write(path_of("tuned", name, setting), best.planned)
    return {
        "program": name,
        "best": best.rank,
        "planned": len(before.planned) if before else len(planned),
        "drawn": len(before.drawn) if before else 0,
        "structures": len(structures.known) - len(planned),
        "tried": [
            {
                "status": each.measurement.status if each.measurement else "",
                "seconds": each.seconds,
                "predicted": each.planned.seconds,
                "final": each.final,
            }
            for each in outcome.tried
        ],
        "statuses": Counter(each.measurement.status for each in outcome.tried if each.measurement),
        "stopped": outcome.stopped,
        "facts": facts,
    }


def _keep_labels(name: str, outcome: Outcome, target: str, setting: Setting) -> None:
    path = setting.out / "training.jsonl.gz"
    halide_samples.repair(path)
    with gzip.open(path, "at") as file:
        for each in outcome.tried:
            if each.measurement is not None:
                measured = Measured(Variant(each.planned.schedule, target), each.measurement)
                sample = Sample(each.planned, [], each.rank, 0.0, 0.0)
                found = halide_samples.line(name, 0, sample, measured)
                label = {"kind": "tuned", "variant": f"tried {each.rank + 1}"}
                registers = {"max_registers": each.planned.max_registers}
                file.write(json.dumps({**found, **label, **registers}) + "\n")


def path_of(kind: str, name: str, setting: Setting) -> Path:
    """The file of what a search (`searched`) or the device (`tuned`) found for a program."""
    return setting.out / f"{kind}-{name}.pickle"


def _write(path: Path, found: Any) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(found))
    partial.replace(path)


def _read(path: Path) -> Any:
    return pickle.loads(path.read_bytes()) if path.exists() else None
