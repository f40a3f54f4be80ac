"""What a report says of a schedule is what the schedule does."""

import re

import halide as hl
import pytest
from nest_text import nest_text

from tilewright.halide.analysis.loop_nest import loop_nest
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.report.explain import group_of, pipeline_dag, schedule_report
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import detect_cpu, gpu
from tilewright.report.pages.schedule import schedule_page
from tilewright.report.text import explain


def blur():
    """A 3x3 box blur of an input that is brightened first."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "input")
    bright, blur_x, blur_y = hl.Func("bright"), hl.Func("blur_x"), hl.Func("blur_y")
    bright[x, y] = image[x, y] + hl.u16(1)
    blur_x[x, y] = bright[x, y] + bright[x + 1, y] + bright[x + 2, y]
    blur_y[x, y] = blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]
    blur_y.set_estimates([(0, 64), (0, 48)])
    return load(blur_y)


def rows(algorithm, store, target="host", mapping="parallel", memory="auto"):
    """blur_y in strips of eight rows, blur_x computed for each row or strip."""
    index = {name.split("$")[0]: i for name, i in algorithm.order.items()}
    strip = StageSchedule(
        (Split("v1", "yo", "yi", 8, "guard_with_if"),),
        (ScheduledLoop("v0"), ScheduledLoop("yi"), ScheduledLoop("yo", mapping)),
    )
    out = index["blur_y"]
    return Schedule(
        algorithm.digest,
        target,
        (
            FuncSchedule(out, ROOT, ROOT, stages=(strip,)),
            FuncSchedule(
                index["blur_x"],
                Level("at", out, 0, "yi" if store == "slide" else "yo"),
                Level("at", out, 0, "yo"),
                memory,
            ),
        ),
    )


def short(text):
    """Without the numbers that Halide adds to names."""
    return re.sub(r"\$\d+", "", text)


def test_the_nest_of_a_strip():
    algorithm = blur()
    assert nest_text(loop_nest(algorithm, rows(algorithm, "strip"))).splitlines() == [
        "produce blur_y",
        "  for parallel y_o in 6",
        "    allocate blur_x (1.25 KiB)",
        "    produce blur_x",
        "      for y in 10",
        "        for x in 64",
        "          blur_x = …",
        "    for y_i in 8",
        "      for x in 64",
        "        blur_y = …",
    ]


def test_the_nest_of_a_sliding_window():
    algorithm = blur()
    lines = nest_text(loop_nest(algorithm, rows(algorithm, "slide"))).splitlines()
    assert lines[2:5] == [
        "    allocate blur_x",
        "    for y_i in 8",
        "      produce blur_x (sliding window)",
    ]


def test_memory_on_a_gpu_follows_the_level():
    algorithm = blur()
    schedule = rows(algorithm, "strip", target="host-cuda", mapping="gpu_block")
    (line,) = [n for n in loop_nest(algorithm, schedule) if n.kind == "allocate"]
    assert (line.memory, line.bytes) == ("gpu_shared", 64 * 10 * 2)


def test_the_graph_has_inputs_edges_and_inlined_funcs():
    algorithm = blur()
    schedule = rows(algorithm, "strip")
    groups = (GroupReport(tuple(f.name for f in algorithm.funcs[-2:]), algorithm.outputs[0]),)
    dag = pipeline_dag(algorithm, schedule, groups)
    nodes = {short(n.name): n for n in dag.nodes}
    assert nodes["input"].kind == "input"
    assert nodes["blur_y"].kind == "output"
    assert nodes["bright"].inlined
    assert not nodes["blur_x"].inlined
    assert nodes["bright"].group == 0
    edges = {(short(a), short(b)) for a, b in dag.edges}
    assert {("bright", "blur_x"), ("blur_x", "blur_y")} <= edges
    assert any(a == "input" for a, _ in edges)


def test_a_func_outside_all_groups_has_none():
    algorithm = blur()
    planned = PlannedSchedule(rows(algorithm, "strip"), (), 0.0)
    assert group_of(algorithm, planned) == {}
    assert schedule_report(algorithm, planned, pipeline="blur").groups == ()


def test_a_planned_schedule_becomes_a_report():
    algorithm = blur()
    planned = schedule_cpu(algorithm, detect_cpu())[0]
    report = schedule_report(algorithm, planned, pipeline="blur", seconds=0.001, verified=True)
    assert [g.name for g in report.groups] == [g.output for g in planned.groups]
    assert report.groups[-1].tile[0][0] == "x"
    assert "blur" in explain(report)
    assert "Pipeline and loop nest" in schedule_page(report)
    assert "def " in report.python


def running_sum():
    """Sums down the columns: the loops of the update are not the output's dimensions in order."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "input")
    r = hl.RDom([(1, 47)], "r")
    total = hl.Func("total")
    total[x, y] = image[x, y]
    total[x, r.x] += total[x, r.x - 1]
    total.set_estimates([(0, 64), (0, 48)])
    return load(total)


def matrix_product():
    """An update with one more loop than the output has dimensions."""
    x, y = hl.Var("x"), hl.Var("y")
    left, right = (hl.ImageParam(hl.Float(32), 2, name) for name in ("left", "right"))
    r = hl.RDom([(0, 64)], "r")
    product = hl.Func("product")
    product[x, y] += left[r.x, y] * right[x, r.x]
    product.set_estimates([(0, 64), (0, 64)])
    return load(product)


@pytest.mark.parametrize("build", [running_sum, matrix_product])
def test_tile_sizes_are_of_dimensions_of_the_output(build):
    algorithm = build()
    (planned,) = schedule_cpu(algorithm, detect_cpu())
    (group,) = schedule_report(algorithm, planned, pipeline="p").groups
    assert [loop for loop, _ in group.tile] == ["x", "y"]


def test_tile_sizes_on_a_gpu_are_of_parallel_loops():
    algorithm = matrix_product()
    planned = schedule_gpu(algorithm, gpu("v100"), objective="sioutas")[0]
    group = schedule_report(algorithm, planned, pipeline="p").groups[-1]
    assert [loop for loop, _ in group.tile] == ["x", "y"]


def update():
    """A histogram: an update over a reduction domain, data-dependent."""
    x, i = hl.Var("x"), hl.Var("i")
    image = hl.ImageParam(hl.UInt(8), 1, "input")
    r = hl.RDom([(0, 100)])
    hist, out = hl.Func("hist"), hl.Func("out")
    hist[i] = hl.u32(0)
    hist[hl.i32(image[r.x])] += hl.u32(1)
    out[x] = hist[x]
    out.set_estimates([(0, 256)])
    return load(out)


def test_updates_are_distinguished():
    algorithm = update()
    schedule = Schedule(
        algorithm.digest,
        "host",
        tuple(
            FuncSchedule(i, ROOT, ROOT)
            for i, f in enumerate(algorithm.funcs)
            if short(f.name) in ("hist", "out")
        ),
    )
    lines = nest_text(loop_nest(algorithm, schedule)).splitlines()
    assert "allocate hist (heap, 1 KiB)" in lines
    assert "    hist = … (update 1)" in lines
    assert any("in 100" in line for line in lines)


def test_without_estimates_sizes_are_left_out():
    x = hl.Var("x")
    f, g = hl.Func("f"), hl.Func("g")
    f[x] = x
    g[x] = f[x] + f[x + 1]
    algorithm = import_pipeline(hl.serialize_pipeline(hl.Pipeline(g)))
    schedule = Schedule(
        algorithm.digest, "host", tuple(FuncSchedule(i, ROOT, ROOT) for i in range(2))
    )
    lines = nest_text(loop_nest(algorithm, schedule)).splitlines()
    assert lines[0] == "allocate f (heap)"
    assert "  for x" in lines
