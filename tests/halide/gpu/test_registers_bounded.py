"""Threads with several points: Halide finds constant bounds of what their registers hold."""

import halide as hl
import pytest

from tilewright.halide.execution import lowering
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.learned import random_pipelines
from tilewright.halide.schedulers.registry import MODEL_FAILED, plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.one_shot import plan_checked
from tilewright.measure import forked


def triangle(size):
    """A product of which the output keeps one triangle."""
    x, y = hl.vars("x y")
    a = hl.ImageParam(hl.Float(32), 2, "A")
    k = hl.RDom([(0, size)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[x, y] += a[k, y] * a[k, x]
    out[x, y] = hl.select(x <= y, product[x, y], 0.0)
    out.set_estimates([(0, size), (0, size)])
    return out


def weights(at, scale, taps, name):
    """Weights of a tent along one dimension, divided by their sum, and the first place read."""
    k = hl.Var("k")
    place = (hl.f32(at) + hl.f32(0.5)) / scale
    first = hl.i32(hl.ceil(place - hl.f32(0.5) - 1 / hl.min(scale, hl.f32(1.0))))
    raw, total, weight = (hl.Func(f"{part}_{name}") for part in ("raw", "total", "weight"))
    raw[at, k] = hl.max(hl.f32(0.0), hl.f32(1.0) - hl.abs(hl.f32(k + first) - place))
    r = hl.RDom([(0, taps)], f"n_{name}")
    total[at] += raw[at, r]
    weight[at, k] = raw[at, k] / total[at]
    return weight, first


def resampled(size):
    """A picture at another scale, which the caller gives, and so the number of weights."""
    x, y, c = hl.vars("x y c")
    data = hl.ImageParam(hl.Float(32), 3, "data")
    scale = hl.Param(hl.Float(32), "scale")
    scale.set_estimate(0.5)
    edge = hl.BoundaryConditions.repeat_edge(data, [(0, 2 * size), (0, 2 * size), (0, 3)])
    taps = hl.i32(hl.ceil(hl.f32(2.0) / hl.min(scale, hl.f32(1.0)))) + 1
    r = hl.RDom([(0, taps)], "r")
    across, first_x = weights(x, scale, taps, "x")
    down, first_y = weights(y, scale, taps, "y")
    columns, rows, out = hl.Func("columns"), hl.Func("rows"), hl.Func("out")
    columns[x, y, c] += down[y, r] * edge[x, r + first_y, c]
    rows[x, y, c] += across[x, r] * columns[r + first_x, y, c]
    out[x, y, c] = rows[x, y, c]
    out.set_estimates([(0, size), (0, size), (0, 3)])
    return out


@pytest.mark.parametrize(
    ("program", "machine"),
    [
        (triangle, "v100"),
        (triangle, "a100"),
        (resampled, "v100"),
        pytest.param(resampled, "a100", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(1)
def test_halide_refuses_none_of_the_chosen_schedules(program, machine):
    planned = plan_checked(make_task(program(512), target="cuda", machine=machine))
    assert not [note for note in planned[0].notes if "refused" in note]


def pyramid(size):
    """Two levels down and up again, read by the neighbour."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image)
    base, half, quarter = hl.Func("base"), hl.Func("half"), hl.Func("quarter")
    base[x, y] = hl.i32(edge[x - 1, y]) + edge[x, y] * 2 + edge[x + 1, y]
    half[x, y] = base[2 * x, y] + base[2 * x + 1, y]
    quarter[x, y] = half[2 * x, y] + half[2 * x + 1, y]
    up_half, up, out = hl.Func("up_half"), hl.Func("up"), hl.Func("out")
    up_half[x, y] = (quarter[x / 2, y] + half[x, y]) / 2
    up[x, y] = (up_half[x / 2, y] + base[x, y]) / 2
    out[x, y] = hl.max(up[x - 1, y], up[x, y], up[x + 1, y])
    out.set_estimates([(0, size), (0, size)])
    return out


def test_levels_of_a_pyramid_are_not_all_in_registers():
    task = make_task(pyramid(512), target="cuda", machine="a100")
    algorithm = task.algorithm
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    rows = ScheduledLoop("v1", "gpu_block")
    out = StageSchedule(
        (Split("v0", "v0_b", "v0_t", 32, "guard_with_if"),),
        (ScheduledLoop("v0_t", "gpu_thread"), ScheduledLoop("v0_b", "gpu_block"), rows),
    )
    thread = Level("at", place["up"], 0, "v0")
    block = Level("at", place["out"], 0, "v0_b")
    up = StageSchedule((), (ScheduledLoop("v0", "gpu_thread"), ScheduledLoop("v1")))
    entries = [
        FuncSchedule(place["out"], ROOT, ROOT, stages=(out,)),
        FuncSchedule(place["up"], block, block, "gpu_shared", (up,)),
        *(
            FuncSchedule(place[name], thread, thread, "register")
            for name in ("base", "half", "quarter", "up_half")
        ),
    ]
    entries.sort(key=lambda entry: entry.func)
    schedule = Schedule(algorithm.digest, task.target, tuple(entries))
    assert "registers" in {violation.kind for violation in check(schedule, algorithm)}
    assert refusal(schedule, algorithm)
    planned = plan_checked(task)[0]
    assert not [note for note in planned.notes if "refused" in note or "Left out" in note]


def clamped(size):
    """Rows at half the number, of sums whose coordinates are clamped after they are made."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Int(16), 2, "data")
    edge = hl.BoundaryConditions.repeat_edge(data, [(0, size), (0, 2 * size)])
    r = hl.RDom([(-2, 5), (-2, 5)], "r")
    total, inside, out = hl.Func("total"), hl.Func("inside"), hl.Func("out")
    total[x, y] += hl.i32(edge[x + r.x, y + r.y])
    inside[x, y] = total[hl.clamp(x, 0, size - 1), hl.clamp(y, 0, 2 * size - 1)]
    out[x, y] = inside[x, 2 * y] + inside[x, 2 * y + 1]
    out.set_estimates([(0, size), (0, size)])
    return out


def test_a_loop_over_clamped_coordinates_is_not_unrolled(monkeypatch):
    task = make_task(clamped(1024), target="cuda", machine="a100")
    algorithm = task.algorithm
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    out = StageSchedule(
        (Split("v0", "v0_b", "v0_t", 32, "guard_with_if"),),
        (
            ScheduledLoop("v0_t", "gpu_thread"),
            ScheduledLoop("v0_b", "gpu_block"),
            ScheduledLoop("v1", "gpu_block"),
        ),
    )
    thread = Level("at", place["out"], 0, "v0_t")
    update = StageSchedule((), tuple(map(ScheduledLoop, ("r0", "r1", "v0", "v1"))))

    def scheduled(mapping):
        first = StageSchedule((), (ScheduledLoop("v0"), ScheduledLoop("v1", mapping)))
        total = FuncSchedule(place["total"], thread, thread, "register", (first, update))
        entries = sorted(
            [FuncSchedule(place["out"], ROOT, ROOT, stages=(out,)), total], key=lambda e: e.func
        )
        return Schedule(algorithm.digest, task.target, tuple(entries))

    assert not check(scheduled("serial"), algorithm)
    assert [v.kind for v in check(scheduled("unrolled"), algorithm)] == ["registers"]
    monkeypatch.setattr(lowering, "LOWERING_SECONDS", 1)  # it would take minutes
    monkeypatch.setattr(forked, "_PATIENCE", 600)  # by the clock, which a busy machine stretches
    assert refusal(scheduled("unrolled"), algorithm) == (
        "lowering failed: it took more than 1 s of CPU time"
    )


def test_sums_at_clamped_coordinates_are_not_kept_in_registers():
    planned = plan_checked(make_task(clamped(1024), target="cuda", machine="a100"))[0]
    assert not [note for note in planned.notes if "refused" in note or "Left out" in note]


@pytest.mark.thorough
def test_members_stay_out_of_threads_if_no_tile_bounds_their_registers():
    # A chain of arg-min, channels and pyramids, of which no tile with several points is left.
    program = random_pipelines.build(random_pipelines.random_pipeline(1165), limited=True)
    (planned,) = plan(make_task(program, target="cuda", machine="a100"))
    assert not any(MODEL_FAILED in note for note in planned.notes)
    assert planned.groups
