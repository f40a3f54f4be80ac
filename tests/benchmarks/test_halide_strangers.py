"""The benchmark of pipelines that the scheduler was not made for: programs, figures, failures."""

import importlib
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    return importlib.import_module("halide_strangers")


@pytest.fixture(scope="module")
def programs():
    return importlib.import_module("strangers")


def row(name, seconds=1.0, plans=5, ratio=1.0, held_out=False, **static):
    lowered = {"status": "ok", "message": "", "seconds": seconds, "plans": plans}
    lowered["halide_seconds"] = seconds / 4
    return {
        "program": name,
        "held_out": held_out,
        "static": {d: {**lowered, "status": static.get(d, "ok")} for d in ("host", "cuda")},
        "reference": {"status": "none", "message": ""},
        "small": {},
        "timed": None if ratio is None else {"tried": [], "oneshot_vs_best_peer": ratio},
    }


def test_the_figures(bench):
    rows = [
        row("a", seconds=0.5, ratio=0.5),
        row("b", seconds=4.0, plans=2, ratio=2.0, held_out=True),
        row("c", plans=5, ratio=None),
    ]
    rows[0]["timed"] |= {"top_vs_hand": 0.5, "oneshot_vs_hand": 0.25}
    rows[1]["timed"] |= {"top_vs_hand": 2.0, "top_vs_best_peer": 3.0}
    found = bench.summary(rows)
    assert (found["top_vs_hand"], found["top_vs_hand_min"]) == (pytest.approx(1.0), 0.5)
    assert (found["oneshot_vs_hand"], found["hand_written"]) == (pytest.approx(0.25), 2)
    assert found["top_vs_hand_held_out"] == pytest.approx(2.0)
    assert (found["top_vs_best_peer"], found["top_vs_best_peer_min"]) == (pytest.approx(3.0), 3.0)
    assert (found["crashes"], found["refused_by_halide"], found["wrong"]) == (0, 0, 0)
    assert (found["plans_of_5_median"], found["plans_fewer_than_5"]) == (5, 1)
    assert (found["plans_of_5_median_cuda"], found["plans_fewer_than_5_cuda"]) == (5, 1)
    assert found["max_seconds"] == 4.0
    assert found["max_seconds_without_lowering"] == 3.0
    assert found["oneshot_vs_best_peer"] == pytest.approx(1.0)
    assert found["oneshot_vs_best_peer_min"] == 0.5
    assert found["oneshot_vs_best_peer_held_out"] == pytest.approx(2.0)


def test_every_failure_counts(bench):
    rows = [row("a", host="crashed"), row("b", cuda="refused"), row("c"), row("d"), row("e")]
    rows[2]["reference"]["status"] = "wrong_answer"
    rows[3]["timed"]["tried"] = [{"rank": 1, "status": "wrong_answer"}]
    rows[4]["small"] = {"opencl": {"status": "build_failed", "message": ""}}
    found = bench.summary(rows)
    assert (found["crashes"], found["refused_by_halide"], found["wrong"]) == (1, 2, 2)
    assert "opencl, small: build_failed" in bench.line(rows[4])


def test_output_of_a_dead_child_is_the_result(bench):
    found = bench.child("scheduled", "no such program", "host")
    assert found["status"] == "crashed"
    assert "no such program" in found["message"]


def test_the_programs(programs):
    examples = {path.stem for path in (BENCHMARKS.parent / "examples").glob("*.py")}
    assert len(programs.PROGRAMS) >= 60
    assert len(programs.FAMILIES) == 12
    assert not examples & set(programs.PROGRAMS)
    held_out = sum(map(programs.held_out, programs.PROGRAMS))
    assert 0.3 <= held_out / len(programs.PROGRAMS) <= 0.6
    assert all(program.full != program.small for program in programs.PROGRAMS.values())


@pytest.mark.parametrize("name", ["quantised_add", "trsm", "strict_window", "haar_picture"])
def test_a_reference(bench, programs, name):
    assert programs.PROGRAMS[name].expected is not None
    assert bench.referenced(name) == {"status": "ok", "message": ""}


def test_answers_that_differ(bench):
    right = np.linspace(1.0, 2.0, 100, dtype=np.float32)
    assert bench.differing(right * np.float32(1.00001), right) == ""
    wrong = right.copy()
    wrong[7] += 0.1
    assert bench.differing(wrong, right) == "1 of 100 values differ"
    whole = np.arange(1000, dtype=np.uint8)
    assert bench.differing(whole, whole) == ""
    assert bench.differing(whole[:10], whole).startswith("the shape")
    far = whole.copy()
    far[:5] += 9
    assert bench.differing(far, whole) == "5 of 1000 values differ"
    assert bench.differing(whole + 1, whole) == "1000 of 1000 values differ"


def test_the_page_has_every_program(bench):
    rows = [row("one"), row("two", ratio=None)]
    rows[0]["timed"]["oneshot_vs_best_peer_interval"] = [0.9, 1.1]
    rows[0]["small"] = {"host": {"status": "wrong_answer", "message": ""}}
    page = importlib.import_module("make_docs").strangers_rows(rows)
    assert (
        "| one | no | 1 | 5 | host ok, cuda ok | host wrong answer | 1.00 (0.90 to 1.10) |" in page
    )
    assert "| two | no | 1 | 5 | host ok, cuda ok | – | – |" in page
