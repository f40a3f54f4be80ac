"""Exports records as lines of JSON, merges other files, and chooses records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewright.measure import Measurement
from tilewright.shapes import damaged, parse_json

from .lock import RecordsError
from .store import MeasurementRecord, Records, digest, storable

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


def read(path: str | Path, unreadable: list[int] | None = None) -> Iterator[MeasurementRecord]:
    """Yield the records of a file: a records file, or lines that were exported.

    Args:
        path: the file.
        unreadable: gets the numbers of a records file's damaged records, which are omitted.

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
        yield from records.query(unreadable=unreadable)


def merge(into: Records, others: Iterable[MeasurementRecord]) -> Merged:
    """Add records that are not present yet; their times are kept.

    Two records are the same if everything but their number is equal, so merging twice adds
    nothing the second time.
    """
    known = {_identity(record) for record in into.query(unreadable=[])}
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
    unreadable: list[int] | None = None,
) -> list[MeasurementRecord]:
    """Return the records that match all given arguments; without arguments, all records.

    Args:
        records: the file.
        problem: the beginning of the problem's key.
        before: an ISO date or time, in UTC unless it names a zone; older records are chosen.
        status: such as ``timeout``.
        unreadable: gets the numbers of damaged records, which are omitted. Without it, a damaged
            record raises an error.

    Raises:
        RecordsError: `before` is not a date, or a record is damaged.
    """
    found = records.query(status=status, unreadable=unreadable)
    wanted = set(matching(records, problem=problem, before=before, status=status))
    return [record for record in found if record.id in wanted]


def matching(
    records: Records,
    *,
    problem: str | None = None,
    before: str | None = None,
    status: str | None = None,
) -> list[int]:
    """Return the numbers of the records that `chosen` would choose, and of damaged ones.

    Damage to what was measured does not hide a record: its problem, time and status are enough.

    Raises:
        RecordsError: `before` is not a date.
    """
    limit = None if before is None else _moment(before)
    if before is not None and limit is None:
        raise RecordsError(f"{before!r} is not a date: give one such as 2026-01-31")
    beginning = storable(problem or "")
    return [
        number
        for number, when, name, ended in records.heads()
        if name.startswith(beginning)
        and (status is None or ended == status)
        and (limit is None or _is_before(when, limit))
    ]


def _is_before(when: str, limit: datetime) -> bool:
    """Return whether a record's time is known and earlier."""
    moment = _moment(when)
    return moment is not None and moment < limit


def _moment(text: str) -> datetime | None:
    """Return an ISO date or time; UTC if it names no zone; None if the text is neither.

    Text is not compared: one moment can be written in several ways, such as 20260131.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
