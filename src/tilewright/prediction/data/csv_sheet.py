"""Reads CSV files as people write them: units in headings, missing values, words."""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.prediction.errors import PredictionError

TIME = "time_s"
# Default names of a column of run times.
_TIMES = "time_s time seconds runtime run_time duration elapsed time_ms time_us time_ns".split()
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_COMMA = re.compile(r"[-+]?\d+(,\d+)+(\.\d*)?|[-+]?\d{1,3}(\.\d{3})*,\d+")
_MOST_WORDS = 20  # maximum number of words in a column, or half as many as rows
_HEADING = re.compile(r"(?P<name>.*?)\s*[\[(](?P<unit>[^\])]*)[\])]\s*")
# Units in which times are written, in seconds.
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "µs", "μs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}


@dataclass(frozen=True)
class CsvSheet:
    """The cells of a CSV file.

    Args:
        source: the file.
        headings: its first line.
        rows: line number and cells of every further line that is not blank.
        known: the number of a column by its heading, with and without the unit.
    """

    source: Path
    headings: list[str]
    rows: list[tuple[int, list[str]]]
    known: dict[str, int]

    @classmethod
    def read(cls, source: Path, names: Sequence[str] | None = None) -> CsvSheet:
        """Return the cells of a file; raise PredictionError if it is not a CSV file.

        `names` are the headings of a file that has none.
        """
        headings, rows = _cells(source, names)
        known = {heading: i for i, heading in enumerate(headings)}
        for i, heading in enumerate(headings):
            known.setdefault(_heading(heading)[0], i)
        return cls(source, headings, rows, known)

    def column(self, name: str, what: str) -> int:
        """Return a column's number; PredictionError if there is none for `what`."""
        if name not in self.known:
            raise PredictionError(
                f"{self.source}: column {name!r} for {what} is missing; the columns are "
                f"{', '.join(self.headings)}{_meant(name, self.known)}"
            )
        return self.known[name]

    def time_name(self) -> str:
        """Return the column with a usual name of run times."""
        lower = {name.lower(): name for name in reversed(self.known)}
        return next((lower[name] for name in _TIMES if name in lower), TIME)

    def name(self, at: int) -> str:
        """Return a column's heading without the unit."""
        return _heading(self.headings[at])[0]

    def unit(self, at: int) -> str:
        """Return a column's unit; empty if the heading gives none."""
        return _heading(self.headings[at])[1]

    def units(
        self,
        columns: Sequence[int],
        known: Mapping[str, Any],
        wanted: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Return units of columns by name: the heading's, or the known one, or 1.

        Raises:
            PredictionError: two columns have the same name, or the unit of one is neither unknown
                nor `wanted`.
        """
        named = {self.name(i): self.unit(i) or str(known.get(self.name(i), "1")) for i in columns}
        if len(named) < len(columns):
            raise PredictionError(
                f"{self.source}: two feature columns have the same name; rename one"
            )
        for name, unit in (wanted or {}).items():
            if named.get(name, "1") not in ("1", unit):
                raise PredictionError(
                    f"{self.source}: the column {name!r} is in {named[name]}, but the model was "
                    f"fitted to {unit}: convert it, or give it no unit if it is in {unit}"
                )
        return named

    def cells(self, at: int) -> list[str]:
        """Return a column's cells."""
        return [row[at] for _, row in self.rows]

    def filled(self) -> list[int]:
        """Return the columns that are not empty."""
        return [
            i for i in range(len(self.headings)) if any(not absent(cell) for cell in self.cells(i))
        ]

    def features(
        self,
        names: Sequence[str] | None,
        times_at: Collection[int],
        status_at: Collection[int] = (),
    ) -> list[int]:
        """Return the columns of features: these, or all with values, not times or a status."""
        if names is None:
            used = [i for i in self.filled() if i not in (*times_at, *status_at)]
        else:
            used = [self.column(name, "a feature") for name in names]
        for at in used:
            if at in times_at:
                raise PredictionError(
                    f"{self.source}: {self.headings[at]!r} is the run time and cannot be a feature"
                )
        if not used:
            raise PredictionError(
                f"{self.source}: the run time is the only column; add columns to predict it from"
            )
        return used

    def complete(self, columns: Sequence[int]) -> tuple[list[int], list[str]]:
        """Return the rows with a value in each of these columns, and why others are omitted."""
        kept, dropped = [], []
        for position, (line, row) in enumerate(self.rows):
            empty = [self.name(i) for i in columns if absent(row[i])]
            if empty:
                dropped.append(f"line {line}: no {', '.join(empty)}")
            else:
                kept.append(position)
        return kept, dropped

    def query_column(
        self, name: str, at: int, levels: Mapping[str, Sequence[str]] | None
    ) -> list[float]:
        """Return a feature's column, which has a value in every row.

        Raises:
            PredictionError: a value is missing, or is a word where `levels` has none.
        """
        empty = next((line for line, row in self.rows if absent(row[at])), None)
        if empty is not None:
            raise PredictionError(
                f"{self.source}, line {empty}: no {name}; fill it in or leave the line out"
            )
        values, words = codes(self.source, name, self.cells(at), levels)
        if words and name not in (levels or {}):
            raise PredictionError(
                f"{self.source}: the column {name!r} has words ({words[0]}), where the model was "
                "fitted to numbers"
            )
        return values

    def times(self, at: int) -> Callable[[int], float]:
        """Return seconds of a row in a column of times; NaN if the cell is empty.

        Raises:
            PredictionError: the column's unit is not one of time (at once), or a cell is not a
                positive number (when its row is asked for).
        """
        scale = _seconds(self.source, self.headings[at])

        def seconds(row: int) -> float:
            line, cells = self.rows[row]
            if absent(cells[at]):
                return math.nan
            return scale * _time(self.source, line, self.headings[at], cells[at])

        return seconds


def _cells(
    source: Path, names: Sequence[str] | None
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the headings, and every row that is not blank with its line number."""
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise PredictionError(f"{source}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PredictionError(f"{source}: not a text file; save it as CSV in UTF-8") from None
    lines = text.splitlines(keepends=True)  # a quoted cell may contain the end of a line
    first = next((each for each in lines if each.strip() and not each.startswith("#")), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    rows: list[tuple[int, list[str]]] = []
    headings = list(names or ())
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if not any(cells) or cells[0].startswith("#"):
                continue
            if not headings:
                headings = cells
            elif len(cells) != len(headings):
                raise PredictionError(
                    f"{source}, line {reader.line_num}: {len(cells)} cells under "
                    f"{len(headings)} headings"
                )
            else:
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise PredictionError(f"{source}, line {reader.line_num}: {error}") from None
    if not headings or not rows:
        raise PredictionError(f"{source}: a line of headings and rows of runs are needed")
    if all(_number(cell) is not None for cell in headings):
        raise PredictionError(
            f"{source}: the first line must name the columns; if it does not, give --names"
        )
    repeated = [name for name in headings if headings.count(name) > 1]
    if repeated:
        raise PredictionError(f"{source}: the heading {repeated[0]!r} occurs twice; rename one")
    return headings, rows


def _meant(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _heading(text: str) -> tuple[str, str]:
    """Return a heading's name and unit, the unit empty if there is none."""
    match = _HEADING.fullmatch(text)
    if match is None or not match["name"]:
        return text, ""
    return match["name"], match["unit"].strip()


def _seconds(source: Path, heading: str) -> float:
    """Return a unit of time in seconds."""
    name, unit = _heading(heading)
    if unit:
        if unit not in _SECONDS:
            raise PredictionError(
                f"{source}: {unit!r} in {heading!r} is not a unit of time; use s, ms, us, ns, min "
                "or h"
            )
        return _SECONDS[unit]
    ending = name.rsplit("_", 1)[-1]
    # `time_min` is the minimum; minutes are written as `time [min]`.
    known = "_" in name and ending in _SECONDS and ending != "min"
    return _SECONDS[ending] if known else 1.0


def absent(cell: str) -> bool:
    """Return whether a cell says that there is no value."""
    return cell.lower() in _MISSING


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _time(source: Path, line: int, heading: str, cell: str) -> float:
    value = _number(cell)
    if value is None or not math.isfinite(value) or value <= 0:
        raise PredictionError(
            f"{source}, line {line}: {heading} is {cell!r}; run times are positive numbers, "
            "leave the cell of a failed run empty, or name the text: --failed TEXT, or --timed-out "
            "TEXT=LIMIT for a run that was stopped"
        )
    return value


def codes(
    source: Path, name: str, cells: Sequence[str], levels: Mapping[str, Sequence[str]] | None
) -> tuple[list[float], list[str]]:
    """Return a column as numbers, and its words where it is a column of words."""
    truth = {"true": 1.0, "false": 0.0}
    words = list((levels or {}).get(name, ()))
    present = [cell for cell in cells if not absent(cell)]
    if not words:
        if all(_number(cell) is not None for cell in present):
            return _finite(source, name, cells), []
        if all(cell.lower() in truth for cell in present):
            return [truth.get(cell.lower(), math.nan) for cell in cells], []
        words = _words(source, name, present)
    place = {word: float(i) for i, word in enumerate(words)}
    unknown = next((cell for cell in present if cell not in place), None)
    if unknown is not None:
        raise PredictionError(
            f"{source}: the column {name!r} has {unknown!r}, which is none of {', '.join(words)}"
        )
    return [place.get(cell, math.nan) for cell in cells], words


def _finite(source: Path, name: str, cells: Sequence[str]) -> list[float]:
    """Return a column of numbers, NaN if a cell is empty."""
    values = [math.nan if absent(cell) else float(cell) for cell in cells]
    if any(math.isinf(v) for v in values):
        raise PredictionError(f"{source}: the column {name!r} has infinite values")
    return values


def _words(source: Path, name: str, present: Sequence[str]) -> list[str]:
    """Return the distinct words of a column in the order of their first appearance."""
    number = next((cell for cell in present if _number(cell) is not None), None)
    if number is not None:
        word = next(cell for cell in present if _number(cell) is None)
        raise PredictionError(
            f"{source}: the column {name!r} has both numbers ({number}) and words ({word}); "
            "mend the cell, or leave the column out with --features"
        )
    if all(_COMMA.fullmatch(cell) for cell in present):
        raise PredictionError(
            f"{source}: the column {name!r} has commas in its numbers ({present[0]}); "
            "write 1.5 and 1000"
        )
    words = list(dict.fromkeys(present))
    if len(words) > max(_MOST_WORDS, len(present) // 2):
        raise PredictionError(
            f"{source}: the column {name!r} has {len(words)} different words ({words[0]}, "
            f"{words[1]}, ...), from which nothing can be learnt; leave it out with --features, "
            "or write numbers"
        )
    return words
