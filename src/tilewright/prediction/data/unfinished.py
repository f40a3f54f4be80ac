"""Rows of a CSV file whose runs did not end: they failed, or were stopped at a time limit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.prediction.data.csv_sheet import CsvSheet, absent
from tilewright.prediction.errors import PredictionError

_LONGER = re.compile(r">=?\s*(\S.*)")


_SHOWN = 5  # texts of a column in a message


@dataclass(frozen=True)
class Unfinished:
    """How a file says that a run did not end.

    Args:
        failed: texts of runs that failed, which say nothing about the run time.
        timed_out: texts of runs that were stopped, each with the time limit in the unit of the
            column of run times; None where that column has it.
        status: the column of these texts; by default the columns of run times.
    """

    failed: Collection[str] = ()
    timed_out: Mapping[str, float | None] = field(default_factory=dict)
    status: str | None = None

    def columns(self, sheet: CsvSheet) -> list[int]:
        """Return the columns that say how runs ended, which are no features."""
        return [] if self.status is None else [sheet.column(self.status, "how a run ended")]

    def resolve(
        self, sheet: CsvSheet, times_at: Sequence[int]
    ) -> tuple[CsvSheet, set[int], list[str]]:
        """Return the sheet with numbers as run times, lines of stopped runs, and what is left out.

        A cell such as ``>120`` is a stopped run without being named.

        Raises:
            PredictionError: the column of texts is missing, no texts are given for it, they are in
                another column, or a stopped run has no time limit.
        """
        at = next(iter(self.columns(sheet)), None)
        self._check_texts(sheet, times_at if at is None else [at])
        rows: list[tuple[int, list[str]]] = []
        stopped, dropped = set[int](), list[str]()
        for line, cells in sheet.rows:
            texts = [cells[at]] if at is not None else [cells[i] for i in times_at]
            failure = next((text for text in texts if text in self.failed), None)
            if failure is not None:
                dropped.append(f"line {line}: {failure}")
                continue
            limited = list(cells)
            for i in times_at:
                limited[i], ended = self._time(
                    sheet, line, cells[i], cells[i if at is None else at]
                )
                if not ended:
                    stopped.add(line)
            rows.append((line, limited))
        return replace(sheet, rows=rows), stopped, dropped

    def _check_texts(self, sheet: CsvSheet, places: Sequence[int]) -> None:
        """Raise `PredictionError` if the texts recognise no row where they are looked for."""
        texts = {*self.failed, *self.timed_out}
        if self.status is not None and not texts:
            found = ", ".join(sorted(set(sheet.cells(places[0])))[:_SHOWN])
            raise PredictionError(
                f"{sheet.source}: the column {self.status!r} says how runs ended ({found}): name "
                "the texts of failed runs (--failed TEXT) or stopped ones (--timed-out TEXT=LIMIT)"
            )
        if any(texts.intersection(sheet.cells(at)) for at in places):
            return
        for at in sheet.filled():
            for text in texts.intersection(sheet.cells(at)):
                raise PredictionError(
                    f"{sheet.source}: {text!r} is in the column {sheet.name(at)!r}, and not where "
                    f"it was looked for ({', '.join(map(sheet.name, places))}): give "
                    f"--status {sheet.name(at)}"
                )

    def _time(self, sheet: CsvSheet, line: int, cell: str, text: str) -> tuple[str, bool]:
        """Return a run time as a number, or the limit that it exceeds; and whether it ended."""
        if longer := _LONGER.fullmatch(cell):
            return longer[1], False
        if text not in self.timed_out:
            return cell, True
        limit = self.timed_out[text]
        known = cell if cell != text and not absent(cell) else None
        if known is None and limit is None:
            raise PredictionError(
                f"{sheet.source}, line {line}: {text!r} has no time limit; give it, as in "
                f"{text}=120, or write >120 in the place of the run time"
            )
        return known or f"{limit!r}", False
