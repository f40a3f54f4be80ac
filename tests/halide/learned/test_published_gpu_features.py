"""The features of Anderson et al. 2021: values worked by hand, and those of the plugin."""

import base64
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from plugin_runs import printed_cost
from test_published_features import base, harris_like, position, reduction, scheduled, stencil

from tilewright.halide.execution.session import make_inputs
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    Level,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.schedulers.halide_autoschedulers import Peer, plugin_path, run_peers
from tilewright.halide.schedulers.learned.published import algorithm_features, network
from tilewright.halide.schedulers.learned.published.gpu_features import (
    NAMES,
    GpuLimits,
    gpu_features,
    gpu_pipeline,
    strahler,
)
from tilewright.halide.schedulers.learned.published.gpu_warps import threads_of, transactions_of
from tilewright.halide.schedulers.learned.published.weights import embedded_weights

TARGET = "x86-64-linux-avx-avx2-f16c-fma-sse41-cuda-cuda_capability_70"
SMS = 16


def tiles(x=32, y=4):
    """A block of x by y threads, a point each."""
    return StageSchedule(
        (
            Split("v0", "v0_o", "v0_i", x, "guard_with_if"),
            Split("v1", "v1_o", "v1_i", y, "guard_with_if"),
        ),
        (
            ScheduledLoop("v0_i", "gpu_thread"),
            ScheduledLoop("v1_i", "gpu_thread"),
            ScheduledLoop("v0_o", "gpu_block"),
            ScheduledLoop("v1_o", "gpu_block"),
        ),
    )


def threads(x=32):
    """Threads along x, with the rows one after the other in each."""
    return StageSchedule(
        (Split("v0", "v0_o", "v0_i", x, "guard_with_if"),),
        (ScheduledLoop("v1"), ScheduledLoop("v0_o"), ScheduledLoop("v0_i", "gpu_thread")),
    )


def features(algorithm, schedule, factors=None, as_released=True):
    return gpu_features(
        gpu_pipeline(algorithm, as_released),
        schedule,
        factors,
        limits=GpuLimits(sms=SMS),
        as_released=as_released,
    )


def by_name(algorithm, schedule, **options):
    """By Func and stage: the features, by name."""
    found = features(algorithm, schedule, **options)
    return {
        (base(algorithm.funcs[func].name), stage): dict(zip(found.names, values, strict=True))
        for (func, stage), values in zip(found.stages, found.values[0], strict=True)
    }


def expect(found, **values):
    assert {name: found[name] for name in values} == pytest.approx(values)


def test_the_launch_and_the_transactions_of_a_stage_at_root():
    algorithm = stencil()
    schedule = scheduled(algorithm, f=(ROOT, ROOT, tiles()), g=(ROOT, ROOT, tiles()))
    expect(
        by_name(algorithm, schedule)["g", 0],
        num_blocks=2 * 8,
        num_threads_per_block=128,
        num_warps_per_block=4,
        num_active_warps_per_block=4,
        block_occupancy=128 / 1024,
        warp_lane_utilization=1,
        idle_lane_wastage=0,
        inner_parallelism=16,
        points_computed_per_thread=1,
        num_scalars=0,
        global_bytes_at_task=32 * 4 * 4,
        # 4 warps with 3 loads of 32 floats, 4 sectors each, and one store.
        num_global_mem_loads_per_block=4 * 3 * 4,
        num_global_mem_stores_per_block=4 * 4,
        global_mem_load_efficiency=1,
        unique_global_bytes_read_per_thread=3 * 4,
        unique_global_lines_read_per_thread=1,
        unique_bytes_read_per_task=34 * 4 * 4,
        unique_lines_read_per_task=4,
        # One block for each SM: 4 of 64 warps, 1 of 32 blocks.
        max_warp_occupancy=4 / 64,
        max_block_occupancy=1 / 32,
        shared_mem_occupancy=0,
        expr_branching=3,
    )


def test_an_inlined_producer():
    algorithm = stencil()
    found = by_name(algorithm, scheduled(algorithm, f=(INLINE, INLINE), g=(ROOT, ROOT, tiles())))
    expect(
        found["f", 0],
        inlined_calls=3 * 64 * 32,
        num_blocks=16,
        num_threads_per_block=128,
        num_warps_per_block=3 * 4 * 16,
        points_computed_per_thread=3,
        num_global_mem_loads_per_block=0,
    )


def in_blocks(algorithm):
    at = Level("at", position(algorithm, "g"), 0, "v0_o")
    return scheduled(algorithm, f=(at, at, threads()), g=(ROOT, ROOT, tiles()))


def test_a_producer_in_a_block_is_in_shared_memory():
    algorithm = stencil()
    found = by_name(algorithm, in_blocks(algorithm), as_released=False)
    size = 34 * 4 * 4
    expect(
        found["g", 0],
        shared_mem_occupancy=size / (48 << 10),
        shared_mem_block_limit_factor=1,
        unique_shared_bytes_read_per_thread=3 * 4,
        unique_global_bytes_read_per_thread=0,
        # 32 floats next to each other, all banks once; 3 loads in 4 warps.
        num_shared_mem_loads_per_block=3 * 4,
        num_global_mem_loads_per_block=0,
        working_set=size,
        num_scalars=64 * 32,
    )
    expect(
        found["f", 0],
        num_realizations=16,
        outer_parallelism=16,
        shared_bytes_at_task=size,
        global_bytes_at_task=0,
        # One warp of 32 threads; 2 iterations of x and 4 rows in each; x is the vector.
        points_computed_per_thread=2 * 4,
        num_warps_per_block=4,
        num_active_warps_per_block=1,
        num_shared_mem_stores_per_block=8,
    )


def test_a_producer_in_a_block_is_taken_to_be_at_root_as_in_the_released_code():
    algorithm = stencil()
    found = by_name(algorithm, in_blocks(algorithm))
    expect(
        found["g", 0],
        shared_mem_occupancy=34 * 4 * 4 / (48 << 10),
        unique_shared_bytes_read_per_thread=0,
        unique_global_bytes_read_per_thread=3 * 4,
        num_shared_mem_loads_per_block=0,
        num_global_mem_loads_per_block=4 * 3 * 4,
        num_scalars=0,
        # Stored in the block and at root: counted in both, beside g.
        working_set_at_root=2 * 34 * 4 * 4 + 64 * 32 * 4,
    )
    expect(found["f", 0], shared_bytes_at_task=0, global_bytes_at_task=34 * 4 * 4)


def chain():
    h, f, g = (hl.Func(name) for name in "hfg")
    x, y = hl.Var("x"), hl.Var("y")
    h[x, y] = hl.f32(x + y)
    f[x, y] = h[x, y] + 1
    g[x, y] = f[x, y] + f[x + 1, y]
    g.set_estimates([hl.Range(0, 64), hl.Range(0, 32)])
    return load(hl.Pipeline(g))


def test_loads_of_a_producer_in_a_serial_loop_are_repeated_by_it():
    algorithm = chain()
    at = Level("at", position(algorithm, "g"), 0, "v1_i")
    nest = tiles()
    loops = (ScheduledLoop("v1_i"), nest.loops[0], *nest.loops[2:])
    schedule = scheduled(
        algorithm,
        h=(ROOT, ROOT, tiles()),
        f=(at, at, StageSchedule((), (ScheduledLoop("v0"), ScheduledLoop("v1")))),
        g=(ROOT, ROOT, replace(nest, loops=loops)),
    )
    expect(
        by_name(algorithm, schedule)["f", 0],
        # Two points of each of 4 rows a thread; neighbours are two floats apart: 8 sectors.
        num_global_mem_loads_per_block=2 * 4 * 8,
        global_mem_load_efficiency=1 / 2,
        points_computed_per_thread=8,
        num_warps_per_block=1,
    )


def test_rows_of_factors_are_each_row_by_itself():
    algorithm = stencil()
    schedule = scheduled(algorithm, f=(ROOT, ROOT, tiles()), g=(ROOT, ROOT, tiles()))
    sizes = np.array([4.0, 8.0, 16.0])
    together = features(algorithm, schedule, {(1, 0, 0): sizes, (1, 0, 1): 2.0})
    assert together.values.shape == (3, 2, 73)
    for i, size in enumerate(sizes):
        alone = features(algorithm, schedule, {(1, 0, 0): float(size), (1, 0, 1): 2.0})
        np.testing.assert_array_equal(together.values[i], alone.values[0])
    assert len({tuple(row.ravel()) for row in together.values}) == 3


def test_threads_of_a_stage_that_does_not_fill_its_block():
    found = threads_of((1, 10, 3), ("x", "y", "z"), 0, (20, 3))
    assert found.block == (20, 3, 1)
    assert found.threads == (10, 3, 1)
    assert found.loops == ("y", "z")
    assert (found.count, found.active_threads, found.warps, found.active_warps) == (30, 30, 2, 2)
    # Of threads 0 to 31, 0 to 9 and 20 to 29 are active; of 32 to 59, 40 to 49.
    assert found.tail
    assert found.regular_warps == 1
    assert found.warp(False)[1].sum() == 20
    assert found.warp(True)[1].sum() == 10


def test_the_vectorised_loop_is_x_and_others_that_do_not_fit_are_left_out():
    found = threads_of((32, 64, 2), ("x", "y", "z"), 1, (64, 32, 2))
    assert found.block == (64, 1, 1)
    assert found.threads == (64, 1, 1)
    assert found.loops == ("y",)


LINE = threads_of((64,), ("x",), 0, (64,))


@pytest.mark.parametrize(
    ("memory", "step", "size", "count", "efficiency"),
    [
        ("global", 1, 4, 4, 1),
        ("global", 1, 1, 1, 1),
        ("global", 2, 4, 8, 0.5),
        ("global", 8, 4, 32, 4 / 32),
        ("global", 100, 4, 32, 4 / 32),
        ("global", 0, 4, 1, 4 / 32),
        ("shared", 1, 4, 1, 1),
        ("shared", 2, 4, 2, 0.5),
        ("shared", 32, 4, 32, 1 / 32),
        ("shared", 33, 4, 1, 1),
        ("shared", 1, 8, 2, 1),
        ("shared", 0, 4, 1, 4 / 128),
    ],
)
def test_transactions_worked_by_hand(memory, step, size, count, efficiency):
    found = transactions_of(memory, LINE, (((float(step), 1),),), size, 3)
    assert found.count == 2 * 3 * count  # two warps, three requests each
    assert found.efficiency == pytest.approx(efficiency)


def test_an_unknown_step_is_a_transaction_for_each_thread():
    found = transactions_of("global", LINE, (None,), 4, 1)
    assert found.count == 64
    assert found.efficiency == 4 / 32


def test_the_last_warp_has_transactions_of_its_own():
    found = transactions_of("global", threads_of((40,), ("x",), 0, (40,)), (((1.0, 1),),), 4, 3)
    assert found.count == 3 * 4 + 3 * 1
    assert found.used == 3 * 128 + 3 * 32


def test_a_single_thread_makes_one_transaction_a_request():
    found = transactions_of("global", None, (), 4, 5)
    assert (found.count, found.used, found.moved) == (5, 20, 160)


def number(make):
    f = hl.Func("f")
    x = hl.Var("x")
    f[x] = make(hl.f32(x))
    f.set_estimates([hl.Range(0, 8)])
    pipeline = gpu_pipeline(load(hl.Pipeline(f)))
    return strahler(pipeline.nodes[0], {})


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x, 1),
        (lambda x: x + 3, 2),
        (lambda x: (x + 3) * 5 + 7, 2),
        (lambda x: (x + 3) * (x + 5), 3),
        (lambda x: hl.sqrt(x), 1),
        # A common subexpression has its own register beside the rest.
        (lambda x: hl.sqrt(x) * hl.sqrt(x), 2),
        (lambda x: hl.select(x + 1 < 3, x, hl.f32(2)), 2),
    ],
)
def test_strahler_numbers_worked_by_hand(make, expected):
    assert number(make) == expected


def searched(algorithm, **parameters):
    peer = Peer("Anderson2021", "Anderson2021", {"parallelism": str(SMS), **parameters})
    (made,) = run_peers(algorithm, make_inputs(algorithm), [peer], target=TARGET)
    assert made.status == "ok", made.message
    data = np.frombuffer(base64.b64decode(made.featurization), np.float32)
    return read_schedule(made.serialized).schedule, data.reshape(-1, len(NAMES) + 7 + 280)


@pytest.mark.parametrize("make", [harris_like, reduction])
@pytest.mark.parametrize("seed", ["1", "2"])
def test_features_are_those_of_the_plugin(make, seed):
    algorithm = make()
    schedule, table = searched(
        algorithm,
        beam_size="1",
        randomize_tilings="1",
        random_dropout="20",
        random_dropout_seed=seed,
    )
    found = features(algorithm, schedule)
    np.testing.assert_allclose(found.values[0], table[:, : len(NAMES)], rtol=1e-5)
    own = algorithm_features.algorithm_features(gpu_pipeline(algorithm))
    np.testing.assert_array_equal(own.reshape(len(table), -1), table[:, -280:])


def test_the_cost_is_that_of_the_plugin():
    plugin = plugin_path("Anderson2021")
    parameters = '{"parallelism": "16", "beam_size": "2"}'
    cost, definitions, schedule = printed_cost("Anderson2021", TARGET, parameters, 73)
    weights = embedded_weights(plugin)
    assert (weights.features, weights.size) == (73, 5080)
    found = network.predicted_gpu(weights, definitions, schedule, 16)
    assert found[0] == pytest.approx(cost, rel=1e-4)
