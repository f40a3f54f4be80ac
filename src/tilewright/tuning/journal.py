"""Trials in the records: stored before the next decision, and restored by the next run."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from tilewright import __version__
from tilewright.measure import Measurement, machine_id
from tilewright.records import MeasurementRecord, Records, digest
from tilewright.tuning.bayes.warm import WarmStart
from tilewright.tuning.errors import SpaceError
from tilewright.tuning.space.expressions import Constraint
from tilewright.tuning.space.json import space_to_dict
from tilewright.tuning.space.space import Configuration, Space
from tilewright.tuning.trial import Trial, plain
from tilewright.tuning.tune import Journal


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


def warm_start(records: Records, name: str, *, but: RecordsJournal, queued: int = 3) -> WarmStart:
    """Return a warm start from the records of the problems called ``name``: any size, any machine.

    Objectives of different sizes and machines are not comparable, so each earlier run's are taken
    relative to its best (by rank, if they are not all positive). The trials of the run ``but`` are
    left out; a trial that was cut short counts with the value that it reported.
    """
    runs: dict[tuple[str, str, int], list[Trial]] = {}
    for record in records.query():
        source = (record.problem, str(record.machine), record.context.get("seed", 0))
        own = (but.problem, str(but.machine), but.seed)
        named = record.problem.startswith(f"tuning/{name}/") and "trial" in record.context
        if named and source != own:
            runs.setdefault(source, []).append(Trial.from_json(record.context["trial"]))
    pairs: list[tuple[Configuration, float | None]] = []
    for trials in runs.values():
        order = sorted(t.value for t in trials if t.ok)
        for t in trials:
            value: float | None = None
            if t.ok and order[0] > 0:
                value = t.value / order[0]
            elif t.ok:
                value = 1 + order.index(t.value) / len(order)
            pairs.append((t.configuration, value))
    return WarmStart(pairs, queued)


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
