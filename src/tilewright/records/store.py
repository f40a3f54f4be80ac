"""The database of all measurements: an append-only SQLite file.

A measurement is on the disk before `Records.add` returns: write-ahead log, full
synchronisation. Killing the process at any instant loses at most the one being added. Several
processes may write to one file, each in short transactions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.measure import Measurement
from tilewright.shapes import damaged

from .location import default_path
from .lock import Claim, RecordsError

SCHEMA_VERSION = 1
# Created when it is first used; versions that do not know it leave it alone.
_PAGES = """CREATE TABLE IF NOT EXISTS pages (
    path TEXT PRIMARY KEY,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL
)"""
_APPLICATION_ID = 0x746C7772  # "tlwr"
# Seconds that a transaction waits for others, which take milliseconds, or as long as the disk.
_BUSY_SECONDS = 60.0
# The bits of SQLite's extended error codes that hold the primary one.
_PRIMARY = 0xFF
# Errors where SQLite cannot make its files next to a database; which one depends on its version.
_BARRED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

# What keeps records append-only.
TRIGGERS = (
    """CREATE TRIGGER measurements_stay BEFORE UPDATE ON measurements
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END""",
    """CREATE TRIGGER measurements_remain BEFORE DELETE ON measurements
    BEGIN SELECT RAISE(ABORT, 'records are append-only'); END""",
)
_SCHEMA = (
    """CREATE TABLE documents (
    digest TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE measurements (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time TEXT NOT NULL,
    problem TEXT NOT NULL,
    configuration TEXT NOT NULL REFERENCES documents(digest),
    machine TEXT NOT NULL REFERENCES documents(digest),
    versions TEXT NOT NULL REFERENCES documents(digest),
    context TEXT NOT NULL REFERENCES documents(digest),
    status TEXT NOT NULL,
    median REAL,
    measurement TEXT NOT NULL
)""",
    "CREATE INDEX by_problem ON measurements(problem, configuration, machine)",
    *TRIGGERS,
)

Json = Mapping[str, Any]


def canonical(data: Any) -> str:
    """Return JSON text that is the same for equal data: sorted keys, no spaces."""
    return storable(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def storable(text: str) -> str:
    r"""Escape lone surrogates, which stand for the bytes of file names that are not UTF-8.

    Neither UTF-8 nor SQLite can hold them. In JSON text the escapes mean the same.

    >>> storable("caf\udce9")
    'caf\\udce9'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


@dataclass(frozen=True)
class MeasurementRecord:
    """One measurement and everything it belongs to.

    `problem` is a key of the task, such as a pipeline's digest and sizes. `configuration`,
    `machine`, `versions` and `context` are JSON objects: the candidate, the machine, the software,
    and further data of the caller (limits, seed, index of the decision). `id` grows with time and
    is 0 before the record is stored; `time` is UTC in ISO format.
    """

    problem: str
    configuration: Json
    machine: Json
    versions: Json
    measurement: Measurement
    context: Json = field(default_factory=dict)
    id: int = 0
    time: str = ""


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _header(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Return the application id, the version and the number of tables, of one moment.

    Read one by one, they would contradict each other while another process makes the tables.
    """
    db.execute("BEGIN")
    try:
        application, version, tables = (
            int(db.execute(query).fetchone()[0])
            for query in (
                "PRAGMA application_id",
                "PRAGMA user_version",
                "SELECT count(*) FROM sqlite_master",
            )
        )
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    return application, version, tables


class Records:
    """A records file, as a context manager.

    Args:
        path: the file, made when missing with the folders above it; `default_path()` if None.
        read_only: do not make or change the file.

    Raises:
        RecordsError: the file is corrupt, not a records file, of a newer version or unwritable, or
            the disk is full. Every method raises it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.path = Path(path) if path is not None else default_path()
        self.read_only = read_only
        self._mutex = threading.RLock()
        self._claims: dict[str, Claim] = {}
        with self._explained():
            if read_only and not self.path.exists():
                raise RecordsError(f"{self.path}: there is no such records file")
            if self.path.exists() and not self.path.is_file():  # SQLite would accept a device
                raise RecordsError(f"{self.path} is a folder or a device; give another file")
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={'ro' if self.read_only else 'rwc'}"
        try:
            return self._connect(uri)
        except sqlite3.OperationalError as error:
            log = self.path.with_name(self.path.name + "-wal")
            barred = error.sqlite_errorcode & _PRIMARY in _BARRED
            if not self.read_only or not barred or log.exists():
                raise
            # SQLite makes files next to the database even to read it. In a folder where it cannot,
            # a database without a log is complete, and no process that could change it is at work.
            return self._connect(f"{uri}&immutable=1")

    def _connect(self, uri: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
        )
        # A damaged text must not make the other records unreadable.
        db.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        application, version, tables = _header(db)
        empty = tables == 0
        if not empty and application != _APPLICATION_ID:
            raise RecordsError(f"{self.path} is a database of another program; give another file")
        if version > SCHEMA_VERSION:
            raise RecordsError(
                f"{self.path} was written by a newer Tilewright (records version {version}, this "
                f"one knows {SCHEMA_VERSION}); update Tilewright or give another file"
            )
        if self.read_only:
            if empty:
                raise RecordsError(f"{self.path} is empty: nothing has been recorded")
            return
        self._use_log(db)
        db.execute("PRAGMA synchronous=FULL")
        if empty:
            self._create(db)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # otherwise, a power failure may lose the file's name
            finally:
                os.close(folder)

    def _use_log(self, db: sqlite3.Connection) -> None:
        """Switch to the write-ahead log; SQLite does not wait for others there, so we do."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def _create(self, db: sqlite3.Connection) -> None:
        """Make the tables, unless another process has just done so."""
        with _transaction(db):
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in _SCHEMA:
                    db.execute(statement)
                # The version is set in the same transaction: a kill leaves all or nothing.
                db.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def claim(self, problem: str, *, wait: float = 0.0) -> None:
        """Reserve a problem for this process until the file is closed.

        For runs whose decisions follow from their records; plain measurements need no claim.

        Args:
            problem: a key of the caller's, such as the problem of the records and a seed.
            wait: seconds to wait for another process that has it.

        Raises:
            RecordsError: another run, with the same file open, has the problem.
        """
        with self._explained():
            if problem not in self._claims:
                self._claims[problem] = Claim(self.path, problem, wait=wait)

    def __enter__(self) -> Records:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the file and release all claims; closing twice does nothing."""
        with self._mutex:
            self._db.close()
            while self._claims:
                self._claims.popitem()[1].release()

    def add(self, record: MeasurementRecord) -> int:
        """Append a record; it is on the disk when this returns. Returns its number."""
        documents = {
            name: canonical(getattr(record, name))
            for name in ("configuration", "machine", "versions", "context")
        }
        keys = {name: hashlib.sha256(body.encode()).hexdigest() for name, body in documents.items()}
        measurement = record.measurement
        with self._mutex, self._explained(), _transaction(self._db):
            self._db.executemany(
                "INSERT OR IGNORE INTO documents VALUES (?, ?)",
                [(keys[name], body) for name, body in documents.items()],
            )
            cursor = self._db.execute(
                "INSERT INTO measurements (time, problem, configuration, machine, versions,"
                " context, status, median, measurement) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    storable(record.time) or datetime.now(UTC).isoformat(timespec="milliseconds"),
                    storable(record.problem),
                    keys["configuration"],
                    keys["machine"],
                    keys["versions"],
                    keys["context"],
                    measurement.status,
                    measurement.median if measurement.times else None,
                    canonical(measurement.to_json()),
                ),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def remove(self, numbers: Sequence[int]) -> int:
        """Remove records by their numbers, in one transaction; return how many existed.

        The only exception to append-only, for a user's explicit request: no run removes anything.
        """
        with self._mutex, self._explained(), _transaction(self._db):
            for name in ("measurements_stay", "measurements_remain"):
                self._db.execute(f"DROP TRIGGER {name}")
            before = self._db.total_changes
            self._db.executemany(
                "DELETE FROM measurements WHERE id = ?", [(number,) for number in numbers]
            )
            removed = self._db.total_changes - before
            self._db.execute(
                "DELETE FROM documents WHERE digest NOT IN (SELECT configuration FROM "
                "measurements UNION SELECT machine FROM measurements UNION SELECT versions "
                "FROM measurements UNION SELECT context FROM measurements)"
            )
            for trigger in TRIGGERS:
                self._db.execute(trigger)
        # If others are writing, the file shrinks the next time.
        with self._mutex, self._explained(), contextlib.suppress(sqlite3.OperationalError):
            self._db.execute("VACUUM")
        return removed

    def remember_page(self, path: str | os.PathLike[str], subject: str, kind: str) -> None:
        """Remember where a page was written, replacing an earlier entry for the same path.

        Args:
            path: the file.
            subject: the subject of the page, a key of the caller's.
            kind: the kind of page, such as ``schedule``.
        """
        with self._mutex, self._explained():
            self._db.execute(_PAGES)
            # A row that is replaced becomes the last one.
            self._db.execute(
                "INSERT OR REPLACE INTO pages VALUES (?, ?, ?)",
                (storable(os.path.abspath(path)), subject, kind),
            )

    def last_page(self, subject: str, kind: str) -> Path | None:
        """Return the last page of a kind about a subject; None if none still exists."""
        with self._mutex, self._explained():
            self._db.execute(_PAGES)
            row = self._db.execute(
                "SELECT path FROM pages WHERE subject = ? AND kind = ? ORDER BY rowid DESC LIMIT 1",
                (subject, kind),
            ).fetchone()
        return Path(row[0]) if row is not None and os.path.isfile(row[0]) else None

    def lookup(
        self, problem: str, configuration: Json, machine: Json, versions: Json | None = None
    ) -> MeasurementRecord | None:
        """Return the latest record with these values, or None. `versions` counts only if given."""
        where = {"problem": problem, "configuration": digest(configuration)}
        where["machine"] = digest(machine)
        if versions is not None:
            where["versions"] = digest(versions)
        return next(self._select(where, "ORDER BY id DESC LIMIT 1"), None)

    def query(
        self,
        problem: str | None = None,
        *,
        machine: Json | None = None,
        versions: Json | None = None,
        status: str | None = None,
        unreadable: list[int] | None = None,
    ) -> Iterator[MeasurementRecord]:
        """Return records in the order they were added, restricted by the arguments given.

        Args:
            problem: the complete key.
            machine: the complete description.
            versions: all versions.
            status: such as ``ok``.
            unreadable: gets the numbers of damaged records, which are omitted. Without it, a
                damaged record raises `RecordsError`.
        """
        where = {"problem": problem, "status": status}
        where["machine"] = None if machine is None else digest(machine)
        where["versions"] = None if versions is None else digest(versions)
        given = {k: v for k, v in where.items() if v is not None}
        return self._select(given, "ORDER BY id", unreadable)

    def best(self, problem: str, machine: Json) -> MeasurementRecord | None:
        """Return the record with the least median among the ``ok`` ones measured to the end."""
        records = self.query(problem, machine=machine, status="ok")
        complete = (r for r in records if r.measurement.times and not r.measurement.lower_bound)
        return min(complete, key=lambda r: r.measurement.median, default=None)

    def problems(self) -> dict[str, int]:
        """Return the number of records per problem."""
        with self._mutex, self._explained():
            rows = self._db.execute("SELECT problem, count(*) FROM measurements GROUP BY problem")
            return dict(rows.fetchall())

    def heads(self) -> list[tuple[int, str, str, str]]:
        """Return number, time, problem and status of each record, of damaged ones as well."""
        with self._mutex, self._explained():
            return self._db.execute(
                "SELECT id, time, problem, status FROM measurements ORDER BY id"
            ).fetchall()

    def __len__(self) -> int:
        """Return the number of records."""
        with self._mutex, self._explained():
            count: int = self._db.execute("SELECT count(*) FROM measurements").fetchone()[0]
            return count

    def _select(
        self, where: Mapping[str, str], tail: str, unreadable: list[int] | None = None
    ) -> Iterator[MeasurementRecord]:
        condition = " AND ".join(f"m.{column} = ?" for column in where) or "1"
        with self._mutex, self._explained():
            # Outer joins find a record whose document is missing; bytes are decoded one by one.
            rows = self._db.execute(
                "SELECT m.id, m.time, m.problem, CAST(c.body AS BLOB), CAST(a.body AS BLOB),"
                " CAST(v.body AS BLOB), CAST(x.body AS BLOB), CAST(m.measurement AS BLOB)"
                " FROM measurements m"
                " LEFT JOIN documents c ON c.digest = m.configuration"
                " LEFT JOIN documents a ON a.digest = m.machine"
                " LEFT JOIN documents v ON v.digest = m.versions"
                " LEFT JOIN documents x ON x.digest = m.context"
                f" WHERE {condition} {tail}",
                tuple(map(storable, where.values())),
            ).fetchall()
        for number, when, problem, *bodies in rows:
            try:
                with damaged(f"{self.path}: record {number} is unreadable", RecordsError):
                    *documents, measured = map(_object, bodies)
                    parsed = Measurement.from_json(measured)
            except RecordsError as error:
                if unreadable is None:
                    raise RecordsError(
                        f"{error}; remove it with  tilewright records prune --unreadable --yes "
                        f"--records {shlex.quote(str(self.path))}"
                    ) from error
                unreadable.append(number)
                continue
            configuration, machine, versions, context = documents
            yield MeasurementRecord(
                problem, configuration, machine, versions, parsed, context, number, when
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite and the system into errors with a cure."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error)
            if "full" in text:
                cure = "make room on the disk, or give a file on another one"
            elif "readonly" in text or "unable to open" in text:
                cure = "check its permissions, or give another file"
            elif "not a database" in text or "malformed" in text:
                cure = "it is corrupt or not a records file: move it away, or give another file"
            else:
                cure = "give another file (--records FILE or TILEWRIGHT_RECORDS)"
            raise RecordsError(f"{self.path}: {text}; {cure}") from error
        except OSError as error:
            raise RecordsError(
                f"{self.path}: {error.strerror or error}; check the path and its permissions, or "
                "give another file (--records FILE or TILEWRIGHT_RECORDS)"
            ) from error


def _object(body: bytes | None) -> dict[str, Any]:
    """Return a JSON object. Raises ValueError for any other JSON, and for a missing body."""
    if body is None:
        raise ValueError("a part of it is missing")
    data = json.loads(body)
    if not isinstance(data, dict):
        raise ValueError(f"{body[:40]!r} is not an object")
    return data
