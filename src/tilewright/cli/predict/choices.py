"""Reads queries from a file, and formats choices as tables, CSV and JSON."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError
from tilewright.report import units
from tilewright.report.table import Column, Table, interval, table

if TYPE_CHECKING:
    from tilewright.measure import Measurement
    from tilewright.prediction import Choice, Ranked, Regret, Selection, Selector

_TIMES = "{}", "time_{}", "{}_time", "{}_time_s", "time_s_{}", "{}_s"


@dataclass(frozen=True)
class Queries:
    """Rows of a file: features by name, and measured seconds of the variants (NaN if missing)."""

    rows: list[dict[str, float]]
    times: dict[str, Any]


def read_queries(path: str, selector: Selector) -> Queries:
    """Read queries; the column NAME, ``time_NAME`` or similar has the times of variant NAME."""
    from tilewright.prediction import read_columns

    models = selector.models.values()
    asked = list(dict.fromkeys(name for m in models for name in m.asked))
    levels = {name: words for m in models for name, words in (m.model.levels or {}).items()}
    wanted = {name: [form.format(name) for form in _TIMES] for name in selector.models}
    columns, given, seconds = read_columns(path, asked, wanted, levels)
    for modelled in models:
        shared.same_units(modelled.model, given, path)
    rows = [
        dict(zip(asked, map(float, values), strict=True))
        for values in zip(*(columns[name] for name in asked), strict=True)
    ]
    return Queries(rows, seconds)


def decide(selector: Selector, queries: Queries) -> tuple[list[str], dict[str, Any], int]:
    """Return the variant of each query, all variants' seconds, and how many are out of range."""
    seconds = selector.predict(queries.rows)
    chosen = selector.choose(queries.rows)
    away = selector.outside(queries.rows)
    return chosen, seconds, int(away.sum())


def regret_of(
    selector: Selector, queries: Queries, chosen: Sequence[str]
) -> tuple[Regret | None, int]:
    """Return the regret over queries with a measured choice, and the number of queries without."""
    from tilewright.prediction import regret

    times = queries.times
    if len(times) < 2:
        return None, 0
    known = [i for i, name in enumerate(chosen) if name in times and np.isfinite(times[name][i])]
    if not known:
        return None, len(chosen)
    rows = {name: np.asarray(column)[known] for name, column in times.items()}
    return regret(rows, [chosen[i] for i in known]), len(chosen) - len(known)


def measured(
    args: argparse.Namespace, kernel: str | None, query: Mapping[str, float], selection: Selection
) -> dict[str, Measurement]:
    """Measure the best ``--verify`` variants of a kernel."""
    if not args.verify:
        return {}
    if kernel is None:
        raise TilewrightError(
            "--verify needs a kernel whose variants can be run: give --kernel, or a selector that "
            "tilewright predict train has written"
        )
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import verify_variants
    from tilewright.report import Progress

    with show_progress(args.quiet) as show:
        found = verify_variants(
            shared.load_kernel(kernel),
            query,
            selection.choices[: args.verify],
            seed=args.seed,
            on_progress=lambda done, total: show(Progress("measuring", done, total)),
        )
    return {choice.variant: measurement for choice, measurement in found}


def to_dict(
    query: Mapping[str, float], selection: Selection, times: Mapping[str, Measurement]
) -> dict[str, Any]:
    """Return a query with its variants, the fastest first, as JSON data."""
    return {
        "query": dict(query),
        "best": selection.best.variant,
        "settings": dict(selection.best.settings),
        "outside_training_range": selection.outside,
        "variants": [_choice(choice, times.get(choice.variant)) for choice in selection.choices],
    }


def _choice(choice: Choice, found: Measurement | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "variant": choice.variant,
        "settings": dict(choice.settings),
        "seconds": choice.seconds,
        "low": choice.low,
        "high": choice.high,
        "outside": choice.outside,
    }
    if found is not None:
        data["status"] = found.status
        data["measured"] = found.median if found.ok else None
    return data


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with one line per query and variant."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    asked = list(rows[0]["query"])
    writer.writerow([*asked, "variant", "predicted_s", "low_s", "high_s", "outside", "best"])
    for row in rows:
        for found in row["variants"]:
            bounds = ["" if found[k] is None else f"{found[k]:.6g}" for k in ("low", "high")]
            writer.writerow(
                [
                    *(row["query"].get(name, "") for name in asked),
                    found["variant"],
                    f"{found['seconds']:.6g}",
                    *bounds,
                    int(found["outside"]),
                    int(found["variant"] == row["best"]),
                ]
            )
    return text.getvalue()


def variant_table(selection: Selection, times: Mapping[str, Measurement]) -> Table:
    """Return a table with one row per variant: settings, prediction, interval, measured time."""
    rows = []
    for choice in selection.choices:
        found = times.get(choice.variant)
        took = "" if found is None else units.seconds(found.median) if found.ok else found.status
        rows.append(
            (
                choice.variant,
                ", ".join(f"{k}={v:g}" for k, v in choice.settings.items()),
                units.seconds(choice.seconds),
                interval(choice.low, choice.high),
                took.replace("_", " "),
                "outside the training range" if choice.outside else "",
            )
        )
    columns = (
        Column("variant"),
        Column("settings"),
        Column("predicted", "right"),
        Column("90% interval", "right"),
        Column("measured", "right"),
        Column("note"),
    )
    return table(columns, rows)


def verdict(selection: Selection) -> str:
    """Return which variant to use, with the reason if it is not the one predicted fastest."""
    best = selection.best
    if selection.outside:
        return f"use {best.variant}: the default, as the query is outside the training range"
    return f"use {best.variant}"


def summary_table(selector: Selector, chosen: Sequence[str], seconds: Mapping[str, Any]) -> Table:
    """Return a table of how often each variant is chosen, and its total predicted time."""
    rows = [
        (
            name,
            str(list(chosen).count(name)),
            units.seconds(float(np.sum(seconds[name]))),
        )
        for name in selector.models
    ]
    columns = (
        Column("variant"),
        Column("chosen", "right"),
        Column("predicted, all queries", "right"),
    )
    return Table(columns, tuple(rows))


def regret_text(found: Regret, queries: int, unmeasured: int) -> list[str]:
    """Format the regret in a few lines."""
    lines = [
        f"regret against the best variant: {units.percent(found.mean)} in the mean, "
        f"{units.percent(found.worst)} at worst, {units.percent(found.total - 1)} of the total "
        f"time; the best was chosen for {units.percent(found.right)}",
        f"{found.best_single} for every query would take {units.ratio(found.vs_best_single)} the "
        "time of the choices",
    ]
    if unmeasured:
        lines.append(f"{unmeasured} of {queries} queries have no measured time of the choice")
    return lines


def chosen_csv(queries: Queries, chosen: Sequence[str], seconds: Mapping[str, Any]) -> str:
    """Return CSV with one line per query: features, choice, predicted seconds of all variants."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(queries.rows[0])
    writer.writerow([*names, "variant", *(f"predicted_s_{name}" for name in seconds)])
    for i, row in enumerate(queries.rows):
        predicted = [f"{float(column[i]):.6g}" for column in seconds.values()]
        writer.writerow([*(f"{row[name]:.12g}" for name in names), chosen[i], *predicted])
    return text.getvalue()


def ranked_dict(ranked: Ranked) -> dict[str, Any]:
    """Return a ranked candidate as JSON data."""
    data: dict[str, Any] = {
        "candidate": ranked.index,
        "features": dict(ranked.features),
        "seconds": ranked.seconds,
        "low": ranked.low,
        "high": ranked.high,
        "outside": ranked.outside,
    }
    if ranked.measurement is not None:
        data["status"] = ranked.measurement.status
        data["measured"] = ranked.measured
        data["message"] = ranked.measurement.message
    return data


def ranking_table(ranked: Sequence[Ranked]) -> Table:
    """Return a table with one row per candidate: features, prediction, interval, measured time."""
    names = list(ranked[0].features) if ranked else []
    rows = []
    for r in ranked:
        took = ""
        if r.measurement is not None:
            took = units.seconds(r.measured) if r.measurement.ok else r.measurement.status
        rows.append(
            (
                str(r.index),
                *(f"{r.features[name]:g}" for name in names),
                units.seconds(r.seconds),
                interval(r.low, r.high),
                took.replace("_", " "),
            )
        )
    columns = (
        Column("candidate", "right"),
        *(Column(name, "right") for name in names),
        Column("predicted", "right"),
        Column("90% interval", "right"),
        Column("measured", "right"),
    )
    return table(columns, rows)


def ranking_csv(ranked: Sequence[Ranked]) -> str:
    """Return CSV with one line per candidate, the fastest first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(ranked[0].features) if ranked else []
    writer.writerow(
        ["candidate", *names, "predicted_s", "low_s", "high_s", "outside", "measured_s"]
    )
    for r in ranked:
        numbers = [r.seconds, r.low, r.high]
        bounds = ["" if number is None else f"{number:.6g}" for number in numbers]
        took = "" if r.measured is None else f"{r.measured:.6g}"
        cells = [f"{r.features[name]:.12g}" for name in names]
        writer.writerow([r.index, *cells, *bounds, int(r.outside), took])
    return text.getvalue()
