"""A plan as a Gantt chart, as a page, and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tilewright.mapping.planning import MappingPlan
from tilewright.report import units
from tilewright.report.charts import GanttTask as Box
from tilewright.report.charts import gantt_chart, reflowing
from tilewright.report.pages import Figure, Html, Section, html_page, html_table
from tilewright.report.table import Table, table, to_text

if TYPE_CHECKING:
    from tilewright.mapping.execution import Execution


def gantt(plan: MappingPlan, executed: Execution | None = None) -> Html:
    """Return a row per device, a box per task, a colour per kernel; as planned or as executed."""
    kernels = sorted({t.kernel or t.name for t in plan.graph.tasks})
    kinds = {t.name: kernels.index(t.kernel or t.name) for t in plan.graph.tasks}
    spans: Sequence[tuple[str, str, float, float]] = (
        [(s.task, s.device, s.start, s.end) for s in plan.steps]
        if executed is None
        else [(s.task, s.device, s.start, s.end) for s in executed.steps]
    )
    boxes = [Box(name, device, start, end, kinds[name]) for name, device, start, end in spans]
    what = "as planned" if executed is None else "as executed"
    return reflowing(
        lambda width: gantt_chart(
            boxes, plan.platform.names, label=f"the tasks on their devices, {what}", width=width
        )
    )


def plan_table(plan: MappingPlan, executed: Execution | None = None) -> Table:
    """Return one row per task: device, start, end, and measured time."""
    took = {} if executed is None else {s.task: s for s in executed.steps}
    rows = [
        (
            s.task,
            (plan.graph[s.task].kernel or units.NONE) + " (guessed)" * (s.task in plan.unsure),
            s.device,
            units.seconds(s.start),
            units.seconds(s.end),
            units.seconds(s.end - s.start),
            units.seconds(took[s.task].end - took[s.task].start) if took else units.NONE,
        )
        for s in plan.steps
    ]
    return table("task | kernel | device | >start | >end | >predicted | >took", rows)


def plan_text(plan: MappingPlan, executed: Execution | None = None) -> str:
    """Return the plan for a terminal."""
    head = f"makespan {units.seconds(plan.makespan)}"
    if plan.proven:
        head += " (optimal)" if plan.interval is None else " (optimal by the predicted times)"
    else:
        head += f", at least {units.seconds(plan.bound)}"
    if plan.interval is not None:
        head += f"; {_range(plan.interval)} with the ends of the intervals"
    if executed is not None:
        head += f"; executed in {units.seconds(executed.makespan)}"
    if plan.unsure:
        head += f"\nguessed, outside what was measured: {', '.join(plan.unsure)}"
    return head + "\n\n" + to_text(plan_table(plan, executed))


def _range(seconds: tuple[float, float]) -> str:
    return f"{units.seconds(seconds[0])} to {units.seconds(seconds[1])}"


def plan_page(
    plan: MappingPlan,
    title: str = "Plan",
    executed: Execution | None = None,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a page with the plan's chart, that of its execution if given, and a table of tasks.

    `facts` say how the page was made, by name.
    """
    figures = [
        Figure(units.seconds(plan.makespan), "predicted makespan"),
        Figure(
            "optimal" if plan.proven else units.seconds(plan.bound),
            "proven" if plan.proven else "no plan is shorter than",
            "good" if plan.proven else "",
        ),
    ]
    if plan.interval is not None:
        figures.append(Figure(_range(plan.interval), "with the ends of the intervals"))
    if plan.unsure:
        figures.append(Figure(str(len(plan.unsure)), "tasks guessed, see below", "bad"))
    sections = [Section("Plan", gantt(plan))]
    if executed is not None:
        error = executed.makespan / plan.makespan - 1 if plan.makespan else 0.0
        figures.append(Figure(units.seconds(executed.makespan), "executed"))
        figures.append(
            Figure(f"{100 * error:+.1f}%", "off the plan", "good" if abs(error) <= 0.1 else "bad")
        )
        sections.append(Section("Execution", gantt(plan, executed)))
    sections.append(Section("Tasks", html_table(plan_table(plan, executed))))
    devices = ", ".join(plan.platform.names)
    subtitle = f"{units.plural(len(plan.steps), 'task')} on {devices}"
    return html_page(title, sections, subtitle=subtitle, figures=figures, facts=facts)
