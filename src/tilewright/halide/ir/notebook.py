"""HTML of schedules for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.report.pages import fragment

if TYPE_CHECKING:
    from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule

_HEADINGS = ">Func | computed | stored | loops"


def schedule_html(schedule: Schedule) -> str:
    """Return a table with one row per Func: where it is computed, and its last stage's loops."""
    rows = [
        (str(entry.func), _level(entry.compute), _level(entry.store), _loops(entry))
        for entry in schedule.funcs
    ]
    notes = (
        [f"added Funcs (copies, partial results): {len(schedule.clones)}"]
        if schedule.clones
        else []
    )
    if schedule.variants:
        notes.append(f"sizes with separate loops: {len(schedule.variants)}")
    return fragment(f"Schedule for {schedule.target}", _HEADINGS, rows, notes)


def _level(level: Level) -> str:
    """Return a level in words."""
    return f"at {level.loop} of Func {level.func}" if level.kind == "at" else level.kind


def _loops(entry: FuncSchedule) -> str:
    """Return the last stage's loops, outermost first, each with its mapping unless serial."""
    if not entry.stages:
        return ""
    loops = [
        loop.name if loop.mapping == "serial" else f"{loop.name} ({loop.mapping})"
        for loop in reversed(entry.stages[-1].loops)
    ]
    return ", ".join(loops)
