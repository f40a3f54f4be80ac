"""Members whose threads compute several points, with Funcs in the registers of these threads.

Halide infers a constant number of registers in complete blocks. In guarded blocks, which outputs
smaller than a tile have, it does not do so for all numbers of points.
"""

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import bare, kernel_of

from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import to_json
from tilewright.halide.ir.nest import guarded
from tilewright.halide.ir.schedule import ScheduledLoop, Split, StageSchedule
from tilewright.halide.schedulers.analytic.gpu.nested import bounded_in_members
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task


def erosion(width, height, radius=2):
    """The smallest of a square of pixels, by rows and columns, and its mean along the columns."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, width), (0, height)])
    r, s = (hl.RDom([(-radius, 2 * radius + 1)], name) for name in "rs")
    rows, columns, out = hl.Func("rows"), hl.Func("columns"), hl.Func("out")
    rows[x, y] = hl.minimum(edge[x + r, y])
    columns[x, y] = hl.minimum(rows[x, y + s])
    out[x, y] = columns[x, y]
    out.set_estimates([(0, width), (0, height)])
    return out


def fading(width, height):
    """An image times weights of its rows, each of which is divided by the sum of its neighbours."""
    x, y, k = hl.vars("x y k")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 5)], "r")
    raw, total, weight, rows = (hl.Func(name) for name in ("raw", "total", "weight", "rows"))
    raw[y, k] = hl.exp(hl.f32(-k) * hl.f32(0.1) - hl.f32(y % 7))
    total[y] += raw[y, r]
    weight[y, k] = raw[y, k] / total[y]
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, width), (0, height)])
    rows[x, y] += weight[y, r] * edge[x, y + r]
    out = hl.Func("out")
    out[x, y] = rows[x, y]
    out.set_estimates([(0, width), (0, height)])
    return out


@pytest.mark.parametrize("machine", ["v100", pytest.param("rtx4090", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "radius", [*(pytest.param(each, marks=pytest.mark.thorough) for each in (1, 2)), 3]
)
@pytest.mark.thorough
def test_halide_lowers_all_plans_of_a_separable_minimum(radius, machine):
    task = make_task(erosion(1536, 2560, radius), target="cuda", machine=machine)
    planned = plan(task, k=5)
    assert len(planned) == 5
    assert [refusal(each.schedule, task.algorithm, 1024) for each in planned] == [""] * 5


def test_halide_lowers_all_plans_with_weights_of_rows():
    task = make_task(fading(768, 512), target="cuda", machine="v100")
    refusals = [refusal(each.schedule, task.algorithm, 1024) for each in plan(task, k=5)]
    assert not any(refusals)


def around_registers(schedule):
    """The Funcs in blocks that have Funcs in the registers of their threads."""
    inside = {e.compute.func for e in schedule.funcs if e.memory == "register"}
    return [e for e in schedule.funcs if e.memory == "gpu_shared" and e.func in inside]


@pytest.mark.opencl
def test_small_outputs_are_right():
    task = make_task(erosion(1536, 2560), target="cuda", machine="v100")
    schedule = plan(task)[0].schedule
    (rows,) = around_registers(schedule)
    assert rows.stages[0].sizes  # compiled twice
    outputs = task.algorithm.outputs
    run = AtSizes(payload(task.algorithm, to_json(schedule), "host-opencl", [{}]))
    for extents in ((1, 1), (40, 5), (7, 60), (130, 70)):
        found = run.at(describe_inputs(resized(task.algorithm, dict.fromkeys(outputs, extents))))
        assert found.status == "ok", (extents, found)


def test_guarded_threads_take_turns():
    nest = StageSchedule(
        (
            Split("v0", "v0_t", "v0_r", 2, "guard_with_if"),
            Split("v1", "v1_s", "v1_i", 20, "guard_with_if"),
            Split("v1_i", "v1_t", "v1_r", 4, "guard_with_if"),
        ),
        (
            ScheduledLoop("v0_r", "unrolled"),
            ScheduledLoop("v1_r", "unrolled"),
            ScheduledLoop("v2"),
            ScheduledLoop("v0_t", "gpu_thread"),
            ScheduledLoop("v1_t", "gpu_thread"),
            ScheduledLoop("v1_s"),
        ),
    )
    found = guarded(nest)
    assert [loop.name for loop in found.loops] == ["v2", "v0_t", "v1_t", "v0_r", "v1_r", "v1_s"]
    serial = [loop.name for loop in found.loops if loop.mapping == "serial"]
    assert serial == ["v2", "v0_r", "v1_r", "v1_s"]
    assert [(s.old, s.outer, s.inner, s.factor) for s in found.splits] == [
        ("v0", "v0_r", "v0_t", 2),
        ("v1", "v1_s", "v1_i", 20),
        ("v1_i", "v1_r", "v1_t", 4),
    ]


def window(halo):
    """Sums of ``halo + 1`` rows of maxima of five columns."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, 512), (0, 512)])
    r = hl.RDom([(-2, 5)], "r")
    widest, rows, out = hl.Func("widest"), hl.Func("rows"), hl.Func("out")
    widest[x, y] = hl.u8(0)
    widest[x, y] = hl.max(widest[x, y], edge[x + r, y])
    rows[x, y] = widest[x, y]
    out[x, y] = sum((rows[x, y + k] for k in range(1, halo + 1)), rows[x, y])
    out.set_estimates([(0, 512), (0, 512)])
    return widest, rows, out


def lowers(halo, tall, each):
    """Whether Halide lowers guarded blocks of 32 x `tall`, `each` rows of members per thread."""
    widest, rows, out = window(halo)
    x, y = out.args()
    guard = hl.TailStrategy.GuardWithIf
    bx, by, tx, ty, top, point = hl.vars("bx by tx ty top point")
    out.gpu_tile(x, y, bx, by, tx, ty, 32, tall, guard)
    rows.compute_at(out, bx).store_in(hl.MemoryType.GPUShared)
    rows.split(rows.args()[1], top, point, each, guard).reorder(point, rows.args()[0], top)
    rows.gpu_threads(rows.args()[0], top).unroll(point)
    widest.compute_at(rows, rows.args()[0]).store_in(hl.MemoryType.Register)
    widest.unroll(widest.args()[1])
    widest.update().unroll(widest.args()[1])
    for func in (out, rows, widest):
        func.never_partition_all()
    try:
        hl.Pipeline(out).compile_to_module(
            hl.Pipeline(out).infer_arguments(), "f", hl.Target("host-cuda-cuda_capability_70")
        )
    except hl.HalideError:
        return False
    return True


@pytest.mark.parametrize("each", [2, 4])
@pytest.mark.parametrize("halo", [0, 1, 2, 4])
@pytest.mark.few(4)
def test_registers_of_guarded_blocks_are_bounded_where_halide_bounds_them(halo, each):
    algorithm = load(window(halo)[-1])
    names = [bare(func.name) for func in algorithm.funcs]
    inlined = [name for name in names if name not in ("widest", "rows", "out")]
    kernel = kernel_of(algorithm, "out", ["widest", "rows"], inlined)
    widest, rows = kernel.members
    nested = {widest: rows}
    heights = (8, 16)
    tiles = np.array([(32.0, height) for height in heights])
    registers = np.broadcast_to((1.0, float(each)), tiles.shape)
    allowed = bounded_in_members(kernel, nested, tiles, registers)
    assert allowed.tolist() == [lowers(halo, height, each) for height in heights]
    # Blocks with a single thread along y, and with rows that are no multiple of the points.
    others = np.array([(32.0, each), (32.0, each + 1)])
    single, uneven = bounded_in_members(kernel, nested, others, registers)
    assert not (single and halo == 0)
    assert uneven == (halo == 0)
