"""Where a schedule's time goes."""

import os
import subprocess
import sys

import halide as hl
import pytest
from patience import PATIENT

from tilewright.halide.execution.profiling import group_seconds, profile
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.naive import naive_schedule


def planned(*groups):
    reports = tuple(GroupReport(funcs, funcs[-1]) for funcs in groups)
    return PlannedSchedule(Schedule("digest", "host", ()), reports, 0.0)


def test_the_slow_func_has_the_larger_share(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x, y = hl.vars("x y")
    quick, slow, out = hl.Func("quick"), hl.Func("slow"), hl.Func("out")
    quick[x, y] = hl.f32(x + y)
    slow[x, y] = hl.sin(hl.cos(hl.sin(hl.cos(quick[x, y] + quick[x, y + 1]))))
    out[x, y] = slow[x, y] + slow[x + 1, y]
    out.set_estimates([(0, 600), (0, 400)])
    algorithm = load(out)
    with Session(algorithm, limits=PATIENT) as session:
        shares = profile(session, Variant(naive_schedule(algorithm)))
    by_name = {name.split("$")[0]: share for name, share in shares.items()}
    assert set(by_name) <= {"quick", "slow", "out"}
    assert by_name["slow"] > 0.5
    assert sum(shares.values()) == pytest.approx(1)


def test_groups_have_the_time_of_their_funcs_once():
    plan = planned(("a", "b"), ("c",), ("c",))
    assert group_seconds(plan, {"a": 0.25, "b": 0.25, "c": 0.5}, 8.0) == (4.0, 4.0, None)
    assert group_seconds(plan, {}, 8.0) == (None, None, None)


PRINTING = """
from tilewright.halide.execution.profiling import printed
lines = []
with printed(lines):
    print("by Halide")
assert lines == ["by Halide"], lines
"""


def test_output_buffered_by_python_is_read():
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PRINTING]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
