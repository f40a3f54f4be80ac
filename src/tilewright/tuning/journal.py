"""Trials in the records: stored before the next decision, and restored by the next run."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tilewright import __version__
from tilewright.measure import Measurement, machine_id
from tilewright.records import MeasurementRecord, Records, digest
from tilewright.tuning.bayes.warm import WarmStart
from tilewright.tuning.errors import ConfigurationError, SpaceError
from tilewright.tuning.space.expressions import Constraint
from tilewright.tuning.space.json import space_to_dict
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Trial, plain, unplain
from tilewright.tuning.tune import Journal

# Maximum number of warm starts: each costs a model at every decision.
_MOST_SOURCES = 5


def problem_key(name: str, space: Space, objective: Any = None) -> str:
    """Return the key of a tuning problem in the records: its name, space and objective.

    A constraint given as a callable counts by its name, as its code has no plain form.
    """
    try:
        shape: Any = space_to_dict(space)
    except SpaceError:
        shape = [repr(p) for p in space.parameters]
        shape += [
            c
            if isinstance(c, str)
            else c.text
            if isinstance(c, Constraint)
            else [getattr(c[0], "__qualname__", ""), *c[1]]
            for c in space.constraint_sources
        ]
    return f"tuning/{name}/{digest([shape, objective])[:16]}"


def warm_start(
    records: Records, name: str, *, but: RecordsJournal, queued: int = 1
) -> list[WarmStart]:
    """Return warm starts from the records of the problems called ``name``: any size, any machine.

    There is one per problem and machine, from all its seeds, those with the most evaluations first,
    at most five. The trials of the run ``but`` are left out, and so is everything recorded after
    its first trial, so that a resumed run decides as before. A trial that was cut short counts with
    the value that it reported.
    """
    found = _sources(records, but, lambda r: r.problem.rpartition("/")[0] == f"tuning/{name}")
    return _largest(found.values(), queued)


def _sources(
    records: Records, own: RecordsJournal, wanted: Callable[[MeasurementRecord], bool]
) -> dict[tuple[str, str], list[Trial]]:
    """Return the trials of problems whose first record is wanted, by problem and machine."""
    kept: list[MeasurementRecord] = []
    for problem in sorted(p for p in records.problems() if p.startswith("tuning/")):
        # A damaged record of another run does not end this one.
        found = (r for r in records.query(problem, unreadable=[]) if "trial" in r.context)
        first = next(found, None)
        if first is not None and wanted(first):
            kept += [first, *found]

    def mine(record: MeasurementRecord) -> bool:
        run = record.problem, record.machine, record.context.get("seed")
        return run == (own.problem, own.machine, own.seed)

    ours = records.query(own.problem, unreadable=[]) if own.resume else ()
    begun = min((r.id for r in ours if "trial" in r.context and mine(r)), default=math.inf)
    sources: dict[tuple[str, str], list[Trial]] = {}
    for record in kept:
        if record.id < begun and not mine(record):
            trials = sources.setdefault((record.problem, digest(record.machine)), [])
            trials.append(Trial.from_json(record.context["trial"]))
    return sources


def _largest(sources: Iterable[list[Trial]], queued: int = 1) -> list[WarmStart]:
    """Return warm starts from the sources with the most trials."""
    ranked = sorted(sources, key=len, reverse=True)
    return [WarmStart.of(trials, queued) for trials in ranked[:_MOST_SOURCES]]


def _fits(configuration: Mapping[str, Any], space: Space) -> bool:
    """Return whether a configuration belongs to a space if its constraints are ignored."""
    try:
        space.encode(unplain(configuration))
    except ConfigurationError:
        return False
    return True


class RecordsJournal(Journal):
    """Trials of one problem and seed in a records file.

    Args:
        records: the open store.
        problem: the key of the trials in the records (see `problem_key`).
        seed: the tuner's seed; only trials of the same seed are restored.
        resume: whether to restore earlier trials.

    Raises:
        RecordsError: another run of the same problem and seed uses these records now.
    """

    def __init__(self, records: Records, problem: str, seed: int, *, resume: bool = True) -> None:
        # Two runs with one seed would suggest the same configurations.
        records.claim(f"{problem}, seed {seed}")
        self.records = records
        self.problem = problem
        self.seed = seed
        self.resume = resume
        self.machine = {"id": machine_id()}
        self._versions = {
            "tilewright": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        }

    def load(self) -> list[Trial]:
        """Return the trials of the same seed on this machine, in their order."""
        if not self.resume:
            return []
        found = self.records.query(self.problem, machine=self.machine)
        return [
            Trial.from_json(record.context["trial"])
            for record in found
            if record.context.get("seed") == self.seed and "trial" in record.context
        ]

    def earlier(self, space: Space) -> list[WarmStart]:
        """Return the recorded trials of the same space on other inputs or machines.

        A space is the same if every recorded configuration is one of this space; the name of the
        problem does not matter. Runs of this very problem on this machine are left out, so that
        its seeds stay independent. See `warm_start` for the order and the number.
        """
        found = _sources(self.records, self, lambda r: _fits(r.configuration, space))
        found.pop((self.problem, digest(self.machine)), None)
        same = [t for t in found.values() if all(_fits(x.configuration, space) for x in t)]
        return _largest(same)

    def add(self, trial: Trial) -> None:
        """Append a trial; it is on the disk when this returns."""
        times = tuple(trial.details.get("times", ()))
        measurement = Measurement(
            trial.status,  # type: ignore[arg-type]
            times=times,
            runs=len(times),
            lower_bound=trial.lower_bound,
            message=trial.message,
            details={"values": list(trial.values)},
        )
        context = {"seed": self.seed, "trial": trial.to_json()}
        configuration = plain(trial.configuration)
        self.records.add(
            MeasurementRecord(
                self.problem, configuration, self.machine, self._versions, measurement, context
            )
        )
