"""The arithmetic of the benchmarks: ratios, failures, pieces, the page."""

import argparse
import importlib
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def load():
    return importlib.import_module


def host_row(program, oneshot, top, hand=None, li="ok"):
    entries = {
        name: {"status": "ok", "seconds": 0.01, "message": ""}
        for name in ("Mullapudi2016", "Adams2019", "Adams2019, beam 1", "one shot", "top 5")
    }
    entries["Li2018"] = {"status": li, "seconds": 0.1}
    return {
        "program": program,
        "entries": entries,
        "oneshot_vs_best_peer": oneshot,
        "oneshot_vs_best_peer_interval": [oneshot, oneshot],
        "top_vs_best_peer": top,
        "top_vs_best_peer_interval": [top, top],
        "top_vs_hand": hand,
        "top_vs_hand_interval": [hand, hand],
        "oneshot_vs_hand": hand,
    }


def test_the_host_summary(load):
    summary = load("halide_host").summary(
        [host_row("a", 0.5, 2.0, 1.5), host_row("b", 2.0, 0.5, li="crashed")]
    )
    assert summary["oneshot_vs_best_peer"] == pytest.approx(1.0)
    assert summary["top_vs_best_peer_min"] == 0.5
    assert (summary["top_vs_hand"], summary["hand_written"]) == (pytest.approx(1.5), 1)
    assert (summary["peer_failures"], summary["our_failures"]) == (1, 0)


def search_row(status, theirs=10.0):
    ours = {"cpu_seconds": 1.0, "peak_mb": 100.0}
    peer = {"status": status, "cpu_seconds": theirs, "message": "", "peak_mb": 1.0}
    return {
        "program": "blur",
        "host": ours,
        "cuda": ours,
        "host_peers": {"Adams2019": peer},
        "cuda_peers": {"Anderson2021": peer},
        "tilings": [{"tilings": 1000, "seconds": 0.001}],
    }


def test_the_search_summary_counts_time_outs_at_their_limit(load):
    rows = [search_row("ok"), search_row("timeout", None), search_row("crashed", None)]
    summary = load("halide_search").summary(rows)
    assert summary["vs_adams2019"] == pytest.approx((1 / 10 * 1 / 120) ** 0.5)
    assert summary["vs_adams2019_programs"] == 2
    assert summary["adams2019_status"] == {"crashed": 1, "ok": 1, "timeout": 1}
    assert summary["tilings_per_second"] == pytest.approx(1e6)


def test_pieces_are_made_once_and_again_when_asked(load, tmp_path):
    common = load("common")
    made = []

    def piece():
        made.append(1)
        return {"n": len(made)}

    assert common.Pieces(tmp_path, "x", False).get("a", piece) == {"n": 1}
    assert common.Pieces(tmp_path, "x", False).get("a", piece) == {"n": 1}
    fresh = common.Pieces(tmp_path, "x", True)
    assert fresh.get("a", piece) == fresh.get("a", piece) == {"n": 2}


def test_the_programs_are_the_examples(load):
    common = load("common")
    files = {path.stem for path in common.EXAMPLES.glob("*.py")}
    assert set(common.ALL_PROGRAMS) == files
    assert len(common.PROGRAMS) == 18
    assert common.hand_written(common.example("blur"), "cpu")
    assert not common.hand_written(common.example("demosaic"), "cpu")


def test_results_are_written_and_shown_on_the_page(load, tmp_path, monkeypatch):
    common, docs, host = load("common"), load("make_docs"), load("halide_host")
    rows = [host_row("blur", 0.5, 2.0, 1.5, li="timeout")]
    args = argparse.Namespace(results=tmp_path / "results", only=None)
    common.write(args, "halide_host", rows, host.summary(rows))
    data = json.loads((tmp_path / "results" / "halide_host.json").read_text())
    assert list(data) == ["name", "date", "machine", "versions", "rows", "summary"]
    part = docs.section(data, "halide_host")
    assert "| `oneshot_vs_best_peer` | 0.5 | >= 1.0 | **missed** |" in part
    assert "| `top_vs_best_peer` | 2 | >= 1.25 | met |" in part
    assert "| blur | 10 | 10 | 10 |" in part
    assert "| timeout |" in part
    args.only = "blur"
    assert common.write(args, "halide_host", rows, {}).name == "halide_host-partial.json"


def test_the_page_has_the_spills_of_every_program(load):
    run = {"status": "ok", "refused": False, "spill_bytes": 8, "kernels": 3, "mismatches": 1}
    ours = {"nested": run, "none": {**run, "refused": True}}
    rows = [{"program": "blur", "ours": ours, "anderson2021": {"status": "out_of_memory"}}]
    page = load("make_docs").static_rows(rows)
    assert "| blur | 8 | refused | out of memory | 3 | 2 |" in page


def test_a_goal_may_be_another_figure(load):
    docs = load("make_docs")
    result = {"summary": {"ours": 3, "theirs": 4}}
    assert docs.verdict(3, "<= theirs", result) == "met"
    assert docs.verdict(5, "<= theirs", result) == "**missed**"
    assert docs.verdict(None, "<= 1", result) == "unknown"


def test_the_summary_of_sizes(load):
    sizes = load("halide_sizes")
    right = {"extents": [[3, 5]], "status": "ok", "message": ""}
    barred = {"extents": [[1, 5]], "status": "barred", "message": "no"}
    wrong = {"extents": [[7, 5]], "status": "wrong", "message": "3 values"}
    host = {"status": "ok", "message": "", "sizes": [right, barred, wrong]}
    cuda = {"status": "build_failed", "message": "why", "sizes": []}
    rows = [
        {"program": "a", "targets": {"host": host, "cuda": cuda}, "timing": {"loss": 1.21}},
        {"program": "b", "targets": {"host": {**host, "sizes": [right]}}, "timing": {"loss": 1.0}},
    ]
    found = sizes.summary(rows)
    assert (found["failures"], found["failures_by_target"]) == (2, {"host": 1, "cuda": 1})
    assert (found["runs"], found["barred_by_the_pipeline"]) == (4, 1)
    assert found["loss_at_estimates"] == pytest.approx(1.1)
    assert sizes.failed(host) == ["7x5 wrong: 3 values"]


def test_sizes_begin_at_one_and_keep_bounds(load):
    import halide as hl

    from tilewright.halide.schedulers.task import make_task

    x, y, c = hl.vars("x y c")
    out = hl.Func("out")
    out[x, y, c] = x + y * c
    out.bound(c, 0, 3)
    out.set_estimates([(0, 640), (0, 480), (0, 3)])
    algorithm = make_task(out).algorithm
    (name,) = algorithm.outputs
    chosen = [extents[name] for extents in load("halide_sizes").sizes(algorithm, 40, "p")]
    assert len(chosen) == 40
    assert chosen[0] == [1, 1, 3]
    assert {extent for *_, extent in chosen} == {3}
    assert any(width % 2 and width < 32 for width, *_ in chosen)
