import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from tilewright.measure import Measurement
from tilewright.records import MeasurementRecord, Records, RecordsError, default_path

MACHINE = {"cpu": "a 2-core one"}
VERSIONS = {"halide": "21.0.0"}
GOOD = Measurement("ok", times=(0.25, 0.5, 0.125), cpu_times=(0.5, 1.0, 0.25), runs=3)


def record(configuration=None, measurement=GOOD, problem="blur", **more):
    fields = {"machine": MACHINE, "versions": VERSIONS, **more}
    return MeasurementRecord(
        problem, configuration or {"tile": 8}, measurement=measurement, **fields
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "records.sqlite"


def test_added_records_are_found(path):
    with Records(path) as records:
        records.add(record({"tile": 8, "order": [1, 0]}, context={"seed": 3}))
        records.add(record({"tile": 16}, Measurement("crashed", message="SIGSEGV")))
    with Records(path) as records:
        found = records.lookup("blur", {"order": [1, 0], "tile": 8}, MACHINE)
        assert found.measurement == GOOD
        assert found.context == {"seed": 3}
        assert found.versions == VERSIONS
        assert found.time.endswith("+00:00")
        failure = records.lookup("blur", {"tile": 16}, MACHINE, VERSIONS)
        assert failure.measurement.message == "SIGSEGV"
        assert records.lookup("blur", {"tile": 8}, MACHINE) is None
        assert records.lookup("blur", {"tile": 16}, {"cpu": "another"}) is None
        assert records.lookup("blur", {"tile": 16}, MACHINE, {"halide": "22"}) is None
        assert records.lookup("harris", {"tile": 16}, MACHINE) is None
        assert len(records) == 2
        assert records.problems() == {"blur": 2}


def test_the_latest_of_equal_records_counts_and_none_is_lost(path):
    with Records(path) as records:
        for seconds in (0.5, 0.25):
            records.add(record(measurement=Measurement("ok", times=(seconds,))))
        assert records.lookup("blur", {"tile": 8}, MACHINE).measurement.median == 0.25
        assert [r.measurement.median for r in records.query("blur")] == [0.5, 0.25]


def test_query_and_best(path):
    with Records(path) as records:
        for tile, time in ((4, 0.5), (8, 0.25), (16, 0.75)):
            records.add(record({"tile": tile}, Measurement("ok", times=(time,))))
        records.add(record({"tile": 2}, Measurement("ok", times=(0.1,), lower_bound=True)))
        records.add(record({"tile": 1}, Measurement("wrong_answer")))
        assert records.best("blur", MACHINE).configuration == {"tile": 8}
        assert records.best("blur", {"cpu": "another"}) is None
        assert [r.configuration["tile"] for r in records.query(status="wrong_answer")] == [1]


def test_records_are_append_only(path):
    with Records(path) as records:
        records.add(record())
    db = sqlite3.connect(path)
    for statement in ("DELETE FROM measurements", "UPDATE measurements SET status='ok'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


def test_every_addition_is_synchronised_to_the_disk(path):
    with Records(path) as records:
        assert records._db.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert records._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_several_writers_and_readers_share_a_file(path):
    with Records(path) as first, Records(path) as second:
        first.add(record())
        second.add(record(configuration={"x": 2}))
        with Records(path, read_only=True) as reader:
            assert len(reader) == len(first) == len(second) == 2
            with pytest.raises(RecordsError, match="readonly"):
                reader.add(record())


MANY = """
import sys
from tilewright.measure import Measurement
from tilewright.records import MeasurementRecord, Records
with Records(sys.argv[1]) as records:
    for number in range(20):
        measurement = Measurement("ok", (1.0,))
        records.add(MeasurementRecord(sys.argv[2], {"number": number}, {}, {}, measurement))
"""


def test_processes_that_write_at_the_same_time_lose_nothing(path):
    # They all find no file, and make it.
    names = [f"p{i}" for i in range(4)]
    argv = [sys.executable, "-c", MANY, str(path)]
    writers = [subprocess.Popen([*argv, name], stderr=subprocess.PIPE) for name in names]
    for writer in writers:
        _, errors = writer.communicate()
        assert (writer.returncode, errors) == (0, b"")
    with Records(path) as records:
        assert records.problems() == dict.fromkeys(names, 20)
        for name in names:
            assert [r.configuration["number"] for r in records.query(name)] == list(range(20))


def test_a_file_that_another_process_makes_while_it_is_opened(path, monkeypatch):
    connect = sqlite3.connect
    others: list[threading.Thread] = []

    class Slow(sqlite3.Connection):
        def execute(self, statement, *args):
            if "sqlite_master" in statement and not others:  # the id has been read by then
                others.append(threading.Thread(target=lambda: Records(path).close()))
                others[0].start()
                others[0].join(0.5)  # at once without a transaction; else it waits for us
            return super().execute(statement, *args)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Slow, **k))
    with Records(path) as records:
        records.add(record())
    others[0].join()
    with Records(path) as records:
        assert len(records) == 1


def test_a_claim_is_for_one_problem_and_ends_with_its_file(path):
    with Records(path) as first, Records(path) as second:
        first.claim("p")
        second.claim("q")
        with pytest.raises(RecordsError, match=f"process {os.getpid()} works on the same problem"):
            second.claim("p")
    with Records(path) as records:
        records.claim("p")


def test_a_claim_can_be_waited_for(path):
    first = Records(path)
    first.claim("p")
    timer = threading.Timer(0.1, first.close)
    timer.start()
    with Records(path) as second:
        second.claim("p", wait=600)
    timer.join()


HOLDER = """
import sys, time
from tilewright.records import Records
records = Records(sys.argv[1])
records.claim("p")
print("claimed", flush=True)
time.sleep(600)
"""


def test_a_claim_dies_with_its_process(path):
    argv = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "claimed\n"
        with Records(path) as records:
            with pytest.raises(RecordsError, match=f"process {holder.pid} "):
                records.claim("p")
            holder.kill()
            holder.wait()
            records.claim("p", wait=600)


@pytest.mark.parametrize("body", ["[1]", "7", "null", '"text"', "{"])
@pytest.mark.parametrize("column", ["configuration", "measurement"])
def test_bodies_of_another_shape_are_an_error_with_a_cure(path, body, column):
    with Records(path) as records:
        records.add(record())
    with sqlite3.connect(path) as db:
        if column == "measurement":
            db.execute("DROP TRIGGER measurements_stay")
            db.execute("UPDATE measurements SET measurement = ?", (body,))
        else:
            db.execute("UPDATE documents SET body = ?", (body,))
    with Records(path) as records, pytest.raises(RecordsError, match=r"unreadable.*prune"):
        list(records.query())


def test_names_that_are_not_utf_8_are_recorded(path):
    name = "caf\udce9.py"
    with Records(path) as records:
        records.claim(name)
        records.add(record({"file": name}, problem=name, versions={name: "1"}))
        assert records.lookup(name, {"file": name}, MACHINE, {name: "1"}).measurement == GOOD
        records.remember_page(name, "subject", "schedule")


@pytest.mark.parametrize("code", [sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN])
def test_a_file_can_be_read_in_a_folder_that_cannot_be_written(path, monkeypatch, code):
    """SQLite makes files there even to read; the superuser is never refused, so this is made up."""
    with Records(path) as records:
        records.add(record())
    connect = sqlite3.connect

    def refusing(address, **how):
        if "immutable=1" not in address:
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = code
            raise error
        return connect(address, **how)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    with Records(path, read_only=True) as records:
        assert len(records) == 1
    path.with_name(path.name + "-wal").touch()  # another process may be writing
    with pytest.raises(RecordsError, match="permissions"):
        Records(path, read_only=True)


def test_corrupt_and_foreign_files_are_refused_with_the_cure(tmp_path):
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(RecordsError, match=r"nonsense.*corrupt.*move it away"):
        Records(nonsense)
    assert nonsense.read_bytes().startswith(b"this is")
    foreign = tmp_path / "foreign"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE people (name)")
    with pytest.raises(RecordsError, match="another program"):
        Records(foreign)


def test_a_file_damaged_in_the_middle_is_refused(path):
    with Records(path) as records:
        for tile in range(200):
            records.add(record({"tile": tile}))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(bytes(data))
    with pytest.raises(RecordsError, match="corrupt"), Records(path) as records:
        list(records.query())


def test_a_file_of_a_newer_version_is_refused(path):
    Records(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(RecordsError, match="newer"):
        Records(path)


@pytest.mark.parametrize("place", ["file/below", "folder"])
def test_a_path_that_cannot_be_written_is_explained(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordsError, match="give another file"):
        Records(tmp_path / place)


def test_a_full_disk_is_explained_and_what_is_stored_stays(path):
    with Records(path) as records:
        records.add(record())
        pages = records._db.execute("PRAGMA page_count").fetchone()[0]
        records._db.execute(f"PRAGMA max_page_count={pages}")
        bulky = Measurement("ok", times=(1.0,), output="x" * 100_000)
        with pytest.raises(RecordsError, match="make room"):
            records.add(record(measurement=bulky))
        assert len(records) == 1
        records._db.execute("PRAGMA max_page_count=100000")
        records.add(record(measurement=bulky))
        assert len(records) == 2


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(RecordsError, match="no such"):
        Records(tmp_path / "missing", read_only=True)


def test_the_default_place_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_RECORDS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tilewright" / "records.sqlite"
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "mine"))
    with Records() as records:
        assert records.path == tmp_path / "mine"


WRITER = """
import sys
from tilewright.measure import Measurement
from tilewright.records import MeasurementRecord, Records
with Records(sys.argv[1]) as records:
    number = len(records)
    while True:
        measurement = Measurement("ok", times=(1.0 + number,), output="x" * 3000)
        records.add(MeasurementRecord("p", {"number": number}, {}, {}, measurement))
        print(number, flush=True)
        number += 1
"""


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_stored(path, tmp_path):
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    stored = -1
    for lines in (1, 23, 61):
        argv = [sys.executable, str(script), str(path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(lines):
                stored = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().splitlines(keepends=True)
            stored = max([stored, *(int(line) for line in rest if line.endswith("\n"))])
        with Records(path) as records:
            numbers = [r.configuration["number"] for r in records.query("p")]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= stored + 1
        assert len(numbers) <= stored + 2  # one may have been stored and not yet reported


@pytest.mark.parametrize("kind", ["folder", "device"])
def test_paths_that_are_no_files_are_refused_untouched(tmp_path, kind):
    path = tmp_path / "records.sqlite"
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(RecordsError, match="give another file"):
        Records(path)
    assert [p.name for p in tmp_path.iterdir()] == ["records.sqlite"]
