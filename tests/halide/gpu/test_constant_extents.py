"""Ranges whose ends Halide cannot relate: launches as it makes them, and constant extents."""

from dataclasses import replace

import halide as hl
import pytest
from test_scheduler import TIMED, assert_right

from tilewright.halide.analysis.gpu_launches import launches
from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.execution.lowered_launches import lowered_launches
from tilewright.halide.execution.lowering import FAILED, TOO_MANY_THREADS, refusal
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    Clone,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.constant_extents import bounded_registers, bounded_threads
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import one_shot
from tilewright.halide.search.one_shot import plan_checked

SPANS = {"out$3": [(0, 100), (-3, 7)], "data": [(2, 5)]}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 + 2*3 - 4", 9),
        ("-7/2 + (-7 % 2)", -3),  # rounded down, remainders are not negative
        ("7/-2*10 + 7/0", -30),
        ("max(min(3, 5), 2) + select(1 < 2 && !(3 == 4), 10, 20)", 13),
        ("let a = 3 in (let b = a*2 in a + b)", 9),
        ("(uint1)1 + int.x", 12),
        ("_halide_buffer_get_extent((struct halide_buffer_t *)out$3.buffer, 1)", 7),
        ("_halide_buffer_get_min((struct halide_buffer_t *)data.buffer, 0)*2", 4),
    ],
)
def test_arguments_of_a_launch(expression, value):
    text = f"""
let int.x = 0
 let int.x = 5 + 6
  let t1 = {expression}
  let ok = halide_opencl_run(opencl[0], "_kernel_f", 9, f(1, 2), 1, t1 + 1, 2, 1, 0, 5)
  let int.x = 100
"""
    (launch,) = lowered_launches(text, SPANS)
    assert launch.kernel == "_kernel_f"
    assert launch.threads == (value + 1, 2, 1)
    assert launch.per_block == 2 * value + 2


@pytest.mark.parametrize(
    "expression",
    ["unknown", "load[3]", "sin(1)", "max(1)", "3 4", "t1", "(2", "", '"text"',
     "_halide_buffer_get_min((struct halide_buffer_t *)data.buffer, 1)"],
)  # fmt: skip
def test_what_is_not_understood_is_left_out(expression):
    text = (
        f' let t1 = {expression}\n let ok = halide_cuda_run(c, "_kernel_f", 1, 1, 1, t1, 2, 1, 0)'
    )
    assert lowered_launches(text, SPANS) == []


def halved(width=512, height=16):
    """A stencil at root whose reader halves the coordinates: its region begins at a multiple."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Int(32), 2, "data")
    first, mean, out = hl.Func("first"), hl.Func("mean"), hl.Func("out")
    first[x, y] = data[x, y] * 2
    mean[x, y] = first[x, y] + first[x + 1, y] + first[x, y + 1]
    out[x, y] = mean[2 * x - 1, y]
    out.set_estimates([(0, width), (0, height)])
    return out


def tiles(width, height, *inner, points=1):
    """Loops in blocks of `width` by `height` points, with `points` per thread."""
    splits = [
        Split("v0", "xb", "xt", width, "guard_with_if"),
        Split("v1", "yb", "yt", height, "guard_with_if"),
    ]
    threads = [ScheduledLoop("xt", "gpu_thread")]
    if points > 1:
        splits.append(Split("xt", "xh", "xp", points, "guard_with_if"))
        threads = [ScheduledLoop("xp", "unrolled"), ScheduledLoop("xh", "gpu_thread")]
    loops = [*threads, ScheduledLoop("yt", "gpu_thread")]
    blocks = [ScheduledLoop("xb", "gpu_block"), ScheduledLoop("yb", "gpu_block")]
    return StageSchedule(tuple(splits), (*inner, *loops, *blocks))


def by_hand(task):
    """The stencil in tiles of 64 by 4, and what it reads in shared memory."""
    algorithm = task.algorithm
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    block = Level("at", place["mean"], 0, "xb")
    threads = (ScheduledLoop("v0", "gpu_thread"), ScheduledLoop("v1", "gpu_thread"))
    entries = {
        "first": FuncSchedule(0, block, block, "gpu_shared", (StageSchedule((), threads),)),
        "mean": FuncSchedule(0, ROOT, ROOT, stages=(tiles(64, 4),)),
        "out": FuncSchedule(0, ROOT, ROOT, stages=(tiles(32, 4),)),
    }
    funcs = [
        FuncSchedule(
            place[name], each.compute, each.store, each.memory, each.stages
        ) if name in entries else FuncSchedule(place[name], INLINE, INLINE)
        for name, each in entries.items()
    ]  # fmt: skip
    return Schedule(algorithm.digest, task.target, tuple(sorted(funcs, key=lambda e: e.func)))


def test_threads_that_halide_launches_in_excess():
    task = make_task(halved(), target="opencl", machine="pocl")
    schedule = by_hand(task)
    assert not check(schedule, task.algorithm)
    predicted = launches(sized_nest(task.algorithm, schedule))
    assert (65.0, 5.0, 1.0) in [launch.block for launch in predicted]
    reason = refusal(schedule, task.algorithm, 4096)
    assert reason.startswith(TOO_MANY_THREADS)
    assert "1024 x 5 x 1" in reason
    assert not refusal(schedule, task.algorithm, 1024 * 5)
    bounded = bounded_threads(schedule, task.algorithm)
    assert not check(bounded, task.algorithm)
    assert not refusal(bounded, task.algorithm, 65 * 5)
    assert refusal(bounded, task.algorithm, 65 * 5 - 1)
    assert bounded_threads(bounded, task.algorithm) is None


def test_the_planned_schedule_is_mended(monkeypatch):
    task = make_task(halved(), target="opencl", machine="pocl")
    schedule = by_hand(task)
    planned = one_shot.plan_sizes(task)[0]

    def plan_sizes(task, **_):
        return [type(planned)(schedule, planned.groups, 1.0, ("from the model",))]

    monkeypatch.setattr(one_shot, "plan_sizes", plan_sizes)
    (found,) = plan_checked(task)
    assert found.schedule == bounded_threads(schedule, task.algorithm)
    assert found.notes[0] == "from the model"
    assert found.notes[1].startswith("Changed after planning: the thread loops in blocks")


def test_no_more_schedules_are_mended_once_halide_takes_too_long_for_one(monkeypatch):
    task = make_task(halved(), target="opencl", machine="pocl")
    planned = [PlannedSchedule(by_hand(task), (), 1.0)] * 3
    answers = iter(
        [
            f"{TOO_MANY_THREADS}: a",
            f"{FAILED}: it took more than 30 s of CPU time",
            f"{TOO_MANY_THREADS}: b",
            "",
        ]
    )
    monkeypatch.setattr(one_shot, "refusal", lambda *_: next(answers))
    refusals: list[str] = []
    assert one_shot._first_lowered(task, planned, refusals) == planned[2:]
    assert [reason.split(":")[0] for reason in refusals] == [FAILED, TOO_MANY_THREADS]


def registers(task, points):
    """The stencil with `points` per thread, and what it reads in registers."""
    algorithm = task.algorithm
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    thread = Level("at", place["mean"], 0, "xh")
    kept = StageSchedule((), (ScheduledLoop("v0"), ScheduledLoop("v1")))
    funcs = [
        FuncSchedule(place["first"], thread, thread, "register", (kept,)),
        FuncSchedule(place["mean"], ROOT, ROOT, stages=(tiles(64, 4, points=points),)),
        FuncSchedule(place["out"], ROOT, ROOT, stages=(tiles(32, 4),)),
    ]
    return Schedule(algorithm.digest, task.target, tuple(sorted(funcs, key=lambda e: e.func)))


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("Was unable to infer constant upper bound on extent of realization a_1. Use it", "a_1"),
        ("Was unable to infer constant upper bound on extent of realization a$12. Use it", "a$12"),
        ("Allocation sum_of$10.0 has a dynamic size. Only fixed-size", "sum_of$10"),
        ("Allocation sum_of.0 has a dynamic size. Only fixed-size", "sum_of"),
        ("Can only unroll for loops over a constant extent. Loop over a$1.s0.y has", "a$1"),
    ],
)
def test_the_func_without_a_bound_is_named(message, name):
    found = one_shot._UNBOUNDED.search(message)
    assert found is not None
    assert found[1] == name


def test_registers_that_halide_finds_no_bound_of():
    task = make_task(halved(), target="opencl", machine="pocl")
    schedule = registers(task, 2)
    assert not check(schedule, task.algorithm)
    assert "unable to infer constant upper bound" in refusal(schedule, task.algorithm)
    names = {func.name.split("$")[0]: func.name for func in task.algorithm.funcs}
    bounded = bounded_registers(schedule, task.algorithm, names["first"])
    (bounds,) = [entry.bounds for entry in bounded.funcs if entry.bounds]
    assert [(each.dimension, each.extent) for each in bounds] == [(0, 3), (1, 2)]
    assert not check(bounded, task.algorithm)
    assert not refusal(bounded, task.algorithm)
    assert bounded_registers(schedule, task.algorithm, names["mean"]) is None
    assert bounded_registers(bounded, task.algorithm, names["first"]) is None


@pytest.mark.opencl
@pytest.mark.thorough
def test_the_answers_are_right():
    task = make_task(halved(), target="opencl")
    names = {func.name.split("$")[0]: func.name for func in task.algorithm.funcs}
    threads = bounded_threads(by_hand(task), task.algorithm)
    kept = bounded_registers(registers(task, 2), task.algorithm, names["first"])
    with Session(task.algorithm, targets=[task.target]) as session:
        found = session.measure([Variant(made, target=task.target) for made in (threads, kept)])
    for done in found:
        assert (done.measurement.status, done.measurement.verified) == ("ok", True)


def blocks(width, height):
    """Sums within blocks of 8 by 8 pixels, along rows and then along columns."""
    x, y = hl.Var("x"), hl.Var("y")
    data, weights = hl.ImageParam(hl.Int(16), 2, "data"), hl.ImageParam(hl.Float(32), 2, "weights")
    r, s = hl.RDom([(0, 8)], "r"), hl.RDom([(0, 8)], "s")
    across, down, out = hl.Func("across"), hl.Func("down"), hl.Func("out")
    across[x, y] += weights[x % 8, r] * hl.f32(data[x // 8 * 8 + r, y])
    down[x, y] += weights[y % 8, s] * across[x, y // 8 * 8 + s]
    out[x, y] = down[x, y] + 1.0
    data.set_estimates([(0, width), (0, height)])
    weights.set_estimates([(0, 8), (0, 8)])
    out.set_estimates([(0, width), (0, height)])
    return hl.Pipeline(out)


@pytest.mark.opencl
def test_unrolled_loops_that_halide_finds_no_extent_of_are_mended():
    task = make_task(blocks(1536, 128), target="opencl", machine=TIMED)
    planned = one_shot.plan_sizes(task)[0]
    reason = refusal(planned.schedule, task.algorithm)
    assert "Can only unroll for loops over a constant extent. Loop over across" in reason
    (found,) = plan_checked(task)
    assert "are promised to Halide" in found.notes[-1]
    assert_right(task.algorithm, found.schedule)


def test_wrappers_without_a_bound_are_mended():
    """Halide names a wrapper after the Func and its reader."""
    task = make_task(halved(), target="opencl", machine="pocl")
    algorithm, plain = task.algorithm, registers(task, 2)
    _data, first, mean, _out = range(4)
    clones = (Clone(first, (mean,), wrapper=True),)
    extended = with_clones(algorithm, clones)
    place = {i: extended.order[func.name] for i, func in enumerate(algorithm.funcs)}
    (copy,) = set(range(len(extended.funcs))) - set(place.values())
    funcs = [FuncSchedule(place[first], ROOT, ROOT, stages=(tiles(32, 4),))]
    for entry in plain.funcs:
        level = entry.compute
        if level.kind == "at":
            level = replace(level, func=place[level.func])
        at = copy if entry.func == first else place[entry.func]
        funcs.append(replace(entry, func=at, compute=level, store=level))
    funcs.sort(key=lambda entry: entry.func)
    schedule = replace(plain, funcs=tuple(funcs), clones=clones)
    assert not check(schedule, task.algorithm)
    reason = refusal(schedule, task.algorithm)
    assert "_in_mean" in reason
    mended, _ = one_shot._mended(task, PlannedSchedule(schedule, (), 1.0), reason, None)
    assert mended is not None
    assert not refusal(mended.schedule, task.algorithm)
