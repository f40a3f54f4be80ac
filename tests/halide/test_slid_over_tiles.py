"""Funcs that slide over the tiles of their reader, where what they read is computed per tile."""

import halide as hl
import pytest

from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.ir.json import to_json
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.task import make_task

HEIGHT = 4
ROW, TILE = Level("at", 4, 0, "v1"), Level("at", 4, 0, "v0_o")


@pytest.fixture(scope="module")
def task():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    read, passed, kept, out = (hl.Func(name) for name in ("read", "passed", "kept", "out"))
    read[x, y] = image[x, y] * 3 % 17
    passed[x, y] = read[x, y] + 1
    kept[x, y] = passed[x, y] * 2
    out[x, y] = kept[x, y] - 2 * kept[x + 2, y]
    out.set_estimates([(0, 64), (0, HEIGHT)])
    made = make_task(out, target="host")
    names = [func.name.split("$")[0] for func in made.algorithm.funcs]
    assert names == ["image_im", "read", "passed", "kept", "out"]
    return made


def scheduled(task, tail, place, stored):
    """`kept` slides along rows of `out`; `read` is computed and stored at the levels given.

    `passed` has no entry, so it is inlined.
    """
    func = task.algorithm.funcs[1]
    read = default_stage(func, func.stages[0])

    def cut(tail):
        loops = ScheduledLoop("v0_i", "vectorized"), ScheduledLoop("v0_o"), ScheduledLoop("v1")
        return StageSchedule((Split("v0", "v0_o", "v0_i", 16, tail),), loops)

    funcs = (
        FuncSchedule(0, INLINE, INLINE),
        FuncSchedule(1, place, stored, stages=(read,)),
        FuncSchedule(3, TILE, ROW, stages=(cut(tail),)),
        FuncSchedule(4, ROOT, ROOT, stages=(cut("shift_inwards"),)),
    )
    return Schedule(task.algorithm.digest, "host", funcs)


def outcome(task, schedule, width):
    sizes = dict.fromkeys(task.algorithm.outputs, (width, HEIGHT))
    run = AtSizes(payload(task.algorithm, to_json(schedule), "host", [{}]))
    return run.at(describe_inputs(resized(task.algorithm, sizes))).status


def test_reads_of_what_is_gone_are_illegal(task):
    schedule = scheduled(task, "shift_inwards", TILE, TILE)
    (found,) = check(schedule, task.algorithm)
    assert found.kind == "store"
    assert "keeps nothing of earlier iterations" in found.message
    assert outcome(task, schedule, 64) == "ok"
    assert outcome(task, schedule, 64 + 5) == "wrong"  # with Halide 21


@pytest.mark.parametrize(
    ("tail", "place", "stored"),
    [
        ("guard_with_if", TILE, TILE),
        ("shift_inwards", TILE, ROW),  # it slides as well
        ("shift_inwards", ROW, ROW),
        ("shift_inwards", Level("at", 3, 0, "v0_o"), Level("at", 3, 0, "v0_o")),
    ],
)
def test_reads_of_what_is_there_are_legal(task, tail, place, stored):
    schedule = scheduled(task, tail, place, stored)
    assert check(schedule, task.algorithm) == []
    assert {outcome(task, schedule, width) for width in (64, 64 + 5)} == {"ok"}
