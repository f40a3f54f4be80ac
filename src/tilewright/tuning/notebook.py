"""HTML of spaces and tuning results for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.report.pages import Section, fragment
from tilewright.tuning.space.parameters import Integer, Parameter, Permutation, Real

if TYPE_CHECKING:
    from tilewright.tuning.space.space import Space
    from tilewright.tuning.tune import TuningResult

MOST_SHOWN = 8  # values of a parameter


def space_html(space: Space) -> str:
    """Return a row for each parameter; the constraints below."""
    rows = [
        (p.name, type(p).__name__.lower(), _values(p), _text(p.default), p.when or "")
        for p in space.parameters
    ]
    headings = "parameter | type | values | default | when"
    constraints = [f"constraint: {c}" for c in space.constraint_sources if isinstance(c, str)]
    return fragment(f"Space of {space.count:,} configurations", headings, rows, constraints)


def result_html(result: TuningResult, counts: str, pictures: Sequence[Section] = ()) -> str:
    """Return the best configuration, the `counts` of evaluations, and pictures of the run."""
    note = f"{counts}; stopped: {result.stopped}"
    if result.best is None:
        return fragment("No configuration worked", "", [], [note])
    rows = [(name, _text(value)) for name, value in result.best.configuration.items()]
    title = f"Best: {result.best.value:.5g}"
    return fragment(title, "parameter | >value", rows, [note], pictures)


def _values(p: Parameter) -> str:
    """Return the values of a parameter, shortened."""
    if isinstance(p, Real | Integer):
        return f"{p.low:g} to {p.high:g}" + (", logarithmic" if p.scale == "log" else "")
    values = p.item_names if isinstance(p, Permutation) else p.values
    shown = ", ".join(map(str, values[:MOST_SHOWN]))
    return shown + (f", … ({len(values)})" if len(values) > MOST_SHOWN else "")


def _text(value: Any) -> str:
    """Return a value as text; empty for None."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)
