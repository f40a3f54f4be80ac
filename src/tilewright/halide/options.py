"""What `tilewright.schedule` and `tilewright.compare` take, in three groups.

`Planning` says which schedules are considered, `Measuring` on what they are measured, and `Budget`
what that may use. Every field can also be given by its own name, and so can the names of earlier
versions: ``schedule(pipeline, k=3, keep_schedule=True)`` is
``schedule(pipeline, planning=Planning(k=3, existing="keep"))``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, get_args

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.registry import Fusion
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
        k: how many schedules to find, all of which are in ``Result.top``; by default one in mode
            ``oneshot`` and 5 else.
        evaluations: how many more schedules mode ``tune`` measures than the planned ones; fewer
            where little is left to gain.
        fusion: on GPUs, how Funcs may be computed inside others' tiles: ``nested`` (Sioutas
            2020, Section 4.3), ``overlapped`` or ``none``.
        existing: what to do with Funcs that have been scheduled already. ``refuse`` them;
            ``keep`` them as they are; ``discard`` their schedules (estimates and bounds stay, and
            `Result.apply` wants the pipeline without them); or ``improve``: discard them, and
            have the schedule that the pipeline came with, named "given", be a candidate of
            ``top`` and ``tune``, so that the result is never slower than it.
        check: in mode ``oneshot``, have Halide lower the schedule, and take the next where it
            refuses.
        calibration: cost CPUs with what ``tilewright machine --calibrate`` measured of them, if
            it did.
        exact_sizes: suit the estimated sizes alone: the schedule may then fail at others, as
            `Result.requirements` says. By default it is right at every size that the pipeline
            allows, and as fast at the estimated ones.

    Raises:
        TilewrightError: a count is not positive, or a word is not one of those above.
    """

    k: int | None = None
    evaluations: int = EVALUATIONS
    fusion: Fusion = "nested"
    existing: Existing = "refuse"
    check: bool = True
    calibration: bool = True
    exact_sizes: bool = False

    def __post_init__(self) -> None:
        """Check what types do not say."""
        if self.k is not None and self.k < 1:
            raise TilewrightError(f"k={self.k}: at least one schedule is needed")
        if self.evaluations < 1:
            raise TilewrightError(f"evaluations={self.evaluations}: at least one is needed")
        if self.existing not in get_args(Existing):
            known = ", ".join(get_args(Existing))
            raise TilewrightError(f"existing={self.existing!r}: it is one of {known}")


@dataclass(frozen=True)
class Measuring:
    """On what schedules are measured, and where measurements are kept.

    Args:
        inputs: what to measure on, by input: an array (axis d is dimension d), a ``.npy`` file, a
            pair ``(low, high)`` of random contents, or a function of the shape; scalars by value.
            By default random, from `seed`.
        seed: of random inputs, and of the tuner.
        verify: in modes that measure nothing, build the schedule and compare its answers with
            those of an unscheduled run.
        records: the file in which measurements are kept (by default one in the user's cache), or
            the open `Records`. What is there is not measured again, unless `remeasure`.
        remeasure: measure again what the records know.
    """

    inputs: Mapping[str, Any] | None = None
    seed: int = 0
    verify: bool = False
    records: str | os.PathLike[str] | Records | None = None
    remeasure: bool = False


@dataclass(frozen=True)
class Budget:
    """What a run may use.

    Args:
        time_limit: seconds for everything, None for no limit. The best so far is returned then,
            as it is on Ctrl-C.
        jobs: builds at a time; by default one per core.
        candidate_time: seconds that one candidate may use.
        candidate_memory: bytes that one candidate may use.
    """

    time_limit: float | None = None
    jobs: int | None = None
    candidate_time: float = CANDIDATE_SECONDS
    candidate_memory: int = CANDIDATE_BYTES


class CommonOptions(TypedDict, total=False):
    """Fields of the groups by their own names, as `compare` takes them."""

    k: int | None
    fusion: Fusion
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
    # Of earlier versions, in place of `existing`.
    keep_schedule: bool
    discard_schedule: bool


class ScheduleOptions(CommonOptions, total=False):
    """Fields of the groups by their own names, as `schedule` takes them."""

    evaluations: int
    check: bool
    exact_sizes: bool
    verify: bool
    improve: bool  # of earlier versions, in place of ``existing="improve"``


class Groups(NamedTuple):
    """All that may be given, in its groups."""

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
    """Return the groups with what was given by its own name, which goes before what a group says.

    Args:
        function: what the options were given to, for messages.
        planning: a group, None for its defaults; so are the next two.
        measuring: see `planning`.
        budget: see `planning`.
        options: what was given by name.
        known: the names that may be given.

    Raises:
        TypeError: an option that there is not.
        TilewrightError: values that do not go together, or make no sense.
    """
    for name in options:
        if name not in known:
            near = get_close_matches(name, list(known), 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")
    given = dict(options)
    existing = _earlier(given)
    if existing is not None:
        given.setdefault("existing", existing)
    return Groups(
        _with(planning or Planning(), given),
        _with(measuring or Measuring(), given),
        _with(budget or Budget(), given),
    )


def _with(group: G, given: Mapping[str, Any]) -> G:
    """Return the group with what was given of its fields."""
    own = {field.name for field in fields(group)} & given.keys()
    return replace(group, **{name: given[name] for name in own})


def _earlier(given: dict[str, Any]) -> Existing | None:
    """Remove ``keep_schedule``, ``discard_schedule`` and ``improve`` from `given`; return both."""
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
