"""A table of past runs: features with units, times, and where they come from; as CSV and JSON."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilewright.files import check_writable, write_text
from tilewright.prediction.errors import PredictionError
from tilewright.shapes import read_json

Array: TypeAlias = np.ndarray[Any, Any]

TIME, RETIME = "time_s", "retime_s"
# Default names of a column of run times.
_TIMES = "time_s time seconds runtime run_time duration elapsed time_ms time_us time_ns".split()
_MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "?"}
_COMMA = re.compile(r"[-+]?\d+(,\d+)+(\.\d*)?|[-+]?\d{1,3}(\.\d{3})*,\d+")
_MOST_WORDS = 20  # of a column, or as many as half of the rows
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
class Runs:
    """Runs of one variant of a kernel.

    Args:
        features: names of the columns of `table` with their units (``1`` where unknown).
        table: floats of shape (runs, features).
        times: seconds a run, shape (runs,).
        retimes: an independent second measurement of the same, or None.
        facts: kernel, variant, complexity, machine, versions, as far as they are known.
        dropped: rows left out, each with the reason.
    """

    features: Mapping[str, str]
    table: Array
    times: Array
    retimes: Array | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.times)

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(self.features)

    @property
    def floor(self) -> float | None:
        """The noise floor: the median relative difference of the two measurements of a run."""
        if self.retimes is None:
            return None
        known = np.isfinite(self.retimes)
        if not known.any():
            return None
        return noise_floor(self.times[known], self.retimes[known])


def noise_floor(times: Array, retimes: Array) -> float:
    """Median of |t - t'| / t of two independent measurements of the same runs."""
    return float(np.median(np.abs(times - retimes) / times))


def read_csv(
    path: str | os.PathLike[str],
    target: str | None = TIME,
    features: Sequence[str] | None = None,
    *,
    retime: str | None = RETIME,
    levels: Mapping[str, Sequence[str]] | None = None,
) -> Runs:
    """Read runs from a CSV file with a line of headings.

    A heading may give a unit in brackets, ``time [ms]`` or ``size (bytes)``; times are turned
    into seconds by it, and without one are seconds. A time's heading may also end in its unit,
    ``time_ms``. Empty cells, ``NA``, ``nan``, ``null`` and ``-`` are missing: a row without a
    time or with a missing feature is left out and named in `Runs.dropped`. A column of words is
    numbered in the order of its first appearance, or by `levels`, and ``true`` and ``false``
    are 1 and 0. The numbering is in ``facts["levels"]``.

    Args:
        path: the file; what is known about it is read from a JSON file of the same name.
        target: the column of run times, with or without its unit; None for one that is called
            ``time_s``, ``time``, ``seconds``, ``runtime`` or alike.
        features: the columns to use; by default all but the times and those all of whose
            cells are empty.
        retime: a column of second measurements, used where there is one.
        levels: the words of a column in the order of their numbers.

    Raises:
        PredictionError: no such file, no such column, a column of both numbers and words, a
            time that is not positive, an unknown unit of time, or no complete row.
    """
    sheet = _Sheet.read(Path(path))
    source = sheet.source
    if target is None:
        target = sheet.time_name()
    time_at = sheet.column(target, "the run time (choose it with --target)")
    again_at = sheet.known.get(retime) if retime is not None and retime != target else None
    sidecar = sidecar_of(source)
    units = sidecar["features"] if isinstance(sidecar.get("features"), dict) else None
    if features is None and units is not None:
        features = [name for name in units if name in sheet.known]
    used = sheet.features(features, time_at, again_at)
    seconds = sheet.times(time_at)
    again = None if again_at is None else sheet.times(again_at)
    coded = {i: _codes(source, sheet.name(i), sheet.cells(i), levels) for i in used}
    kept, dropped = sheet.complete((time_at, *used))
    if not kept:
        raise PredictionError(f"{source}: no row has all of its values ({'; '.join(dropped[:3])})")
    facts = {**sidecar, "source": source.name}
    words = {sheet.name(i): coded[i][1] for i in used if coded[i][1]}
    if words:
        facts["levels"] = words
    return Runs(
        sheet.units(used, units or {}),
        np.array([[coded[i][0][row] for i in used] for row in kept], dtype=float),
        np.array([seconds(row) for row in kept]),
        None if again is None else np.array([again(row) for row in kept]),
        facts,
        tuple(dropped),
    )


def read_columns(
    path: str | os.PathLike[str],
    features: Sequence[str],
    times: Mapping[str, Sequence[str]],
    levels: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, list[float]], dict[str, str], dict[str, Array]]:
    """Queries of a CSV file: columns of features, and of times where there are such columns.

    Args:
        path: the file, as for `read_csv`.
        features: columns that have to be there, with a value in every row.
        times: names that a column of times may have, by what it is to be called.
        levels: the words of a feature in the order of their numbers.

    Returns:
        The features' values, the units of those whose headings give one, and seconds, NaN where
        a cell is empty; a column of times that is not there is left out.

    Raises:
        PredictionError: a column or a value is missing, or is not what it should be.
    """
    sheet = _Sheet.read(Path(path))
    columns, units = {}, {}
    for name in features:
        at = sheet.column(name, "a feature")
        if sheet.unit(at):
            units[name] = sheet.unit(at)
        columns[name] = _feature(sheet, name, at, levels)
    found = {}
    for label, forms in times.items():
        places = (sheet.known[f] for f in forms if f in sheet.known and f not in features)
        at_time = next(places, None)
        if at_time is not None:
            seconds = sheet.times(at_time)
            found[label] = np.array([seconds(row) for row in range(len(sheet.rows))])
    return columns, units, found


def _feature(
    sheet: _Sheet, name: str, at: int, levels: Mapping[str, Sequence[str]] | None
) -> list[float]:
    """A column of queries, which has a value in every row."""
    empty = next((line for line, row in sheet.rows if _absent(row[at])), None)
    if empty is not None:
        raise PredictionError(
            f"{sheet.source}, line {empty}: no {name}; fill it in or leave the line out"
        )
    values, words = _codes(sheet.source, name, sheet.cells(at), levels)
    if words and name not in (levels or {}):
        raise PredictionError(
            f"{sheet.source}: the column {name!r} has words ({words[0]}), where the model was "
            "fitted to numbers"
        )
    return values


def write_csv(runs: Runs, path: str | os.PathLike[str]) -> Path:
    """Write runs as CSV, and their facts and units as JSON next to it; returns the CSV's path.

    Columns are the features, ``time_s`` and, if there is one, ``retime_s``.

    Raises:
        PredictionError: the JSON file next to it is of another kind.
        TilewrightError: a file cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    check_description_place(target)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    again = [] if runs.retimes is None else [RETIME]
    writer.writerow([*runs.names, TIME, *again])
    for i, row in enumerate(runs.table):
        times = [runs.times[i]] if runs.retimes is None else [runs.times[i], runs.retimes[i]]
        # Six digits are far finer than a time repeats.
        seconds = ["" if math.isnan(t) else f"{t:.6g}" for t in times]
        writer.writerow([*(f"{value:.12g}" for value in row), *seconds])
    facts = {**runs.facts, "features": dict(runs.features)}
    write_text(target, text.getvalue())
    write_text(target.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")
    return target


def check_description_place(path: str | os.PathLike[str]) -> None:
    """Refuse to write runs where the JSON next to them would replace a file of another kind.

    Raises:
        PredictionError: there is a file of that name that does not describe runs.
        TilewrightError: the JSON file cannot be written.
    """
    place = Path(path).with_suffix(".json")
    check_writable(place)
    if not place.is_file():
        return
    try:
        found = read_json(place, PredictionError)
    except PredictionError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("features"), dict):
        raise PredictionError(
            f"{place} is in the way: the description of {Path(path).name} would replace it. "
            "Move it, or name another CSV file"
        )


@dataclass(frozen=True)
class _Sheet:
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
    def read(cls, source: Path) -> _Sheet:
        """The cells of a file; PredictionError if it is not such a file."""
        headings, rows = _cells(source)
        known = {heading: i for i, heading in enumerate(headings)}
        for i, heading in enumerate(headings):
            known.setdefault(_heading(heading)[0], i)
        return cls(source, headings, rows, known)

    def column(self, name: str, what: str) -> int:
        """A column's number; PredictionError if there is none for `what`."""
        if name not in self.known:
            raise PredictionError(
                f"{self.source}: column {name!r} for {what} is missing; the columns are "
                f"{', '.join(self.headings)}{_meant(name, self.known)}"
            )
        return self.known[name]

    def time_name(self) -> str:
        """The column that is called as run times usually are."""
        lower = {name.lower(): name for name in reversed(self.known)}
        return next((lower[name] for name in _TIMES if name in lower), TIME)

    def name(self, at: int) -> str:
        """A column's heading without the unit."""
        return _heading(self.headings[at])[0]

    def unit(self, at: int) -> str:
        """A column's unit; empty where the heading gives none."""
        return _heading(self.headings[at])[1]

    def units(self, columns: Sequence[int], known: Mapping[str, Any]) -> dict[str, str]:
        """Units of columns by name: the heading's, or the known one, or 1."""
        named = {self.name(i): self.unit(i) or str(known.get(self.name(i), "1")) for i in columns}
        if len(named) < len(columns):
            raise PredictionError(
                f"{self.source}: two feature columns have the same name; rename one"
            )
        return named

    def cells(self, at: int) -> list[str]:
        """A column's cells."""
        return [row[at] for _, row in self.rows]

    def filled(self) -> list[int]:
        """The columns that are not empty."""
        return [
            i for i in range(len(self.headings)) if any(not _absent(cell) for cell in self.cells(i))
        ]

    def features(
        self, names: Sequence[str] | None, time_at: int, again_at: int | None
    ) -> list[int]:
        """The columns of features: these, or all with values that are not times."""
        if names is None:
            used = [i for i in self.filled() if i not in (time_at, again_at)]
        else:
            used = [self.column(name, "a feature") for name in names]
        if time_at in used:
            raise PredictionError(
                f"{self.source}: {self.headings[time_at]!r} is the run time and cannot be a feature"
            )
        if not used:
            raise PredictionError(
                f"{self.source}: the run time is the only column; add columns to predict it from"
            )
        return used

    def complete(self, columns: Sequence[int]) -> tuple[list[int], list[str]]:
        """The rows with a value in each of these columns, and why the others are left out."""
        kept, dropped = [], []
        for position, (line, row) in enumerate(self.rows):
            empty = [self.name(i) for i in columns if _absent(row[i])]
            if empty:
                dropped.append(f"line {line}: no {', '.join(empty)}")
            else:
                kept.append(position)
        return kept, dropped

    def times(self, at: int) -> Callable[[int], float]:
        """Seconds of a row in a column of times; NaN where the cell is empty.

        Raises:
            PredictionError: the column's unit is not one of time (at once), or a cell is not a
                positive number (when its row is asked for).
        """
        scale = _seconds(self.source, self.headings[at])

        def seconds(row: int) -> float:
            line, cells = self.rows[row]
            if _absent(cells[at]):
                return math.nan
            return scale * _time(self.source, line, self.headings[at], cells[at])

        return seconds


def _cells(source: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The headings, and every row that is not blank with its line number."""
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise PredictionError(f"{source}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PredictionError(f"{source}: not a text file; save it as CSV in UTF-8") from None
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(text.splitlines(), delimiter=delimiter, skipinitialspace=True)
    rows: list[tuple[int, list[str]]] = []
    headings: list[str] = []
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
        raise PredictionError(f"{source}: the first line has to name the columns")
    repeated = [name for name in headings if headings.count(name) > 1]
    if repeated:
        raise PredictionError(f"{source}: the heading {repeated[0]!r} is there twice; rename one")
    return headings, rows


def _meant(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def sidecar_of(runs: str | os.PathLike[str]) -> dict[str, Any]:
    """Contents of the JSON file next to a CSV file; empty where there is none.

    Raises:
        PredictionError: the file is there, but is not JSON.
    """
    source = Path(runs)
    path = source.with_suffix(".json")
    if path == source or not path.is_file():
        return {}
    try:
        facts = read_json(path, PredictionError)
    except PredictionError as error:
        raise PredictionError(
            f"{path}: this description of {source.name} is unreadable ({error}); mend or move it"
        ) from None
    # A model may lie next to the runs that it was fitted to.
    return facts if isinstance(facts, dict) and "format" not in facts else {}


def _heading(text: str) -> tuple[str, str]:
    """A heading's name and unit, the unit empty where there is none."""
    match = _HEADING.fullmatch(text)
    if match is None or not match["name"]:
        return text, ""
    return match["name"], match["unit"].strip()


def _seconds(source: Path, heading: str) -> float:
    """What a time's unit is in seconds."""
    name, unit = _heading(heading)
    if unit:
        if unit not in _SECONDS:
            raise PredictionError(
                f"{source}: {unit!r} in {heading!r} is not a unit of time; use s, ms, us, ns, min "
                "or h"
            )
        return _SECONDS[unit]
    ending = name.rsplit("_", 1)[-1]
    return _SECONDS[ending] if "_" in name and ending in _SECONDS else 1.0


def _absent(cell: str) -> bool:
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
            "leave the cell of a failed run empty"
        )
    return value


def _codes(
    source: Path, name: str, cells: Sequence[str], levels: Mapping[str, Sequence[str]] | None
) -> tuple[list[float], list[str]]:
    """A column as numbers, and its words where it is a column of words."""
    truth = {"true": 1.0, "false": 0.0}
    words = list((levels or {}).get(name, ()))
    present = [cell for cell in cells if not _absent(cell)]
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
    """A column of numbers, NaN where a cell is empty."""
    values = [math.nan if _absent(cell) else float(cell) for cell in cells]
    if any(math.isinf(v) for v in values):
        raise PredictionError(f"{source}: the column {name!r} has infinite values")
    return values


def _words(source: Path, name: str, present: Sequence[str]) -> list[str]:
    """The different words of a column in the order of their first appearance."""
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
