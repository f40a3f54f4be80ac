"""The commands' own part: arguments in, files and texts out. What they call is stood in for."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import tilewright.halide
from tilewright.cli import main
from tilewright.cli.live import LivePage
from tilewright.errors import TilewrightError
from tilewright.halide.frontend.estimates import MissingEstimatesError
from tilewright.halide.frontend.source import ScheduledError
from tilewright.machines import gpu
from tilewright.report.model import Attempt, Bar, GroupRow, Progress, ScheduleReport

REPORT = ScheduleReport(
    pipeline="p",
    target="host",
    verified=True,
    seconds=0.002,
    naive_seconds=0.02,
    groups=(GroupRow("out", ("f", "out"), (("x", 32),), parallel=8, vector=16, predicted=0.001),),
)
COMPARED = ScheduleReport(
    pipeline="p",
    target="host",
    verified=True,
    comparison=(
        Bar("Adams2019", status="timeout", message="120 s"),
        Bar("Tilewright", 0.002, ours=True),
    ),
)


class Stand:
    """Stands in for a module's function and keeps what it was called with."""

    def __init__(self, report):
        self.report, self.error, self.called = report, None, None

    def __call__(self, pipeline, **options):
        self.called = (pipeline, options)
        options["on_progress"](Progress("searching", 1, 1))
        if self.error:
            raise self.error
        made = SimpleNamespace(
            report=lambda: self.report,
            task=SimpleNamespace(algorithm=SimpleNamespace(digest="0" * 64)),
            schedule=SimpleNamespace(target="host"),
            to_json=lambda: '{"schema": 1}',
            to_python=lambda: "# python",
            to_cpp=lambda runtime_checks=False: "// c++" + " with checks" * runtime_checks,
        )
        made.result = made  # of a comparison
        return made


@pytest.fixture
def schedule(monkeypatch):
    stand = Stand(REPORT)
    monkeypatch.setattr(tilewright.halide, "schedule", stand, raising=False)
    return stand


@pytest.fixture
def compare(monkeypatch):
    stand = Stand(COMPARED)
    monkeypatch.setattr(tilewright.halide, "compare", stand, raising=False)
    return stand


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "p.hlpipe"
    path.write_bytes(b"bytes")
    return str(path)


def test_the_explanation_is_printed_plainly_to_a_pipe(schedule, pipe, capsys):
    assert main(["schedule", pipe]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("p for host, 2 ms, 10× as fast as the naive schedule")
    assert "x 32" in captured.out
    assert "\x1b" not in captured.out
    assert captured.err == "searching 1/1\n"


def test_the_progress_is_also_served(schedule, pipe, capsys, monkeypatch):
    drawn = []
    monkeypatch.setattr(LivePage, "show", lambda self, page: drawn.append(page()))
    assert main(["schedule", pipe, "--serve"]) == 0
    (page,) = drawn
    assert "Scheduling p" in page
    assert "1 of 1" in page
    said = capsys.readouterr().err
    assert "http://127.0.0.1:" in said
    assert "searching 1/1" in said


def test_arguments_arrive(schedule, pipe):
    arguments = (
        "--target cuda --machine h100 --mode top --k 3 --fusion overlapped --keep -q --seed 7 "
        "--objective sioutas --scheduler auto "
        "--estimate out=10x20 --set sigma=0.5 --time-limit 2m --jobs 2 --candidate-memory 1G "
        "--candidate-time 10s --records r.db --remeasure"
    )
    assert main(["schedule", pipe, *arguments.split()]) == 0
    pipeline, options = schedule.called
    del options["on_progress"]
    assert pipeline == b"bytes"
    assert options == {
        "name": "p",
        "target": "cuda",
        "machine": gpu("h100"),
        "mode": "top",
        "k": 3,
        "fusion": "overlapped",
        "objective": "sioutas",
        "scheduler": "auto",
        "search": "tilewright",
        "verify": False,
        "check": True,
        "keep_schedule": True,
        "discard_schedule": False,
        "improve": False,
        "calibration": True,
        "exact_sizes": False,
        "estimates": {"out": ((0, 10), (0, 20)), "sigma": 0.5},
        "inputs": None,
        "seed": 7,
        "time_limit": 120.0,
        "jobs": 2,
        "candidate_time": 10.0,
        "candidate_memory": 1 << 30,
        "records": "r.db",
        "remeasure": True,
    }


@pytest.mark.parametrize(
    ("suffix", "text"), [("json", '{"schema": 1}'), ("py", "# python"), ("h", "// c++")]
)
def test_the_schedule_is_written_as_its_name_says(schedule, pipe, tmp_path, suffix, text):
    target = tmp_path / f"s.{suffix}"
    assert main(["schedule", pipe, "-q", "-o", str(target)]) == 0
    assert target.read_text() == text
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_the_schedule_on_standard_output(schedule, pipe, capsys):
    assert main(["schedule", pipe, "-q", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1}


def test_the_result_as_json(schedule, pipe, capsys):
    assert main(["schedule", pipe, "-q", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["speedup"] == pytest.approx(10)
    assert data["groups"][0]["vector"] == 16


def test_the_page(schedule, pipe, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["schedule", pipe, "-q", "--report", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")


def test_a_wrong_answer_is_a_failure(schedule, pipe, capsys):
    schedule.report = ScheduleReport("p", "host", verified=False)
    assert main(["schedule", pipe, "-q"]) == 1
    assert "WRONG ANSWER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "s.txt"], "name a .json, .py or .h file"),
        (["-o", "/no/such/folder/s.json"], "there is no folder"),
        (["--report", "/no/such/folder/p.html"], "there is no folder"),
        (["--machine", "h10O"], "Did you mean"),
        (["--inputs", "none.npz"], "there is no file none.npz"),
        (["-o", "-", "--json"], "standard output takes one document"),
        (["--seed", "-1"], "is not a seed"),
        (["--mode", "top", "--evaluations", "9"], "--evaluations is for --mode tune"),
        (["--search", "published"], "--search published is for --scheduler learned on CUDA"),
    ],
)
def test_mistakes_are_reported_before_any_work(schedule, pipe, capsys, arguments, message):
    assert main(["schedule", pipe, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert schedule.called is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TilewrightError("no schedule"), "no schedule"),
        (
            MissingEstimatesError({"out": ("x", "y"), "sigma": ()}),
            "--estimate 'out=1024x1024' --set 'sigma=1'",
        ),
        (ScheduledError(("blur",)), "scheduled already: blur. .*--discard-schedule.*--keep"),
    ],
)
def test_errors_name_the_flag_that_cures_them(schedule, pipe, capsys, error, message):
    schedule.error = error
    assert main(["schedule", pipe, "-q"]) == 2
    text = capsys.readouterr().err
    assert all(part in text for part in message.split(".*"))


@pytest.mark.parametrize("command", ["schedule", "compare"])
def test_the_page_alone_on_standard_output(schedule, compare, pipe, capsys, command):
    assert main([command, pipe, "--report", "-"]) == 0
    out = capsys.readouterr().out.strip()
    assert out.startswith("<!doctype html>")
    assert out.endswith("</html>")


@pytest.mark.parametrize("command", ["schedule", "compare"])
def test_a_page_may_have_a_name_that_is_not_utf_8(schedule, compare, pipe, tmp_path, command):
    page = tmp_path / "caf\udce9.html"
    assert main([command, pipe, "-q", "--report", str(page)]) == 0
    assert "caf\\udce9.html" in page.read_text(encoding="utf-8")


def test_notes_are_left_out_if_it_is_to_be_quiet(schedule, pipe, capsys):
    schedule.report = replace(REPORT, notes=("A note.",))
    assert main(["schedule", pipe]) == 0
    assert "A note." in capsys.readouterr().out
    assert main(["schedule", pipe, "-q"]) == 0
    assert "A note." not in capsys.readouterr().out


def test_compare(compare, pipe, capsys, tmp_path):
    page = tmp_path / "page.html"
    assert main(["compare", pipe, "-q", "--peer-time", "5s", "--report", str(page)]) == 0
    out = capsys.readouterr().out
    assert "Adams2019" in out
    assert "timeout" in out
    assert "timeout: 120 s" in page.read_text()
    assert compare.called[1]["peer_time"] == 5.0
    assert compare.called[1]["hand"] is None


def test_a_comparison_without_a_right_schedule_of_ours_is_a_failure(compare, pipe, capsys):
    compare.report = replace(COMPARED, verified=False)
    assert main(["compare", pipe, "-q"]) == 1
    assert "Adams2019" in capsys.readouterr().out


WRONG, RIGHT = Attempt("schedule 1", "wrong_answer"), Attempt("schedule 2", "ok")


@pytest.mark.parametrize(
    ("attempts", "code"),
    [
        ((WRONG, RIGHT), 0),
        ((WRONG, replace(WRONG, label="schedule 2")), 1),
        ((WRONG, Attempt("schedule 2", "not tried")), 1),
        ((), 0),
    ],
)
def test_a_comparison_fails_if_all_of_ours_do(compare, pipe, capsys, attempts, code):
    """Also where the naive schedule ran, which is the result then."""
    compare.report = replace(COMPARED, attempts=attempts)
    assert main(["compare", pipe, "-q"]) == code
    assert "Adams2019" in capsys.readouterr().out


def test_compare_finds_the_hand_written_schedule(compare, tmp_path):
    path = tmp_path / "f.py"
    path.write_text("def f():\n    return b'x'\ndef hand(target):\n    return b'y'\n")
    assert main(["compare", str(path), "-q", "--json"]) == 0
    assert compare.called[1]["hand"](None) == b"y"


def test_compare_takes_a_serialised_schedule(compare, pipe):
    assert main(["compare", pipe, "-q", "--json", "--hand", "h.hlpipe"]) == 0
    assert compare.called[1]["hand"] == "h.hlpipe"


@pytest.mark.parametrize(
    ("flags", "mode", "improve"),
    [
        ([], "oneshot", False),
        (["--improve"], "top", True),
        (["--improve", "--mode", "tune"], "tune", True),
        (["--mode", "given"], "given", False),
    ],
)
def test_improving_measures(schedule, pipe, flags, mode, improve):
    assert main(["schedule", pipe, "-q", *flags]) == 0
    assert schedule.called[1]["mode"] == mode
    assert schedule.called[1]["improve"] is improve


def test_runtime_checks_go_into_code_alone(schedule, pipe, tmp_path, capsys):
    assert main(["schedule", pipe, "-q", "--runtime-checks", "-o", str(tmp_path / "s.json")]) != 0
    assert "-o FILE.py or .h" in capsys.readouterr().err
    assert main(["schedule", pipe, "-q", "--runtime-checks", "-o", str(tmp_path / "s.h")]) == 0
    assert (tmp_path / "s.h").read_text() == "// c++ with checks"


def test_a_terminal_gets_tables(schedule, pipe, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main(["schedule", pipe, "-q"]) == 0
    out = capsys.readouterr().out
    assert "10× as fast" in out
    assert "─" in out
