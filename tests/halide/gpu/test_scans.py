"""Scans in memory are stored along the dimension that they scan, and their steps unrolled."""

import functools

import halide as hl
import pytest
from test_scheduler import TIMED, assert_right

from tilewright.halide.analysis.scans import scanned_dimension
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.names import readable
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import Task
from tilewright.machines import gpu

A100 = gpu("a100")

x, y = hl.vars("x y")


def smoothed(width=1536, height=1003, along=1, *, output=False):
    """A recursive filter down the columns (`along` 1) or the rows, and up again."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    length = (width, height)[along]
    r = hl.RDom([(1, length - 1)], "r").x
    f, out = hl.Func("f"), hl.Func("out")

    def at(position):
        return (position, y) if along == 0 else (x, position)

    f[x, y] = image[x, y]
    f[at(r)] = 0.75 * f[at(r - 1)] + 0.25 * image[at(r)]
    back = length - 1 - r
    f[at(back)] = 0.75 * f[at(back + 1)] + 0.25 * f[at(back)]
    out[x, y] = f[x, y] - image[x, y]
    image.set_estimates([(0, width), (0, height)])
    for result in (f, out):
        result.set_estimates([(0, width), (0, height)])
    return load(hl.Pipeline([f, out] if output else out))


def entry_of(planned, algorithm, name):
    named = {entry.func: entry for entry in planned.schedule.funcs}
    (found,) = [
        named[i] for i, func in enumerate(algorithm.funcs) if readable(func.name).startswith(name)
    ]
    return found


def dimension(*updates):
    f = hl.Func("f")
    f[x, y] = 0
    for update in updates:
        update(f, hl.RDom([(1, 9), (1, 9)], "r"))
    f.set_estimates([(0, 16), (0, 16)])
    func = load(f).funcs[-1]
    return scanned_dimension(func, func.stages)


def down(f, r):
    f[x, r.x] = f[x, r.x - 1] + 1


def across(f, r):
    f[r.x, y] = f[r.x - 1, y] + 1


def both(f, r):
    f[r.x, r.y] = f[r.x - 1, r.y - 1] + 1


def only_stores(f, r):
    f[x, r.x] = r.x


def adds(f, r):
    f[x, y] += r.x


def test_which_dimension_is_scanned():
    assert dimension(down) == dimension(down, adds) == 1
    assert dimension(across) == 0
    assert dimension(adds) is None
    assert dimension(both) is None
    assert dimension(down, across) is None
    assert dimension(only_stores) is None


def test_the_scanned_dimension_is_innermost_and_steps_are_unrolled():
    algorithm = smoothed()
    (planned,) = schedule_gpu(algorithm, A100)
    entry = entry_of(planned, algorithm, "f")
    assert entry.storage_order == (1, 0)
    for stage in entry.stages[1:]:
        (split,) = [split for split in stage.splits if split.old == "r0"]
        assert split.factor == SEARCH.scan_steps
        loops = {loop.name: loop for loop in stage.loops}
        assert loops[split.inner].mapping == "unrolled"
        assert loops[split.outer].partition == "always"
    assert not check(planned.schedule, algorithm, Limits(1024, 48 * 1024))
    task = Task(algorithm, A100.halide_target, A100, "test")
    assert planned.cost == pytest.approx(predicted(task, planned.schedule).seconds, rel=0.05)


@pytest.mark.parametrize(("rest", "partition"), [(0, "never"), (1, "always")])
def test_halide_lowers_scans_with_and_without_a_remainder(rest, partition):
    algorithm = smoothed(height=1 + 125 * SEARCH.scan_steps + rest)
    (planned,) = schedule_gpu(algorithm, A100)
    stage = entry_of(planned, algorithm, "f").stages[1]
    (outer,) = [split.outer for split in stage.splits if split.old == "r0"]
    assert {loop.name: loop.partition for loop in stage.loops}[outer] == partition
    assert not refusal(planned.schedule, algorithm)


@pytest.mark.parametrize("changes", [{"along": 0}, {"output": True}])
def test_rows_and_outputs_are_stored_as_they_are(changes):
    algorithm = smoothed(**changes)
    (planned,) = schedule_gpu(algorithm, A100)
    assert entry_of(planned, algorithm, "f").storage_order == ()


@functools.cache
def timed_plans(height):
    algorithm = smoothed(96, height)
    return algorithm, schedule_gpu(algorithm, TIMED, k=2)


HEIGHTS = pytest.mark.parametrize("height", [pytest.param(1003, marks=pytest.mark.thorough), 128])


@HEIGHTS
def test_columns_are_stored_along_the_scan(height):
    algorithm, plans = timed_plans(height)
    assert entry_of(plans[0], algorithm, "f").storage_order == (1, 0)


@pytest.mark.opencl
@HEIGHTS
def test_the_answers_are_right(height):
    algorithm, plans = timed_plans(height)
    for planned in plans:
        assert_right(algorithm, planned.schedule)
