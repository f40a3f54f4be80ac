"""Our schedules of every program, planned on all cores before the first comparison.

A comparison needs the device for a few seconds, and planning a large program takes as long on one
core. So all programs are planned at once, in a piece of its own; a comparison whose plans are
missing, or were made with other constants, plans again.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.halide_peers import task_of
from gpu.pieces import Setting
from tilewright.errors import TilewrightError
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.learned.gpu.scheduler import plan_released
from tilewright.halide.schedulers.registry import plan

K = 5


@dataclass(frozen=True)
class Plans:
    """What is to be compared of one program.

    Attributes:
        constants: those that `probed` was planned with; None where there are none.
        ours: the analytic scheduler's best, in the order of the model.
        probed: the analytic scheduler's best with the constants of the probes; None without them.
        learned: the best by the released network of Anderson 2021; None where it fails.
        failure: why there is no `learned`.
    """

    constants: GpuConstants | None
    ours: tuple[PlannedSchedule, ...]
    probed: PlannedSchedule | None
    learned: PlannedSchedule | None
    failure: str = ""


def made(name: str, setting: Setting) -> Plans:
    """Plan one program."""
    task = task_of(name, setting)
    ours = plan(task, k=K)
    constants = setting.constants
    probed = plan(task, constants=constants)[0] if constants is not None else None
    learned, failure = None, ""
    try:
        learned = plan_released(task)[0]
    except TilewrightError as error:
        failure = str(error)
    return Plans(constants, tuple(ours), probed, learned, failure)


def plans(name: str, setting: Setting) -> Plans:
    """Return the plans of a program: those that `plan_all` made, else new ones."""
    path = path_of(name, setting)
    if path.exists():
        kept = pickle.loads(path.read_bytes())
        if isinstance(kept, Plans) and kept.constants == setting.constants:
            return kept
    return made(name, setting)


def plan_all(setting: Setting) -> dict[str, Any]:
    """Plan all programs, as many at once as there are cores.

    Returns:
        The programs that are planned, and the errors of others, by name.

    Raises:
        RuntimeError: no program is planned.
    """
    failed: dict[str, str] = {}
    cores = len(os.sched_getaffinity(0))
    # New processes: a fork of this one would inherit an initialised CUDA driver.
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        jobs = {name: pool.submit(_keep, name, setting) for name in setting.programs}
        for name, job in jobs.items():
            error = job.exception()
            if error is not None:
                failed[name] = f"{type(error).__name__}: {error}"[:300]
    if len(failed) == len(setting.programs):
        raise RuntimeError("; ".join(f"{name}: {why}" for name, why in failed.items()))
    return {"planned": [name for name in setting.programs if name not in failed], "failed": failed}


def _keep(name: str, setting: Setting) -> None:
    path = path_of(name, setting)
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(made(name, setting)))
    partial.replace(path)


def path_of(name: str, setting: Setting) -> Path:
    """The file of a program's plans."""
    return setting.out / f"plans-{name}.pickle"
