"""Answers to queries as JSON data, as lines and tables for people, and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilewright.prediction.data.csv_sheet import CsvSheet
from tilewright.prediction.decisions.regret import Regret, regret
from tilewright.report import units
from tilewright.report.table import Column, Table, cell, columns, interval, table, to_csv

if TYPE_CHECKING:
    import os

    from tilewright.measure import Measurement
    from tilewright.prediction.decisions.ranking import Ranked
    from tilewright.prediction.decisions.selector import Choice, Selection, Selector

Array: TypeAlias = np.ndarray[Any, Any]
# The possible names of a column with the measured times of a variant.
_TIMES = "{}", "time_{}", "{}_time", "{}_time_s", "time_s_{}", "{}_s"


@dataclass(frozen=True)
class Selections:
    """The variants for a few queries.

    Attributes:
        queries: the queries.
        selections: the selection for each query.
        measured: measurements of variants by name, for each query.
    """

    queries: Sequence[Mapping[str, float]]
    selections: Sequence[Selection]
    measured: Sequence[Mapping[str, Measurement]]

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the queries with their variants, the fastest first, as JSON data."""
        return [
            {
                "query": dict(query),
                "best": found.best.variant,
                "settings": dict(found.best.settings),
                "outside_training_range": found.outside,
                "variants": [
                    {
                        "variant": choice.variant,
                        "settings": dict(choice.settings),
                        **_timed(choice, times.get(choice.variant)),
                    }
                    for choice in found.choices
                ],
            }
            for query, found, times in zip(
                self.queries, self.selections, self.measured, strict=True
            )
        ]

    def text(self) -> Iterator[str | Table]:
        """Yield a table with one row per variant for each query, and which variant to use."""
        for one in self.to_dict():
            if len(self.queries) > 1:
                yield ", ".join(f"{name}={value}" for name, value in one["query"].items())
            rows = [
                (
                    variant["variant"],
                    ", ".join(f"{name}={value:g}" for name, value in variant["settings"].items()),
                    *_texts(variant),
                    "outside the training range" if variant["outside"] else "",
                )
                for variant in one["variants"]
            ]
            yield table("variant | settings | >predicted | >90% interval | >measured | note", rows)
            if len(rows) > 1:
                why = ": the default, as the query is outside the training range"
                yield f"use {one['best']}{why if one['outside_training_range'] else ''}"

    def to_csv(self) -> str:
        """Return CSV with one line per query and variant."""
        asked = list(self.queries[0])
        return to_csv(
            [*asked, "variant", "predicted_s", "low_s", "high_s", "outside", "best"],
            (
                [
                    *(one["query"].get(name, "") for name in asked),
                    variant["variant"],
                    *_predicted(variant),
                    int(variant["variant"] == one["best"]),
                ]
                for one in self.to_dict()
                for variant in one["variants"]
            ),
        )


@dataclass(frozen=True)
class Ranking:
    """Candidates, the fastest first.

    Attributes:
        ranked: the candidates.
        shown: how many of them `to_dict` and `text` show; CSV has all.
    """

    ranked: Sequence[Ranked]
    shown: int

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the candidates as JSON data."""
        return self._data(self.ranked[: self.shown])

    def _data(self, ranked: Sequence[Ranked]) -> list[dict[str, Any]]:
        return [
            {
                "candidate": r.index,
                "features": dict(r.features),
                **_timed(r, r.measurement),
                **({} if r.measurement is None else {"message": r.measurement.message}),
            }
            for r in ranked
        ]

    @property
    def _names(self) -> list[str]:
        return list(self.ranked[0].features) if self.ranked else []

    def text(self) -> Iterator[str | Table]:
        """Yield a table with one row per candidate."""
        found = self.to_dict()
        yield f"{len(self.ranked)} candidates, the fastest first"
        features = (Column(name, "right") for name in self._names)
        times = columns(">predicted | >90% interval | >measured")
        rows = [
            (str(r["candidate"]), *(f"{r['features'][n]:g}" for n in self._names), *_texts(r))
            for r in found
        ]
        yield table([*columns(">candidate"), *features, *times], rows)
        if away := sum(r["outside"] for r in found):
            yield f"{away} of those shown lie outside the model's training range"

    def to_csv(self) -> str:
        """Return CSV with one line per candidate."""
        return to_csv(
            ["candidate", *self._names, "predicted_s", "low_s", "high_s", "outside", "measured_s"],
            (
                [
                    r["candidate"],
                    *(f"{r['features'][name]:.12g}" for name in self._names),
                    *_predicted(r),
                    cell(r.get("measured")),
                ]
                for r in self._data(self.ranked)
            ),
        )


def _timed(found: Choice | Ranked, measurement: Measurement | None) -> dict[str, Any]:
    """Return predicted seconds with their interval, and what was measured, as JSON data."""
    data = {name: getattr(found, name) for name in ("seconds", "low", "high", "outside")}
    if measurement is not None:
        data["status"] = measurement.status
        data["measured"] = measurement.median if measurement.ok else None
    return data


def _texts(data: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return texts of the predicted time, its interval, and the measured time or its status."""
    status = data.get("status", "")
    took = units.seconds(data["measured"]) if status == "ok" else status.replace("_", " ")
    return units.seconds(data["seconds"]), interval(data["low"], data["high"]), took


def _predicted(data: Mapping[str, Any]) -> list[object]:
    """Return cells of CSV: the predicted time, its interval, whether it is a guess."""
    return [*(cell(data[name]) for name in ("seconds", "low", "high")), int(data["outside"])]


@dataclass(frozen=True)
class Choices:
    """The variant chosen for each query of a file.

    Attributes:
        queries: features by name, for each query.
        times: measured seconds of the variants that the file has, NaN where a cell is empty.
        chosen: the variant for each query.
        seconds: predicted seconds of each variant for each query.
        outside: how many queries lie outside the training range.
        default: the variant that is chosen outside the training range.
    """

    queries: Sequence[Mapping[str, float]]
    times: Mapping[str, Array]
    chosen: Sequence[str]
    seconds: Mapping[str, Array]
    outside: int
    default: str

    @classmethod
    def of(
        cls, selector: Selector, queries: list[dict[str, float]], times: Mapping[str, Array]
    ) -> Choices:
        """Return the choices of a selector for the result of `read_queries`."""
        chosen, seconds = selector.choose(queries), selector.predict(queries)
        outside = int(selector.outside(queries).sum())
        return cls(queries, times, chosen, seconds, outside, selector.default)

    def regret(self) -> tuple[Regret | None, int]:
        """Return the regret over queries with a measured choice, and the number without."""
        if len(self.times) < 2:
            return None, 0
        known = [
            i
            for i, name in enumerate(self.chosen)
            if name in self.times and np.isfinite(self.times[name][i])
        ]
        if not known:
            return None, len(self.chosen)
        rows = {name: column[known] for name, column in self.times.items()}
        return regret(rows, [self.chosen[i] for i in known]), len(self.chosen) - len(known)

    def to_dict(self) -> dict[str, Any]:
        """Return the choices and their regret as JSON data."""
        found, unmeasured = self.regret()
        return {
            "queries": len(self.chosen),
            "chosen": {name: self.chosen.count(name) for name in self.seconds},
            "outside_training_range": self.outside,
            "regret": None if found is None else found.to_dict(),
            "not_measured": unmeasured,
            "choices": list(self.chosen),
        }

    def text(self) -> Iterator[str | Table]:
        """Yield how often each variant is chosen, and the regret if times are known."""
        rows = [
            (name, str(self.chosen.count(name)), units.seconds(float(np.sum(seconds))))
            for name, seconds in self.seconds.items()
        ]
        yield Table(columns("variant | >chosen | >predicted, all queries"), tuple(rows))
        queries = len(self.chosen)
        if self.outside:
            yield (
                f"{self.outside} of {queries} queries lie outside the training range: there the "
                f"default, {self.default}, is used"
            )
        found, unmeasured = self.regret()
        if found is None:
            return
        yield (
            f"regret against the best variant: {units.percent(found.mean)} in the mean, "
            f"{units.percent(found.worst)} at worst, {units.percent(found.total - 1)} of the total "
            f"time; the best was chosen for {units.percent(found.right)}"
        )
        if found.vs_best_single is not None:
            yield (
                f"{found.best_single} for every query would take "
                f"{units.ratio(found.vs_best_single)} the time of the choices"
            )
        if unmeasured:
            yield f"{unmeasured} of {queries} queries have no measured time of the choice"

    def to_csv(self) -> str:
        """Return CSV with one line per query: features, choice, predicted seconds of variants."""
        rows = zip(self.queries, self.chosen, *self.seconds.values(), strict=True)
        return to_csv(
            [*self.queries[0], "variant", *(f"predicted_s_{name}" for name in self.seconds)],
            (
                [*(f"{value:.12g}" for value in query.values()), variant, *map(cell, predicted)]
                for query, variant, *predicted in rows
            ),
        )


def read_queries(
    path: str | os.PathLike[str], selector: Selector
) -> tuple[list[dict[str, float]], dict[str, Array]]:
    """Read queries, the rows of a CSV file, with the features that a selector's models need.

    Returns:
        The features by name, and measured seconds of the variants that have a column, called
        NAME, ``time_NAME`` or alike; NaN where a cell is empty.

    Raises:
        PredictionError: a column or a value is missing or invalid, or its unit differs from that of
            the runs that a model was fitted to.
    """
    sheet = CsvSheet.read(Path(path))
    models = selector.models.values()
    asked = list(dict.fromkeys(name for m in models for name in m.asked))
    levels = {name: words for m in models for name, words in (m.model.levels or {}).items()}
    places = {name: sheet.column(name, "a feature") for name in asked}
    for modelled in models:
        sheet.units(list(places.values()), {}, modelled.model.units)
    values = [sheet.query_column(name, at, levels) for name, at in places.items()]
    times = {}
    for variant in selector.models:
        forms = (form.format(variant) for form in _TIMES)
        at = next((sheet.known[f] for f in forms if f in sheet.known and f not in asked), None)
        if at is not None:
            seconds = sheet.times(at)
            times[variant] = np.array([seconds(row) for row in range(len(sheet.rows))])
    return [dict(zip(asked, row, strict=True)) for row in zip(*values, strict=True)], times
