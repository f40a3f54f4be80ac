"""The benchmark of random pipelines: seeds, figures, failures."""

import halide_labels
import halide_random


def test_no_pipeline_is_one_that_labels_are_recorded_of():
    seeds = range(halide_random.FIRST, halide_random.FIRST + halide_random.COUNT)
    assert not {f"random:{seed}" for seed in seeds} & set(halide_labels.RANDOM)


def test_whatever_is_not_ok_is_a_failure():
    def row(**statuses):
        return {"cases": {c: {"status": s, "message": "", "funcs": 3} for c, s in statuses.items()}}

    rows = [row(host="ok", cuda="timeout"), row(host="refused", cuda="ok"), row(host="crashed")]
    found = halide_random.summary(rows)
    assert (found["pipelines"], found["failures"]) == (3, 3)
    assert found["failures_by_target"] == {"host": 2, "cuda": 1}
    assert found["by_status"] == {"ok": 2, "timeout": 1, "refused": 1, "crashed": 1}


def test_a_process_that_hangs_or_dies_is_a_result(monkeypatch, tmp_path):
    stub = tmp_path / "stub.py"
    stub.write_text(
        "import sys, time\ntime.sleep(60 if sys.argv[2] == '1' else 0)\nsys.exit('gone')"
    )
    monkeypatch.setattr(halide_random, "__file__", str(stub))
    assert halide_random.child(0, "host") == {"status": "crashed", "message": "gone"}
    monkeypatch.setattr(halide_random, "CHILD_SECONDS", 1.0)
    assert halide_random.child(1, "host")["status"] == "timeout"
