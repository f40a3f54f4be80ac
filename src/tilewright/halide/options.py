"""Arguments of `tilewright.schedule` and `tilewright.compare`, in three groups.

`Planning` says which schedules are considered, `Measuring` how they are measured, and `Budget` sets
limits. Every field is also accepted as a keyword argument, and `existing` in three short forms:
``schedule(pipeline, k=3, keep_schedule=True)`` is
``schedule(pipeline, planning=Planning(k=3, existing="keep"))``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.registry import Fusion, Objective, Scheduler
from tilewright.records import Records

Mode = Literal["oneshot", "top", "tune", "given"]
Existing = Literal["refuse", "keep", "discard", "improve"]
TOP_K = 5  # schedules that are measured unless `Planning.k` says otherwise
EVALUATIONS = 60
CANDIDATE_SECONDS = 120.0
CANDIDATE_BYTES = 8 << 30
IMPROVE = (
    "to improve a schedule is to measure it and others: give mode='top' or 'tune', and no "
    "keep_schedule"
)


@dataclass(frozen=True)
class Planning:
    """Which schedules are considered.

    Args:
        k: how many schedules to find, all returned in ``Result.top``; by default one in mode
            ``oneshot`` and 5 in other modes.
        evaluations: how many schedules mode ``tune`` measures in addition to the planned ones;
            it stops earlier if little is left to gain.
        fusion: on GPUs, how Funcs may be computed inside others' tiles: ``nested`` (Sioutas
            2020, Section 4.3), ``overlapped`` or ``none``.
        objective: on GPUs, what the search minimises: the predicted ``time``, or the cost of
            ``sioutas`` (2020), as that paper has it.
        scheduler: ``analytic``, or ``learned``: a beam search from the analytic schedules, over
            more of the space, judged by a cost model that measurements have corrected; CPUs only.
            ``auto``: the learned one's best where its model expects a clear gain. In mode ``tune``,
            both measure other structures before the sizes of the best are tuned.
        existing: what to do with Funcs that have been scheduled already. ``refuse`` them;
            ``keep`` them as they are; ``discard`` their schedules (estimates and bounds stay, and
            `Result.apply` needs the pipeline without them); or ``improve``: discard them, and
            make the schedule that the pipeline came with a candidate of ``top`` and ``tune``,
            named "given", so that the result is never slower than it.
        check: in mode ``oneshot``, let Halide lower the schedule, and take the next one if it
            refuses.
        calibration: use what ``tilewright machine --calibrate`` has measured in the cost model of
            CPUs, and what ``--calibrate-gpu`` has fitted in the time model of GPUs, if anything.
        exact_sizes: make a schedule for the estimated sizes only; it may fail at other sizes, see
            `Result.requirements`. By default a schedule is correct at every size that the
            pipeline allows, and as fast at the estimated ones.

    Raises:
        TilewrightError: a count is not positive, or a word is not one of those above.
    """

    k: int | None = None
    evaluations: int = EVALUATIONS
    fusion: Fusion = "nested"
    objective: Objective = "time"
    scheduler: Scheduler = "analytic"
    existing: Existing = "refuse"
    check: bool = True
    calibration: bool = True
    exact_sizes: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if self.k is not None and self.k < 1:
            raise TilewrightError(f"k={self.k}: at least one schedule is needed")
        if self.evaluations < 1:
            raise TilewrightError(f"evaluations={self.evaluations}: at least one is needed")
        for name, kind in (("existing", Existing), ("scheduler", Scheduler)):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise TilewrightError(f"{name}={getattr(self, name)!r}: it is one of {known}")


@dataclass(frozen=True)
class Measuring:
    """How schedules are measured, and where measurements are kept.

    Args:
        inputs: the contents of each input, by name: an array (axis d is dimension d), a ``.npy``
            file, a pair ``(low, high)`` for random contents, or a function of the shape; for a
            scalar its value. By default random, from `seed`.
        seed: the seed of random inputs and of the tuner.
        verify: in modes that measure nothing, build the schedule and compare its answers with
            those of an unscheduled run.
        records: the file of measurements (by default one in the user's cache directory), or open
            `Records`. Recorded candidates are not measured again, unless `remeasure`.
        remeasure: measure recorded candidates again.
    """

    inputs: Mapping[str, Any] | None = None
    seed: int = 0
    verify: bool = False
    records: str | os.PathLike[str] | Records | None = None
    remeasure: bool = False


@dataclass(frozen=True)
class Budget:
    """Limits of a run.

    Args:
        time_limit: seconds for the complete run, None for no limit. At the limit, as on Ctrl-C, the
            best so far is returned.
        jobs: number of parallel builds; by default one per core.
        candidate_time: seconds that one candidate may use.
        candidate_memory: bytes that one candidate may use.
    """

    time_limit: float | None = None
    jobs: int | None = None
    candidate_time: float = CANDIDATE_SECONDS
    candidate_memory: int = CANDIDATE_BYTES


class CommonOptions(TypedDict, total=False):
    """Fields of the groups as keyword arguments of `compare`."""

    k: int | None
    fusion: Fusion
    objective: Objective
    existing: Existing
    calibration: bool
    inputs: Mapping[str, Any] | None
    seed: int
    records: str | os.PathLike[str] | Records | None
    remeasure: bool
    time_limit: float | None
    jobs: int | None
    candidate_time: float
    candidate_memory: int
    # Short forms of `existing`.
    keep_schedule: bool
    discard_schedule: bool


class ScheduleOptions(CommonOptions, total=False):
    """Fields of the groups as keyword arguments of `schedule`."""

    evaluations: int
    scheduler: Scheduler
    check: bool
    exact_sizes: bool
    verify: bool
    improve: bool  # short for ``existing="improve"``


class Groups(NamedTuple):
    """All arguments, in their groups."""

    planning: Planning
    measuring: Measuring
    budget: Budget


G = TypeVar("G", Planning, Measuring, Budget)


def grouped(
    function: str,
    planning: Planning | None,
    measuring: Measuring | None,
    budget: Budget | None,
    options: Mapping[str, Any],
    known: Collection[str],
) -> Groups:
    """Merge keyword arguments into the groups; they take precedence.

    Args:
        function: the name of the called function, for messages.
        planning: the group, None for its defaults.
        measuring: the group, None for its defaults.
        budget: the group, None for its defaults.
        options: the keyword arguments.
        known: the accepted names.

    Raises:
        TypeError: an option is unknown.
        TilewrightError: values contradict each other or are invalid.
    """
    for name in options:
        if name not in known:
            near = get_close_matches(name, list(known), 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")
    given = dict(options)
    existing = _short_forms(given)
    if existing is not None:
        given.setdefault("existing", existing)
    return Groups(
        _with(planning or Planning(), given),
        _with(measuring or Measuring(), given),
        _with(budget or Budget(), given),
    )


def _with(group: G, given: Mapping[str, Any]) -> G:
    """Return the group with its fields from `given` replaced."""
    own = {field.name for field in fields(group)} & given.keys()
    return replace(group, **{name: given[name] for name in own})


def _short_forms(given: dict[str, Any]) -> Existing | None:
    """Remove the short forms of `existing` from `given`; return the value that they stand for."""
    keep, discard, improve = (
        given.pop(name, False) for name in ("keep_schedule", "discard_schedule", "improve")
    )
    if keep and improve:
        raise TilewrightError(IMPROVE)
    if keep and discard:
        raise TilewrightError("a schedule is kept or discarded: give one of the two")
    if improve:
        return "improve"
    return "keep" if keep else "discard" if discard else None
