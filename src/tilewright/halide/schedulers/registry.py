"""The common interface of the analytic schedulers for CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.ir.nest import all_guarded, exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.diversity import Chosen
from tilewright.halide.schedulers.masked_loops import with_exact_predicates
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.task import Task
from tilewright.halide.schedulers.variations import variations
from tilewright.machines import GpuMachine

if TYPE_CHECKING:
    from tilewright.halide.schedulers.analytic.gpu.scheduler import KeptSearches

T = TypeVar("T")
Fusion = Literal["nested", "overlapped", "none"]
Objective = Literal["time", "sioutas"]
Scheduler = Literal["analytic", "learned", "auto"]
Search = Literal["tilewright", "published", "published-quick"]
# Maximum number of variations to check per requested schedule, if the cost model has too few.
VARIATIONS = 60
# The start of the note if the model raises an error on a valid pipeline, which is a defect.
MODEL_FAILED = "The cost model failed on this pipeline; please report it"

# The start of the note if the choice of tails raises an error, which is also a defect.
GUARDED = (
    "All loop tails are guarded, because the analysis of sizes failed on this pipeline; please "
    "report it"
)


def plan(
    task: Task,
    *,
    k: int = 1,
    fusion: Fusion = "nested",
    objective: Objective = "time",
    constants: GpuConstants | None = None,
    kept: KeptSearches | None = None,
    shared: bool = True,
) -> list[PlannedSchedule]:
    """Return up to `k` distinct legal schedules, the model's best first.

    As far as possible, they differ significantly, as defined in `diversity`. If the cost model
    finds too few, schedules from `variations` follow. A note reports each illegal schedule that is
    skipped. If all are illegal, the naive schedule is returned.

    Args:
        task: the pipeline, its machine and target.
        k: the number of schedules.
        fusion: how Funcs may be computed within the tiles of others on a GPU.
        objective: what the search for a GPU minimises; there is only one objective for a CPU.
        constants: constants of the GPU's cost model; the schedules are the best by these alone.
            By default, those in use, with rivals by others (`analytic.gpu.rivals`).
        kept: for a GPU, plans of earlier calls for this task, which this call reuses and adds to.
        shared: whether outputs may share their loops (`analytic.cpu.shared_outputs`).

    Raises:
        TilewrightError: `fusion` or `objective` is unknown.
    """
    _check_words(fusion, objective)
    legal = Chosen(task.algorithm)
    refused: list[_Refused] = []
    candidates, failure = _guarded(
        lambda: _planned(task, k, fusion, constants, objective, shared, kept), TilewrightError
    )
    notes: tuple[str, ...] = ()
    if failure:
        notes = (f"{MODEL_FAILED}: {failure}. All Funcs are at root.",)
    for planned in candidates or ():
        schedule, doubts = sized(replace(planned.schedule, target=task.target), task)
        reason = why_illegal(schedule, task)
        if reason:
            refused.append(_Refused(len(legal.accepted), reason))
        else:
            said = (*planned.notes, *doubts, *_measured(task))
            legal.offer(replace(planned, schedule=schedule, notes=said))
    ours = len(legal.accepted)
    if not ours:
        schedule = naive_schedule(task.algorithm, task.target, task.machine)
        if refused:
            all_illegal = "because all schedules of the model are illegal"
            notes = (f"This is the naive schedule, {all_illegal}: {refused[0].reason}",)
        legal.offer(PlannedSchedule(schedule, (), 0.0, notes))
    if len(legal.accepted) < k:
        _, failure = _guarded(lambda: _vary(legal, task, k))
        if failure:
            first = legal.accepted[0]
            said = (*first.notes, f"{MODEL_FAILED}: {failure}.")
            legal.accepted[0] = replace(first, notes=said)
    return _with_refused(legal.best(k), refused, ours)


def _check_words(fusion: str, objective: str) -> None:
    for name, word, kind in (("fusion", fusion, Fusion), ("objective", objective, Objective)):
        if word not in get_args(kind):
            known = ", ".join(get_args(kind))
            raise TilewrightError(f"{name}={word!r} is unknown: use one of {known}")


def _guarded(step: Callable[[], T], *raised: type[Exception]) -> tuple[T | None, str]:
    """Return (result of a step, empty text), or (None, its error) if it fails.

    Every valid pipeline gets a schedule: here, a defect of the model becomes a note. Exceptions of
    the types `raised` are caused by user input and are not caught.
    """
    try:
        return step(), ""
    except raised:
        raise
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def why_illegal(schedule: Schedule, task: Task) -> str:
    """Return the first problem that `check` finds in a schedule, or its error; empty if legal."""
    problems, failure = _guarded(lambda: check(schedule, task.algorithm, device_limits(task)))
    if failure:
        return f"{MODEL_FAILED}: {failure}."
    return str(problems[0]) if problems else ""


class _Refused(NamedTuple):
    """A skipped illegal schedule: the number of schedules accepted before it, and the reason."""

    accepted: int
    reason: str


def _with_refused(
    plans: list[PlannedSchedule], refused: list[_Refused], ours: int
) -> list[PlannedSchedule]:
    """Return the plans with notes on illegal schedules; the first `ours` are from the model."""
    for accepted, reason in refused if ours else ():
        last = accepted >= ours
        at = ours - 1 if last else accepted
        order = "after" if last else "before"
        note = f"The model ranked an illegal schedule {order} this one: {reason}"
        plans[at] = replace(plans[at], notes=(*plans[at].notes, note))
    return plans


def _vary(chosen: Chosen, task: Task, k: int) -> None:
    """Add legal variations of the accepted schedules, best first, until there are `k`.

    Variations of the added schedules follow. At most `VARIATIONS` times `k` are tried.
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
    """A schedule for the sizes of a task, with notes for reports."""

    schedule: Schedule
    notes: tuple[str, ...] = ()


def sized(schedule: Schedule, task: Task) -> Sized:
    """Return the schedule, correct at all sizes or only at the estimates, as the task requires."""
    schedule = with_exact_predicates(schedule, task.algorithm)
    if task.exact_sizes:
        return Sized(exact_size(schedule))
    found, failure = _guarded(lambda: any_size(schedule, task.algorithm), TilewrightError)
    if found is not None:
        return Sized(found)
    # If the analysis fails, all tails are guarded: slower, but correct.
    return Sized(all_guarded(schedule), (f"{GUARDED}: {failure}.",))


def _planned(
    task: Task,
    k: int,
    fusion: Fusion,
    constants: GpuConstants | None,
    objective: Objective = "time",
    shared: bool = True,
    kept: KeptSearches | None = None,
) -> list[PlannedSchedule]:
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu.calibrated import fitted_constants
        from tilewright.halide.schedulers.analytic.gpu.rivals import (
            other_constants,
            rival_constants,
        )
        from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu

        scalars = task.algorithm.symbols
        fitted = fitted_constants(task.gpu_calibration)
        return schedule_gpu(
            task.algorithm,
            task.machine,
            scalars=scalars,
            mode=fusion,
            k=k,
            constants=constants or fitted,
            objective=objective,
            kept=kept,
            rivals=() if constants else rival_constants(fitted),
            others=() if constants else other_constants(fitted, task.machine, k),
        )
    from tilewright.halide.schedulers.analytic.cpu.families import calibrated
    from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
    from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
    from tilewright.halide.schedulers.analytic.cpu.shared_outputs import with_shared_loops

    machine, measured = calibrated(task.machine, task.calibration)
    plans = schedule_cpu(task.algorithm, machine, k=k, constants=measured)
    if not shared:
        return plans
    return with_shared_loops(
        plans,
        task.algorithm,
        model_of(machine, measured),
        lambda algorithm, k: schedule_cpu(algorithm, machine, k=k, constants=measured),
        k,
    )


def suited(
    planned: PlannedSchedule, task: Task, fusion: Fusion, objective: Objective
) -> list[PlannedSchedule]:
    """Return schedules with the structure of a plan, tiled for the task's sizes.

    The caller must check that they are legal and select one.
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
    """Return the launch limits of the task's device."""
    if isinstance(task.machine, GpuMachine):
        return Limits(task.machine.max_threads_per_block, task.machine.shared_per_block)
    return Limits()


def _measured(task: Task) -> tuple[str, ...]:
    """Return a note if the model uses measurements of this CPU or GPU."""
    measured = task.calibration is not None or task.gpu_calibration is not None
    facts = model_facts(task) if measured else {}
    return tuple(f"The {name} uses constants {text}." for name, text in facts.items())


def model_facts(task: Task) -> dict[str, str]:
    """Return the origin of the model's constants, by the name of the model, for reports."""
    if isinstance(task.machine, GpuMachine):
        from tilewright.halide.schedulers.analytic.gpu import calibrated as on_gpu

        return {"time model": on_gpu.description(task.gpu_calibration)}
    from tilewright.halide.schedulers.analytic.cpu.families import description

    return {"cost model": description(task.machine, task.calibration)}


def naive(task: Task) -> Schedule:
    """Return the naive schedule, the baseline of speedups."""
    return naive_schedule(task.algorithm, task.target, task.machine)
