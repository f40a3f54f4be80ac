"""The mode ``tune``: a schedule's numbers turned, checked, measured, never worse than planned."""

import math
from dataclasses import replace
from types import SimpleNamespace

import halide as hl
import pytest

import tilewright
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.halide.ir.plan import GroupReport
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import Violation, check
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import autotune as tune_mode
from tilewright.halide.search import factors as knobs_module
from tilewright.halide.search.factors import find_knobs, replanned, settings, structure, turned
from tilewright.halide.search.top_k import Tried
from tilewright.machines import gpu
from tilewright.measure import Measurement
from tilewright.records import Records
from tilewright.tuning import Ordinal, Space

WIDTH, HEIGHT = 640, 360


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def blur():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) // 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) // 3
    blurred.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return blurred


@pytest.fixture(scope="module")
def task():
    return make_task(blur(), target="host")


def factors(schedule):
    return [
        change.factor
        for entry in schedule.funcs
        for nest in entry.stages
        for change in nest.splits
        if isinstance(change, Split)
    ]


def test_the_knobs_of_a_schedule_are_its_factors(task):
    planned = plan(task, k=1)
    schedule = planned[0].schedule
    knobs = find_knobs(planned, task.algorithm)
    assert knobs.knobs
    assert turned(schedule, knobs, settings(schedule, knobs)) == schedule
    space = Space([Ordinal(k.name, k.values) for k in knobs.knobs], knobs.constraints)
    assert space.is_feasible(settings(schedule, knobs))
    assert space.count > 10
    for knob in knobs.knobs:
        assert knob.planned in knob.values
        other = next(v for v in knob.values if v != knob.planned)
        values = {**settings(schedule, knobs), knob.name: other}
        edited = turned(schedule, knobs, values)
        assert settings(edited, knobs) == values
        assert structure(edited) == structure(schedule)
        assert sum(a != b for a, b in zip(factors(edited), factors(schedule), strict=True)) == 1


def test_few_knobs_are_those_of_tiles(task):
    planned = plan(task, k=1)
    most = find_knobs(planned, task.algorithm)
    one = find_knobs(planned, task.algorithm, most=1)
    assert len(one.knobs) == 1
    assert "tile" in {k.kind for k in most.knobs}
    assert one.knobs[0].kind == "tile"


def test_a_tuned_plan_tells_its_new_tiles(task):
    planned = plan(task, k=1)[0]
    knobs = find_knobs([planned], task.algorithm)
    knob = next(k for k in knobs.knobs if k.kind == "tile")
    other = max(v for v in knob.values if v != knob.planned)
    schedule = turned(
        planned.schedule, knobs, {**settings(planned.schedule, knobs), knob.name: other}
    )
    after = replanned(planned, schedule, task.algorithm)
    tiles = {group.output: group.tile for group in after.groups}
    before = {group.output: group.tile for group in planned.groups}
    assert tiles != before
    assert any(other in tile for tile in tiles.values())
    assert any("tuned" in group.notes for group in after.groups)
    parallel = {group.output: group.parallel_tasks for group in after.groups}
    assert all(parallel[group.output] > 0 for group in planned.groups if group.parallel_tasks)


def test_a_tuned_plan_tells_its_new_launches():
    there = make_task(blur(), machine="a100")
    algorithm, on_gpu = there.algorithm, plan(there, k=1)[0]
    knobs = find_knobs([on_gpu], algorithm)
    knob = next(k for k in knobs.knobs if k.kind == "thread")
    other = min(v for v in knob.values if v != knob.planned)
    values = {**settings(on_gpu.schedule, knobs), knob.name: other}
    after = replanned(on_gpu, turned(on_gpu.schedule, knobs, values), algorithm)
    before = [group.blocks for group in on_gpu.groups]
    assert all(group.blocks and group.threads for group in after.groups)
    assert [group.blocks for group in after.groups] != before


def test_tune_is_never_worse_and_a_rerun_decides_the_same(tmp_path):
    store = tmp_path / "records"
    seen: list = []
    found = tilewright.schedule(
        blur(), mode="tune", k=2, evaluations=3, records=store, seed=1, on_progress=seen.append
    )
    assert found.mode == "tune"
    assert found.verified is True
    planned, tuned = found.tried[:2], found.tried[2:]
    assert 1 <= len(tuned) <= 3
    assert not {t.planned.schedule for t in tuned} & {t.planned.schedule for t in planned}
    times = [t.seconds or math.inf for t in found.tried if t.final and not t.reads_beyond]
    assert found.seconds == min(times)
    assert "evaluations" in found.facts["tuning"]
    assert any(p.phase == "tuning" and p.total == 3 for p in seen)
    assert all(not check(t.planned.schedule, found.task.algorithm) for t in tuned)
    with Records(store) as records:
        before = len(records)
        again = tilewright.schedule(
            blur(), mode="tune", k=2, evaluations=3, records=records, seed=1
        )
        assert len(records) == before
    assert [t.planned.schedule for t in again.tried] == [t.planned.schedule for t in found.tried]
    assert all(t.recorded for t in again.tried)
    assert again.schedule == found.schedule


def test_illegal_schedules_are_not_measured(monkeypatch):
    monkeypatch.setattr(
        tune_mode, "check", lambda *_: [Violation("tail", "blurred", 0, "it is forbidden")]
    )
    found = tilewright.schedule(blur(), mode="tune", k=1, evaluations=3, records=None)
    assert found.verified is True
    assert len(found.tried) == 1
    assert found.facts["tuning"].startswith("0 evaluations")


def test_an_interruption_while_tuning_gives_the_best_so_far():
    def interrupt(progress):
        if progress.phase == "tuning" and progress.done == 1:
            raise KeyboardInterrupt

    found = tilewright.schedule(
        blur(), mode="tune", k=1, evaluations=9, on_progress=interrupt, jobs=1
    )
    assert found.verified is True
    assert len(found.tried) == 2
    assert "ended by an interruption" in found.notes[0]


def test_wrong_arguments_are_named(tmp_path, capsys):
    with pytest.raises(TilewrightError, match="evaluations=0"):
        tilewright.schedule(blur(), mode="tune", evaluations=0)
    with pytest.raises(TilewrightError, match="oneshot, top, tune"):
        tilewright.schedule(blur(), mode="best")
    assert main(["schedule", "nowhere.py:f", "--mode", "tune", "--evaluations", "0"]) == 2
    assert "whole number from 1" in capsys.readouterr().err


def test_registers_per_thread_are_tuned_on_cuda_alone(task):
    assert tune_mode.register_caps(task) == ()
    on_gpu = make_task(blur(), target="host-cuda-cuda_capability_80", machine=gpu("a100"))
    assert tune_mode.register_caps(on_gpu) == (64, 255)
    planned = plan(on_gpu, k=1)[0]
    assert tune_mode.capped(planned, 64, on_gpu) == planned
    more = tune_mode.capped(planned, 128, on_gpu)
    assert "HL_CUDA_JIT_MAX_REGISTERS=128" in more.notes[-1]
    variant = tune_mode._as_variant(more, on_gpu, "more")
    assert variant.environment == {"HL_CUDA_JIT_MAX_REGISTERS": "128"}
    assert tune_mode._as_variant(planned, on_gpu, "as planned").environment == {}


@pytest.mark.parametrize(("threads", "most"), [(32, 255), (512, 128), (1024, 64)])
def test_no_thread_gets_more_registers_than_its_block_has(threads, most):
    """Kernels with more do not start (measured on an H100, which has as many registers)."""
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = hl.sqrt(1.0 * x) + y
    out.set_estimates([(0, 4096), (0, 64)])
    on_gpu = make_task(out, target="host-cuda-cuda_capability_80", machine=gpu("a100"))
    nest = StageSchedule(
        (Split("v0", "v0_b", "v0_t", threads, "guard_with_if"),),
        (
            ScheduledLoop("v0_t", "gpu_thread"),
            ScheduledLoop("v0_b", "gpu_block"),
            ScheduledLoop("v1", "gpu_block"),
        ),
    )
    entry = FuncSchedule(0, ROOT, ROOT, stages=(nest,))
    schedule = Schedule(on_gpu.algorithm.digest, on_gpu.target, (entry,))
    planned = replace(plan(on_gpu)[0], schedule=schedule)
    found = tune_mode.capped(planned, 255, on_gpu).max_registers
    assert found == (most if most > 64 else None)


def test_the_tuner_of_a_cuda_schedule_knows_the_cap(task):
    on_gpu = make_task(blur(), target="host-cuda-cuda_capability_80", machine=gpu("a100"))
    measured = Measurement("ok", (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    tried = [Tried(p, i, measured) for i, p in enumerate(plan(on_gpu, k=1))]
    (one,) = tune_mode._structures(tried, on_gpu, 0)
    asked = {one.tuner.ask().configuration["registers"] for _ in range(12)}
    assert asked == {64, 255}


@pytest.mark.parametrize(
    ("old", "new", "tile", "lanes"),
    [
        ((64, 64, 8), (128, 16, 8), (128, 16), 8),
        ((8, 8, 8), (32, 4, 16), (32, 4), 16),
    ],
)
def test_equal_factors_that_are_tuned_apart_are_told_apart(old, new, tile, lanes):
    def nest(factors):
        x, y, vector = factors
        splits = (
            Split("v0", "v0t", "v0n", x, "guard_with_if"),
            Split("v1", "v1t", "v1n", y, "guard_with_if"),
            Split("v0n", "v0b", "v0w", vector, "guard_with_if"),
        )
        names = ("v0b", "v1n", "v0t", "v1t")
        return StageSchedule(
            splits, (ScheduledLoop("v0w", "vectorized"), *map(ScheduledLoop, names))
        )

    group = GroupReport(
        ("f",), "f", 0, tile=(old[0], old[1]), loops=("x", "y"), vector_width=old[2]
    )
    made = knobs_module._regrouped(group, nest(old), nest(new))
    assert (made.tile, made.vector_width) == (tile, lanes)


def test_every_third_turn_is_for_a_close_second():
    def standing(best, exhausted=False):
        tuner = SimpleNamespace(exhausted=lambda rest: exhausted)
        return SimpleNamespace(best=best, tuner=tuner)

    first, close, far = standing(1.0), standing(1.2), standing(1.3)
    done = standing(0.9, exhausted=True)

    def turns(*structures):
        return [tune_mode._next(list(structures), turn, 10) for turn in range(6)]

    assert turns(close, done, first) == [first, first, close] * 2
    assert turns(far, first) == [first] * 6
    assert turns(first) == [first] * 6
    assert turns(done) == [None] * 6
