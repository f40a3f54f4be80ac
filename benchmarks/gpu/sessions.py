"""A session of a campaign: it measures on the device and keeps records in the campaign's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu.pieces import Setting
from tilewright.halide.execution.session import Session
from tilewright.halide.schedulers.task import Task
from tilewright.halide.search.top_k import limits
from tilewright.measure import Timing
from tilewright.records import Records


@contextmanager
def opened(
    task: Task, setting: Setting, timing: Timing, *, build_seconds: float
) -> Iterator[Session]:
    """Open a session for a program; `build_seconds` is the limit of building one schedule."""
    with (
        Records(setting.out / "records.sqlite") as records,
        Session(
            task.algorithm,
            targets=[task.target],
            records=records,
            machine={"gpu": setting.machine.name, "target": task.target},
            verify=not setting.small,
            limits=limits(build_seconds),
            timing=timing,
            references=setting.reference_folder,
            deadline=setting.deadline,
        ) as session,
    ):
        yield session
