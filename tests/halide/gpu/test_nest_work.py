"""The work of kernels scheduled by hand, counted by hand."""

import dataclasses
from types import SimpleNamespace

import halide as hl
import numpy as np
import pytest

from tilewright.halide.analysis.instructions import MemoryAccess
from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.schedulers.analytic.gpu import nest_work as module
from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, nest_work
from tilewright.halide.schedulers.analytic.gpu.stage_work import Activity, Storage, _Patterns
from tilewright.halide.schedulers.analytic.gpu.thread_loops import (
    InnerLoop,
    executions,
    sectors_along,
    vector_length,
)
from tilewright.halide.schedulers.analytic.gpu.warps import threads_of
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import gpu

X, Y, K = ({name: 1.0} for name in "xyk")


def work(func, machine="v100"):
    data = bytes(hl.serialize_pipeline(hl.Pipeline(func)))
    task = make_task(data, machine=gpu(machine), discard_schedule=True)
    nest = sized_nest(task.algorithm, read_schedule(data, task.target).schedule)
    with np.errstate(invalid="ignore", over="ignore"):
        return nest_work(nest, 32)


def added(width=64, height=32):
    x, y, xi, yi = hl.vars("x y xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + 1.0
    out.set_estimates([(0, width), (0, height)])
    return out, x, y, xi, yi


# --- loops --------------------------------------------------------------------------------------


def test_what_no_loop_changes_is_computed_once():
    inner = [InnerLoop(Y, 3.0, False), InnerLoop(K, 5.0, False)]
    assert executions(frozenset(), inner) == 1
    assert executions(frozenset("x"), inner) == 1
    assert executions(frozenset("y"), inner) == 3
    assert executions(frozenset("k"), inner) == 15  # again for every y


def test_copies_of_an_unrolled_loop_share():
    inner = [InnerLoop(K, 5.0, False), InnerLoop(X, 4.0, True)]
    assert executions(frozenset("kx"), inner) == 20
    assert executions(frozenset("k"), inner) == 5
    assert executions(frozenset("kx"), inner, frozenset("k")) == 5


def access(strides, moved, indirect=False):
    none: frozenset[str] = frozenset()
    return MemoryAccess(
        "f", (), 4, False, moved, moved, none, none, strides, indirect, None, None, ()
    )


def test_sectors_along_loops():
    size = (4.0, 400.0)
    inner = (InnerLoop(Y, 3.0, False), InnerLoop(K, 16.0, False))
    moved = frozenset("yk")
    # Along k the address moves by 4 bytes of 32: two sectors; along y by a row.
    row = access({"k": (1.0, 0.0), "y": (0.0, 1.0)}, moved)
    assert sectors_along(row, inner, size) == (1 / 8, 6.0)
    # Along k it moves by a row.
    column = access({"k": (0.0, 1.0), "y": (1.0, 0.0)}, moved)
    assert sectors_along(column, inner, size) == (1.0, 16.0)
    assert sectors_along(access({}, frozenset()), inner, size) == (1.0, 1.0)
    assert sectors_along(access({"k": None}, frozenset("k")), inner, size) == (1.0, 16.0)
    assert sectors_along(access({}, moved, True), inner, size) == (1.0, np.inf)


def test_elements_of_a_vector_are_loaded_together():
    load = access({"x": (1.0, 0.0)}, frozenset("x"))
    vector, unrolled = InnerLoop(X, 4.0, True, True), InnerLoop(X, 2.0, True)
    assert vector_length(load, (unrolled, vector)) == 4
    assert vector_length(load, (unrolled, InnerLoop(Y, 4.0, True, True))) == 1


# --- kernels --------------------------------------------------------------------------------------


def test_a_kernel_of_one_stage():
    out, x, y, xi, yi = added()
    out.gpu_tile(x, y, xi, yi, 32, 8)
    (kernel,) = work(out)
    assert (kernel.blocks, kernel.block, kernel.shared) == (8, (32, 8, 1), 0)
    assert (kernel.dimensions, kernel.fused, kernel.runs, kernel.atomics) == (4, 0, 1, 0)
    # Rows of 32 floats begin anywhere in a sector.
    assert kernel.read == {"image": ((128 + 28) * 8, 64 * 32 * 4)}
    assert kernel.written == 64 * 32 * 4
    (stage,) = kernel.stages
    assert (stage.threads, stage.warps, stage.runs, stage.member) == (256, 8, 1, False)
    # One sum; a load and a store each with three for the address and one for the row.
    assert stage.plain == 1 + 2 * 4
    assert (stage.special, stage.iterations) == (0, 0)
    load, store = sorted(stage.accesses, key=lambda a: a.store)
    assert (load.count, store.count, load.place) == (1, 1, "memory")
    assert load.touched.lines == pytest.approx(1 + 127 / 128)
    assert (stage.waits.memory, stage.waits.first, stage.waits.shared) == (1, 1, 0)


def test_points_per_thread_share_an_address_along_the_row():
    out, x, y, xi, yi = added()
    u = hl.Var("u")
    out.gpu_tile(x, y, xi, yi, 32, 8).split(xi, xi, u, 4).unroll(u)
    (kernel,) = work(out)
    assert kernel.block == (8, 8, 1)
    (stage,) = kernel.stages
    assert stage.plain == 4 + 2 * 4
    assert [a.count for a in stage.accesses] == [4, 4]
    # Neighbouring threads are 16 bytes apart.
    assert stage.accesses[0].touched.sectors == pytest.approx(4 + (4 * 7 * 16 + 3) / 32)
    # Four points in half a sector: one of the four loads waits for memory.
    assert (stage.waits.memory, stage.waits.first) == (4, 1)


def test_guards_leave_threads_idle():
    out, x, y, _, _ = added(80, 30)
    xi, yi = hl.vars("xi yi")
    out.gpu_tile(x, y, xi, yi, 32, 8, hl.TailStrategy.GuardWithIf)
    (kernel,) = work(out)
    (stage,) = kernel.stages
    # Two blocks of three are whole in x, three of four in y; the last have 16 and 6.
    assert stage.threads == pytest.approx((2 * 32 + 16) / 3 * (3 * 8 + 6) / 4)
    assert stage.warps == pytest.approx((3 * 8 + 6) / 4)


def blurred():
    x, y, xi, yi = hl.vars("x y xi yi")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    across, down = hl.Func("across"), hl.Func("down")
    across[x, y] = image[x, y] + image[x + 1, y]
    down[x, y] = across[x, y] + across[x, y + 1]
    down.set_estimates([(0, 64), (0, 64)])
    down.gpu_tile(x, y, xi, yi, 32, 8)
    return across, down, x, y, xi


def test_a_member_in_shared_memory():
    across, down, x, y, _ = blurred()
    across.compute_at(down, x).gpu_threads(x, y)
    (kernel,) = work(down)
    assert kernel.block == (32, 9, 1)
    assert kernel.shared == 32 * 9 * 4
    by_member = {stage.member: stage for stage in kernel.stages}
    assert by_member[True].threads == 32 * 9
    assert by_member[False].threads == 32 * 8
    # Both loads of `across` have one address, without a pointer: 2 and the row; the store has 4.
    assert by_member[False].plain == 1 + 3 + 4
    assert by_member[False].waits.shared == 1
    assert by_member[True].waits.memory == 1
    assert set(kernel.read) == {"image"}
    places = {a.place for a in by_member[False].accesses if not a.store}
    assert places == {"shared"}


def test_a_member_in_registers():
    across, down, _, _, xi = blurred()
    across.compute_at(down, xi)
    (kernel,) = work(down)
    consumer, producer = kernel.stages
    assert kernel.registers == 2
    assert producer.threads == consumer.threads == 256
    assert [a.store for a in consumer.accesses] == [True]
    # Two rows of `across`: the sums, and one address for each row.
    assert producer.plain == 2 * (1 + 3 + 1)
    assert [a.count for a in producer.accesses] == [4]


def test_rows_that_unrolled_copies_access_in_a_loop():
    def rows(serial):
        x, y, c, xi, yi, u = hl.vars("x y c xi yi u")
        image = hl.ImageParam(hl.Float(32), 3, "image")
        out = hl.Func("out")
        out[x, y, c] = image[x, y, c] + image[x + 1, y, c] + image[x, y + 2, c]
        out.set_estimates([(0, 64), (0, 64), (0, 3)])
        out.gpu_tile(x, y, xi, yi, 32, 32).split(yi, yi, u, 4).unroll(u)
        if serial:
            out.reorder(u, c, xi, yi, x, y)
        else:
            out.reorder(u, xi, yi, x, y, c).gpu_blocks(c)
        (kernel,) = work(out)
        return kernel.stages[0].addresses

    # The stores have four; the loads reach from the first row to the sixth, whatever the column.
    assert rows(True) == 4 + 6
    assert rows(False) == 0


def test_sums_that_begin_with_an_input_are_kept():
    x, y, xi, yi, u = hl.vars("x y xi yi u")
    r = hl.RDom([(0, 64)], "r")
    bias, a = (hl.ImageParam(hl.Float(32), n, name) for n, name in ((1, "bias"), (2, "a")))
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = bias[x]
    total[x, y] += a[x, r] * a[y, r]
    out[x, y] = hl.max(total[x, y], 0.0)
    out.set_estimates([(0, 64), (0, 64)])
    out.gpu_tile(x, y, xi, yi, 32, 32).split(yi, yi, u, 4).reorder(u, xi, yi, x, y).unroll(u)
    total.compute_at(out, xi).unroll(y)
    total.update().reorder(y, r.x).unroll(y)
    (kernel,) = work(out)
    assert kernel.registers == 4


def test_a_reduction_waits_for_its_loads():
    x, xi = hl.vars("x xi")
    k = hl.RDom([(0, 64)], "k")
    a = hl.ImageParam(hl.Float(32), 2, "a")
    out = hl.Func("out")
    out[x] = 0.0
    out[x] += a[x, k]
    out.set_estimates([(0, 1024)])
    out.gpu_tile(x, xi, 64)
    out.update().gpu_tile(x, xi, 64)
    _, kernel = work(out)
    (stage,) = kernel.stages
    assert stage.iterations == 64
    assert (stage.waits.memory, stage.waits.fresh) == (64, 64)
    assert stage.waits.first == pytest.approx(64, rel=0.02)
    # Along the row instead: eight floats in a sector.
    out = hl.Func("out")
    out[x] = 0.0
    out[x] += a[k, x]
    out.set_estimates([(0, 1024)])
    out.gpu_tile(x, xi, 64)
    out.update().gpu_tile(x, xi, 64)
    _, kernel = work(out)
    (stage,) = kernel.stages
    assert (stage.waits.memory, stage.waits.fresh) == (64, 8)
    # Its own sum is in a register meanwhile: it is loaded and stored once.
    assert stage.waits.own == 1
    assert [access.count for access in stage.accesses if access.store or access.own] == [1, 1]
    load = max((a for a in stage.accesses if not a.store), key=lambda a: a.touched.lines)
    assert load.touched.lines == pytest.approx(32, abs=0.1)


@pytest.mark.parametrize("moved", [False, True])
def test_each_step_of_a_scan_waits_for_what_the_one_before_has_stored(moved):
    x, y, xi = hl.vars("x y xi")
    k = hl.RDom([(1, 63)], "k")
    a = hl.ImageParam(hl.Float(32), 2, "a")
    out = hl.Func("out")
    out[x, y] = 0.0
    out[x, k if moved else 0] = out[x, k - 1 if moved else 0] + a[x, k]
    out.set_estimates([(0, 1024), (0, 64)])
    out.gpu_tile(x, xi, 64)
    out.update().gpu_tile(x, xi, 64)
    _, kernel = work(out)
    (stage,) = kernel.stages
    assert stage.waits.own == (63 if moved else 1)


@pytest.mark.parametrize("transposed", [False, True])
def test_sectors_follow_the_storage_order(transposed):
    x, y, xi = hl.vars("x y xi")
    f, out = hl.Func("f"), hl.Func("out")
    f[x, y] = hl.f32(x + y)
    out[x, y] = f[x, y] + 1.0
    out.set_estimates([(0, 1024), (0, 64)])
    for each in (f, out):
        each.gpu_tile(x, xi, 64)
    f.compute_root()
    if transposed:
        f.reorder_storage(y, x)
    _, kernel = work(out)
    (stage,) = kernel.stages
    (load,) = [access for access in stage.accesses if not access.store]
    assert load.touched.sectors == pytest.approx(32 if transposed else 4, rel=0.3)


def test_copies_of_a_sum_with_several_addresses_stay_in_memory():
    x, y, xi = hl.vars("x y xi")
    k = hl.RDom([(0, 64)], "k")
    a = hl.ImageParam(hl.Float(32), 2, "a")
    out = hl.Func("out")
    out[x, y] = 0.0
    out[x, y] += a[x, k]
    out.set_estimates([(0, 1024), (0, 4)])
    out.bound(y, 0, 4)
    out.gpu_tile(x, xi, 64)
    out.update().reorder(y, k.x, x).unroll(y).gpu_tile(x, xi, 64)
    _, kernel = work(out)
    (stage,) = kernel.stages
    assert stage.waits.own == 256


def test_a_single_thread_is_a_kernel_of_one_block():
    x = hl.Var("x")
    out = hl.Func("out")
    out[x] = hl.f32(x)
    out.set_estimates([(0, 16)])
    out.gpu_single_thread()
    (kernel,) = work(out)
    assert (kernel.blocks, kernel.block) == (1, (1, 1, 1))
    (stage,) = kernel.stages
    assert (stage.threads, stage.warps, stage.iterations) == (1, 1, 16)


def test_a_stage_of_the_host():
    out, *_ = added()
    (part,) = work(out)
    assert part == HostWork(part.func, 0, 1.0, 64 * 32, 1.0, 1)


def test_kernels_inside_a_loop_of_the_host_run_again():
    x, y, xi = hl.vars("x y xi")
    across, down = hl.Func("across"), hl.Func("down")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    across[x, y] = image[x, y] + 1.0
    down[x, y] = across[x, y] * 2.0
    down.set_estimates([(0, 64), (0, 16)])
    across.compute_at(down, y).gpu_tile(x, xi, 32)
    down.gpu_tile(x, xi, 32)
    found = work(down)
    assert [part.runs for part in found] == [16, 16]


# --- what only part of the threads, runs or iterations do -----------------------------------------


def test_guarded_iterations_of_a_thread_count_where_they_are_live():
    out, x, y, xi, yi = added(64, 30)
    out.split(x, x, xi, 32).split(y, y, yi, 8, hl.TailStrategy.GuardWithIf)
    out.reorder(yi, xi, x, y).gpu_blocks(x, y).gpu_threads(xi)
    (kernel,) = work(out)
    (stage,) = kernel.stages
    live = 30 / 32  # of four blocks with eight rows each
    assert stage.plain == pytest.approx(8 * live * (1 + 2 * 4))
    assert stage.iterations == pytest.approx(8 * live)
    assert [a.count for a in stage.accesses] == pytest.approx([8 * live] * 2)
    assert stage.waits.memory == pytest.approx(8 * live)


def test_guards_in_the_third_dimension_leave_warps_idle():
    x, y, z, xi, yi, zi = hl.vars("x y z xi yi zi")
    image = hl.ImageParam(hl.Float(32), 3, "image")
    out = hl.Func("out")
    out[x, y, z] = image[x, y, z] + 1.0
    out.set_estimates([(0, 64), (0, 8), (0, 4)])
    out.gpu_tile(x, y, z, xi, yi, zi, 8, 2, 3, hl.TailStrategy.GuardWithIf)
    (kernel,) = work(out)
    (stage,) = kernel.stages
    # Of two blocks in z, one has three of four layers and the other one: 48 and 16 threads.
    assert (stage.threads, stage.warps) == (32, 1.5)


def test_fused_threads_reach_the_rows_of_their_tile():
    out, x, y, xi, yi = added()
    threads = hl.Var("threads")
    out.tile(x, y, xi, yi, 4, 8).fuse(xi, yi, threads).gpu_blocks(x, y).gpu_threads(threads)
    (kernel,) = work(out)
    (stage,) = kernel.stages
    assert (kernel.block, kernel.fused) == ((32, 1, 1), 1)
    # A warp accesses four floats in each of eight rows, which begin anywhere in a sector.
    assert stage.accesses[0].touched.sectors == pytest.approx(8 + (8 * 12 + 3) / 32)


def test_a_member_that_runs_again_finds_what_its_first_run_has_loaded():
    x, y, xi, yi = hl.vars("x y xi yi")
    k = hl.RDom([(0, 16)], "k")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[x, y] = 0.0
    sums[x, y] += image[x, k] * hl.f32(y)
    out[x, y] = sums[x, y] + 1.0
    out.set_estimates([(0, 64), (0, 32)])
    out.split(x, x, xi, 32).split(y, y, yi, 4).reorder(xi, yi, x, y)
    out.gpu_blocks(x, y).gpu_threads(xi)
    sums.compute_at(out, yi).gpu_threads(x).update().gpu_threads(x)
    (kernel,) = work(out)
    (stage,) = [stage for stage in kernel.stages if stage.waits.memory]
    assert (stage.member, stage.runs, stage.iterations) == (True, 4, 4 * (1 + 16))
    assert stage.waits.memory == 4 * 16
    # The 16 rows of the image are the same in all four runs; they begin anywhere in a sector.
    assert stage.waits.first == pytest.approx(16, rel=0.02)


# --- what the accesses of a warp touch ------------------------------------------------------------


def lines_of(strides, bytes_each, first=(8, 4, 1)):
    """The lines that a warp of 8 x 4 threads touches in rows of 400 elements."""
    x, y, _ = threads_of((8, 4, 1), 32)
    active = Activity((8, 4, 1), first, 32.0, 1.0, {"x": x, "y": y})
    size = (float(bytes_each), 400.0 * bytes_each)
    storage = Storage({}, frozenset(), lambda _: size, lambda _: 100 * size[1], lambda _: 0.0)
    stage = SimpleNamespace(variables={"x": "x", "y": "y", "k": "k"})
    one = dataclasses.replace(access(strides, frozenset(strides)), bytes=bytes_each)
    return _Patterns(stage, active, storage, 32)(one).lines


@pytest.mark.parametrize(
    ("strides", "bytes_each", "first", "lines"),
    [
        ({}, 4, (8, 4, 1), 1 + 3 / 128),
        ({"k": (1.0, 0.0)}, 4, (8, 4, 1), 1 + 3 / 128),  # of a loop, not of threads
        ({"x": (1.0, 0.0)}, 4, (8, 4, 1), 1 + 31 / 128),
        ({"x": (1.0, 0.0)}, 4, (3, 4, 1), 1 + 11 / 128),
        ({"y": (0.0, 1.0)}, 4, (8, 4, 1), 4 + 3 / 128),
        ({"y": (0.0, 1.0)}, 4, (8, 2, 1), 2 + 3 / 128),
        ({"x": (1.0, 0.0), "y": (0.0, 1.0)}, 4, (8, 4, 1), 4 + (4 * 28 + 3) / 128),
        # Eight elements in each of four: 32 in a row.
        ({"x": (1.0, 0.0), "y": (8.0, 0.0)}, 4, (8, 4, 1), 1 + 127 / 128),
        # Two neighbours at one byte: the last of eight is at 3 of 7 / 2.
        ({"x": (0.5, 0.0)}, 1, (8, 4, 1), 1 + 3 / 128),
    ],
)
def test_lines_of_a_warp(strides, bytes_each, first, lines):
    assert lines_of(strides, bytes_each, first) == pytest.approx(lines)


def looked_up(index):
    """What the loads of `image` touch where its index is one of a table, or of the thread."""
    x, xi = hl.vars("x xi")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    table = hl.ImageParam(hl.UInt(8), 1, "table")
    out = hl.Func("out")
    out[x] = image[index(table, x)] + 1.0
    out.set_estimates([(0, 1024)])
    out.gpu_tile(x, xi, 32)
    (kernel,) = work(out)
    loads = [a for a in kernel.stages[0].accesses if not a.store]
    return loads[-1].touched


def test_lines_of_a_table_of_places():
    # 256 places of four bytes, by a byte of data: 32 threads draw from 256 lines and a bit.
    found = looked_up(lambda table, x: hl.i32(table[x]))
    units = 256 * (1 + 3 / 128)
    assert found.lines == pytest.approx(units * (1 - (1 - 1 / units) ** 32))
    # Known places, eight of them.
    assert looked_up(lambda _, x: x % 8).lines == pytest.approx(1 + 31 / 128)


def test_the_largest_size_of_a_launch_counts(monkeypatch):
    across, down, x, y, _ = blurred()
    across.compute_at(down, x).gpu_threads(x, y)
    known = module.launches

    def several(nest):
        sizes = {"shared_bytes": np.array([64.0, 96.0, 32.0]), "registers": np.array([2.0, 5.0])}
        return tuple(dataclasses.replace(one, **sizes) for one in known(nest))

    monkeypatch.setattr(module, "launches", several)
    (kernel,) = work(down)
    assert (kernel.shared, kernel.registers) == (96.0, 5.0)
