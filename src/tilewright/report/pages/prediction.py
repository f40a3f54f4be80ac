"""The page of a model of run time: errors, intervals, chosen configuration, data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.report import units
from tilewright.report.charts.lines import Line, line_chart
from tilewright.report.charts.scatter import Points, scatter_plot
from tilewright.report.charts.svg import reflowing
from tilewright.report.pages.html import Html, join, tag
from tilewright.report.pages.page import Figure, Section, folded, html_page, html_table, items
from tilewright.report.table import Column, Table, columns, table

_PARTS = 4  # of the runs by their time, in the table of errors
_ROWS = 400  # of a table of benchmark results


@dataclass(frozen=True, kw_only=True)
class PredictionReport:
    """A model of run time with its evaluation.

    Attributes:
        title: the title of the page.
        model: its kind.
        machine: where the runs were measured.
        how: which instances these are, such as ``held out by 5-fold cross-validation``.
        measured: seconds, one per instance.
        predicted: seconds, one per instance.
        low: lower bounds in seconds of the intervals of probability `nominal`, empty for a
            model without intervals.
        high: upper bounds.
        outside: which instances lie outside the training range.
        texts: texts shown on hovering, one per instance.
        coverages: the share of times inside the intervals, by nominal probability.
        mape: mean absolute relative error, 0.05 for 5%.
        mape_long: without the 30% of the instances that run shortest.
        spearman: rank correlation.
        floor: the noise floor of the measurements, if known.
        parameters: fitted numbers of the model.
        features: name, unit, smallest and largest value of each feature in training.
        chosen: the configuration that cross-validation chose, by name; ``error`` is its
            cross-validated error, and ``tried`` a list of dictionaries, shown as a table.
        dropped: rows of the data that were left out, with the reason.
        notes: remarks.
        results: benchmark results (the data of their JSON files) to be shown as tables.
        facts: anything else, by name.
    """

    title: str
    model: str
    measured: Sequence[float]
    predicted: Sequence[float]
    machine: str = ""
    how: str = ""
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    outside: Sequence[bool] = ()
    texts: Sequence[str] = ()
    nominal: float = 0.9
    coverages: Mapping[float, float] = field(default_factory=dict)
    mape: float | None = None
    mape_long: float | None = None
    spearman: float | None = None
    floor: float | None = None
    parameters: int | None = None
    features: Sequence[tuple[str, str, float, float]] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    notes: Sequence[str] = ()
    results: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> list[bool]:
        """Whether each measured time lies in its interval; empty without intervals."""
        if not self.low:
            return []
        bounds = zip(self.low, self.measured, self.high, strict=True)
        return [low <= t <= high for low, t, high in bounds]


def prediction_page(report: PredictionReport) -> str:
    """Return the complete page as self-contained text. Unknown values are left out."""
    subtitle = ", ".join(part for part in (report.model, report.how, report.machine) if part)
    return html_page(
        report.title,
        _sections(report),
        subtitle=subtitle,
        figures=_figures(report),
        facts=report.facts,
    )


def _figures(report: PredictionReport) -> list[Figure]:
    figures = [Figure(units.count(len(report.measured)), "runs")]
    if report.mape_long is not None:
        figures.append(Figure(units.percent(report.mape_long), "error without the 30% shortest"))
    if report.mape is not None:
        figures.append(Figure(units.percent(report.mape), "error of all runs"))
    if report.floor is not None:
        figures.append(Figure(units.percent(report.floor), "noise floor"))
    if report.spearman is not None:
        figures.append(Figure(units.digits(report.spearman, 4), "Spearman's ρ"))
    inside = report.inside
    if inside:
        share = sum(inside) / len(inside)
        near = abs(share - report.nominal) <= 0.05
        label = f"inside intervals of {units.percent(report.nominal)}"
        figures.append(Figure(units.percent(share), label, "good" if near else "bad"))
    if report.parameters is not None:
        figures.append(Figure(units.count(report.parameters), "fitted numbers"))
    return figures


def _sections(report: PredictionReport) -> list[Section]:
    sections = []
    if report.notes:
        sections.append(Section("Remarks", items(report.notes)))
    if report.measured:
        sections += [
            Section(
                "Predicted against measured",
                _against(report),
                "On the dashed line, the prediction equals the measurement.",
            ),
            Section("Error against run time", _errors(report), _error_note(report)),
            Section("Error by run time", _by_time(report)),
        ]
    if report.coverages:
        sections.append(
            Section(
                "Intervals",
                _intervals(report),
                "For each nominal probability the share of measured times inside the intervals.",
            )
        )
    if report.chosen:
        sections.append(Section("Chosen configuration", _configuration(report)))
    if report.features:
        sections.append(Section("Training range", _ranges(report)))
    sections += [_result(result) for result in report.results]
    if report.dropped:
        summary = f"{units.plural(len(report.dropped), 'row')} left out"
        sections.append(Section("Left out", folded(summary, items(report.dropped))))
    return sections


def _kinds(report: PredictionReport, y: Sequence[float]) -> list[Points]:
    """Return the runs over their measured times, grouped by the result of the prediction."""
    inside, texts = report.inside, _texts(report)
    names: dict[str, list[int]] = {}
    for i in range(len(report.measured)):
        if report.outside and report.outside[i]:
            name = "outside the training range"
        elif inside and not inside[i]:
            name = "outside the interval"
        else:
            name = "inside the interval" if inside else "runs"
        names.setdefault(name, []).append(i)
    order = ("inside the interval", "runs", "outside the interval", "outside the training range")
    return [
        Points(
            name,
            [report.measured[i] for i in names[name]],
            [y[i] for i in names[name]],
            [texts[i] for i in names[name]],
        )
        for name in order
        if name in names
    ]


def _texts(report: PredictionReport) -> list[str]:
    own = report.texts or [""] * len(report.measured)
    return [
        f"{text + ': ' if text else ''}measured {units.seconds(t)}, predicted {units.seconds(p)}"
        for text, t, p in zip(own, report.measured, report.predicted, strict=True)
    ]


def _against(report: PredictionReport) -> Html:
    return reflowing(
        lambda width: scatter_plot(
            _kinds(report, report.predicted),
            label="predicted against measured times",
            x_label="measured",
            y_label="predicted",
            log_x=True,
            log_y=True,
            diagonal=True,
            x_text=units.seconds,
            y_text=units.seconds,
            width=width,
        )
    )


def _errors(report: PredictionReport) -> Html:
    ratios = [p / t for p, t in zip(report.predicted, report.measured, strict=True)]
    return reflowing(
        lambda width: scatter_plot(
            _kinds(report, ratios),
            label="predicted over measured time, by measured time",
            x_label="measured",
            y_label="predicted / measured",
            log_x=True,
            log_y=True,
            level=1.0,
            x_text=units.seconds,
            y_text=units.ratio,
            width=width,
        )
    )


def _error_note(report: PredictionReport) -> str:
    unlike = sum(p <= 0 for p in report.predicted)
    parts = []
    if report.floor is not None:
        parts.append(
            "The same run measured twice differs by the noise floor, "
            f"{units.percent(report.floor)}, in the median."
        )
    if unlike:
        parts.append(f"{units.plural(unlike, 'prediction')} at or below zero cannot be drawn.")
    return " ".join(parts)


def _by_time(report: PredictionReport) -> Html:
    """Return the errors of the runs in groups of equal size, the shortest runs first."""
    order = sorted(range(len(report.measured)), key=lambda i: report.measured[i])
    inside = report.inside
    count = min(_PARTS, len(order))
    rows = []
    for part in range(count):
        rows_of = order[part * len(order) // count : (part + 1) * len(order) // count]
        errors = sorted(abs(report.predicted[i] / report.measured[i] - 1) for i in rows_of)
        share = sum(inside[i] for i in rows_of) / len(rows_of) if inside else None
        times = [report.measured[i] for i in rows_of]
        rows.append(
            (
                f"{units.seconds(times[0])} to {units.seconds(times[-1])}",
                str(len(rows_of)),
                units.percent(errors[len(errors) // 2]),
                units.percent(sum(errors) / len(errors)),
                units.percent(errors[-1]),
                units.percent(share),
            )
        )
    heads = "runs that take | >runs | >median error | >mean error | >worst | >inside intervals"
    return html_table(table(heads, rows))


def _intervals(report: PredictionReport) -> Html:
    nominal = sorted(report.coverages)
    percent = [100 * share for share in nominal]
    lines = [
        Line("measured", percent, [100 * report.coverages[share] for share in nominal]),
        Line("nominal", percent, percent),
    ]
    chart = reflowing(
        lambda width: line_chart(
            lines,
            label="share of measured times inside intervals, by their nominal probability",
            x_label="nominal probability (%)",
            y_label="inside (%)",
            height=260,
            width=width,
        )
    )
    rows = [(units.percent(share), units.percent(report.coverages[share])) for share in nominal]
    return join(chart, html_table(table("nominal | >inside", rows)))


def _configuration(report: PredictionReport) -> Html:
    tried = report.chosen.get("tried")
    rows = [(name, _choice(name, v)) for name, v in report.chosen.items() if name != "tried"]
    parts = [html_table(Table(columns("choice | ~value"), tuple(rows)))]
    if isinstance(tried, Sequence) and tried and all(isinstance(t, Mapping) for t in tried):
        compared = html_table(rows_table(tried))
        parts.append(folded(f"All {len(tried)} configurations, by cross-validation", compared))
    return join(*parts)


def _choice(name: str, value: Any) -> str:
    """Return a chosen thing as text; errors are shares."""
    if name.startswith("error") and isinstance(value, Mapping):
        return ", ".join(f"{key} {units.percent(share)}" for key, share in value.items())
    return units.percent(value) if name == "error" else _cell(value)


def _ranges(report: PredictionReport) -> Html:
    rows = [
        (name, "" if unit == "1" else unit, units.digits(low, 6), units.digits(high, 6))
        for name, unit, low, high in report.features
    ]
    return html_table(table("feature | unit | >smallest | >largest", rows))


def _result(result: Mapping[str, Any]) -> Section:
    """Return a benchmark's tables, its summary and its rows."""
    name = str(result.get("name", "benchmark")).replace("_", " ")
    parts = []
    tables = result.get("tables")
    for number, found in tables.items() if isinstance(tables, Mapping) else ():
        made = _numbered(found)
        if made is not None:
            parts.append(tag("h3", f"Table {number}. {found.get('title', '')}"))
            parts.append(html_table(made))
    summary = result.get("summary")
    if isinstance(summary, Mapping) and summary:
        rows = tuple((str(key), _cell(value)) for key, value in summary.items())
        figures = html_table(Table(columns("figure | ~value"), rows))
        parts.append(folded("Summary", figures) if parts else figures)
    found = result.get("rows")
    if isinstance(found, Sequence) and found and all(isinstance(r, Mapping) for r in found):
        parts.append(folded(f"All {len(found)} rows", html_table(rows_table(found[:_ROWS]))))
    note = [str(result[key]) for key in ("note", "date") if result.get(key)]
    return Section(name[:1].upper() + name[1:], join(*parts), " ".join(note))


def _numbered(found: Any) -> Table | None:
    """Return a table of columns' names and a row of values for each method; None for none."""
    if not isinstance(found, Mapping) or not found.get("columns"):
        return None
    names, rows = list(found["columns"]), dict(found.get("rows", {}))
    if any(len(values) != len(names) for values in rows.values()):
        return None
    heads = (Column(""), *(Column(str(name), "right") for name in names))
    return Table(heads, tuple((str(name), *map(_figure, row)) for name, row in rows.items()))


def _figure(value: Any) -> str:
    """Return a value of a table: a number, or an error, the best of several, and a correlation."""
    if isinstance(value, list | tuple) and len(value) == 3 and None not in value:
        return f"{units.digits(value[0])} ({units.digits(value[1])}), {value[2]:.3f}"
    return _cell(value) if not isinstance(value, float) else units.digits(value)


def rows_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return rows of JSON data as a table: numbers to the right, one column per dictionary key."""
    flat = [dict(_flat(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    numeric = {
        name: all(isinstance(row.get(name, 0), int | float) or row[name] is None for row in flat)
        for name in names
    }
    heads = [
        Column(name.replace("_", " "), "right" if numeric[name] else "left", wrap=_long(name, flat))
        for name in names
    ]
    return table(heads, [[_cell(row.get(name, "")) for name in names] for row in flat])


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif not (isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value)):
            yield f"{prefix}{name}", value


def _long(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(len(_cell(row.get(name, ""))) > 40 for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return units.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return units.digits(value, 4) if math.isfinite(value) else units.NONE
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_cell(v) for v in value)
    return str(value)


__all__ = ["PredictionReport", "prediction_page", "rows_table"]
