"""`tilewright.schedule` from end to end, on pipelines that compile in a moment."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import time

import halide as hl
import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide import autoschedule as session
from tilewright.halide.execution.session import Problem
from tilewright.halide.frontend.estimates import MissingEstimatesError
from tilewright.halide.frontend.source import ScheduledError
from tilewright.halide.ir.json import from_json
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.task import make_task
from tilewright.measure import Candidate
from tilewright.records import Records
from tilewright.records.store import canonical

WIDTH, HEIGHT = 200, 90


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def blur(estimates=True):
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    if estimates:
        blurred.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return blurred


def test_oneshot_compiles_nothing_and_says_so():
    result = tilewright.schedule(blur())
    assert (result.verified, result.measurement, result.seconds) == (None, None, None)
    assert result.measurements == ()
    assert result.task.name == "blurred"
    assert "unverified: not compiled yet" in result.explain()
    assert len(result.top()) == 1


def test_the_result_is_applied_to_the_same_pipeline_built_again():
    result = tilewright.schedule(blur())
    values = np.arange((WIDTH + 2) * (HEIGHT + 2), dtype=np.uint16) * 7
    pixels = values.reshape(HEIGHT + 2, WIDTH + 2)
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    result.apply(blurred)
    image.set(hl.Buffer(pixels))
    found = np.asarray(blurred.realize([WIDTH, HEIGHT]))
    rows = (pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]) // np.uint16(3)
    np.testing.assert_array_equal(found, (rows[:-2] + rows[1:-1] + rows[2:]) // np.uint16(3))


def test_the_result_is_printed_in_three_languages():
    result = tilewright.schedule(blur())
    assert from_json(result.to_json(), result.task.algorithm) == result.schedule
    assert "def mine(" in result.to_python("mine")
    assert "void mine(" in result.to_cpp("mine")


def test_several_schedules_of_oneshot_come_as_the_model_ranks_them():
    best = tilewright.schedule(blur(), k=2).top()
    assert len(best) == 2
    assert best[0].schedule != best[1].schedule
    assert best[0].schedule == tilewright.schedule(blur()).schedule


def test_verify_compiles_runs_and_compares():
    result = tilewright.schedule(blur(), verify=True)
    assert result.verified is True
    assert result.seconds > 0
    assert "verified" in result.explain()


def test_a_schedule_that_cannot_run_is_reported_as_failed(monkeypatch):
    def refuses_its_size(task, **_):
        loops = (ScheduledLoop("v0_in"), ScheduledLoop("v0_out"), ScheduledLoop("v1"))
        split = Split("v0", "v0_out", "v0_in", 64, "round_up")
        funcs = [FuncSchedule(i, INLINE, INLINE) for i in range(2)]
        funcs.append(FuncSchedule(2, ROOT, ROOT, stages=(StageSchedule((split,), loops),)))
        schedule = Schedule(task.algorithm.digest, "host", tuple(funcs))
        return [PlannedSchedule(schedule, (), 0.0)]

    monkeypatch.setattr(session, "plan_checked", refuses_its_size)
    monkeypatch.setattr(session, "plan_sizes", refuses_its_size)
    result = tilewright.schedule(blur(), verify=True)
    assert result.verified is False
    assert "Run failed" in result.notes[0]
    assert [r.multiple for r in result.requirements] == [64]
    # In `top`, the naive schedule is what is left.
    result = tilewright.schedule(blur(), mode="top")
    assert result.verified is True
    assert result.schedule == naive_schedule(result.task.algorithm)
    assert "1 of 1 schedules failed: 1 run failed." in result.notes


def test_top_verifies_measures_and_a_rerun_measures_nothing(tmp_path):
    seen: list = []
    store = tmp_path / "records"
    result = tilewright.schedule(
        blur(), mode="top", k=3, records=store, on_progress=seen.append, seed=3
    )
    assert result.verified is True
    assert len(result.tried) == len({t.planned.schedule for t in result.tried})
    assert all(t.ok and t.measurement.verified for t in result.tried)
    # One that is no finalist may have been faster, at a quieter moment.
    assert result.seconds == min(t.seconds or math.inf for t in result.tried if t.final)
    assert result.speedup > 0
    assert [r.schedule for r in result.top(1)] == [result.schedule]
    assert seen[-1].best is not None
    assert any(p.done == p.total == len(result.tried) for p in seen)
    with Records(store) as records:
        before = len(records)
        again = tilewright.schedule(blur(), mode="top", k=3, records=records, seed=3)
        assert len(records) == before
    assert all(t.recorded for t in again.tried)
    assert again.schedule == result.schedule


def test_the_time_limit_gives_what_there_is():
    result = tilewright.schedule(blur(), mode="top", k=2, time_limit=1e-3)
    assert result.verified is None
    assert result.tried[0].planned.schedule == result.schedule
    assert "ended by the time limit" in result.notes[0]


def test_an_interruption_gives_the_best_so_far():
    def interrupt(progress):
        if progress.done == 1:
            raise KeyboardInterrupt

    result = tilewright.schedule(blur(), mode="top", k=2, jobs=1, on_progress=interrupt)
    assert result.verified is True
    assert [t.ok for t in result.tried] == [True, False]
    assert result.tried[1].note == "not measured: the time limit was reached"
    assert "ended by an interruption" in result.notes[0]


def test_a_schedule_that_reads_beyond_its_inputs_wins_only_alone(monkeypatch):
    def rounds_up(task, **_):
        loops = (ScheduledLoop("v0_in"), ScheduledLoop("v0_out"), ScheduledLoop("v1"))
        split = Split("v0", "v0_out", "v0_in", 128, "round_up")
        beyond = FuncSchedule(1, ROOT, ROOT, stages=(StageSchedule((split,), loops),))
        naive = naive_schedule(task.algorithm)
        schedule = Schedule(naive.algorithm, "host", (naive.funcs[0], beyond, naive.funcs[2]))
        return [PlannedSchedule(s, (), 0.0) for s in (schedule, naive)]

    monkeypatch.setattr(session, "plan_sizes", rounds_up)
    result = tilewright.schedule(blur(), mode="top")
    assert [t.reads_beyond for t in result.tried] == [("image",), ()]
    assert "outside the required region" in result.tried[0].note
    assert result.schedule == naive_schedule(result.task.algorithm)
    monkeypatch.setattr(session, "plan_sizes", lambda task, **_: rounds_up(task)[:1])
    alone = tilewright.schedule(blur(), mode="top")
    assert alone.verified is True
    assert "reads `image` outside the region" in alone.notes[-1]
    assert "or use the naive schedule" in alone.notes[-1]


def test_scheduled_funcs_are_refused_or_kept():
    func = blur()
    hl.Pipeline(func).get_func(1).compute_root()
    with pytest.raises(ScheduledError, match="across"):
        tilewright.schedule(func)
    result = tilewright.schedule(func, keep_schedule=True)
    assert all(
        not result.task.algorithm.funcs[f.func].name.startswith("across")
        for f in result.schedule.funcs
    )


def test_estimates_that_are_missing_are_named_and_can_be_given():
    with pytest.raises(MissingEstimatesError, match="blurred"):
        tilewright.schedule(blur(estimates=False))
    result = tilewright.schedule(blur(estimates=False), estimates={"blurred": [(0, 64), (0, 32)]})
    assert "blurred 64x32" in result.report().facts["output"]


def test_inputs_are_contents_and_values():
    x = hl.Var("x")
    image, gain = hl.ImageParam(hl.Float(32), 1, "image"), hl.Param(hl.Float(32), "gain")
    out = hl.Func("out")
    out[x] = image[x] * gain
    out.set_estimates([(0, 64)])
    contents = {"image": np.ones(64, np.float32), "gain": np.float32(2.5)}
    result = tilewright.schedule(out, verify=True, inputs=contents)
    assert result.verified is True
    assert result.task.algorithm.scalars == {"gain": 2.5}


def test_the_page_is_written(tmp_path):
    page = tmp_path / "page.html"
    result = tilewright.schedule(blur())
    result.write_page(page)
    report = result.report()
    assert page.read_text().startswith("<!doctype html>")
    names = {node.name.split("$")[0] for node in report.dag.nodes}
    assert names >= {"image", "across", "blurred"}


def test_for_a_gpu_that_is_not_here_there_is_a_oneshot_schedule(monkeypatch):
    monkeypatch.setattr("tilewright.halide.schedulers.task.detect_cuda", lambda: [])
    result = tilewright.schedule(blur(), machine="h100")
    assert "cuda" in result.schedule.target.split("-")
    assert result.report().groups[0].threads
    with pytest.raises(TilewrightError, match="no device here"):
        tilewright.schedule(blur(), machine="h100", mode="top")
    with pytest.raises(TilewrightError, match="give the machine to schedule for"):
        tilewright.schedule(blur(), target="cuda")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "best"}, "one of oneshot, top, tune"),
        ({"k": 0}, "positive number of schedules"),
        ({"fusion": "overlap", "machine": "h100"}, "overlapped"),
        ({"target": "host", "machine": "h100"}, "give the target 'cuda'"),
        ({"target": "opencl", "machine": "h100"}, "device for cuda"),
        ({"target": "hosst"}, "hosst"),
        ({"target": "host-vulkan"}, "GPU interface of the target"),
        ({"machine": "h1000"}, "h1000"),
    ],
)
def test_unfitting_arguments_are_refused(options, message):
    with pytest.raises(TilewrightError, match=message):
        tilewright.schedule(blur(), **options)


def test_names_come_from_where_the_pipeline_comes_from(tmp_path):
    path = tmp_path / "pipe.hlpipe"
    estimates = {"image": [(0, WIDTH + 2), (0, HEIGHT + 2)]}
    path.write_bytes(hl.serialize_pipeline(hl.Pipeline(blur())))
    assert make_task(path, estimates=estimates).name == "pipe"
    assert make_task(blur(), name="mine").name == "mine"


TUNER = """
import sys
import tilewright
from tests_session import blur
tilewright.schedule(blur(), mode="top", k=5, records=sys.argv[1],
                    on_progress=lambda p: print(p.done, p.phase, flush=True))
"""


@pytest.mark.thorough
def test_a_top_run_that_is_killed_resumes(tmp_path):
    store, script = tmp_path / "records", tmp_path / "tuner.py"
    source = textwrap.dedent(TUNER).replace("tests_session", "test_session")
    script.write_text(f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n{source}")
    argv = [sys.executable, str(script), str(store)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tuner:
        told = 0
        for line in tuner.stdout:
            told = max(told, int(line.split()[0]))
            if told >= 1:
                break
        time.sleep(0.05)
        tuner.send_signal(signal.SIGKILL)
    with Records(store) as records:
        kept = [r.id for r in records.query()]
    assert len(kept) >= told
    result = tilewright.schedule(blur(), mode="top", k=5, records=store)
    assert result.verified is True
    with Records(store) as records:
        rows = list(records.query())
    assert [r.id for r in rows][: len(kept)] == kept
    # What was measured alone before the kill is not measured alone again.
    alone = [canonical(r.configuration) for r in rows if "finals" not in r.configuration]
    assert len(alone) == len(set(alone)) >= told


def with_rows_split(task, factor):
    """The naive schedule but for the output's rows, which go by pairs or more."""
    naive = naive_schedule(task.algorithm)
    loops = (ScheduledLoop("v0"), ScheduledLoop("in"), ScheduledLoop("out"))
    stage = StageSchedule((Split("v1", "out", "in", factor, "guard_with_if"),), loops)
    funcs = (*naive.funcs[:2], FuncSchedule(2, ROOT, ROOT, stages=(stage,)))
    return PlannedSchedule(Schedule(naive.algorithm, "host", funcs), (), 0.0)


def test_candidates_that_misbehave_are_recorded_and_the_run_goes_on(tmp_path, monkeypatch):
    specimens = os.path.join(os.path.dirname(__file__), "..", "measure", "specimens.py")
    misbehave = {"schedule 1": "Segfault", "schedule 2": "HangInBuild", "schedule 3": "Allocate"}
    honest = Problem.candidate

    def candidate(problem, variant):
        if variant.name in misbehave:
            return Candidate(f"{specimens}:{misbehave[variant.name]}", None, variant.name)
        return honest(problem, variant)

    monkeypatch.setattr(Problem, "candidate", candidate)
    plans = lambda task, **_: [with_rows_split(task, factor) for factor in (2, 3, 4, 5)]  # noqa: E731
    monkeypatch.setattr(session, "plan_sizes", plans)
    store = tmp_path / "records"
    result = tilewright.schedule(
        blur(), mode="top", records=store, candidate_time=25, candidate_memory=600 << 20
    )
    assert [t.measurement.status for t in result.tried] == [
        "crashed",
        "timeout",
        "out_of_memory",
        "ok",
    ]
    assert result.verified is True
    assert result.schedule == result.tried[3].planned.schedule
    assert "3 of 4 schedules failed: 1 crashed, 1 timeout, 1 out of memory." in result.notes
    with Records(store) as records:
        kept = {r.measurement.status for r in records.query()}
    assert kept == {"crashed", "timeout", "out_of_memory", "ok"}
