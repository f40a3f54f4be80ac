"""Members of a group at deeper loops than those at which the search computes them."""

from dataclasses import replace

import halide as hl
import pytest
from answers import assert_right
from cpu_machines import FOUR_CORES

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.names import readable
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu import member_loops
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.retries import nest_seconds
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 48 << 10, 64, 1), Cache(2, 1 << 20, 64, 1), Cache(3, 32 << 20, 64, 2))
MACHINE = replace(FOUR_CORES, cores=2, caches=CACHES)
MODEL = model_of(MACHINE)
WIDTH, HEIGHT, STEPS = 384, 256, 24
x, y, z = hl.vars("x y z")


def escape():
    """Steps until an orbit escapes: a Tuple that keeps all steps, and the first one outside."""
    t = hl.RDom([(1, STEPS - 1)], "t")
    orbit, out = hl.Func("orbit"), hl.Func("out")
    re, im = 3.0 * x / WIDTH - 2.0, 2.0 * y / HEIGHT - 1.0
    orbit[x, y, z] = (hl.f32(0.0), hl.f32(0.0))
    a, b = orbit[x, y, t - 1][0], orbit[x, y, t - 1][1]
    orbit[x, y, t] = (a * a - b * b + re, 2.0 * a * b + im)
    a, b = orbit[x, y, t][0], orbit[x, y, t][1]
    first = hl.argmin(hl.select(a * a + b * b >= 4.0, 0, 1))
    out[x, y] = hl.select(first[1] == 0, first[0], STEPS)
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return hl.Pipeline(out)


def blurred():
    """A 3 x 3 blur in two passes: what the first computes is used by several rows of tiles."""
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, 1024), (0, 1024)])
    edge, rows, out = hl.BoundaryConditions.repeat_edge(data), hl.Func("rows"), hl.Func("out")
    rows[x, y] = edge[x - 1, y] + edge[x, y] + edge[x + 1, y]
    out[x, y] = rows[x, y - 1] + rows[x, y] + rows[x, y + 1]
    out.set_estimates([(0, 1024), (0, 1024)])
    return hl.Pipeline(out)


def moved(algorithm, planned):
    boxes = estimated_boxes(View(algorithm))
    return member_loops.with_deeper_members(algorithm, planned, boxes, MODEL)


def levels(planned, algorithm):
    return {readable(algorithm.funcs[e.func].name): e.compute for e in planned.schedule.funcs}


@pytest.fixture(scope="module")
def algorithm():
    return load(escape())


@pytest.fixture(scope="module")
def planned(algorithm):
    return schedule_cpu(algorithm, MACHINE, k=2)


def test_a_member_moves_to_a_deeper_loop_where_that_is_predicted_to_be_faster(algorithm, planned):
    first, second = planned
    now, before = levels(first, algorithm), levels(second, algorithm)
    changed = {name for name in now if now[name] != before[name]}
    assert changed == {"orbit"}
    assert replace(first, schedule=second.schedule, groups=second.groups) == second
    host = next(e for e in first.schedule.funcs if e.func == now["orbit"].func)
    loops = [loop.name for loop in host.stages[now["orbit"].stage].loops]
    assert loops.index(now["orbit"].loop) < loops.index(before["orbit"].loop)
    boxes = estimated_boxes(View(algorithm))
    after, earlier = (nest_seconds(algorithm, each, boxes, MODEL) for each in planned)
    assert after < SEARCH.clear_gain * earlier
    assert not check(first.schedule, algorithm)


def test_the_report_says_so(planned):
    assert [g.notes for g in planned[0].groups] == [
        ("orbit in a loop inside the tiles of out",),
    ]


@pytest.mark.parametrize("guarded", [False, True])
def test_it_is_right(algorithm, planned, guarded):
    assert_right(algorithm, planned[0].schedule, guarded)


def test_loops_of_the_only_reader_are_tried_and_every_legal_move_is_right(algorithm, planned):
    before = planned[1].schedule
    found = [s for s in member_loops._moved(before, algorithm) if not check(s, algorithm)]
    hosts = {readable(algorithm.funcs[e.compute.func].name) for s in found for e in s.funcs[:1]}
    assert hosts == {"out", "argmin"}
    assert before not in found
    for schedule in (found[0], found[-1]):
        assert_right(algorithm, schedule, False)


def test_what_gains_nothing_stays():
    algorithm = load(blurred())
    (planned,) = schedule_cpu(algorithm, MACHINE)
    assert moved(algorithm, planned) is None
