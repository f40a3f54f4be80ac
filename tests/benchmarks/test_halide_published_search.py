"""The benchmark of the search as published: figures, and settings."""

import pytest

import halide_published_search as benchmark


def row(program, plugin, tilewright, published, one_pass=None):
    """A program by the costs of searches; None: it did not end."""

    def search(cost, seconds):
        if cost is None:
            return {"status": "failed"}
        return {"status": "ok", "milliseconds": cost, "cpu_seconds": seconds}

    return {
        "program": program,
        "plugin": search(plugin, 1.0),
        "tilewright": search(tilewright, 2.0),
        "published": search(published, 8.0),
        "one_pass": search(one_pass, 4.0),
    }


def test_figures_are_ratios_of_pairs_that_both_ended():
    rows = [
        row("blur", 2.0, 1.0, 4.0, one_pass=8.0),
        row("harris", 4.0, 1.0, 2.0, one_pass=2.0),
        row("unsharp", None, 3.0, 3.0),
        row("bgu", 1.0, 1.0, None),
    ]
    found = benchmark.summary(rows)
    assert found["programs"] == 4
    assert found["published_over_plugin"] == pytest.approx(1.0)
    assert found["published_over_plugin_programs"] == 2
    assert found["published_over_plugin_seconds"] == pytest.approx(8.0)
    assert found["published_over_plugin_low"] == pytest.approx(0.5)
    assert found["published_over_plugin_high"] == pytest.approx(2.0)
    assert found["tilewright_over_published_programs"] == 3
    assert found["one_pass_over_published"] == pytest.approx(2.0**0.5)
    assert found["one_pass_over_published_seconds"] == pytest.approx(0.5)
    assert found["no_buckets_over_published"] is None
    assert found["published_status"] == {"ok": 3, "failed": 1}
    assert found["not_measured"] == []


def test_programs_that_were_not_run_are_named():
    rows = [row("blur", 1.0, 1.0, 1.0), {**row("bgu", 1.0, 1.0, 1.0)}]
    rows[1]["published"] = {"status": "not measured"}
    assert benchmark.summary(rows)["not_measured"] == ["bgu"]


def test_variants_differ_from_the_paper_by_what_they_switch_off():
    paper = benchmark.settings_of("published")
    assert (paper.beam, paper.passes, paper.buckets, paper.penalties) == (32, 5, True, True)
    assert all(benchmark.settings_of(name) != paper for name in benchmark.VARIANTS[1:])
