"""Pipelines that come with a schedule: shown, improved, and compared with."""

import importlib
import math
from pathlib import Path

import halide as hl
import pytest
from halide_constructs import pipeline

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide import autoschedule, comparison
from tilewright.halide.comparison import HAND, OURS, compare, hand_variant
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.ir.json import from_json
from tilewright.halide.schedulers.task import make_task

WIDTH, HEIGHT = 200, 90


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def blur(scheduled=True, wide=False, name="image_i"):
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, name)
    across, blurred = hl.Func("across_i"), hl.Func("blurred_i")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    value = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    blurred[x, y] = hl.cast(hl.UInt(32), value) if wide else value
    if scheduled:
        blurred.vectorize(x, 8).parallel(y)
        across.compute_at(blurred, y).vectorize(x, 8)
    return blurred.set_estimates([(0, WIDTH), (0, HEIGHT)])


def hlpipe(func, path):
    path.write_bytes(bytes(hl.serialize_pipeline(hl.Pipeline(func))))
    return path


def test_the_schedule_that_is_there_is_shown_and_printed():
    result = tilewright.schedule(blur(), mode="given")
    expected = read_schedule(bytes(hl.serialize_pipeline(hl.Pipeline(blur())))).schedule
    assert result.schedule == expected
    assert (result.mode, result.verified) == ("given", None)
    (group,) = result.planned.groups
    assert [name.split("$")[0] for name in group.funcs] == ["across_i", "blurred_i"]
    assert (group.parallel_tasks, group.vector_width) == (HEIGHT, 8)
    assert "vectorize" in result.to_python()
    assert "parallel" in result.to_cpp()
    assert from_json(result.to_json(), result.task.algorithm) == expected
    assert [line for line in result.report().nest if line.mapping == "parallel"]
    result.apply(blur(scheduled=False))


def test_the_cure_for_a_required_size_is_one_that_a_given_schedule_can_take():
    def needs(tail):
        x, y, xi, yi = hl.vars("x y xi yi")
        out = blur(scheduled=False)
        out.tile(x, y, xi, yi, 8, 8, tail)
        return tilewright.schedule(out, mode="given").requirements

    first, second = (str(need) for need in needs(hl.TailStrategy.ShiftInwards))
    assert " in x (" in first
    assert " in y (" in second
    for said in (first, second):
        assert said.endswith("; with GuardWithIf as that split's tail it may be of any size.")
    assert needs(hl.TailStrategy.GuardWithIf) == ()


def test_a_schedule_beyond_the_devices_limits_is_explained_with_a_doubt():
    x, y, xi, yi = hl.vars("x y xi yi")
    image, out = hl.ImageParam(hl.UInt(8), 2, "image"), hl.Func("out")
    out[x, y] = image[x, y] + 1
    out.gpu_tile(x, y, xi, yi, 16, 8)
    out.set_estimates([(0, 16), (0, 4_000_000)])
    result = tilewright.schedule(out, mode="given", machine="a100")
    (note,) = result.planned.notes
    assert note.startswith("It may not run: out")
    assert "500,000 blocks in y; the maximum is 65,535" in note
    assert note in result.explain()
    out.set_estimates([(0, 16), (0, 4_000)])
    assert tilewright.schedule(out, mode="given", machine="a100").planned.notes == ()


def test_the_schedule_that_is_there_can_be_verified():
    assert tilewright.schedule(blur(), mode="given", verify=True).verified is True


@pytest.mark.parametrize("name", ["extern_stage", "several_outputs", "inline_sum"])
def test_any_valid_pipeline_that_came_scheduled_is_explained(name):
    live = pipeline(name)
    output = live.outputs()[0]
    output.parallel(output.args()[-1])
    assert tilewright.schedule(live, mode="given").explain()


@pytest.mark.parametrize("name", ["harris", "max_filter", "histogram"])
def test_schedules_by_hand_are_explained(name, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    module = importlib.import_module(name)
    result = tilewright.schedule(module.hand(hl.Target("host")), mode="given")
    assert result.planned.notes == ()
    assert [line for line in result.report().nest if line.mapping == "vectorized"]
    assert result.explain().startswith(result.task.name)


@pytest.mark.parametrize("mode", ["top", pytest.param("tune", marks=pytest.mark.thorough)])
def test_the_result_is_never_slower_than_the_schedule_that_was_there(mode, tmp_path):
    path = hlpipe(blur(), tmp_path / "blur.hlpipe")
    result = tilewright.schedule(path, mode=mode, improve=True, k=1, evaluations=2)
    names = [attempt.label for attempt in result.report().attempts]
    assert names[0] == "given"
    assert names.count("given") == 1
    assert result.tried[0].ok
    assert result.task.name == "blur"
    assert result.tried[0].final
    assert result.seconds == min(t.seconds or math.inf for t in result.tried if t.final)
    given = read_schedule(path.read_bytes()).schedule
    assert result.tried[0].planned.schedule == given


def test_a_schedule_that_beats_ours_is_kept(monkeypatch):
    monkeypatch.setattr(autoschedule, "plan_sizes", lambda task, **_: [])
    result = tilewright.schedule(blur(), mode="top", improve=True)
    assert result.verified is True
    assert result.planned.name == "given"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"improve": True}, "mode='top' or 'tune'"),
        ({"improve": True, "mode": "top", "keep_schedule": True}, "leave out keep_schedule"),
    ],
)
def test_improving_excludes_other_options(options, message):
    with pytest.raises(TilewrightError, match=message):
        tilewright.schedule(blur(), **options)


@pytest.mark.parametrize("options", [{"mode": "given"}, {"mode": "top", "improve": True}])
def test_without_a_schedule_there_is_nothing_to_improve(options):
    with pytest.raises(TilewrightError, match="none of its Funcs has been scheduled"):
        tilewright.schedule(blur(scheduled=False), **options)


def test_a_serialised_schedule_by_hand_is_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "peer_schedules", lambda *_: {})
    monkeypatch.setattr(comparison, "ROUNDS", 2)
    path = hlpipe(blur(), tmp_path / "hand.hlpipe")
    found = compare(hlpipe(blur(False), tmp_path / "p.hlpipe"), hand=path, k=1)
    assert found.entry(HAND).ok
    assert found.entry(HAND).measurement.verified
    assert found.entry(OURS).ok


def test_a_serialised_schedule_of_another_pipeline_is_refused(tmp_path):
    task = make_task(blur(scheduled=False))
    for other in (blur(wide=True), blur(name="other_i")):
        with pytest.raises(TilewrightError, match="but the pipeline to compare has inputs"):
            hand_variant(hlpipe(other, tmp_path / "hand.hlpipe"), task)
    with pytest.raises(TilewrightError, match="there is no file"):
        hand_variant(str(tmp_path / "nowhere.hlpipe"), task)
