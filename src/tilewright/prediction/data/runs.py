"""A table of past runs: features with units, times, and where they come from; as CSV and JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilewright.files import check_writable, write_text
from tilewright.prediction.data.csv_sheet import TIME, CsvSheet, codes
from tilewright.prediction.data.unfinished import Unfinished
from tilewright.prediction.errors import PredictionError
from tilewright.report.table import cell, to_csv
from tilewright.shapes import read_json

Array: TypeAlias = np.ndarray[Any, Any]

RETIME = "retime_s"
# A column counts as a copy of the run time if the median deviation of their ratio is less than both
# of these: a share, and a share of the spread of the times' logarithms. Chosen so because repeated
# measurements of a run differ by a few percent.
_SAME, _SAME_SHARE = 0.1, 0.2
_DISTINCT = 0.9  # minimum share of rows with a distinct value
_FEWEST = 8  # minimum number of rows for this test


@dataclass(frozen=True)
class Runs:
    """Runs of one variant of a kernel.

    Args:
        features: names of the columns of `table` with their units (``1`` where unknown).
        table: floats of shape (runs, features).
        times: seconds per run, shape (runs,).
        retimes: an independent second measurement of the same, or None.
        facts: kernel, variant, complexity, machine, versions, as far as they are known.
        dropped: rows left out, each with the reason.
        censored: whether each run was stopped, so that its time is a lower bound, booleans
            (runs,); None if all ended.
    """

    features: Mapping[str, str]
    table: Array
    times: Array
    retimes: Array | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    censored: Array | None = None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(self.features)

    def ended(self) -> Runs:
        """Return the runs without those that were stopped."""
        if self.censored is None:
            return self
        kept = ~self.censored
        return replace(
            self,
            table=self.table[kept],
            times=self.times[kept],
            retimes=None if self.retimes is None else self.retimes[kept],
            censored=None,
        )

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
    target: str | Sequence[str] | None = TIME,
    features: Sequence[str] | None = None,
    *,
    names: Sequence[str] | None = None,
    retime: str | None = RETIME,
    levels: Mapping[str, Sequence[str]] | None = None,
    units: Mapping[str, str] | None = None,
    unfinished: Unfinished | None = None,
) -> Runs:
    """Read runs from a CSV file with a line of headings.

    A heading may give a unit in brackets, ``time [ms]`` or ``size (bytes)``; times are converted to
    seconds; without a unit they are in seconds. A time's heading may also end in its unit,
    ``time_ms``; ``time_min`` is a minimum in seconds: minutes are ``time [min]``. Empty cells,
    ``NA``, ``nan``, ``null`` and ``-`` are missing: a row without a time or with a missing feature
    is left out and named in `Runs.dropped`. A column of words is numbered in the order of its first
    appearance, or by `levels`, and ``true`` and ``false`` are 1 and 0. The numbering is in
    ``facts["levels"]``. A time such as ``>120`` is that of a run that was stopped after 120, and is
    marked in `Runs.censored`.

    Args:
        path: the file; facts about it are read from a JSON file of the same name.
        target: the column of run times, with or without its unit; None for one with a usual name,
            such as ``time_s``, ``time``, ``seconds`` or ``runtime``. Several columns are repeated
            measurements: the median of every other column counts, and the median of the rest is the
            second measurement.
        features: the columns to use; by default all but the times and those all of whose
            cells are empty. A column that nearly equals the run time or its inverse, up to a
            factor, must be named here to be used: most such columns are times or throughputs,
            which are unknown before a run.
        names: the headings of a file without any.
        retime: a column of second measurements, used if it exists.
        levels: the words of a column in the order of their numbers.
        units: the units that columns must have where they have one, by name.
        unfinished: how the file says that a run failed or was stopped.

    Raises:
        PredictionError: no such file, no such column, a column of both numbers and words, a
            time that is not positive, an unknown or wrong unit, no complete row, or a column that
            nearly equals the run time.
    """
    sheet = CsvSheet.read(Path(path), names)
    source = sheet.source
    if target is None:
        target = sheet.time_name()
    targets = [target] if isinstance(target, str) else list(target)
    times_at, again_at = _time_columns(sheet, targets, retime)
    unfinished = unfinished or Unfinished()
    sheet, stopped, failed = unfinished.resolve(sheet, (*times_at, *again_at))
    sidecar = sidecar_of(source)
    known = sidecar["features"] if isinstance(sidecar.get("features"), dict) else None
    if features is None and known is not None:
        features = [name for name in known if name in sheet.known]
    used = sheet.features(features, (*times_at, *again_at), unfinished.columns(sheet))
    coded = {i: codes(source, sheet.name(i), sheet.cells(i), levels) for i in used}
    needed = again_at if len(targets) > 1 else []
    kept, dropped = sheet.complete((*times_at, *needed, *used))
    if not kept:
        raise PredictionError(
            f"{source}: no row has all of its values ({'; '.join([*failed, *dropped][:3])})"
        )
    facts = {**sidecar, "source": source.name}
    words = {sheet.name(i): coded[i][1] for i in used if coded[i][1]}
    if words:
        facts["levels"] = words
    runs = Runs(
        sheet.units(used, known or {}, units),
        np.array([[coded[i][0][row] for i in used] for row in kept], dtype=float),
        _medians(sheet, times_at, kept),
        _medians(sheet, again_at, kept) if again_at else None,
        facts,
        (*failed, *dropped),
        _stopped(sheet, kept, stopped),
    )
    if features is None:
        _refuse_times(runs, source)
    return runs


def _time_columns(
    sheet: CsvSheet, targets: Sequence[str], retime: str | None
) -> tuple[list[int], list[int]]:
    """Return the columns of run times, and those of their second measurements."""
    found = [sheet.column(t, "the run time (choose it with --target)") for t in targets]
    if len(targets) == 1 and retime in sheet.known and retime != targets[0]:
        return found, [sheet.known[retime]]
    return found[::2], found[1::2]


def _stopped(sheet: CsvSheet, rows: Sequence[int], lines: Collection[int]) -> Array | None:
    """Return which of these rows are on these lines, booleans; None for none."""
    found = np.array([sheet.rows[row][0] in lines for row in rows])
    return found if found.any() else None


def _medians(sheet: CsvSheet, at: Sequence[int], rows: Sequence[int]) -> Array:
    """Return the median seconds of repeated measurements of each row."""
    columns = [sheet.times(column) for column in at]
    return np.median([[column(row) for column in columns] for row in rows], axis=1)


def _refuse_times(runs: Runs, source: Path) -> None:
    """Reject features that nearly equal a run time or its inverse, up to a factor.

    The factor of a time is its unit, and that of an inverse the work of a throughput.

    Sizes may also be proportional to the time, but are whole numbers or repeat.
    """
    logs = np.log(runs.times)
    for name, column in zip(runs.names, runs.table.T, strict=True):
        distinct = len(np.unique(column)) >= _DISTINCT * len(column)
        if len(column) < _FEWEST or not distinct or (column <= 0).any():
            continue
        if (column == np.round(column)).all():
            continue
        least = min(_SAME, _SAME_SHARE * _deviation(logs))
        off, inverse = (_deviation(np.log(column) + sign * logs) for sign in (-1, 1))
        if off < least:
            raise PredictionError(
                f"{source}: the column {name!r} follows the run time within {off:.0%}, as another "
                "measurement of it would: leave it out with --features, or name it there to use "
                f"it; repeated measurements are --target TIME,{name}"
            )
        if inverse < least:
            raise PredictionError(
                f"{source}: the column {name!r} follows the inverse of the run time within "
                f"{inverse:.0%}, as a throughput computed from it would: leave it out with "
                "--features, or name it there to use it"
            )


def _deviation(values: Array) -> float:
    """Return the median deviation from the median."""
    return float(np.median(np.abs(values - np.median(values))))


def write_csv(runs: Runs, path: str | os.PathLike[str]) -> Path:
    """Write `csv_text`, and the runs' facts and units as JSON next to it; returns the CSV's path.

    Raises:
        PredictionError: the JSON file next to it is of another kind.
        TilewrightError: a file cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    check_description_place(target)
    facts = {**runs.facts, "features": dict(runs.features)}
    write_text(target, csv_text(runs))
    write_text(target.with_suffix(".json"), json.dumps(facts, indent=1) + "\n")
    return target


def csv_text(runs: Runs) -> str:
    """Return runs as CSV: the features, ``time_s`` and, if there is one, ``retime_s``.

    The time of a run that was stopped is written as ``>120``.
    """
    stopped = np.zeros(len(runs), dtype=bool) if runs.censored is None else runs.censored
    first = [f"{'>' * int(s)}{cell(t)}" for s, t in zip(stopped, runs.times, strict=True)]
    columns = [first] if runs.retimes is None else [first, map(cell, runs.retimes)]
    again = [RETIME] * (len(columns) - 1)
    return to_csv(
        [*runs.names, TIME, *again],
        (
            [*(f"{value:.12g}" for value in row), *times]
            for row, *times in zip(runs.table, *columns, strict=True)
        ),
    )


def check_description_place(path: str | os.PathLike[str]) -> None:
    """Refuse to write runs if the JSON file next to them would replace a file of another kind.

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


def sidecar_of(runs: str | os.PathLike[str]) -> dict[str, Any]:
    """Contents of the JSON file next to a CSV file; empty if there is none.

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
    # A model may be stored next to the runs that it was fitted to.
    return facts if isinstance(facts, dict) and "format" not in facts else {}
