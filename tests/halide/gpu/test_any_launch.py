"""Launches of any GPU schedule: against launches by hand, and what legality makes of them."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest

from tilewright.halide.analysis.gpu_launches import launches
from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.registry import device_limits, plan
from tilewright.halide.schedulers.task import make_task

x, y = hl.vars("x y")


def blur(width=100, height=50):
    image = hl.ImageParam(hl.Float(32), 2, "image")
    across, out = hl.Func("across"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 1, y]
    out[x, y] = across[x, y] + across[x, y + 2]
    out.set_estimates([(0, width), (0, height)])
    return load(out)


def tiled(width=16, height=8, tail="shift_inwards"):
    """Loops of a stage in blocks of `width` by `height` threads."""
    return StageSchedule(
        (Split("v0", "xb", "xt", width, tail), Split("v1", "yb", "yt", height, tail)),
        (
            ScheduledLoop("xt", "gpu_thread"),
            ScheduledLoop("yt", "gpu_thread"),
            ScheduledLoop("xb", "gpu_block"),
            ScheduledLoop("yb", "gpu_block"),
        ),
    )


def shared_schedule(algorithm, tail="shift_inwards"):
    level = Level("at", 2, 0, "xb")
    inner = StageSchedule(
        (), (ScheduledLoop("v0", "gpu_thread"), ScheduledLoop("v1", "gpu_thread"))
    )
    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, level, level, "gpu_shared", (inner,)),
        FuncSchedule(2, ROOT, ROOT, stages=(tiled(tail=tail),)),
    )
    return Schedule(algorithm.digest, "cuda", funcs)


def launched(algorithm, schedule, factors=None):
    return launches(ScheduledNest(nest_analysis(algorithm, schedule), schedule, factors))


@pytest.mark.parametrize("tail", ["shift_inwards", "guard_with_if"])
def test_a_kernel_with_shared_memory(tail):
    algorithm = blur()
    (launch,) = launched(algorithm, shared_schedule(algorithm, tail))
    assert launch.grid == (7.0, 7.0, 1.0)  # 100 / 16 and 50 / 8, rounded up
    assert launch.block == (16.0, 10.0, 1.0)  # two more rows are computed than written
    assert launch.shared_bytes == 16 * 10 * 4
    assert (launch.func, launch.stage) == (2, 0)


def most_shared_bytes(algorithm, schedule):
    nest = ScheduledNest(nest_analysis(algorithm, schedule), schedule)
    (launch,) = launches(nest, at_most=True)
    return launch.shared_bytes


def test_the_most_shared_memory_is_what_is_used_where_every_extent_is_known():
    algorithm = blur()
    assert most_shared_bytes(algorithm, shared_schedule(algorithm)) == 16 * 10 * 4


def test_the_most_shared_memory_allows_for_fused_loops_that_halide_may_not_take_apart():
    algorithm = blur()
    level = Level("at", 2, 0, "xb")
    inner = StageSchedule((Fuse("v0", "v1", "both"),), (ScheduledLoop("both", "gpu_thread"),))
    _, _, output = shared_schedule(algorithm).funcs
    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, level, level, "gpu_shared", (inner,)),
        output,
    )
    schedule = Schedule(algorithm.digest, "cuda", funcs)
    (launch,) = launched(algorithm, schedule)
    assert launch.shared_bytes == 16 * 10 * 4
    assert most_shared_bytes(algorithm, schedule) > launch.shared_bytes


def sliding_schedule(algorithm):
    """Blocks of 16 by 8, row by row; the other Func is kept in shared memory from row to row."""
    block, row = Level("at", 2, 0, "xb"), Level("at", 2, 0, "yi")
    nest = StageSchedule(
        (Split("v0", "xb", "xt", 16, "round_up"), Split("v1", "yb", "yi", 8, "round_up")),
        (
            ScheduledLoop("xt", "gpu_thread"),
            ScheduledLoop("yi"),
            ScheduledLoop("xb", "gpu_block"),
            ScheduledLoop("yb", "gpu_block"),
        ),
    )
    inner = StageSchedule((), (ScheduledLoop("v0", "gpu_thread"), ScheduledLoop("v1")))
    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, row, block, "gpu_shared", (inner,)),
        FuncSchedule(2, ROOT, ROOT, stages=(nest,)),
    )
    return Schedule(algorithm.digest, "cuda", funcs)


def test_shared_memory_has_room_for_a_window_that_starts_early():
    algorithm = blur()
    (launch,) = launched(algorithm, sliding_schedule(algorithm))
    # A tile wants 10 rows, a row of it 3: up to 2 rows are begun before the first, and what is new
    # begins one beyond the last.
    assert launch.slides
    assert launch.shared_bytes == 16 * 13 * 4


def test_shared_memory_has_room_for_a_whole_window_where_the_output_is_small():
    algorithm = blur(height=1)
    schedule = sliding_schedule(algorithm)
    guarded = replace(
        schedule.funcs[2],
        stages=(
            replace(
                schedule.funcs[2].stages[0],
                splits=(
                    Split("v0", "xb", "xt", 16, "round_up"),
                    Split("v1", "yb", "yi", 8, "guard_with_if"),
                ),
            ),
        ),
    )
    (launch,) = launched(algorithm, replace(schedule, funcs=(*schedule.funcs[:2], guarded)))
    # Three rows are stored; Halide folds the window of a large output to four.
    assert launch.shared_bytes == 16 * 4 * 4


def test_registers_are_what_a_thread_keeps():
    algorithm = blur()
    level = Level("at", 2, 0, "xt")
    func = algorithm.funcs[1]
    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, level, level, stages=(default_stage(func, func.stages[0]),)),
        FuncSchedule(2, ROOT, ROOT, stages=(tiled(),)),
    )
    (launch,) = launched(algorithm, Schedule(algorithm.digest, "cuda", funcs))
    assert launch.registers == 3.0  # rows y to y + 2 of a float each
    assert launch.shared_bytes == 0.0


def rows_on_the_host(store):
    """`blur` with rows of the output on the host, and a kernel that makes `across` in each."""
    row = Level("at", 2, 0, "v1")
    kernel = StageSchedule((), (ScheduledLoop("v0", "gpu_block"), ScheduledLoop("v1", "gpu_block")))
    rows = StageSchedule((), (ScheduledLoop("v0", "gpu_block"), ScheduledLoop("v1")))
    return (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, row, store or row, stages=(kernel,)),
        FuncSchedule(2, ROOT, ROOT, stages=(rows,)),
    )


@pytest.mark.parametrize(("store", "partial"), [(None, False), (ROOT, True)])
def test_a_kernel_computes_only_what_is_new_where_values_are_kept(store, partial):
    algorithm = blur()
    schedule = Schedule(algorithm.digest, "cuda", rows_on_the_host(store))
    found = {launch.func: launch for launch in launched(algorithm, schedule)}
    assert found[1].grid == (100.0, 3.0, 1.0)  # rows y to y + 2, the last one new
    assert {func: launch.partial for func, launch in found.items()} == {1: partial, 2: False}


def test_inputs_of_a_sliding_func_are_partial_within_its_loops_alone():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    first, across, out = hl.Func("first"), hl.Func("across"), hl.Func("out")
    first[x, y] = image[x, y] * 2.0
    across[x, y] = first[x, y] + first[x + 1, y]
    out[x, y] = across[x, y] + across[x, y + 2]
    out.set_estimates([(0, 100), (0, 50)])
    algorithm = load(out)
    kernel = StageSchedule((), (ScheduledLoop("v0", "gpu_block"), ScheduledLoop("v1", "gpu_block")))
    rows = StageSchedule((), (ScheduledLoop("v0", "gpu_block"), ScheduledLoop("v1")))
    row = Level("at", 3, 0, "v1")
    for level, partial in ((row, True), (ROOT, False)):
        funcs = (
            FuncSchedule(0, INLINE, INLINE),
            FuncSchedule(1, level, level, stages=(kernel,)),
            FuncSchedule(2, row, ROOT, stages=(kernel,)),
            FuncSchedule(3, ROOT, ROOT, stages=(rows,)),
        )
        found = launched(algorithm, Schedule(algorithm.digest, "cuda", funcs))
        assert {launch.func: launch.partial for launch in found} == {
            1: partial,
            2: True,
            3: False,
        }


def test_rows_of_tile_sizes_at_once():
    algorithm = blur()
    schedule = shared_schedule(algorithm)
    widths = np.array([16.0, 32.0, 4.0])
    (launch,) = launched(algorithm, schedule, {(2, 0, 0): widths})
    assert launch.grid[0].tolist() == [7.0, 4.0, 25.0]
    assert launch.shared_bytes.tolist() == (widths * 10 * 4).tolist()


def test_shared_memory_of_any_schedule_is_checked():
    algorithm = blur()
    schedule = shared_schedule(algorithm)
    assert check(schedule, algorithm, Limits(1024, 640)) == []
    (problem,) = check(schedule, algorithm, Limits(1024, 639))
    assert problem.kind == "shared_memory"
    assert "640 bytes" in problem.message


def test_a_grid_beyond_the_limit_is_refused_and_never_planned():
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + 1
    out.set_estimates([(0, 16), (0, 4_000_000)])
    task = make_task(out, machine="a100")
    funcs = (FuncSchedule(0, INLINE, INLINE), FuncSchedule(1, ROOT, ROOT, stages=(tiled(),)))
    schedule = Schedule(task.algorithm.digest, task.target, funcs)
    (problem,) = check(schedule, task.algorithm, device_limits(task))
    assert problem.kind == "grid"
    assert "500,000 blocks in y" in problem.message
    for planned in plan(task, k=3):
        assert check(planned.schedule, task.algorithm, device_limits(task)) == []
        assert all(group.blocks[1:] <= (65_535, 65_535) for group in planned.groups)
