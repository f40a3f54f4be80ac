"""Records exported, merged and pruned, as functions and on the command line."""

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli import main
from tilewright.measure import Measurement
from tilewright.records import (
    MeasurementRecord,
    Merged,
    Records,
    RecordsError,
    matching,
    merge,
    read,
    to_line,
)
from tilewright.records.maintenance import from_line

OBJECTS = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2)


def record(problem="p", x=1, status="ok", time="2026-01-02T03:04:05.000+00:00", seconds=1.0):
    times = (seconds,) if status == "ok" else ()
    return MeasurementRecord(
        problem, {"x": x}, {"m": 1}, {}, Measurement(status, times), {}, 0, time
    )


@pytest.fixture
def files(tmp_path):
    mine, yours = tmp_path / "mine.sqlite", tmp_path / "yours.sqlite"
    with Records(mine) as records:
        for made in (record(), record(x=2, status="timeout"), record("q", seconds=3.0)):
            records.add(made)
    with Records(yours) as records:
        for made in (record(), record("q", x=5, time="2025-12-31T00:00:00.000+00:00")):
            records.add(made)
    return mine, yours


def everything(path):
    with Records(path, read_only=True) as records:
        return [to_line(r) for r in records.query()]


@given(st.text(max_size=5), OBJECTS, OBJECTS, st.sampled_from(["ok", "crashed"]))
def test_a_line_says_all_of_a_record(problem, configuration, context, status):
    made = MeasurementRecord(
        problem, configuration, {}, {}, Measurement(status, (0.5,)), context, 0, "2026-01-01"
    )
    assert from_line(to_line(made), "here") == made


def test_merging_adds_what_is_new_once(files):
    mine, yours = files
    with Records(mine) as records:
        assert merge(records, read(yours)) == Merged(added=1, known=1)
        assert merge(records, read(yours)).added == 0
        assert [r.configuration["x"] for r in records.query("q")] == [1, 5]
        assert next(r.time for r in records.query("q") if r.configuration["x"] == 5)[:4] == "2025"


def test_exported_records_can_be_merged(files, tmp_path):
    mine, _ = files
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(everything(mine)) + "\n\n")
    with Records(tmp_path / "new.sqlite") as records:
        assert merge(records, read(lines)).added == 3
    assert everything(tmp_path / "new.sqlite") == everything(mine)


def test_pruning_removes_and_keeps_the_file_append_only(files):
    mine, _ = files
    with Records(mine) as records:
        assert records.remove(matching(records, status="timeout")) == 1
        assert [r.measurement.status for r in records.query()] == ["ok", "ok"]
        records.add(record(x=7))
        documents = records._db.execute("SELECT count(*) FROM documents").fetchone()[0]
        assert documents == 4  # x=1, x=7, the machine, and {} for versions and context
    with sqlite3.connect(mine) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute("DELETE FROM measurements")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "is not a record"),
        ('{"format": "tilewright.records", "version": 9}', "version 9"),
        ('{"format": "tilewright.records", "version": 1, "time": 3}', "'time' is missing"),
        (to_line(record()).replace('"ok"', '"fine"'), "damaged"),
        (to_line(record()).replace("[1.0]", "7"), "damaged"),
    ],
)
def test_damaged_lines_are_named(tmp_path, line, said):
    path = tmp_path / "lines.jsonl"
    path.write_text(f"{to_line(record())}\n{line}\n")
    with pytest.raises(RecordsError, match=said):
        list(read(path))


def command(capsys, *words):
    code = main(["records", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_lists_and_shows(files, capsys):
    code, out, _ = command(capsys, "list", "--records", files[0])
    rows = [line.split() for line in out.splitlines()[1:] if not set(line) <= set("- ─")]
    assert code == 0
    assert [row[:3] for row in rows] == [["p", "2", "1"], ["q", "1", "1"]]
    code, out, _ = command(capsys, "show", "q", "--records", files[0])
    assert (code, '{"x": 1}' in out, "3 s" in out) == (0, True, True)
    code, _, errors = command(capsys, "show", "z", "--records", files[0])
    assert (code, "records list" in errors) == (2, True)


@pytest.mark.parametrize("action", [["list"], ["show", "p"]])
def test_problems_and_measurements_are_written_as_json(files, tmp_path, capsys, action):
    path, records = tmp_path / "out.json", ("--records", files[0])
    code, table, _ = command(capsys, *action, *records, "-o", path)
    assert code == 0
    assert table == command(capsys, *action, *records)[1]
    found = json.loads(path.read_text())
    assert [one["problem"] for one in found] == (["p", "q"] if action == ["list"] else ["p", "p"])
    for option in ("--json", "-o-"):
        assert json.loads(command(capsys, *action, *records, option)[1]) == found
    code, out, errors = command(capsys, *action, *records, "-o", tmp_path / "no" / "x.json")
    assert (code, out, "there is no folder" in errors) == (2, "", True)


def test_json_of_records_has_seconds_and_complete_times(files, capsys):
    _, out, _ = command(capsys, "list", "--records", files[0], "--json")
    first = json.loads(out)[0]
    assert (first["records"], first["ok"]) == (2, 1)
    assert first["last"] == max(json.loads(line)["time"] for line in everything(files[0]))
    _, out, _ = command(capsys, "show", "q", "--records", files[0], "--json")
    (one,) = json.loads(out)
    assert (one["status"], one["median"], one["configuration"]) == ("ok", 3.0, {"x": 1})


def test_the_command_exports_and_merges(files, tmp_path, capsys):
    mine, yours = files
    lines = tmp_path / "out.jsonl"
    assert command(capsys, "export", "q", "-o", lines, "--records", yours)[0] == 0
    assert [json.loads(line)["problem"] for line in lines.read_text().splitlines()] == ["q"]
    code, out, _ = command(capsys, "merge", lines, yours, "--records", mine)
    assert (code, out.splitlines()) == (
        0,
        [f"{lines}: 1 added, 0 known already", f"{yours}: 0 added, 2 known already"],
    )


def test_the_command_prunes_only_with_a_filter_and_yes(files, capsys):
    mine, _ = files
    before = everything(mine)
    code, _, errors = command(capsys, "prune", "--records", mine)
    assert (code, "say what to remove" in errors) == (2, True)
    for wrong in (["--before", "yesterday"], ["--status", "slow"]):
        assert command(capsys, "prune", *wrong, "--records", mine)[0] == 2
    code, out, _ = command(capsys, "prune", "p", "--records", mine)
    assert (code, out) == (0, "2 of 3 records would be removed: add --yes\n")
    assert everything(mine) == before
    code, out, _ = command(capsys, "prune", "--status", "timeout", "--yes", "--records", mine)
    assert (code, out) == (0, "1 records removed\n")
    assert len(everything(mine)) == 2


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("2026-01-31", ["new", "odd"]),
        ("20260131", ["new", "odd"]),  # as text it is after all times of its year
        ("2026-W05-6", ["new", "odd"]),
        ("2026-01-31T02:00+02:00", ["new", "odd"]),
        ("2026-01-31T00:00:00.001Z", ["odd"]),
        ("2026-01-31T02:00-02:00", ["odd"]),
    ],
)
def test_a_date_means_the_same_however_it_is_written(tmp_path, capsys, before, left):
    with Records(tmp_path / "r") as records:
        for problem, when in (
            ("old", "2026-01-30T23:59:59.999+00:00"),
            ("new", "2026-01-31T00:00:00.000+00:00"),
            ("odd", "yesterday"),
        ):
            records.add(record(problem, time=when))
    words = ("prune", "--before", before, "--yes", "--records", tmp_path / "r")
    assert command(capsys, *words)[0] == 0
    assert [json.loads(line)["problem"] for line in everything(tmp_path / "r")] == left


DAMAGE = {
    "half of it": "UPDATE measurements SET measurement = '{\"status\"' WHERE id = 2",
    "too deep": f"UPDATE measurements SET measurement = '{'[' * 3000}' WHERE id = 2",
    "not UTF-8": "UPDATE measurements SET measurement = replace(measurement, '\"timeout\"', "
    "'\"timeout\", \"message\": \"' || CAST(x'e9' AS TEXT) || '\"') WHERE id = 2",
    "document gone": "UPDATE measurements SET configuration = 'x' WHERE id = 2",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_costs_no_other(files, tmp_path, capsys, damage):
    mine, lines = files[0], tmp_path / "lines.jsonl"
    with sqlite3.connect(mine) as db:
        db.execute("DROP TRIGGER measurements_stay")
        db.execute(DAMAGE[damage])
        db.execute(
            "CREATE TRIGGER measurements_stay BEFORE UPDATE ON measurements BEGIN SELECT 1; END"
        )
    with Records(mine) as records, pytest.raises(RecordsError, match=r"record 2 .* --unreadable"):
        list(records.query())
    code, _, errors = command(capsys, "export", "-o", lines, "--records", mine)
    assert (code, len(lines.read_text().splitlines())) == (0, 2)
    assert "1 damaged record left out" in errors
    for words in (("list",), ("show", "p")):
        code, out, errors = command(capsys, *words, "--records", mine)
        assert (code, bool(out), "1 damaged" in errors) == (0, True, True)
    code, out, _ = command(capsys, "merge", mine, "--records", tmp_path / "new.sqlite")
    assert (code, out) == (0, f"{mine}: 2 added, 0 known already, 1 damaged\n")
    code, out, _ = command(capsys, "merge", lines, "--records", mine)
    assert (code, out) == (0, f"{lines}: 0 added, 2 known already\n")
    code, out, _ = command(capsys, "prune", "--unreadable", "--yes", "--records", mine)
    assert (code, out) == (0, "1 records removed\n")
    assert len(everything(mine)) == 2


def test_a_damaged_record_can_be_pruned_by_its_problem(files, capsys):
    with sqlite3.connect(files[0]) as db:
        db.execute("UPDATE documents SET body = '{' ")
    code, out, _ = command(capsys, "prune", "q", "--yes", "--records", files[0])
    assert (code, out) == (0, "1 records removed\n")


def test_a_missing_file_is_an_error(tmp_path, capsys):
    code, _, errors = command(capsys, "list", "--records", tmp_path / "none")
    assert (code, "no such records file" in errors) == (2, True)
    assert not (tmp_path / "none").exists()


def test_an_empty_file_is_said_to_be_empty(tmp_path, capsys, monkeypatch):
    path = tmp_path / "empty.sqlite"
    Records(path).close()
    assert main(["records", "list", "--records", str(path)]) == 0
    assert "empty.sqlite has no measurements yet" in capsys.readouterr().out
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(path))
    assert main(["records", "list"]) == 0
    assert "empty.sqlite has no measurements yet" in capsys.readouterr().out
