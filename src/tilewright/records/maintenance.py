"""Exports records as lines of JSON, merges other files, and prunes records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.measure import Measurement
from tilewright.shapes import damaged, parse_json

from .lock import RecordsError
from .store import MeasurementRecord, Records, digest

FORMAT = "tilewright.records"
VERSION = 1
_OBJECTS = ("configuration", "machine", "versions", "context", "measurement")


@dataclass(frozen=True)
class Merged:
    """The number of records that a merge added, and of those already present."""

    added: int
    known: int


def to_line(record: MeasurementRecord) -> str:
    """Return one record as a line of JSON, which `from_line` reads."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "time": record.time,
            "problem": record.problem,
            "configuration": record.configuration,
            "machine": record.machine,
            "versions": record.versions,
            "context": record.context,
            "measurement": record.measurement.to_json(),
        },
        ensure_ascii=False,
    )


def from_line(line: str, where: str) -> MeasurementRecord:
    """Return the record that `to_line` wrote.

    Args:
        line: the text.
        where: the name of the line in errors: a file and a number.

    Raises:
        RecordsError: the line is damaged, or of another format or version.
    """
    try:
        data = parse_json(line, where, RecordsError)
    except RecordsError as error:
        raise RecordsError(f"{error}; remove the line") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordsError(f"{where} is not a record: give what 'tilewright records export' wrote")
    if data.get("version") != VERSION:
        raise RecordsError(
            f"{where} has version {data.get('version')!r}, this Tilewright reads {VERSION}"
        )
    texts = [name for name in ("time", "problem") if not isinstance(data.get(name), str)]
    objects = [name for name in _OBJECTS if not isinstance(data.get(name), dict)]
    if texts or objects:
        raise RecordsError(f"{where}: {(texts + objects)[0]!r} is missing or of the wrong type")
    with damaged(f"{where}: the measurement is damaged; remove the line", RecordsError):
        measurement = Measurement.from_json(data["measurement"])
    kept = {name: data[name] for name in _OBJECTS if name != "measurement"}
    return MeasurementRecord(data["problem"], measurement=measurement, time=data["time"], **kept)


def read(path: str | Path) -> Iterator[MeasurementRecord]:
    """Yield the records of a file: a records file, or lines that were exported.

    Raises:
        RecordsError: the file is missing, damaged, or of another kind.
    """
    file = Path(path)
    try:
        with file.open("rb") as opened:
            database = opened.read(16).startswith(b"SQLite format 3")
        if not database:
            with file.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield from_line(line, f"{path}, line {number}")
            return
    except (OSError, UnicodeDecodeError) as error:
        raise RecordsError(f"cannot read {path}: {error}") from None
    with Records(file, read_only=True) as records:
        yield from records.query()


def merge(into: Records, others: Iterable[MeasurementRecord]) -> Merged:
    """Add records that are not present yet; their times are kept.

    Two records are the same if everything but their number is equal, so merging twice adds
    nothing the second time.
    """
    known = {_identity(record) for record in into.query()}
    added = skipped = 0
    for record in others:
        identity = _identity(record)
        if identity in known:
            skipped += 1
            continue
        known.add(identity)
        into.add(record)
        added += 1
    return Merged(added, skipped)


def _identity(record: MeasurementRecord) -> str:
    data: list[Any] = [record.time, record.problem, *(getattr(record, n) for n in _OBJECTS[:-1])]
    return digest([*data, record.measurement.to_json()])


def chosen(
    records: Records,
    *,
    problem: str | None = None,
    before: str | None = None,
    status: str | None = None,
) -> list[MeasurementRecord]:
    """Return the records that match all given arguments; without arguments, all records.

    Args:
        records: the file.
        problem: the beginning of the problem's key.
        before: an ISO date or time (UTC); older ones are chosen.
        status: such as ``timeout``.
    """
    return [
        record
        for record in records.query(status=status)
        if record.problem.startswith(problem or "") and (before is None or record.time < before)
    ]


def prune(records: Records, unwanted: Iterable[MeasurementRecord]) -> int:
    """Remove records permanently and free their space; return their number."""
    return records.remove([record.id for record in unwanted])
