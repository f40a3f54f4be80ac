import halide as hl
import pytest
from gpu_pipelines import full, khwz, matmul

from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import Fuse, Split
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu

x, y, z, w = hl.vars("x y z w")


def scheduled(algorithm, **options):
    """The first schedule's entries by name of the Func, and the reports."""
    (planned,) = schedule_gpu(algorithm, gpu("a100"), objective="sioutas", **options)
    names = [f.name.split("$")[0] for f in algorithm.funcs]
    return {names[entry.func]: entry for entry in planned.schedule.funcs}, planned.groups


def mapped(stage, mapping):
    return [loop.name for loop in stage.loops if loop.mapping == mapping]


def pointwise(*extents):
    dims = (x, y, z, w)[: len(extents)]
    out = hl.Func("out")
    out[dims] = sum(hl.f32(d) for d in dims)
    out.set_estimates([(0, extent) for extent in extents])
    return load(out)


def test_threads_are_innermost_but_for_small_loops_and_blocks_outermost():
    funcs, _ = scheduled(pointwise(1024, 1024, 3))
    (stage,) = funcs["out"].stages
    order = [loop.mapping for loop in stage.loops]
    ranks = {"unrolled": 0, "serial": 1, "gpu_thread": 2, "gpu_block": 3}
    assert [ranks[mapping] for mapping in order] == sorted(ranks[mapping] for mapping in order)
    assert mapped(stage, "gpu_thread") == ["v0_t", "v1_t"]
    assert mapped(stage, "gpu_block")[:2] == ["v0_b", "v1_b"]


def test_blocks_have_three_dimensions_at_most():
    funcs, (report,) = scheduled(pointwise(100, 100, 100, 100))
    (stage,) = funcs["out"].stages
    assert len(mapped(stage, "gpu_block")) == 3
    assert len(mapped(stage, "gpu_thread")) == 3
    assert any(isinstance(change, Fuse) for change in stage.splits)
    tiles = 1
    for extent, size in zip((100, 100, 100, 100), report.tile, strict=True):
        tiles *= -(-extent // size)
    assert report.blocks[0] * report.blocks[1] * report.blocks[2] == tiles


def test_members_are_in_shared_memory_and_nested_ones_in_registers():
    funcs, _ = scheduled(matmul())
    assert funcs["prod"].memory == "register"
    assert (funcs["prod"].compute.kind, funcs["prod"].compute.loop) == ("at", "v0_t")
    funcs, _ = scheduled(matmul(64), mode="overlapped")
    assert {entry.memory for entry in funcs.values()} <= {"auto", "gpu_shared"}


def test_no_fusion_computes_everything_at_root():
    funcs, reports = scheduled(khwz(), mode="none")
    assert {entry.compute.kind for entry in funcs.values()} <= {"root", "inline"}
    assert all(len(report.funcs) == 1 for report in reports)


@pytest.mark.parametrize("any_size", [False, True])
def test_tiles_shift_inwards_only_where_a_kernel_has_members(any_size):
    funcs, _ = scheduled(matmul(), any_size=any_size)
    tails = {change.tail for change in funcs["out"].stages[0].splits if isinstance(change, Split)}
    assert ("shift_inwards" in tails) != any_size
    funcs, _ = scheduled(pointwise(1024, 1024), any_size=any_size)
    assert all(change.tail == "guard_with_if" for change in funcs["out"].stages[0].splits)


def test_reductions_run_serially_inside_threads():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(0, 3), (0, 40)], "r")
    out = hl.Func("out")
    out[x, y] = 0.0
    out[x, y] += image[x + r.x, y + r.y]
    out.set_estimates([(0, 1024), (0, 1024)])
    funcs, _ = scheduled(load(out))
    update = funcs["out"].stages[1]
    names = [loop.name for loop in update.loops]
    assert names.index("r0") < names.index("r1") < names.index("v0_t")
    assert mapped(update, "unrolled") == ["r0"]


def test_a_scattered_sum_is_atomic():
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 1000), (0, 800)], "r")
    histogram, out = hl.Func("histogram"), hl.Func("out")
    histogram[x] = 0
    histogram[hl.i32(image[r.x, r.y])] += 1
    out[x] = histogram[x] * 2
    out.set_estimates([(0, 256)])
    funcs, _ = scheduled(load(out))
    update = funcs["histogram"].stages[1]
    assert update.atomic
    assert mapped(update, "gpu_thread") == ["r0_t", "r1_t"]


def test_a_scan_over_everything_is_one_thread_or_stays_on_the_host():
    def scan(length):
        out = hl.Func("out")
        r = hl.RDom([(1, length - 1)], "r")
        out[x] = hl.f32(x)
        out[r.x] = out[r.x] * 0.5 + out[r.x - 1]
        out.set_estimates([(0, length)])
        funcs, reports = scheduled(load(out))
        return funcs["out"].stages[1], reports[1]

    stage, report = scan(1000)
    assert stage.single_thread
    assert report.threads == (1, 1, 1)
    stage, report = scan(1_000_000)
    assert not stage.single_thread
    assert any("host" in note for note in report.notes)


def test_a_member_of_uncertain_size_gets_as_many_threads_as_its_largest_block():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    a, b = hl.Func("a"), hl.Func("b")
    a[x, y] = hl.sqrt(image[x, y]) + image[x, y + 1] * image[x + 1, y]
    near = hl.clamp(x, 2, 1000)
    b[x, y] = sum((a[near + i, y] for i in range(-2, 3)), hl.f32(0))
    b.set_estimates([(0, 1024), (0, 1024)])
    algorithm = load(b)
    funcs, (report,) = scheduled(algorithm)
    assert report.funcs == (full(algorithm, "a"), full(algorithm, "b"))
    splits = {change.old: change for change in funcs["a"].stages[0].splits}
    assert splits["v0"].factor == report.tile[0] + 4
    assert report.threads[0] == report.tile[0] + 4
