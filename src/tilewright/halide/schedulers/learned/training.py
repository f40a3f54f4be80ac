"""Adapts the learned model to recorded measurements: ``tilewright train``.

The coefficients of the linear model are fitted again to all schedules of given pipelines that the
records have for this machine; without evidence, they stay those of the shipped model. The
correction stays as well: it needs far more labels. Whether the model has gained is measured on
schedules that were left out.

| symbol | meaning | shape, unit |
|---|---|---|
| N, K | recorded schedules; terms of `term_counts.TERMS` | count |
| `terms` | the terms of each schedule | (N, K), cycles |
| `times` | logarithms of measured seconds | (N,) |
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError
from tilewright.halide.ir.json import from_data
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.schedule import ScheduleError
from tilewright.halide.schedulers.analytic.cpu.families import calibrated
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.learned.cost_model import ADAPTED, LearnedModel, shipped
from tilewright.halide.schedulers.learned.evaluation import Evaluator
from tilewright.halide.schedulers.learned.linear_model import fitted_coefficients
from tilewright.halide.schedulers.learned.shrinkage import misordering
from tilewright.halide.schedulers.learned.term_counts import TERM_COUNT, TERMS
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import Task
from tilewright.machines import CpuMachine, machine_to_dict
from tilewright.records import MeasurementRecord, Records

Array: TypeAlias = npt.NDArray[np.float64]
# The fewest schedules, of all pipelines together, that a model is fitted to.
FEWEST = 20
FOLDS = 5
FEW = (
    "the records have {0} measured schedules of these pipelines for this machine, and training "
    "needs {1}: measure more with  tilewright schedule PIPELINE --mode tune --scheduler learned"
)


@dataclass(frozen=True, eq=False)
class Labels:
    """Recorded schedules of one pipeline: what was measured, and what the models say.

    `prior` has the logarithms of the analytic model's seconds, and `corrections` those that the
    correction adds, both of shape (N,).
    """

    name: str
    terms: Array
    times: Array
    prior: Array
    corrections: Array


@dataclass(frozen=True)
class TrainedModel:
    """A model, and how well it ranks schedules that it was not fitted to.

    Attributes:
        model: the adapted model.
        schedules: recorded schedules by pipeline.
        misordered_before: share of the differences in time between two schedules of a pipeline that
            the model before orders wrongly, as a mean over pipelines (0 to 1; a random order: 0.5).
        misordered: the same for the adapted model, each schedule by a fit without it.
    """

    model: LearnedModel
    schedules: Mapping[str, int]
    misordered_before: float
    misordered: float

    @property
    def better(self) -> bool:
        """Whether the adapted model orders left-out schedules better."""
        return self.misordered < self.misordered_before


def train(
    tasks: Mapping[str, Task], records: Records, *, start: LearnedModel | None = None, seed: int = 0
) -> TrainedModel:
    """Adapt a model to the recorded schedules of pipelines.

    Args:
        tasks: the pipelines by name, for a CPU target and their machine.
        records: the measurements.
        start: the model to adapt, by default the shipped one.
        seed: which schedules are left out together.

    Raises:
        TilewrightError: a task is for a GPU, or fewer than `FEWEST` schedules are recorded.
    """
    model = start or shipped()
    found = [labels_of(name, task, records, model) for name, task in tasks.items()]
    found = [labels for labels in found if len(labels.times) > 1]
    count = sum(len(labels.times) for labels in found)
    if count < FEWEST:
        raise TilewrightError(FEW.format(count, FEWEST))
    groups = [labels.name for labels in found for _ in labels.times]
    terms = np.concatenate([labels.terms for labels in found])
    times = np.concatenate([labels.times for labels in found])
    before = np.array([model.coefficients.get(term.name, 1.0) for term in TERMS])
    reference = model.reference or dict(zip((t.name for t in TERMS), before.tolist(), strict=True))
    was = np.log(terms @ np.array([reference[term.name] for term in TERMS]))
    left_out = np.zeros(count)
    fold = np.random.default_rng(seed).permutation(count) % FOLDS
    for each in range(FOLDS):
        used = fold != each
        of = [group for group, keep in zip(groups, used, strict=True) if keep]
        coefficients = fitted_coefficients(terms[used], times[used], of, before)
        left_out[~used] = np.log(terms[~used] @ coefficients)
    whole = fitted_coefficients(terms, times, groups, before)
    names = [term.name for term in TERMS]
    machines = [machine_to_dict(task.machine) for task in tasks.values() if task.machine]
    adapted = replace(
        model,
        coefficients=dict(zip(names, whole.tolist(), strict=True)),
        reference=reference,
        provenance={
            "date": datetime.date.today().isoformat(),
            "machine": machines[0] if machines else None,
            "versions": {"halide": importlib.metadata.version("halide")},
            "seed": seed,
            "pipelines": sorted(tasks),
            "labels": count,
            "adapted_from": dict(model.provenance),
        },
    )
    return TrainedModel(
        adapted,
        {labels.name: len(labels.times) for labels in found},
        _misordered(found, np.log(terms @ before) - was),
        _misordered(found, left_out - was),
    )


def _misordered(found: Sequence[Labels], changes: Array) -> float:
    """Return the mean over pipelines of `misordering` by the complete model, 0 to 1.

    `changes` are the differences between the logarithms of the adapted linear model's times and of
    those that the correction was fitted with.
    """
    shares, at = [], 0
    for labels in found:
        own = changes[at : at + len(labels.times)]
        at += len(own)
        costs = labels.prior + ADAPTED * own + labels.corrections
        if np.ptp(labels.times) > 0.0:
            shares.append(misordering(costs, labels.times))
    return float(np.mean(shares)) if shares else 0.5


def labels_of(name: str, task: Task, records: Records, model: LearnedModel) -> Labels:
    """Return the recorded schedules of a pipeline on this machine.

    Raises `TilewrightError` if the task is not for a CPU.
    """
    if task.gpu or not isinstance(task.machine, CpuMachine):
        raise TilewrightError(f"{name}: training is for CPUs, and the target is {task.target!r}")
    machine, constants = calibrated(task.machine, task.calibration)
    cpu = model_of(machine, constants)
    evaluator = Evaluator(task.algorithm, cpu)
    terms, times, priors, corrections = [], [], [], []
    analytic = evaluator.row(exact_size(plan(task, shared=False)[0].schedule), cpu.clock_hz)
    for record in _measured(task, records):
        try:
            schedule = exact_size(from_data(record.configuration["schedule"], task.algorithm))
        except (ScheduleError, TilewrightError):
            continue  # of another version of the format or of the pipeline
        prior, seen = evaluator.prior(schedule), evaluator.features(schedule)
        if prior is None or seen is None:
            continue
        terms.append(seen.terms[0])
        times.append(math.log(record.measurement.median))
        priors.append(math.log(prior.seconds))
        row = prior.with_features(seen, cpu.clock_hz)
        corrections.append(model.correction(row, analytic)[0])
    return Labels(
        name,
        np.array(terms).reshape(-1, TERM_COUNT),
        np.array(times),
        np.array(priors),
        np.array(corrections),
    )


def _measured(task: Task, records: Records) -> list[MeasurementRecord]:
    """Return the best record of each schedule of a pipeline, of this machine and its target."""
    from tilewright.halide.execution.session import machine_key

    prefix = f"halide/{task.algorithm.digest[:32]}/"
    machine = machine_key(task.target)
    least: dict[Any, MeasurementRecord] = {}
    for problem in records.problems():
        if not problem.startswith(prefix):
            continue
        for record in records.query(problem, machine=machine, status="ok", unreadable=[]):
            data = record.configuration.get("schedule")
            if data is None or record.configuration.get("env") or not record.measurement.times:
                continue
            key = repr(data)
            if key not in least or record.measurement.median < least[key].measurement.median:
                least[key] = record
    return list(least.values())
