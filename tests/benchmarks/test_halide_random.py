"""The benchmark of random pipelines: seeds, figures, failures."""

import shutil

import halide as hl
import pytest

import halide_labels
import halide_random
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import make_task


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


def test_faults_of_the_platform_are_counted_apart():
    case = {"status": halide_random.PLATFORM_FAULT, "message": "", "funcs": 3}
    found = halide_random.summary([{"cases": {"opencl": case, "host": {**case, "status": "ok"}}}])
    assert (found["failures"], found["platform_faults"]) == (0, 1)


class Simulator:
    """An Oclgrind that writes to its log and prints a verdict."""

    def __init__(self, folder, verdict, log=""):
        self.path = folder / "oclgrind"
        self.path.write_text(f"#!/bin/sh\nprintf '{log}' > $4\necho '{verdict}'\n")
        self.path.chmod(0o755)


@pytest.mark.parametrize(
    ("verdict", "log", "status"),
    [
        (halide_random.RIGHT, "", halide_random.PLATFORM_FAULT),
        (halide_random.RIGHT, "data race", None),
        ("3 of 9 values are wrong", "", None),
    ],
)
def test_only_right_answers_without_reports_blame_the_platform(
    verdict, log, status, tmp_path, monkeypatch
):
    made = Simulator(tmp_path, verdict, log)
    monkeypatch.setattr(halide_random.shutil, "which", lambda name: str(made.path))
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = x
    f.set_estimates([(0, 64)])
    task = make_task(f, target="host")
    found = halide_random.second_opinion(task, naive(task), {"message": "wrong"})
    assert found.get("status") == status
    assert found["message"].startswith("wrong; ")
    assert status or (log or verdict) in found["message"]


@pytest.mark.opencl
@pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="no oclgrind: apt-get install oclgrind"
)
def test_oclgrind_executes_the_schedule(monkeypatch):
    # As this process leaves it once it has run something on the platform here.
    monkeypatch.setenv("HL_OCL_PLATFORM_NAME", "Portable Computing Language")
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = x * x
    f.set_estimates([(0, 64)])
    task = make_task(f, target="opencl")
    schedule = plan(task)[0].schedule
    found = halide_random.second_opinion(task, schedule, {"message": "wrong"})
    assert found.get("status") == halide_random.PLATFORM_FAULT, found


def test_a_process_that_hangs_or_dies_is_a_result(monkeypatch, tmp_path):
    stub = tmp_path / "stub.py"
    stub.write_text(
        "import sys, time\ntime.sleep(60 if sys.argv[2] == '1' else 0)\nsys.exit('gone')"
    )
    monkeypatch.setattr(halide_random, "__file__", str(stub))
    assert halide_random.child(0, "host") == {"status": "crashed", "message": "gone"}
    monkeypatch.setattr(halide_random, "CHILD_SECONDS", 1.0)
    assert halide_random.child(1, "host")["status"] == "timeout"
