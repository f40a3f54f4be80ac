"""The GPU model's formulas, worked out by hand on a GPU of round numbers.

68 SMs at 1 GHz with 64 lanes, 1,024 threads and 65,536 registers each; memory gives 512 bytes per
nanosecond. Unless a test says otherwise an image of 1024 x 1024 floats is computed in 4,096 blocks
of 32 x 8 threads: four blocks are resident, so occupancy is 1 and 1,024 threads are active.
"""

import dataclasses

import halide as hl
import numpy as np
import pytest
from gpu_pipelines import analysed, full, kernel_of, khwz

from tilewright.halide.analysis.summaries import Load, StageSummary
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Loop, Type
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.cost import CostModel, ramp
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.loads import SCATTERED, LoadGroup, load_groups
from tilewright.halide.schedulers.analytic.gpu.nested import optimize_granularity
from tilewright.halide.schedulers.analytic.gpu.occupancy import Residency, residency
from tilewright.halide.schedulers.analytic.gpu.plan import KernelPlan
from tilewright.halide.schedulers.analytic.gpu.roofline import access_bytes, predicted_seconds
from tilewright.machines import gpu

GPU = dataclasses.replace(gpu("rtx2080ti"), clock_hz=1e9, memory_bandwidth=512e9)
FAST_MEMORY = dataclasses.replace(GPU, memory_bandwidth=1e18)
FLOAT = hl.Float(32)
MODEL = CostModel(residency(GPU))
UNLIMITED = CostModel(residency(FAST_MEMORY))
POINTS, BLOCKS = 256, 4096
IMAGE = ("image_im",)


def reading(expression, types=FLOAT, width=1024, height=1024):
    """The pipeline ``output[x, y] = expression(image, x, y)``."""
    image = hl.ImageParam(types, 2, "image")
    x, y = hl.vars("x y")
    output = hl.Func("output")
    output[x, y] = expression(image, x, y)
    output.set_estimates([(0, width), (0, height)])
    return load(output)


def costs_of(algorithm, tile=(32, 8), model=MODEL, registers=None, members=(), inlined=IMAGE):
    kernel = kernel_of(algorithm, "output", members, inlined)
    shares = None if registers is None else np.array([registers], dtype=np.float64)
    return model.costs(kernel, np.array([tile], dtype=np.float64), shares)


STORE = POINTS * 20 / 16  # 16 neighbours share a transaction of 64 bytes


def test_a_pointwise_kernel():
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0))
    assert found.blocks[0] == BLOCKS
    assert [float(n[0]) for n in found.threads] == [32, 8, 1]
    assert (found.occupancy[0], found.active_threads[0]) == (1.0, 1024)
    # One addition per point, hidden by 1,024 threads.
    assert found.arithmetic[0] == pytest.approx(BLOCKS * POINTS / 1024)
    # The block touches 1,024 bytes of an image that outgrows the cache: fetched at 200 in
    # transactions of 16 floats; then loaded at 1 + 1024 x 200 / 65,536 = 4.125.
    fetched = 1024 / 4 / 16 * 200
    loaded = POINTS / 16 * 4.125
    assert found.memory[0] == pytest.approx(BLOCKS * (fetched + loaded + STORE))
    assert found.shared[0] == 0


@pytest.mark.parametrize(
    ("expression", "together", "footprint"),
    [
        # 16 floats in a transaction; every second one; each in its own; one for all.
        (lambda image, x, y: image[x, y], 16, 32 * 8),
        (lambda image, x, y: image[2 * x, y], 8, 63 * 8),
        (lambda image, x, y: image[16 * x, y], 1, (31 * 16 + 1) * 8),
        (lambda image, x, y: image[32 * x, y], 1, (31 * 32 + 1) * 8),
        (lambda image, x, y: image[y, x], 1, 32 * 8),
        (lambda image, x, y: image[0, y], 16, 8),
        (lambda image, x, y: image[-x, y], 16, 32 * 8),
    ],
)
def test_loads_by_how_neighbours_access(expression, together, footprint):
    found = costs_of(reading(lambda image, x, y: expression(image, x, y) + 1.0))
    extents = found.memory[0] / BLOCKS - STORE
    size = footprint * 4
    kernel = kernel_of(reading(lambda i, x, y: expression(i, x, y)), "output", (), ("image_im",))
    whole = 4 * np.prod(kernel.whole("image"))
    fetched = size / 4 / together * min(1 + whole / 65_536 * 200, 200)
    loaded = POINTS / together * min(1 + size / 65_536 * 200, 200)
    assert extents == pytest.approx(fetched + loaded)


def test_short_rows_share_less():
    # Eight threads in x: eight share a transaction, of loads and of stores.
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0), (8, 32))
    assert found.memory[0] / BLOCKS == pytest.approx(1024 / 4 / 8 * 200 + 256 / 8 * (4.125 + 20))


def test_narrow_values_share_more():
    found = costs_of(reading(lambda image, x, y: image[x, y] + hl.u8(1), hl.UInt(8)), (128, 8))
    # 64 of 128 threads share a transaction; a block of 1,024 points touches 1,024 bytes.
    assert found.memory[0] / 1024 == pytest.approx(1024 / 64 * (200 + 4.125 + 20))


def test_a_second_load_is_not_fetched_again():
    found = costs_of(reading(lambda image, x, y: image[x, y] + image[x + 1, y]))
    size = 33 * 8 * 4
    loaded = 2 * POINTS / 16 * (1 + size / 65_536 * 200)
    assert found.memory[0] / BLOCKS == pytest.approx(size / 64 * 200 + loaded + STORE)


def channels():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y, c = hl.vars("x y c")
    output = hl.Func("output")
    output[x, y, c] = image[x, y] * hl.f32(c)
    output.set_estimates([(0, 1024), (0, 1024), (0, 3)])
    return load(output)


def test_a_load_that_a_thread_does_once_counts_once():
    found = costs_of(channels(), (32, 8, 3))
    # Three products and casts per thread, and one load.
    assert found.arithmetic[0] == pytest.approx(BLOCKS * 3 * POINTS * 2 / 1024)
    once = 1024 / 64 * 200 + POINTS / 16 * 4.125
    assert found.memory[0] / BLOCKS == pytest.approx(once + 3 * STORE)
    # A channel per block: three times as many blocks, each with its own load.
    apart = costs_of(channels(), (32, 8, 1))
    assert apart.blocks[0] == 3 * BLOCKS
    assert apart.memory[0] / apart.blocks[0] == pytest.approx(once + STORE)


def accumulated(size=16):
    image = hl.ImageParam(hl.Float(32), 3, "image")
    x, y = hl.vars("x y")
    r = hl.RDom([(0, size)], "r")
    output = hl.Func("output")
    output[x, y] = 0.0
    output[x, y] += image[x, y, r]
    output.set_estimates([(0, 1024), (0, 1024)])
    return load(output)


def update_kernel():
    algorithm = accumulated()
    return FusedKernel(analysed(algorithm, "image_im"), full(algorithm, "output"), 1)


def test_a_reduction_reads_back_what_it_stores_once():
    found = MODEL.costs(update_kernel(), np.array([[32.0, 8.0]]))
    footprint = 256 * 16 * 4
    fetched = footprint / 64 * 200
    loaded = 16 * POINTS / 16 * (1 + footprint / 65_536 * 200)
    # Its own value comes back in each of 16 steps, at 200 for 16 of them, and is stored once.
    own = POINTS / 16 * 200
    assert found.memory[0] / BLOCKS == pytest.approx(fetched + loaded + 16 * own + STORE)
    assert found.arithmetic[0] == pytest.approx(BLOCKS * 16 * POINTS / 1024)


def stencil():
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    inner, output = hl.Func("inner"), hl.Func("output")
    inner[x, y] = image[x, y] * 2.0
    output[x, y] = inner[x, y] + inner[x, y + 2]
    output.set_estimates([(0, 1024), (0, 1024)])
    return load(output)


def test_members_are_computed_by_wider_blocks_into_shared_memory():
    found = costs_of(stencil(), members=("inner",))
    # 32 x 10 points of the member: 320 threads, 1,280 bytes.
    assert [float(n[0]) for n in found.threads] == [32, 10, 1]
    assert found.shared[0] == 1280
    # The member's stage: 320 threads, three blocks (1,024 / 320), 10 warps each: 30 of 32 warps.
    # The output's: 256 threads, four blocks, all 32.
    assert found.occupancy[0] == pytest.approx(30 / 32)
    assert found.active_threads[0] == 960
    arithmetic = POINTS / 1024 + 320 / (30 / 32 * 960)
    assert found.arithmetic[0] == pytest.approx(BLOCKS * arithmetic)
    # Shared loads cost 1 for 16 threads; the image is loaded by the member.
    size = 320 * 4
    image = size / 64 * 200 + 320 / 16 * (1 + size / 65_536 * 200)
    assert found.memory[0] / BLOCKS == pytest.approx(image + 2 * POINTS / 16 + STORE)
    # As launched: three blocks of 10 warps.
    assert found.launch_occupancy[0] == pytest.approx(30 / 32)


def test_two_members_share_a_block():
    image = hl.ImageParam(FLOAT, 2, "image")
    x, y = hl.vars("x y")
    one, two, output = hl.Func("one"), hl.Func("two"), hl.Func("output")
    one[x, y] = image[x, y] * 2.0
    two[x, y] = image[x, y] * 3.0
    output[x, y] = one[x, y] + one[x, y + 2] + two[x, y] + two[x, y + 2]
    output.set_estimates([(0, 1024), (0, 1024)])
    found = costs_of(load(output), members=("one", "two"))
    assert found.shared[0] == 2 * 1280
    arithmetic = 3 * POINTS / 1024 + 2 * 320 / (30 / 32 * 960)
    assert found.arithmetic[0] == pytest.approx(BLOCKS * arithmetic)
    # The image is fetched once and loaded twice; four loads from shared memory.
    size = 320 * 4
    image = size / 64 * 200 + 2 * 320 / 16 * (1 + size / 65_536 * 200)
    assert found.memory[0] / BLOCKS == pytest.approx(image + 4 * POINTS / 16 + STORE)


def test_every_value_of_a_tuple_is_stored():
    image = hl.ImageParam(FLOAT, 2, "image")
    x, y = hl.vars("x y")
    output = hl.Func("output")
    output[x, y] = (image[x, y], hl.f64(image[x, y]))
    output.set_estimates([(0, 1024), (0, 1024)])
    found = costs_of(load(output))
    loaded = 1024 / 64 * 200 + POINTS / 16 * 4.125
    # Eight doubles share a transaction.
    stored = POINTS * 20 / 16 + POINTS * 20 / 8
    assert found.memory[0] / BLOCKS == pytest.approx(loaded + stored)


def test_one_iteration_more_per_thread():
    # 2 x 2 points per thread: 16 x 4 threads do the tile.
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0), registers=(2, 2))
    assert [float(n[0]) for n in found.threads] == [16, 4, 1]
    assert not costs_of(reading(lambda image, x, y: image[x, y] + 1.0), registers=(3, 2)).legal[0]


def test_few_blocks_leave_threads_idle():
    # 8 x 8 blocks on 68 SMs: one each.
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0, width=256, height=64))
    assert (found.blocks[0], found.active_sms[0]) == (64, 64)
    assert found.active_threads[0] == 256
    assert found.arithmetic[0] == pytest.approx(64 * POINTS / 256)
    # Two on some: the share is rounded up.
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0, width=256, height=128))
    assert (found.active_threads[0], found.active_sms[0]) == (512, 68)
    assert found.all_sms[0]


def test_the_hardware_limits_a_block():
    volume = hl.Func("output")
    x, y, z = hl.vars("x y z")
    volume[x, y, z] = hl.f32(x) + hl.f32(y) + hl.f32(z)
    volume.set_estimates([(0, 128), (0, 128), (0, 128)])
    algorithm = load(volume)
    tiles = (1, 1, 64), (1, 1, 65), (32, 32, 1), (33, 32, 1), (32, 4, 8), (32, 4, 9)
    legal = [bool(costs_of(algorithm, tile, inlined=()).legal[0]) for tile in tiles]
    assert legal == [True, False, True, False, True, False]


@pytest.mark.parametrize(("warps", "occupied"), [(320, True), (321, False)])
def test_a_tenth_of_the_warps_must_be_resident(warps, occupied):
    machine = dataclasses.replace(GPU, max_warps_per_sm=warps)
    # Four blocks of eight warps, whatever the threads.
    model = CostModel(Residency(machine, np.full(1026, 4.0)))
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0), model=model)
    assert found.occupancy[0] == pytest.approx(32 / warps)
    assert bool(found.occupied[0]) is occupied


def test_totals():
    found = costs_of(reading(lambda image, x, y: image[x, y] + 1.0))
    assert found.total(final=False)[0] == found.arithmetic[0] + found.memory[0] + 3e6
    assert found.total(final=True)[0] == found.arithmetic[0] + found.memory[0] / 1024
    # Nothing resident hides nothing, but the cost stays finite.
    idle = dataclasses.replace(found, occupancy=np.zeros(1))
    assert idle.total(final=True)[0] == pytest.approx(found.memory[0] / 1e-9)


def test_registers_of_members_inside_threads():
    algorithm = load(product(64))
    kernel = kernel_of(algorithm, "output", ["product"], ["A_im", "B_im"])
    nested = optimize_granularity(kernel)
    assert nested
    # r x r values, a row and a column of operands, four words for the loop: r = 5 needs 39,
    # r = 6 needs 52 of 50.
    for share, words in ((5, 39), (6, 52)):
        shares = np.array([[share, share]], dtype=np.float64)
        tally = MODEL.tally(kernel, 4 * shares, shares, nested)
        assert tally.words[0] == words
        assert bool(tally.finish().legal[0]) is (words <= 50)


def product(size, types=FLOAT):
    x, y = hl.vars("x y")
    a, b = hl.ImageParam(types, 2, "A"), hl.ImageParam(types, 2, "B")
    k = hl.RDom([(0, size)], "k")
    summed, output = hl.Func("product"), hl.Func("output")
    summed[x, y] = hl.cast(types, 0)
    summed[x, y] += a[x, k] * b[k, y]
    output[x, y] = summed[x, y]
    output.set_estimates([(0, size), (0, size)])
    return output


def test_wide_values_take_two_registers():
    algorithm = load(product(64, hl.Float(64)))
    kernel = kernel_of(algorithm, "output", ["product"], ["A_im", "B_im"])
    shares = np.array([[2.0, 4.0]])
    tally = MODEL.tally(kernel, 4 * shares, shares, optimize_granularity(kernel))
    # 8 values of two words, 2 + 4 operands, 4 for the loop
    assert tally.words[0] == 26


def test_every_reduction_loop_has_its_counters():
    image = hl.ImageParam(FLOAT, 2, "image")
    x, y = hl.vars("x y")
    r = hl.RDom([(0, 5), (0, 7)], "r")
    summed, output = hl.Func("product"), hl.Func("output")
    summed[x, y] = 0.0
    summed[x, y] += image[x + 8 * r.x, y + 8 * r.y]
    output[x, y] = summed[x, y]
    output.set_estimates([(0, 256), (0, 256)])
    kernel = kernel_of(load(output), "output", ["product"], ["image_im"])
    shares = np.array([[2.0, 3.0]])
    tally = MODEL.tally(kernel, 8 * shares, shares, {kernel.members[0]: kernel.output})
    # Six values, 2 + 3 operands, four words for each of two loops
    assert tally.words[0] == 19


@pytest.mark.parametrize(
    ("footprint", "expected"), [(0, 1), (32_768, 101), (65_208.32, 200), (1e9, 200)]
)
def test_the_weight_of_a_load(footprint, expected):
    assert float(ramp(footprint, 200.0, 65_536.0)) == pytest.approx(expected)


# --- predicted times ---------------------------------------------------------------------------


def plan_of(algorithm, tile=(32, 8), members=(), inlined=IMAGE, nested=None, kind="parallel"):
    kernel = kernel_of(algorithm, "output", members, inlined)
    return KernelPlan(kernel, kind, tile, (1,) * len(tile), nested or {})


def seconds(model, *args, **kwargs):
    """Of a kernel, less the 3 microseconds of its launch."""
    found = predicted_seconds(model, plan_of(*args, **kwargs))
    assert found is not None
    return found - 3e-6


def test_a_copy_waits_for_memory():
    found = seconds(MODEL, reading(lambda image, x, y: image[x, y] + 1.0))
    assert found == pytest.approx(2 * 4 * 2**20 / 512e9)


def test_data_that_blocks_read_twice_come_from_the_second_cache():
    found = seconds(MODEL, reading(lambda image, x, y: image[x, y] + image[x + 2, y + 2]))
    whole = 1026 * 1026 * 4
    touched = 34 * 10 * 4 * BLOCKS
    assert found == pytest.approx((whole + (touched - whole) / 3 + 4 * 2**20) / 512e9)


def test_an_update_reads_what_it_writes():
    plan = KernelPlan(update_kernel(), "parallel", (32, 8), (1, 1), {})
    found = predicted_seconds(MODEL, plan) - 3e-6
    assert found == pytest.approx((16 + 2) * 4 * 2**20 / 512e9)


def test_latency_where_memory_is_fast():
    found = seconds(UNLIMITED, reading(lambda image, x, y: image[x, y] + 1.0))
    # 16 waves of 272 blocks; a thread's addition takes 2 cycles, its load 400 / 4.
    assert found == pytest.approx(16 * 102e-9)


def test_a_block_that_is_never_resident_takes_a_wave_of_its_own():
    # 64 x 32 threads are too many: 16 x 32 blocks, one after the other.
    found = seconds(UNLIMITED, reading(lambda image, x, y: image[x, y] + 1.0), tile=(64, 32))
    assert found == pytest.approx(16 * 32 * 102e-9)


def test_stores_of_a_scatter_are_waited_for():
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    i, y = hl.vars("i y")
    r = hl.RDom([(0, 1000)], "r")
    output = hl.Func("output")
    output[i, y] = 0
    output[hl.i32(image[r, y]), y] += 1
    output.set_estimates([(0, 256), (0, 1024)])
    algorithm = load(output)
    kernel = FusedKernel(analysed(algorithm, "image_im"), full(algorithm, "output"), 1)
    plan = KernelPlan(kernel, "parallel", (32,), (1,), {})
    # One wave of 32 blocks; in each of 1,000 steps the image is one of four loads under way, the
    # count is waited for.
    each = 2 * kernel.summary.arithmetic + 400 / 4 + 400
    assert predicted_seconds(UNLIMITED, plan) - 3e-6 == pytest.approx(1000 * each * 1e-9)


def test_data_loaded_once_are_waited_for_once():
    # Three channels per thread: a product and a cast each, and one load for all.
    found = seconds(UNLIMITED, channels(), tile=(32, 8, 3))
    assert found == pytest.approx(16 * (3 * 2 * 2 + 400 / 4) * 1e-9)


def test_shared_memory_has_less_latency():
    found = seconds(UNLIMITED, stencil(), members=("inner",))
    # Three resident blocks: 21 waves. The member: 2 + 100; the output: 2 + 2 x 30 / 4.
    assert found == pytest.approx(21 * (102 + 17) * 1e-9)


def test_scattered_loads_are_limited_by_the_cache():
    found = seconds(UNLIMITED, reading(lambda image, x, y: image[y, x] + 1.0))
    # 128 bytes for each point, 128 per cycle and SM
    assert found == pytest.approx(BLOCKS * POINTS * 128 / (68 * 128e9))


def test_arithmetic_is_limited_by_lanes():
    def many(image, x, y):
        value = image[x, y]
        for i in range(100):
            value = hl.abs(value + float(i))
        return value

    found = seconds(UNLIMITED, reading(many))
    # Two operations each step, 64 lanes in each of 68 SMs
    assert found == pytest.approx(BLOCKS * POINTS * 200 / (68 * 64e9))


def test_few_blocks_use_few_sms():
    def many(image, x, y):
        value = image[x, y]
        for i in range(100):
            value = hl.abs(value + float(i))
        return value

    # 2 x 16 blocks on 32 SMs, one wave: a thread waits 2 x 200 + 100 cycles, but a block's 256
    # threads on 64 lanes take 800.
    found = seconds(UNLIMITED, reading(many, width=64, height=128))
    assert found == pytest.approx(800e-9)


def counting():
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    i = hl.Var("i")
    r = hl.RDom([(0, 4096), (0, 4096)], "r")
    output = hl.Func("output")
    output[i] = 0
    output[hl.i32(image[r.x, r.y])] += 1
    output.set_estimates([(0, 256)])
    return load(output)


def test_atomic_additions_queue_in_the_second_cache():
    algorithm = counting()
    analysis = analysed(algorithm, "image_im")
    kernel = FusedKernel(analysis, full(algorithm, "output"), 1, atomic=True)
    plan = KernelPlan(kernel, "parallel", (32, 8), (1, 1), {})
    assert predicted_seconds(UNLIMITED, plan) - 3e-6 == pytest.approx(4096 * 4096 / 24 / 1e9)


@pytest.mark.parametrize(("kind", "each"), [("single_thread", 1e-9), ("host", 1e-9)])
def test_stages_that_run_alone(kind, each):
    algorithm = counting()
    kernel = FusedKernel(analysed(algorithm, "image_im"), full(algorithm, "output"), 1)
    steps = 4096 * 4096
    loads, operations = len(kernel.summary.loads), kernel.summary.arithmetic
    found = predicted_seconds(MODEL, KernelPlan(kernel, kind))
    waits = operations + loads if kind == "host" else 2 * operations + loads * 400 / 4
    assert loads >= 1
    assert found == pytest.approx(3e-6 + steps * waits * each)


def test_nothing_takes_no_time():
    plan = plan_of(reading(lambda image, x, y: image[x, y] + 1.0), kind="nothing")
    assert predicted_seconds(MODEL, plan) == 0.0
    for missing in ("clock_hz", "memory_bandwidth"):
        model = CostModel(residency(dataclasses.replace(GPU, **{missing: None})))
        assert predicted_seconds(model, plan) is None


def test_given_constants_are_used():
    slow = dataclasses.replace(GpuConstants(), launch_seconds=5e-6)
    plan = plan_of(reading(lambda image, x, y: image[x, y] + 1.0))
    first, second = (predicted_seconds(m, plan) for m in (MODEL, CostModel(MODEL.resident, slow)))
    assert second - first == pytest.approx(2e-6)


# --- loads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "step", "expected"),
    [
        (4, 1.0, 4.0),
        (4, 2.0, 8.0),
        (8, 1.0, 8.0),
        (1, 1.0, 4.0),  # a bank serves a word
        (4, SCATTERED, 128.0),  # 32 words for a warp's lanes
        (8, SCATTERED, 128.0),
        (4, 0.0, 0.125),  # one word for a warp
    ],
)
def test_bytes_from_the_cache(size, step, expected):
    group = LoadGroup("image", "image", size, frozenset(), step, 1)
    assert access_bytes(group, 32, GpuConstants()) == expected


F32 = Type("float", 32)


def grouped(*strides, thread="x", inside=()):
    loads = tuple(Load("image", "image", F32, s, False, frozenset()) for s in strides)
    loops = (Loop("x", "pure"), Loop("y", "pure"))
    summary = StageSummary("f", 0, loops, (), loads, (), (F32,), (), False, ())
    return load_groups(summary, thread, frozenset(inside))


@pytest.mark.parametrize(
    ("strides", "step"),
    [
        ({"x": (1.0, 0.0)}, 1.0),
        ({"x": (-2.0, 0.0)}, 2.0),
        ({"x": (0.0, 1.0)}, SCATTERED),
        ({"x": (1.0, 1.0)}, SCATTERED),
        ({"x": None}, SCATTERED),
        ({"x": ()}, 0.0),
        ({"y": (1.0, 0.0)}, 0.0),
    ],
)
def test_steps_between_threads(strides, step):
    assert [group.step for group in grouped(strides)] == [step]


def test_loads_alike_are_counted_together():
    (group,) = grouped({"x": (1.0,)}, {"x": (1.0,)})
    assert (group.count, group.bytes) == (2, 4)
    assert [g.step for g in grouped({"x": (1.0,)}, thread=None)] == [SCATTERED]
    (group,) = grouped({"x": (1.0,)}, inside=("x", "y"))
    assert group.hoisted == {"y"}


def test_the_example_of_the_paper_has_its_shared_memory():
    kernel = kernel_of(khwz(), "Z", ["W"], inlined=("E_im", "H", "K"))
    found = MODEL.costs(kernel, np.array([[32.0, 12.0]]))
    assert found.shared[0] == 2048
