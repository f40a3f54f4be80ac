"""The answers that schedules are verified against, computed for all programs at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu.halide_peers import task_of
from gpu.pieces import Setting
from tilewright.errors import TilewrightError
from tilewright.halide.execution.session import Session

# Programs computed at a time: the largest needs about 2 GB.
MOST_AT_ONCE = 8


def compute_all(setting: Setting) -> dict[str, Any]:
    """Compute what is not there yet, on the CPU, several programs at a time.

    Returns:
        The programs whose answers are there, and why those of others are not.

    Raises:
        RuntimeError: there are no answers for any program.
    """
    at_once = max(1, min(len(os.sched_getaffinity(0)) - 1, MOST_AT_ONCE))
    with ThreadPoolExecutor(at_once) as pool:
        failures = list(pool.map(lambda name: _compute(name, setting), setting.programs))
    missing = {n: why for n, why in zip(setting.programs, failures, strict=True) if why}
    if len(missing) == len(setting.programs):
        raise RuntimeError("; ".join(f"{name}: {why}" for name, why in missing.items()))
    return {"computed": [n for n in setting.programs if n not in missing], "missing": missing}


def _compute(name: str, setting: Setting) -> str:
    """Compute one program's answers; returns why they could not be computed, or ''."""
    try:
        with Session(
            task_of(name, setting).algorithm,
            references=setting.reference_folder,
            deadline=setting.deadline,
        ) as session:
            session.prepare()
    except TilewrightError as error:
        return str(error)
    return ""
