"""The common interface of the analytic schedulers: the schedules worth trying, best first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.ir.nest import all_guarded, exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.diversity import Chosen
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.task import Task
from tilewright.halide.schedulers.variations import variations
from tilewright.machines import GpuMachine

T = TypeVar("T")
Fusion = Literal["nested", "overlapped", "none"]
Objective = Literal["time", "sioutas"]
Scheduler = Literal["analytic", "learned", "auto"]
# Variations that are checked for each schedule that is wanted, if the cost model has too few.
VARIATIONS = 60
# The beginning of the note for a pipeline that the model cannot analyse, which is a defect.
MODEL_FAILED = "The cost model failed on this pipeline; please report it"

# The beginning of the note for a failure to choose tails, which is a defect, too.
GUARDED = (
    "Every loop tail is guarded, for the analysis of sizes failed on this pipeline; please report "
    "it"
)


def plan(
    task: Task,
    *,
    k: int = 1,
    fusion: Fusion = "nested",
    objective: Objective = "time",
    constants: GpuConstants | None = None,
) -> list[PlannedSchedule]:
    """Return up to `k` distinct legal schedules, the model's best first.

    As far as possible they differ in what matters, as defined in `diversity`. If the cost model has
    too few, `variations` makes more, which come last.

    `fusion` says how Funcs may be computed inside others' tiles on a GPU, `objective` what its
    search minimises (on a CPU there is one cost), `constants` are measured constants of the GPU's
    cost model. An illegal schedule is left out, and the notes of the next one say so, or those of
    the last one if none follows; if none is left, the naive schedule is planned. Raises
    `TilewrightError` for an unknown `fusion` or `objective`.
    """
    for name, word, kind in (("fusion", fusion, Fusion), ("objective", objective, Objective)):
        if word not in get_args(kind):
            raise TilewrightError(f"{name}={word!r}: it is one of {', '.join(get_args(kind))}")
    legal = Chosen(task.algorithm)
    refused: list[_Refused] = []
    candidates, failure = _guarded(
        lambda: _planned(task, k, fusion, constants, objective), TilewrightError
    )
    notes: tuple[str, ...] = ()
    if failure:
        notes = (f"{MODEL_FAILED}: {failure}. Every Func is at root.",)
    for planned in candidates or ():
        schedule, doubts = sized(replace(planned.schedule, target=task.target), task)
        reason = why_illegal(schedule, task)
        if reason:
            refused.append(_Refused(len(legal.accepted), reason))
        else:
            kept = (*planned.notes, *doubts, *_measured(task))
            legal.offer(replace(planned, schedule=schedule, notes=kept))
    ours = len(legal.accepted)
    if not ours:
        schedule = naive_schedule(task.algorithm, task.target, task.machine)
        if refused:
            notes = (f"Every schedule of the model was refused: {refused[0].reason}",)
        legal.offer(PlannedSchedule(schedule, (), 0.0, notes))
    if len(legal.accepted) < k:
        _, failure = _guarded(lambda: _vary(legal, task, k))
        if failure:
            first = legal.accepted[0]
            said = (*first.notes, f"{MODEL_FAILED}: {failure}.")
            legal.accepted[0] = replace(first, notes=said)
    return _with_refused(legal.best(k), refused, ours)


def _guarded(step: Callable[[], T], *raised: type[Exception]) -> tuple[T | None, str]:
    """Return a step's result, or None and its failure: every valid pipeline gets a schedule.

    This is the one place where a defect of the model becomes a note for the reader. Errors of the
    types `raised` are the user's and go on.
    """
    try:
        return step(), ""
    except raised:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def why_illegal(schedule: Schedule, task: Task) -> str:
    """Return what `check` finds wrong with a schedule first, or its failure; empty if legal."""
    problems, failure = _guarded(lambda: check(schedule, task.algorithm, device_limits(task)))
    if failure:
        return f"{MODEL_FAILED}: {failure}."
    return str(problems[0]) if problems else ""


class _Refused(NamedTuple):
    """A schedule that was left out: how many had been accepted before it, and the reason."""

    place: int
    reason: str


def _with_refused(
    plans: list[PlannedSchedule], refused: list[_Refused], ours: int
) -> list[PlannedSchedule]:
    """Return the plans, each saying what was left out before it; `ours` of them are the model's."""
    for place, reason in refused if ours else ():
        last = place >= ours
        at = ours - 1 if last else place
        note = f"Left out {'after' if last else 'before'} this one: {reason}"
        plans[at] = replace(plans[at], notes=(*plans[at].notes, note))
    return plans


def _vary(chosen: Chosen, task: Task, k: int) -> None:
    """Add legal schedules one choice away from the present ones, best first, up to `k`.

    Schedules one choice away from the additions come next. At most `VARIATIONS` are tried for each
    wanted schedule.
    """
    left = VARIATIONS * k
    at = 0
    while at < len(chosen.accepted):
        base = chosen.accepted[at]
        base = replace(base, schedule=exact_size(base.schedule))
        for planned in variations(base, task.algorithm, task.machine):
            if len(chosen.accepted) >= k or left <= 0:
                return
            left -= 1
            if not chosen.is_new(planned):
                continue
            if why_illegal(planned.schedule, task):
                continue
            schedule, doubts = sized(planned.schedule, task)
            if not why_illegal(schedule, task):
                notes = tuple(dict.fromkeys((*planned.notes, *doubts)))
                chosen.offer(replace(planned, schedule=schedule, notes=notes))
        at += 1


class Sized(NamedTuple):
    """A schedule for the sizes of a task, with notes for the reader."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


def sized(schedule: Schedule, task: Task) -> Sized:
    """Return the schedule made right at every size, or stripped of that, as the task asks for."""
    if task.exact_sizes:
        return Sized(exact_size(schedule))
    found, failure = _guarded(lambda: any_size(schedule, task.algorithm), TilewrightError)
    if found is not None:
        return Sized(found)
    # Schedules that the analysis cannot handle run with guards: slower, but correct.
    return Sized(all_guarded(schedule), (f"{GUARDED}: {failure}.",))


def _planned(
    task: Task,
    k: int,
    fusion: Fusion,
    constants: GpuConstants | None,
    objective: Objective = "time",
) -> list[PlannedSchedule]:
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
        from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu

        scalars = task.algorithm.symbols
        return schedule_gpu(
            task.algorithm,
            task.machine,
            scalars=scalars,
            mode=fusion,
            k=k,
            constants=constants or fitted_constants(task.gpu_calibration),
            objective=objective,
        )
    from tilewright.halide.schedulers.analytic.cpu.families import calibrated
    from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu

    machine, measured = calibrated(task.machine, task.calibration)
    return schedule_cpu(task.algorithm, machine, k=k, constants=measured)


def suited(
    planned: PlannedSchedule, task: Task, fusion: Fusion, objective: Objective
) -> list[PlannedSchedule]:
    """Return schedules with the structure of a plan, tiled for the task's sizes.

    The caller has to select among them and check that they are legal.
    """
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
        from tilewright.halide.schedulers.analytic.gpu.suited import suited_gpu

        fitted = fitted_constants(task.gpu_calibration)
        return suited_gpu(planned, task.algorithm, task.machine, fusion, objective, fitted)
    from tilewright.halide.schedulers.analytic.cpu.families import calibrated
    from tilewright.halide.schedulers.analytic.cpu.suited import suited_cpu

    machine, measured = calibrated(task.machine, task.calibration)
    return suited_cpu(planned, task.algorithm, machine, measured)


def device_limits(task: Task) -> Limits:
    """Return the limits of the task's device."""
    if isinstance(task.machine, GpuMachine):
        return Limits(task.machine.max_threads_per_block, task.machine.shared_per_block)
    return Limits()


def _measured(task: Task) -> tuple[str, ...]:
    """Return a note if the model uses measurements of this CPU or GPU."""
    measured = task.calibration is not None or task.gpu_calibration is not None
    facts = model_facts(task) if measured else {}
    return tuple(f"The {name} has numbers {text}." for name, text in facts.items())


def model_facts(task: Task) -> dict[str, str]:
    """Return the report's note on the source of the model's figures."""
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu import calibrated as on_gpu

        return {"time model": on_gpu.description(task.gpu_calibration)}
    from tilewright.halide.schedulers.analytic.cpu.families import description

    return {"cost model": description(task.machine, task.calibration)}


def naive(task: Task) -> Schedule:
    """Return the schedule that speedups are counted from."""
    return naive_schedule(task.algorithm, task.target, task.machine)
