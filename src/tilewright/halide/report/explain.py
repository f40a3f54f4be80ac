"""Convert a planned schedule to the plain data of a report: graph, groups, loop nest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.halide.analysis.loop_nest import loop_nest
from tilewright.halide.analysis.paths import inlined
from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.ir.variants import running_at
from tilewright.report import (
    Attempt,
    Bar,
    Dag,
    GraphNode,
    GroupRow,
    NestLine,
    ScheduleReport,
    SizeRow,
)


def schedule_report(
    algorithm: Algorithm,
    planned: PlannedSchedule,
    *,
    pipeline: str,
    machine: str = "",
    mode: str = "",
    verified: bool | None = None,
    seconds: float | None = None,
    naive_seconds: float | None = None,
    attempts: Sequence[Attempt] = (),
    sizes: Sequence[SizeRow] = (),
    comparison: Sequence[Bar] = (),
    notes: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
) -> ScheduleReport:
    """Return the report on a schedule, as plain data.

    `verified` is None if the schedule was not run. `seconds` and `naive_seconds` are the median
    times of the schedule and of the naive one. Other arguments are those of `ScheduleReport`.
    """
    from tilewright.halide.emit.printing import to_cpp, to_python

    algorithm = with_clones(algorithm, planned.schedule.clones)
    timed = planned.seconds is not None
    return ScheduleReport(
        pipeline=pipeline,
        target=planned.schedule.target,
        machine=machine,
        mode=mode,
        verified=verified,
        seconds=seconds,
        naive_seconds=naive_seconds,
        predicted=planned.seconds,
        groups=tuple(group_row(group, timed) for group in planned.groups),
        predicted_unit="s" if timed else "cost",
        dag=pipeline_dag(algorithm, planned.schedule, planned.groups),
        nest=_nest(algorithm, planned),
        attempts=tuple(attempts),
        sizes=tuple(sizes),
        comparison=tuple(comparison),
        python=to_python(planned.schedule, algorithm),
        cpp=to_cpp(planned.schedule, algorithm),
        notes=(*planned.notes, *notes),
        facts=facts or {},
    )


def _nest(algorithm: Algorithm, planned: PlannedSchedule) -> tuple[NestLine, ...]:
    """Return the lines of the loop nest; empty if its sizes cannot be determined."""
    try:
        return loop_nest(
            algorithm, running_at(planned.schedule, algorithm), group_of(algorithm, planned)
        )
    except UNKNOWN:
        return ()


def group_row(group: GroupReport, timed: bool) -> GroupRow:
    """Return the table row of a group; the prediction is a time if `timed`, else a cost."""
    names = [readable(loop) for loop in group.loops]
    return GroupRow(
        name=group.output,
        funcs=group.funcs,
        tile=tuple(zip(names, group.tile, strict=False)),  # empty if not costed
        blocks=_launch(group.blocks),
        threads=_launch(group.threads),
        parallel=group.parallel_tasks or None,
        vector=group.vector_width or None,
        shared_bytes=group.shared_bytes or None,
        occupancy=group.occupancy or None,
        occupancy_limit=group.occupancy_limit,
        predicted=group.seconds if timed else _finite(group.cost),
        limit=group.limit,
        note="; ".join(group.notes),
    )


def _launch(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a launch without trailing ones."""
    kept = len(extents)
    while kept > 1 and extents[kept - 1] == 1:
        kept -= 1
    return extents[:kept]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def group_of(algorithm: Algorithm, planned: PlannedSchedule) -> dict[str, int]:
    """Return the index of each Func's group; an inlined Func has the first group of its readers."""
    algorithm = with_clones(algorithm, planned.schedule.clones)
    groups = {name: i for i, group in enumerate(planned.groups) for name in group.funcs}
    for func in reversed(algorithm.funcs):
        if func.name not in groups:
            readers = [groups[c] for c in algorithm.consumers[func.name] if c in groups]
            if readers:
                groups[func.name] = min(readers)
    return groups


def pipeline_dag(algorithm: Algorithm, schedule: Schedule, groups: Sequence[GroupReport]) -> Dag:
    """Return the graph of the pipeline: its inputs, Funcs, and which of them each Func reads."""
    algorithm = with_clones(algorithm, schedule.clones)
    planned = PlannedSchedule(schedule, tuple(groups), 0.0)
    member = group_of(algorithm, planned)
    gone = inlined(schedule, algorithm)
    inputs = [p.name for p in algorithm.parameters if p.is_buffer]
    nodes = [GraphNode(name, "input") for name in inputs]
    edges: list[tuple[str, str]] = []
    for i, func in enumerate(algorithm.funcs):
        stages = "" if len(func.stages) < 2 else f", {len(func.stages)} stages"
        types = ", ".join(map(str, func.types))
        nodes.append(
            GraphNode(
                func.name,
                "output" if func.name in algorithm.outputs else "func",
                member.get(func.name),
                inlined=i in gone,
                detail=f"{types} over {', '.join(map(readable, func.args)) or 'nothing'}{stages}",
            )
        )
        edges += [(producer, func.name) for producer in algorithm.producers[func.name]]
        edges += [
            (call.name, func.name)
            for stage in func.stages
            for call in stage.calls
            if call.kind == "image" and call.name in inputs
        ]
        if func.extern is not None:
            edges += [(name, func.name) for name in func.extern.reads if name in inputs]
    return Dag(tuple(nodes), tuple(dict.fromkeys(edges)))
