"""Mode ``top`` for CUDA: prefer schedules whose kernels keep all values in registers.

The model estimates the registers that a kernel needs, and is sometimes wrong. Here the candidates
are compiled to PTX and assembled, as `kernel_resources` does, before any of them is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tilewright.halide.execution.cuda_kernels import find_ptxas, kernel_resources
from tilewright.halide.execution.inputs import InputError
from tilewright.halide.execution.lowering import limited
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.task import Task

# Schedules to plan per schedule wanted.
PLANNED_PER_WANTED = 2
# After this time, in seconds, the remaining candidates keep their place unexamined.
CHECK_SECONDS = 30.0


def can_check_spills(task: Task) -> bool:
    """Return whether spills of the task's kernels can be known: for CUDA, with ``ptxas``."""
    return task.gpu and "cuda" in task.target and find_ptxas() is not None


def spill_filter(task: Task, wanted: bool) -> Callable[[PlannedSchedule], int | None] | None:
    """Return `spill_bytes` for a task; None if it is not wanted, or spills cannot be known."""
    return partial(spill_bytes, task) if wanted and can_check_spills(task) else None


def without_spills(
    task: Task,
    planned: Sequence[PlannedSchedule],
    k: int,
    spilled: Callable[[PlannedSchedule], int | None] | None = None,
) -> list[PlannedSchedule]:
    """Return `k` of the planned schedules, those that spill registers last.

    The order is kept otherwise. A schedule that cannot be compiled here keeps its place: measuring
    it will say why.

    Args:
        task: The pipeline and its machine.
        planned: The schedules, best first.
        k: Number of schedules to return at most.
        spilled: Returns the bytes per thread that the kernels of a schedule spill, None if
            unknown; by default `spill_bytes`.
    """
    measure = spilled or partial(spill_bytes, task)
    kept: list[PlannedSchedule] = []
    spilling: list[tuple[int, PlannedSchedule]] = []
    until = time.monotonic() + CHECK_SECONDS
    for each in planned:
        found = measure(each) if len(kept) < k and time.monotonic() < until else None
        if found:
            spilling.append((found, each))
        else:
            kept.append(each)
    chosen = [*kept, *(each for _, each in spilling)][:k]
    left_out = [(size, each) for size, each in spilling if each not in chosen]
    if left_out and chosen:
        most = max(size for size, _ in left_out)
        note = (
            f"{len(left_out)} schedules were left out because their kernels spill registers (up to "
            f"{most} bytes per thread)."
        )
        chosen[0] = replace(chosen[0], notes=(*chosen[0].notes, note))
    return chosen


def spill_bytes(task: Task, planned: PlannedSchedule) -> int | None:
    """Return the bytes per thread that a schedule's kernels spill; None if it does not compile."""
    import halide as hl

    try:
        return limited(partial(_spill_bytes, task, planned))
    except (InputError, hl.HalideError, RuntimeError):  # RuntimeError: also ForkedCallError
        return None


def _spill_bytes(task: Task, planned: PlannedSchedule) -> int:
    import halide as hl

    from tilewright.halide.emit.apply import apply
    from tilewright.halide.execution.binding import deserialize

    live = deserialize(task.algorithm.serialized, make_inputs(task.algorithm))
    apply(planned.schedule, task.algorithm, live.pipeline, same_bytes=True)
    kernels = kernel_resources(live.pipeline, hl.Target(task.target))
    return sum(kernel["spill_bytes"] or 0 for kernel in kernels)
