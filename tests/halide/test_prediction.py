"""Predicted times of schedules from anywhere: the search's, a person's, a tuner's.

By hand: four cores at 2 GHz; 32 KiB, 512 KiB, 8 MiB; memory gives 5 bytes per cycle, 8 lanes of 32
bits.
"""

import dataclasses
import math

import halide as hl
import pytest
from cpu_machines import TIMED_CORES as MACHINE

import tilewright
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.plan import GroupReport, PartTime, PlannedSchedule, Prediction
from tilewright.halide.result import Result
from tilewright.halide.schedulers import registry
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.gpu import grouping_search
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.roofline import predicted_seconds
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.prediction import predicted, with_prediction
from tilewright.halide.schedulers.task import Task, make_task
from tilewright.halide.search.top_k import Tried
from tilewright.machines import gpu
from tilewright.measure import Measurement

ONE_CORE = dataclasses.replace(MACHINE, cores=1)
C = CpuConstants()


def blur(width=1024, height=512):
    """Two Funcs, the first of which the second reads in three rows; and both."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    across, down = hl.Func("across"), hl.Func("down")
    across[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    down[x, y] = across[x, y] + across[x, y + 1] + across[x, y + 2]
    down.set_estimates([(0, width), (0, height)])
    return down, across, x, y


def product(size=256):
    x, y = hl.vars("x y")
    k = hl.RDom([(0, size)], "k")
    a, b = hl.ImageParam(hl.Float(32), 2, "a"), hl.ImageParam(hl.Float(32), 2, "b")
    c, out = hl.Func("c"), hl.Func("out")
    c[x, y] = 0.0
    c[x, y] += a[k, y] * b[x, k]
    out[x, y] = c[x, y]
    out.set_estimates([(0, size), (0, size)])
    return out


def by_hand(func, machine=MACHINE):
    """The prediction of a pipeline as it is scheduled."""
    data = bytes(hl.serialize_pipeline(hl.Pipeline(func)))
    task = make_task(data, machine=machine, discard_schedule=True)
    return predicted(task, read_schedule(data, task.target).schedule)


def copied(width, height, vectors=8, parallel=False):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + 1.0
    if vectors > 1:
        out.vectorize(x, vectors)
    if parallel:
        out.parallel(y)
    return out.set_estimates([(0, width), (0, height)])


# --- on a CPU, by hand ----------------------------------------------------------------------------


def test_bytes_from_memory():
    # An image of 64 MiB is read, and written in lines that are fetched first.
    (part,) = by_hand(copied(4096, 4096)).parts
    size = 4.0 * 4096 * 4096
    row_ends = (4096 + 15 / 2) / 4096
    assert part.terms["memory"] == pytest.approx(size * (row_ends + 2.0) / 1e10, rel=1e-3)
    assert part.limit == "memory"


def test_data_that_fit_into_the_last_cache_are_not_from_memory():
    (part,) = by_hand(copied(512, 512)).parts
    assert part.terms["memory"] == 0.0


def test_cycles_of_a_block_times_the_blocks():
    # Of eight lanes: an addition, a load, a store and the loop, 128 x 512 times; and 512 rows. A
    # serial loop has one task, which is late by the disturbance of a core.
    (part,) = by_hand(copied(1024, 512)).parts
    block = C.simple_cycles + C.load_cycles + 1.0 + C.loop_cycles
    cycles = 512 * (128 * block + C.row_cycles)
    assert part.terms["compute"] == pytest.approx(cycles * (1.0 + C.disturbance) / 2e9)


def test_scalar_code_takes_longer_than_vectors():
    times = [by_hand(copied(1024, 512, vectors)).parts[0].terms["compute"] for vectors in (1, 8)]
    assert times[0] > 4.0 * times[1]


def test_a_parallel_loop_uses_all_cores():
    serial, parallel = (
        by_hand(copied(1024, 512, parallel=p)).parts[0].terms["compute"] for p in (False, True)
    )
    late = 1.0 + C.disturbance
    assert serial / parallel == pytest.approx(4.0 * late / (1.0 + C.disturbance * 4 / 512))
    one = [by_hand(copied(1024, 512, parallel=p), ONE_CORE).parts[0] for p in (False, True)]
    assert one[1].seconds > one[0].seconds  # tasks have to be started


def test_rows_that_are_computed_again_cost_again():
    """Three rows of `across` a row of `down`, or one where they are kept from row to row."""
    times = []
    for keep in (False, True):
        down, across, _, y = blur()
        across.compute_at(down, y)
        if keep:
            across.store_root()
        (part,) = by_hand(down).parts
        times.append(part.terms["compute"])
    down, across, _, _ = blur()
    across.compute_root()
    alone = {part.output: part.terms["compute"] for part in by_hand(down).parts}
    (once,) = (cycles * 512 / 514 for name, cycles in alone.items() if name.startswith("across"))
    assert times[0] - times[1] == pytest.approx(2.0 * once, rel=0.02)


def tiled(width, height, tile, level, store=None, vectors=1, parallel=False):
    """Blurred rows in tiles, with the first Func computed in one of the output's loops."""
    down, across, x, y = blur(width, height)
    xi, yi, xv = hl.vars("xi yi xv")
    loops = {"x": x, "y": y, "xi": xi, "yi": yi}
    down.tile(x, y, xi, yi, *tile)
    if vectors > 1:
        down.split(xi, xi, xv, vectors).vectorize(xv)
    if parallel:
        down.parallel(y)
    across.compute_at(down, loops[level])
    if store is not None:
        across.store_at(down, loops[store])
    return down


@pytest.mark.parametrize(
    ("func", "cycles"),
    [
        # 16 x 64 tiles of eight rows, each of 60 cycles; 60 for its loops, 60 for its member's.
        (lambda: tiled(1024, 512, (64, 8), "x"), 1024 * (60 + 8 * 60 + 60)),
        # For each of its rows, 180 for the pass of a member.
        (lambda: tiled(1024, 512, (64, 8), "yi"), 1024 * (60 + 8 * 60 + 8 * 180)),
        (lambda: tiled(1024, 512, (64, 8), "yi", "x"), 1024 * (60 + 8 * 60 + 8 * 180)),
        # For each block of eight, 3.7.
        (
            lambda: tiled(1024, 512, (64, 8), "xi", vectors=8),
            1024 * (60 + 8 * 60 + 60 + 8 * 8 * 3.7),
        ),
        # 64 tiles of whole rows: one stretch of memory. Ten rows of 4 KiB are on the heap.
        (lambda: tiled(1024, 512, (1024, 8), "x"), 64 * (60 + 60 + 60 + 250)),
        # Three rows of 8 KiB are, too: for each row, or, where they are kept, for each tile.
        (lambda: tiled(2048, 512, (2048, 8), "yi"), 64 * (60 + 60 + 8 * (180 + 250))),
        (lambda: tiled(2048, 512, (2048, 8), "yi", "x"), 64 * (60 + 60 + 8 * 180 + 250)),
        # 2,050 rows of 16 KiB: over 32 MiB, fresh pages for each of two tiles.
        (
            lambda: tiled(4096, 4096, (4096, 2048), "x"),
            2 * (60 + 60 + 60 + 250 + 1.5 * 2050 * 16384),
        ),
    ],
)
def test_cycles_of_loops_and_allocations(func, cycles):
    (part,) = by_hand(func()).parts
    assert part.terms["overhead"] == pytest.approx(cycles * (1.0 + C.disturbance) / 2e9, rel=1e-6)


def test_a_part_is_a_func_at_root():
    down, across, _, _ = blur()
    assert [p.output.split("$")[0] for p in by_hand(down).parts] == ["down"]
    across.compute_root()
    found = by_hand(down)
    assert [p.output.split("$")[0] for p in found.parts] == ["across", "down"]
    assert found.seconds == sum(part.seconds for part in found.parts)


def test_the_largest_term_limits():
    part = PartTime("f", 0, 3.0, {"compute": 1.0, "memory": 2.0})
    assert part.limit == "memory"
    assert PartTime("f", 0, 0.0).limit == ""
    assert Prediction((part, part)).seconds == 6.0


def test_costs_outside_the_nest_are_noted():
    x, y = hl.vars("x y")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = hl.f32(x + y)
    g[x, y] = f[x, y] + 1.0
    g.parallel(y)
    f.compute_at(g, y).async_()
    g.set_estimates([(0, 256), (0, 256)])
    (note,) = by_hand(g).notes
    assert "asynchronous producer" in note


# --- what the search makes ----------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", [lambda: blur()[0], product, lambda: copied(4096, 4096, 1)])
def test_the_search_and_the_nest_agree_on_a_cpu(pipeline):
    task = make_task(pipeline(), machine=MACHINE)
    for planned in registry._planned(task, 3, "nested", None):
        found = predicted(task, planned.schedule)
        seconds = model_of(MACHINE).seconds(planned.cost)
        assert found.seconds == pytest.approx(seconds, rel=0.07)


@pytest.mark.parametrize("pipeline", [lambda: blur()[0], product, lambda: copied(4096, 4096, 1)])
@pytest.mark.parametrize("machine", ["v100", "h100"])
def test_the_quick_estimate_of_the_search_is_near_the_time_on_a_gpu(pipeline, machine, monkeypatch):
    seen: list = []

    def assemble(analysis, model, plans, options):
        planned = assembled(analysis, model, plans, options)
        kernels = [kernel for plan in plans for kernel in plan.kernels]
        seen.append((planned, sum(predicted_seconds(model, kernel) or 0.0 for kernel in kernels)))
        return planned

    assembled = grouping_search.assemble
    monkeypatch.setattr(grouping_search, "assemble", assemble)
    task = make_task(pipeline(), machine=gpu(machine))
    schedule_gpu(task.algorithm, task.machine, k=3, objective="sioutas")
    assert len(seen) >= 2
    for planned, seconds in seen:
        assert seconds / 3 < predicted(task, planned.schedule).seconds < seconds * 3


def test_schedules_right_at_every_size_are_predicted_as_those_that_are_not():
    times = []
    for exact in (True, False):
        task = make_task(blur()[0], machine=MACHINE, exact_sizes=exact)
        times.append(predicted(task, registry.plan(task)[0].schedule).seconds)
    assert times[0] == pytest.approx(times[1], rel=0.05)


# --- plans with their times ---------------------------------------------------------------------


def test_the_naive_schedule_gets_its_groups_and_times():
    task = make_task(blur()[0], machine=MACHINE)
    found = with_prediction(PlannedSchedule(registry.naive(task), (), 0.0), task)
    assert [group.output.split("$")[0] for group in found.groups] == ["across", "down"]
    assert found.seconds == sum(group.seconds or 0.0 for group in found.groups) > 0
    assert all(group.limit == "compute" for group in found.groups)


def test_a_kernel_is_a_group_with_its_launch():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + 1.0
    out[x, y] += 2.0
    xi, yi = hl.vars("xi yi")
    out.gpu_tile(x, y, xi, yi, 32, 8)
    out.update().gpu_tile(x, y, xi, yi, 16, 16)
    out.set_estimates([(0, 4096), (0, 2048)])
    data = bytes(hl.serialize_pipeline(hl.Pipeline(out)))
    task = make_task(data, machine=gpu("v100"), discard_schedule=True)
    schedule = read_schedule(data, task.target).schedule
    found = with_prediction(PlannedSchedule(schedule, (), math.inf), task)
    first, second = found.groups
    assert (first.stage, first.blocks, first.threads, first.tile) == (
        0,
        (128, 256, 1),
        (32, 8, 1),
        (32, 8),
    )
    assert (second.stage, second.blocks, second.threads) == (1, (256, 128, 1), (16, 16, 1))
    assert first.occupancy == second.occupancy == 1.0
    assert first.limit == second.limit == "memory"
    # The update reads the image that it adds to; the first stage reads another and writes.
    size = 4 * 4096 * 2048 / task.machine.memory_bandwidth / GpuConstants().memory_share
    launch = 3e-6 + GpuConstants().kernel_cycles / task.machine.clock_hz
    assert first.seconds == pytest.approx(launch + 2 * size, rel=0.04)
    assert second.seconds == pytest.approx(launch + 2 * size, rel=0.04)


def test_a_tuned_plan_gets_the_tile_and_time_of_its_own():
    task = make_task(blur()[0], machine=MACHINE, exact_sizes=True)
    (planned,) = registry.plan(task)
    known = with_prediction(planned, task)
    tuned = dataclasses.replace(
        planned,
        groups=tuple(
            dataclasses.replace(group, cost=math.inf, tile=(), notes=("tuned",))
            for group in planned.groups
        ),
    )
    found = with_prediction(tuned, task)
    assert found.seconds == known.seconds
    assert [group.tile for group in found.groups] == [group.tile for group in planned.groups]
    assert [group.notes for group in found.groups] == [("tuned",)]


def test_measured_constants_of_a_gpu_count():
    task = make_task(blur()[0], machine=gpu("v100"))
    plain = PlannedSchedule(registry.naive(task), (), 0.0)
    default, measured = (
        with_prediction(plain, task, constants).seconds
        for constants in (None, GpuConstants(launch_seconds=1.0))
    )
    launches = 2 * (1.0 - GpuConstants().launch_seconds)
    assert measured == pytest.approx(default + launches)


def test_a_time_that_is_known_stays():
    task = make_task(blur()[0], machine=MACHINE)
    planned = PlannedSchedule(registry.naive(task), (GroupReport((), "down"),), 0.0, seconds=1.0)
    assert with_prediction(planned, task) is planned


def test_a_given_schedule_is_explained_as_a_planned_one_is():
    down, across, _, y = blur()
    across.compute_at(down, y)
    down.parallel(y)
    found = tilewright.schedule(down, mode="given", machine=MACHINE)
    (row,) = found.report().groups
    assert row.predicted == found.predicted == found.report().predicted > 0
    assert row.tile[0][1] == 1024
    assert "limited by" in found.explain()
    assert "predicted" in found.explain().splitlines()[0]
    assert found.report().nest


def test_members_of_an_output_without_loops_count():
    image = hl.ImageParam(hl.Float(32), 1, "image")
    k = hl.RDom([(0, 4096)], "k")
    total = hl.Func("total")
    total[()] = hl.sum(image[k])
    found = tilewright.schedule(total, machine=MACHINE)
    (row,) = found.report().groups
    assert len(row.funcs) == 2
    assert row.predicted == pytest.approx(found.predicted)


def test_candidates_have_predicted_times():
    task = make_task(copied(512, 64, 1), machine=MACHINE)
    planned = registry.plan(task, k=2)
    tried = tuple(Tried(p, i, Measurement("ok", (1e-3,))) for i, p in enumerate(planned))
    attempts = Result(task, planned[0], "top", tried=tried).report().attempts
    assert len(attempts) == 2
    assert all(attempt.predicted > 0 for attempt in attempts)


def test_schedules_without_a_prediction_have_no_time():
    algorithm = load(copied(512, 512, 1))
    machine = dataclasses.replace(gpu("v100"), memory_bandwidth=None)
    task = Task(algorithm, machine.halide_target, machine, "test")
    schedule = registry.naive(task)
    assert predicted(task, schedule) is None
    found = with_prediction(PlannedSchedule(schedule, (), 0.0), task)
    assert found.seconds is None
    assert [group.seconds for group in found.groups] == [None]
