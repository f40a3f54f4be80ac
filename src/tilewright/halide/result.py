"""The result of `tilewright.schedule`: a schedule to apply, print and explain."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tilewright.files import write_text
from tilewright.halide.execution.session import versions
from tilewright.halide.frontend.extents import extents_text
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import conditions_text
from tilewright.halide.legality.sizes import Requirement, requirements
from tilewright.halide.report.distinctions import distinctions
from tilewright.halide.schedulers.given import GIVEN
from tilewright.halide.schedulers.prediction import with_prediction
from tilewright.halide.schedulers.task import Task
from tilewright.halide.search.top_k import Outcome, Tried, key_of
from tilewright.measure import Measurement, ratio_interval
from tilewright.report import Attempt, Bar, ScheduleReport, SizeRow, units


@dataclass(frozen=True)
class Result:
    """A schedule for a pipeline, with its measurements.

    For several sizes, all figures except `at_sizes` are those at the largest size.

    Attributes:
        task: the pipeline, its machine and target.
        planned: the chosen schedule with the model's predictions.
        mode: the mode of the search.
        verified: whether its answers were right; None if it was not run.
        measurement: its measurement; None if it was not run.
        naive: the measurement of the naive schedule in the same final rounds, if any.
        tried: all planned schedules in the model's order.
        notes: notes on the search for the report.
        group_seconds: the measured time of each group.
        comparison: the times of other authors' schedules (`tilewright.compare`).
        at_sizes: for several sizes, the measurements at each, largest first.
        facts: further facts for the report, by name.
    """

    task: Task = field(repr=False)
    planned: PlannedSchedule = field(repr=False)
    mode: str = "oneshot"
    verified: bool | None = None
    measurement: Measurement | None = field(default=None, repr=False)
    naive: Measurement | None = field(default=None, repr=False)
    tried: tuple[Tried, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    group_seconds: tuple[float | None, ...] = field(default=(), repr=False)
    comparison: tuple[Bar, ...] = field(default=(), repr=False)
    at_sizes: tuple[Measurement, ...] = field(default=(), repr=False)
    facts: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def schedule(self) -> Schedule:
        """The chosen schedule as data."""
        return self.planned.schedule

    @property
    def seconds(self) -> float | None:
        """Median time of a run in seconds; None if it was not measured."""
        measured = self.measurement
        return measured.median if measured is not None and measured.ok and measured.times else None

    @cached_property
    def predicted(self) -> float | None:
        """The predicted time of a run in seconds; None if there is no prediction."""
        return with_prediction(self.planned, self.task).seconds

    @property
    def speedup(self) -> float | None:
        """The speedup over the naive schedule; None if either was not measured."""
        if self.naive is None or not self.naive.ok or not self.seconds:
            return None
        return self.naive.median / self.seconds

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """The schedule's requirements on sizes; empty if it is correct at all sizes."""
        found = requirements(self.schedule, self.task.algorithm)
        if self.planned.name != GIVEN:
            return found
        cure = "with GuardWithIf as that split's tail it may be of any size"
        return tuple(replace(need, cure=cure) for need in found)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements of all schedules that were run, and failures, in the model's order."""
        return tuple(t.measurement for t in self.tried if t.measurement is not None)

    def top(self, k: int | None = None) -> list[Result]:
        """Return the best `k` schedules (all by default), each as a `Result`, best first.

        Measured schedules come first, ordered by time; then unmeasured ones in the model's order.
        Failed schedules are omitted.
        """
        ranked = [t for t in Outcome(self.tried).ranking if t.measurement is None or t.ok]
        results = [
            replace(
                self,
                planned=t.planned,
                measurement=t.measurement,
                verified=t.measurement.verified if t.measurement is not None else None,
                naive=self.naive if t.final else None,
                notes=(t.note,) if t.note else (),
                group_seconds=(),
                comparison=(),
                at_sizes=t.sizes if t.others else (),
            )
            for t in ranked
        ]
        return results[:k]

    def apply(self, pipeline: Any) -> None:
        """Apply the schedule to the original pipeline, or to the same pipeline built again.

        `pipeline` is a ``halide.Func``, a list of Funcs, or a ``halide.Pipeline``, without a
        schedule. Raises `ScheduleError` if it is a different pipeline.
        """
        from tilewright.halide.emit.apply import apply
        from tilewright.halide.frontend.live import to_pipeline

        apply(self.schedule, self.task.algorithm, to_pipeline(pipeline))

    def to_python(self, name: str = "schedule", runtime_checks: bool = False) -> str:
        """Return a Python module with a function `name` that schedules a fresh pipeline.

        A comment lists the `requirements`. With `runtime_checks`, the module also has a function
        ``NAME_refuses``, which checks at run time whether outputs have the required sizes.
        """
        from tilewright.halide.emit.printing import to_python

        needs = self.requirements
        return to_python(self.schedule, self.task.algorithm, name, needs, runtime_checks)

    def to_cpp(self, name: str = "schedule", runtime_checks: bool = False) -> str:
        """Return a C++ header with a function `name` that schedules a fresh ``Halide::Pipeline``.

        `runtime_checks` is as for `to_python`.
        """
        from tilewright.halide.emit.printing import to_cpp

        needs = self.requirements
        return to_cpp(self.schedule, self.task.algorithm, name, needs, runtime_checks)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the schedule as JSON text, which `tilewright.halide.ir.json` reads back."""
        from tilewright.halide.ir.json import to_json

        return to_json(self.schedule, indent)

    def explain(self) -> str:
        """Return plain text: times, speedup, and a table with one row per group of Funcs."""
        from tilewright.report.text import explain

        return explain(self.report())

    def _repr_html_(self) -> str:
        from tilewright.halide.report.notebook import report_html

        return report_html(self.report())

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Write the report as an HTML page.

        Raises:
            TilewrightError: the file cannot be written.
        """
        from tilewright.report.pages import schedule_page

        write_text(path, schedule_page(self.report()))

    def report(self) -> ScheduleReport:
        """Return the report as data."""
        from tilewright.halide.report.explain import schedule_report

        report = schedule_report(
            self.task.algorithm,
            with_prediction(self.planned, self.task),
            pipeline=self.task.name,
            machine=self.task.machine_text,
            mode=self.mode,
            verified=self.verified,
            seconds=self.seconds,
            naive_seconds=self.naive.median if self.naive is not None and self.naive.ok else None,
            attempts=self._attempts(),
            sizes=self._sizes(),
            comparison=self.comparison,
            notes=(*self.notes, *self._runner_up(), *self._cautions()),
            facts={**self._facts(), **self.facts},
        )
        report = replace(report, speedup_interval=self._speedup_interval())
        if self.group_seconds:
            rows = tuple(
                replace(row, measured=seconds)
                for row, seconds in zip(report.groups, self.group_seconds, strict=True)
            )
            report = replace(report, groups=rows)
        return report

    def _speedup_interval(self) -> tuple[float, float] | None:
        """Return the interval of the speedup, paired by round; None if either is not measured."""
        if self.speedup is None or self.naive is None or self.measurement is None:
            return None
        # A slow naive schedule is measured only in the first rounds.
        rounds = min(len(self.naive.times), len(self.measurement.times))
        ratio = ratio_interval(self.naive.times[:rounds], self.measurement.times[:rounds])
        return ratio.low, ratio.high

    def _sizes(self) -> tuple[SizeRow, ...]:
        """Return one row per size of a schedule for several sizes, else none."""
        algorithm = with_clones(self.task.algorithm, self.schedule.clones)
        found = []
        for i, size in enumerate(self.planned.sizes):
            measured = self.at_sizes[i] if i < len(self.at_sizes) else None
            found.append(
                SizeRow(
                    extents_text(self.task.sizes[i]),
                    conditions_text(size.conditions, algorithm) or "all other sizes",
                    size.seconds,
                    measured.median if measured is not None and measured.ok else None,
                )
            )
        return tuple(found)

    def _attempts(self) -> tuple[Attempt, ...]:
        if not any(t.measurement is not None for t in self.tried):
            return ()
        differ = distinctions([t.planned for t in self.tried])
        return tuple(
            Attempt(
                key_of(t),
                t.measurement.status if t.measurement is not None else "not tried",
                predicted=with_prediction(t.planned, self.task).seconds,
                measured=t.seconds,
                note=t.note,
                source=t.source,
                chosen=t.planned is self.planned,
                differs=text,
                cut_short=t.cut_short,
            )
            for t, text in zip(self.tried, differ, strict=True)
        )

    def _runner_up(self) -> tuple[str, ...]:
        """Return a note on the second-best schedule of a one-shot search, if it is known."""
        second = self.planned.runner_up
        if second is None or self.mode != "oneshot":
            return ()
        return (f"Runner-up, predicted {units.seconds(second.seconds)}: {second.difference}.",)

    def _cautions(self) -> tuple[str, ...]:
        outputs = [str(r) for r in self.requirements if r.on != "input"]
        beyond = [r for r in self.requirements if r.on == "input"]
        if beyond and self.verified is None:
            outputs.append(
                "At sizes that are not multiples of its tiles, this schedule may read inputs "
                "outside the region that the unscheduled pipeline requires."
            )
        return tuple(outputs)

    def _facts(self) -> dict[str, str]:
        sizes = []
        for name in self.task.algorithm.outputs:
            func = self.task.algorithm.by_name[name]
            spans = [func.estimates[arg].extent for arg in func.args if arg in func.estimates]
            sizes.append(" ".join([readable(name), "x".join(map(str, spans))]).strip())
        if self.task.smaller:
            sizes = [extents_text(algorithm) for algorithm in self.task.sizes]
        facts = {
            "output": "; ".join(sizes) if self.task.smaller else ", ".join(sizes),
            "pipeline": self.task.algorithm.digest[:16],
            "target": self.schedule.target,
            "Halide": versions()["halide"],
        }
        if self.measurement is not None and self.measurement.times:
            spread = f"{100 * self.measurement.spread:.1f}%"
            facts["time per run"] = f"median of {len(self.measurement.times)}, spread {spread}"
        return facts
