"""The comparison with other schedules, on a pipeline that compiles in a moment."""

import collections
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import halide as hl
import pytest

from tilewright.errors import TilewrightError
from tilewright.halide import comparison as module
from tilewright.halide.comparison import HAND, NAIVE, ONESHOT, OURS, compare, source_of
from tilewright.halide.schedulers.halide_autoschedulers import PeerSchedule
from tilewright.halide.search.top_k import measure_top
from tilewright.measure import Measurement
from tilewright.records import Records, canonical

FILE = """
import halide as hl

def build(width):
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    blurred.set_estimates([(0, width), (0, 90)])
    return image, across, blurred, x, y

def blur(width=200):
    return build(width)[2]

def hand(target, width=200):
    image, across, blurred, x, y = build(width)
    image.dim(0).set_bounds(0, width + 2)
    blurred.vectorize(x, 8).parallel(y)
    across.compute_at(blurred, y).vectorize(x, 8)
    return blurred

def other(target):
    return hl.ImageParam(hl.UInt(16), 2, "another").in_()
"""


@pytest.fixture
def example(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from tilewright.cli.pipeline import load_module

    path = tmp_path / "blur_example.py"
    path.write_text(FILE)
    return load_module(path)


def test_all_are_timed_together_and_failures_are_shown(example, monkeypatch, tmp_path):
    searched = module.peer_schedules

    def with_failures(session, task, watch, cpu_seconds, memory_bytes):
        found = searched(session, task, watch, cpu_seconds, memory_bytes)
        for name, status in (("Adams2019", "timeout"), ("Li2018", "crashed")):
            found[name] = PeerSchedule(found[name].peer, status, message=f"it {status}")
        return found

    monkeypatch.setattr(module, "peer_schedules", with_failures)
    monkeypatch.setattr(module, "ROUNDS", 3)
    found = compare(
        example.blur(160), hand=partial(example.hand, width=160), k=2, records=tmp_path / "r"
    )
    labels = [entry.label for entry in found.entries]
    assert labels[:2] == [NAIVE, HAND]
    assert OURS in labels
    status = {entry.label: entry.status for entry in found.entries}
    assert status.pop("Adams2019") == "timeout"
    assert status.pop("Li2018") == "crashed"
    assert set(status.values()) == {"ok"}
    naive = found.entry(NAIVE)
    assert naive.low <= naive.seconds <= naive.high
    assert naive.slower is not None
    assert naive.slower[0] > 1
    assert found.entry(OURS).measurement.verified
    found.write_page(tmp_path / "page.html")
    report = found.report()
    assert "Mullapudi2016" in found._repr_html_()
    ours = [bar.label for bar in report.comparison if bar.ours]
    assert ours == [OURS, ONESHOT]
    assert "it timeout" in found.explain()
    assert "Mullapudi2016" in (tmp_path / "page.html").read_text()
    with pytest.raises(KeyError):
        found.entry("nobody")


def test_failures_of_all_of_ours_are_shown(example, monkeypatch):
    """The naive schedule is the result then; the comparison does not call it ours."""

    def all_wrong(session, planned, **options):
        outcome = measure_top(session, planned, **options)
        wrong = Measurement("wrong_answer", message="out differs at (0, 0)")
        tried = tuple(replace(t, measurement=wrong, final=False) for t in outcome.tried)
        return replace(outcome, tried=tried, final=None)

    monkeypatch.setattr(module, "peer_schedules", lambda *_: {})
    monkeypatch.setattr(module, "ROUNDS", 2)
    monkeypatch.setattr(module, "measure_top", all_wrong)
    found = compare(example.blur(), k=1)
    for label in (OURS, ONESHOT):
        assert found.entry(label).status == "wrong_answer"
        assert "out differs" in found.entry(label).message
    assert found.entry(NAIVE).status == "not_compared"
    report = found.report()
    assert report.verified
    assert report.all_failed
    assert "the result is the naive schedule" in found.explain()


def test_a_hand_written_schedule_of_another_pipeline_is_reported_as_such(example, monkeypatch):
    monkeypatch.setattr(module, "peer_schedules", lambda *_: {})
    monkeypatch.setattr(module, "ROUNDS", 2)
    found = compare(example.blur(), hand=example.other, k=1)
    assert found.entry(HAND).status == "build_failed"
    assert "inputs of the pipeline to schedule, image, not another" in found.entry(HAND).message
    assert found.entry(OURS).ok


def test_a_hand_written_schedule_must_be_a_function_of_a_file(example):
    source = source_of(partial(example.hand, width=10))
    assert (Path(source.path).name, source.function) == ("blur_example.py", "hand")
    assert source.arguments == {"width": 10}

    def inside(target):
        return hl.Func()

    with pytest.raises(TilewrightError, match="top level of a Python file"):
        source_of(inside)
    with pytest.raises(TilewrightError, match="top level of a Python file"):
        source_of(print)


RUN = """
import sys
from tilewright.cli.pipeline import load_module
from pathlib import Path
from tilewright.halide import comparison
comparison.ROUNDS = 1_000_000
comparison.SECONDS = 1e6
example = load_module(Path(sys.argv[1]))
def show(progress):
    print(progress.phase, flush=True)
comparison.compare(
    example.blur(160), hand=example.hand, k=2, records=sys.argv[2], on_progress=show
)
"""


@pytest.mark.thorough
def test_a_comparison_that_was_killed_goes_on_where_it_was(example, monkeypatch, tmp_path):
    script, store = tmp_path / "run.py", tmp_path / "records"
    script.write_text(RUN)
    argv = [sys.executable, str(script), str(tmp_path / "blur_example.py"), str(store)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=os.environ) as killed:
        assert any(line.startswith("comparing") for line in killed.stdout)
        killed.kill()
    with Records(store) as records:
        before = {r.id: canonical(r.configuration) for r in records.query()}
    monkeypatch.setattr(module, "ROUNDS", 3)
    monkeypatch.setattr(module, "SECONDS", 1e6)  # on a busy machine rounds take long
    found = compare(example.blur(160), hand=example.hand, k=2, records=store)
    with Records(store) as records:
        everything = list(records.query())
    alone = [r for r in everything if "finals" not in r.configuration]
    times = collections.Counter((r.problem, canonical(r.configuration)) for r in alone)
    assert set(times.values()) == {1}, "something was measured or searched twice"
    # Two schedules and the naive one alone, four searches; then the rounds of all that ran.
    assert len(before) == 3 + 4
    rounds = [r for r in everything if r.id not in before]
    ran = [entry for entry in found.entries if entry.ok]
    assert len(rounds) >= len({e.label for e in ran} - {ONESHOT})
    assert all(len(r.measurement.times) == 3 for r in rounds if r.measurement.ok)
    kept = [r.configuration for r in rounds]
    assert sum("handwritten" in c for c in kept) == 1
    assert sum("serialized" in c for c in kept) == 4
