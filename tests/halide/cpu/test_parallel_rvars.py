"""Updates whose iterations write apart from each other run in parallel over them."""

import halide as hl
import pytest
from patience import PATIENT

from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.machines import CpuMachine
from tilewright.measure import Timing

MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())
ONE_CORE = CpuMachine("test", "x86-64", 1, ("avx2",), 256, ())
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


def triangle(size):
    """A triangular matrix times a vector."""
    i = hl.Var("i")
    matrix, given = hl.ImageParam(hl.Float(32), 2, "A"), hl.ImageParam(hl.Float(32), 1, "x")
    matrix.set_estimates([(0, size), (0, size)])
    given.set_estimates([(0, size)])
    r = hl.RDom([(0, size), (0, size)], "r")
    r.where(r.x <= r.y)
    out = hl.Func("out")
    out[i] = 0.0
    out[r.y] += matrix[r.x, r.y] * given[r.x]
    out.set_estimates([(0, size)])
    return out


def every_other(width, height, dimension):
    """Every other row, or column, is doubled."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, width), (0, height)])
    r = hl.RDom([(0, (width, height)[dimension] // 2)], "r")
    out = hl.Func("out")
    out[x, y] = data[x, y]
    if dimension == 1:
        out[x, 2 * r] = 2.0 * out[x, 2 * r]
    else:
        out[2 * r, y] = 2.0 * out[2 * r, y]
    out.set_estimates([(0, width), (0, height)])
    return out


def running(width, height):
    """A sum over the rows above: no iteration can go before another."""
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, width), (0, height)])
    r = hl.RDom([(1, height - 1)], "r")
    out = hl.Func("out")
    out[x, y] = data[x, y]
    out[x, r] = out[x, r] + out[x, r - 1]
    out.set_estimates([(0, width), (0, height)])
    return out


def column_sums(size):
    """Sums of columns; the variable that runs along a row is the one that runs in vectors."""
    i = hl.Var("i")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, size), (0, size)])
    r = hl.RDom([(0, size), (0, size)], "r")
    out = hl.Func("out")
    out[i] = 0.0
    out[r.x] += data[r.x, r.y]
    out.set_estimates([(0, size)])
    return out


def parallel_loops(pipeline, machine=MACHINE):
    algorithm = load(pipeline)
    (planned,) = schedule_cpu(algorithm, machine)
    assert not check(planned.schedule, algorithm)
    (entry,) = (e for e in planned.schedule.funcs if len(e.stages) == 2)
    return [loop.name for loop in entry.stages[1].loops if loop.mapping == "parallel"]


def test_tasks_over_the_rows_that_an_update_writes():
    assert parallel_loops(triangle(1024)) == ["r1t_1"]
    assert parallel_loops(every_other(1024, 768, 1)) == ["r0t_1"]


def test_tiles_of_slower_dimensions_come_first():
    assert parallel_loops(every_other(1024, 768, 0)) == ["v1t_1"]


def test_a_variable_that_runs_in_vectors_keeps_them():
    algorithm = load(column_sums(1024))
    (planned,) = schedule_cpu(algorithm, MACHINE)
    (entry,) = (e for e in planned.schedule.funcs if len(e.stages) == 2)
    assert entry.stages[1].loops[0].name == "r0u_1"
    assert entry.stages[1].loops[0].mapping == "vectorized"


def test_no_tasks_where_they_would_depend_on_each_other_or_do_not_pay():
    assert not any(name.startswith("r") for name in parallel_loops(running(1024, 768)))
    assert not parallel_loops(triangle(16))
    assert not parallel_loops(triangle(1024), ONE_CORE)


@pytest.mark.parametrize("size", [203, 256])
def test_the_answers_are_right_also_where_tasks_are_uneven(size):
    algorithm = load(triangle(size))
    (planned,) = schedule_cpu(algorithm, MACHINE)
    schedule = any_size(planned.schedule, algorithm)
    assert any(loop.mapping == "parallel" for loop in schedule.funcs[-1].stages[1].loops)
    with Session(algorithm, timing=ONCE, limits=PATIENT) as session:
        (done,) = session.measure([Variant(schedule)])
    assert done.measurement.status == "ok", done.measurement.message
