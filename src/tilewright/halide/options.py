"""Arguments of `tilewright.schedule` and `tilewright.compare`, in three groups.

`Planning` selects the schedules to consider, `Measuring` says how they are measured, and `Budget`
sets limits. All fields are also accepted as keyword arguments, and `existing` in three short forms:
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
from tilewright.halide.schedulers.registry import Fusion, Objective, Scheduler, Search
from tilewright.records import Records

Mode = Literal["oneshot", "top", "tune", "given"]
Existing = Literal["refuse", "keep", "discard", "improve"]
TOP_K = 5  # default number of schedules to measure
TUNED_K = 10  # default number to measure on a CPU before others are derived from them
EVALUATIONS = 60
CANDIDATE_SECONDS = 120.0
CANDIDATE_BYTES = 8 << 30
IMPROVE = (
    "improving a schedule requires measurements: give mode='top' or 'tune', and leave out "
    "keep_schedule"
)


@dataclass(frozen=True)
class Planning:
    """The schedules to consider.

    Args:
        k: the number of schedules to find, all returned by ``Result.top``; by default 1 in mode
            ``oneshot``, 10 in mode ``tune`` on a CPU, and 5 otherwise.
        evaluations: the number of schedules that mode ``tune`` measures in addition to the
            planned ones; it stops earlier if little gain is expected.
        fusion: on GPUs, how Funcs may be computed within the tiles of others: ``nested`` (Sioutas
            2020, Section 4.3), ``overlapped`` or ``none``.
        objective: on GPUs, what the search minimises: the predicted ``time``, or the cost in
            Sioutas 2020 (``sioutas``).
        scheduler: ``analytic``; ``learned``: a beam search from the analytic schedules over a
            larger space, with a cost model corrected by measurements (for CUDA, a search by the
            released model of Anderson 2021); or ``auto``, for CPUs only:
            the best analytic schedule, unless the learned model expects a clear gain. On CPUs, all
            but one of several schedules are the analytic scheduler's, which differ more. In mode
            ``tune`` on CPUs, ``learned`` and ``auto`` also measure other structures before tuning;
            on GPUs, all of them do.
        search: with ``scheduler="learned"`` for CUDA: our own search (``tilewright``), the search
            of Anderson 2021 as published (``published``: a beam search and 79 greedy samples), or
            the same with fewer samples (``published-quick``).
        model: a file of ``tilewright train`` with the cost model of ``learned`` and ``auto`` on
            CPUs; by default the one that comes with the package.
        existing: how to treat Funcs that are already scheduled. ``refuse``: raise an error.
            ``keep``: do not change them. ``discard``: remove their schedules; estimates and
            bounds stay, and `Result.apply` needs the pipeline without schedules. ``improve``:
            like ``discard``, and the schedule that the pipeline came with is a candidate, named
            "given", of ``top`` and ``tune``: the result is never slower than it.
        check: in mode ``oneshot``, let Halide lower the schedule; if it refuses, try the next
            one. In mode ``top`` for CUDA, leave out schedules that spill registers, if there is a
            ``ptxas``.
        calibration: use the measurements of ``tilewright machine --calibrate`` in the cost model
            of CPUs and the constants of ``--calibrate-gpu`` in the time model of GPUs, if there
            are any.
        exact_sizes: plan for the estimated sizes only; the schedule may fail at other sizes (see
            `Result.requirements`). By default a schedule is correct at all sizes that the
            pipeline allows, and equally fast at the estimated ones.

    Raises:
        TilewrightError: a count is not positive, or a choice is unknown.
    """

    k: int | None = None
    evaluations: int = EVALUATIONS
    fusion: Fusion = "nested"
    objective: Objective = "time"
    scheduler: Scheduler = "analytic"
    search: Search = "tilewright"
    model: str | os.PathLike[str] | None = None
    existing: Existing = "refuse"
    check: bool = True
    calibration: bool = True
    exact_sizes: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if self.k is not None and self.k < 1:
            raise TilewrightError(f"k={self.k}: give a positive number of schedules")
        if self.evaluations < 1:
            raise TilewrightError(f"evaluations={self.evaluations}: give a positive number")
        if self.model is not None and self.scheduler == "analytic":
            raise TilewrightError(
                f"model={os.fspath(self.model)!r} is for the learned scheduler: add "
                "scheduler='learned' or 'auto'"
            )
        kinds = (("existing", Existing), ("scheduler", Scheduler), ("search", Search))
        for name, kind in kinds:
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise TilewrightError(
                    f"{name}={getattr(self, name)!r} is unknown: use one of {known}"
                )
        if self.search != "tilewright" and self.scheduler != "learned":
            raise TilewrightError(
                f"search={self.search!r} is for the learned scheduler on CUDA: add "
                "scheduler='learned'"
            )


@dataclass(frozen=True)
class Measuring:
    """How schedules are measured and where measurements are stored.

    Args:
        inputs: the contents of inputs by name: an array (axis d is dimension d), a ``.npy`` file,
            a range ``(low, high)`` of random contents, or a function that takes the shape and
            returns an array; for a scalar, its value. By default random, from `seed`.
        seed: the seed of random inputs and of the tuner.
        verify: in modes without measurements, build the schedule, and compare its answers with a
            plain run of the pipeline.
        records: the file of measurements, by default in the user's cache directory, or open
            `Records`. Recorded candidates are not measured again.
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
        time_limit: seconds for the complete run; None: no limit. At the limit, and on Ctrl-C, the
            best schedule so far is returned.
        jobs: the number of parallel builds; by default one per core.
        candidate_time: seconds to build one candidate; half of that (10 s at least) to run it.
        candidate_memory: bytes of memory per candidate.
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
    search: Search
    model: str | os.PathLike[str]
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
    """Remove the short forms of `existing` from `given` and return the equivalent value.

    Raises:
        TilewrightError: Two short forms contradict each other.
    """
    keep, discard, improve = (
        given.pop(name, False) for name in ("keep_schedule", "discard_schedule", "improve")
    )
    if keep and improve:
        raise TilewrightError(IMPROVE)
    if keep and discard:
        raise TilewrightError("give only one of keep_schedule and discard_schedule")
    if improve:
        return "improve"
    return "keep" if keep else "discard" if discard else None
