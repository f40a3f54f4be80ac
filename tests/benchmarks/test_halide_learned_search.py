"""The benchmark of the learned scheduler's search: figures, and one search in a process."""

import argparse

import pytest

import halide_learned_search
import halide_search


def row(program, seconds, adams, anderson, peak=100.0):
    found = {"program": program, "search": {"cpu_seconds": seconds, "peak_mb": peak}}
    if program not in halide_learned_search.LARGE:
        found["peers"] = {"Adams2019": adams, "Anderson2021": anderson}
    return found


def ok(seconds):
    return {"status": "ok", "cpu_seconds": seconds}


GONE = {"status": "out_of_memory", "cpu_seconds": None}
LATE = {"status": "timeout", "cpu_seconds": None}


def test_the_summary_has_large_pipelines_apart():
    large = next(iter(halide_learned_search.LARGE))
    rows = [
        row("blur", 1.0, ok(10.0), ok(4.0)),
        row("harris", 3.0, LATE, GONE),
        row(large, 20.0, None, None, peak=300.0),
    ]
    found = halide_learned_search.summary(rows)
    assert (found["programs"], found["max_seconds"], found["median_seconds"]) == (2, 3.0, 2.0)
    assert (found["stages_300_seconds"], found["max_memory_mb"]) == (20.0, 300.0)
    expected = (1 / 10 * 3 / halide_search.CPU_LIMIT) ** 0.5
    assert found["vs_adams2019"] == pytest.approx(expected)
    assert (found["vs_adams2019_programs"], found["vs_anderson2021_programs"]) == (2, 1)
    assert found["vs_anderson2021"] == pytest.approx(1 / 4)


def test_peers_that_no_run_kept_are_not_started(tmp_path):
    found = halide_learned_search.peers("blur", halide_learned_search.Kept(tmp_path, "x", False))
    assert set(found) == {"Adams2019", "Anderson2021"}
    assert {peer["status"] for peer in found.values()} == {"not measured"}
    rows = [row("blur", 1.0, *found.values())]
    assert halide_learned_search.summary(rows)["vs_adams2019_programs"] == 0


def test_a_search_is_the_learned_schedulers(tmp_path, monkeypatch):
    monkeypatch.setattr(halide_search, "REPEATS", 1)
    found = halide_learned_search.search("blur", argparse.Namespace(work=tmp_path))
    assert any(note.startswith("Learned scheduler: ") for note in found["notes"])
    assert found["cpu_seconds"] > 0
    assert found["peak_mb"] > found["imports_mb"] > 10


def test_a_search_is_the_analytic_schedulers_unless_told(tmp_path, monkeypatch):
    monkeypatch.setattr(halide_search, "REPEATS", 1)
    found = halide_search.search("blur", None, tmp_path)
    assert not any(note.startswith("Learned scheduler: ") for note in found["notes"])
