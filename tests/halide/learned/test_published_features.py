"""The features of Adams et al. 2019: values worked by hand, and those of the plugin."""

import base64
from dataclasses import replace

import halide as hl
import numpy as np
import pytest

from tilewright.halide.execution.session import make_inputs
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
)
from tilewright.halide.schedulers.halide_autoschedulers import Peer, run_peers
from tilewright.halide.schedulers.learned.published import algorithm_features, cpu_features

CORES = 4
REGISTER = 32  # bytes


def stencil():
    f, g = hl.Func("f"), hl.Func("g")
    x, y = hl.Var("x"), hl.Var("y")
    f[x, y] = hl.f32(x + y)
    g[x, y] = f[x - 1, y] + f[x, y] + f[x + 1, y]
    g.set_estimates([hl.Range(0, 64), hl.Range(0, 32)])
    return load(hl.Pipeline(g))


def rows(vector="v0", factor=8):
    """A vector of x in all of x in a task for each y."""
    return StageSchedule(
        (Split("v0", "v0_o", "v0_i", factor, "round_up"),),
        (
            ScheduledLoop("v0_i", "vectorized"),
            ScheduledLoop("v0_o"),
            ScheduledLoop("v1", "parallel"),
        ),
    )


def serial():
    nest = rows()
    return replace(nest, loops=(*nest.loops[:2], ScheduledLoop("v1")))


def base(name):
    """The name given to a Func; Halide numbers later ones of that name."""
    return name.split("$")[0]


def position(algorithm, name):
    return next(i for i, func in enumerate(algorithm.funcs) if base(func.name) == name)


def scheduled(algorithm, **entries):
    """A schedule with an entry for each Func given as (compute, store, nest)."""
    funcs = []
    for name, (compute, store, *nests) in entries.items():
        funcs.append(FuncSchedule(position(algorithm, name), compute, store, stages=tuple(nests)))
    return Schedule(algorithm.digest, "host", tuple(sorted(funcs, key=lambda e: e.func)))


def features(algorithm, schedule, factors=None, **options):
    pipeline = cpu_features.Pipeline(algorithm, REGISTER)
    options = {"cores": CORES, **options}
    return cpu_features.cpu_features(pipeline, schedule, factors, **options)


def by_name(algorithm, schedule, **options):
    """By Func and stage: the features, by name."""
    found = features(algorithm, schedule, **options)
    return {
        (base(algorithm.funcs[func].name), stage): dict(zip(found.names, values, strict=True))
        for (func, stage), values in zip(found.stages, found.values[0], strict=True)
    }


def at_each_row(algorithm):
    at = Level("at", position(algorithm, "g"), 0, "v1")
    return scheduled(algorithm, f=(at, at, serial()), g=(ROOT, ROOT, rows()))


def expect(found, **values):
    assert {name: found[name] for name in values} == pytest.approx(values)


def test_a_consumer_with_one_row_of_its_producer_in_each_task():
    algorithm = stencil()
    g = by_name(algorithm, at_each_row(algorithm))["g", 0]
    expect(
        g,
        num_realizations=1,
        num_productions=1,
        points_computed_total=64 * 32,
        points_computed_minimum=64 * 32,
        inner_parallelism=32,
        outer_parallelism=1,
        vector_size=8,
        native_vector_size=8,
        num_vectors=8 * 32,
        num_scalars=0,
        innermost_loop_extent=8,
        unrolled_loop_extent=1,  # the extents of an output are not known
        bytes_at_root=64 * 32 * 4,
        innermost_bytes_at_root=64 * 4,
        bytes_at_task=64 * 4,
        vector_loads_per_vector=3,
        scalar_loads_per_vector=0,
        scalar_loads_per_scalar=3,
        unique_bytes_read_per_vector=10 * 4,
        unique_lines_read_per_vector=1,
        unique_bytes_read_per_realization=66 * 4,  # f is in its loops: one row of it
        working_set=66 * 4 + 0,
        working_set_at_root=66 * 4 + 64 * 32 * 4,
        unique_bytes_read_per_task=0,  # f is not stored at root
    )


def test_a_producer_in_the_rows_of_its_consumer():
    algorithm = stencil()
    f = by_name(algorithm, at_each_row(algorithm))["f", 0]
    expect(
        f,
        num_realizations=32,
        num_productions=32,
        points_computed_per_realization=66,
        points_computed_per_production=9 * 8,  # vectors are whole
        points_computed_total=66 * 32,
        points_computed_minimum=66 * 32,  # at root; inlined it is 3 * 64 * 32
        inner_parallelism=1,
        outer_parallelism=32,
        bytes_at_realization=66 * 4,
        bytes_at_task=66 * 4,
        num_vectors=8 * 32,
        num_scalars=2 * 32,
        innermost_loop_extent=9,
        bytes_at_root=66 * 32 * 4,
        unique_bytes_read_per_realization=0,
    )


def test_an_inlined_producer():
    algorithm = stencil()
    found = by_name(algorithm, scheduled(algorithm, g=(ROOT, ROOT, rows())))
    expect(
        found["f", 0],
        inlined_calls=3 * 64 * 32,
        num_realizations=0,
        num_vectors=3 * 8 * 32,
        vector_size=8,
        outer_parallelism=32,
        bytes_at_root=66 * 32 * 4,
    )
    expect(found["g", 0], unique_bytes_read_per_realization=0, vector_loads_per_vector=0)


def test_a_producer_at_root_is_read_by_every_task():
    algorithm = stencil()
    found = by_name(algorithm, scheduled(algorithm, f=(ROOT, ROOT, rows()), g=(ROOT, ROOT, rows())))
    expect(
        found["g", 0],
        unique_bytes_read_per_task=66 * 4,
        unique_lines_read_per_task=1,
        unique_bytes_read_per_realization=66 * 32 * 4,
        unique_lines_read_per_realization=32,
        allocation_bytes_read_per_realization=66 * 32 * 4,
    )


def test_tasks_that_do_not_divide_the_extent_are_rounded_up():
    algorithm = stencil()
    nest = StageSchedule(
        (*rows().splits, Split("v1", "v1_o", "v1_i", 7, "round_up")),
        (
            ScheduledLoop("v0_i", "vectorized"),
            ScheduledLoop("v0_o"),
            ScheduledLoop("v1_i"),
            ScheduledLoop("v1_o", "parallel"),
        ),
    )
    at = Level("at", position(algorithm, "g"), 0, "v1_o")
    found = by_name(algorithm, scheduled(algorithm, f=(at, at, serial()), g=(ROOT, ROOT, nest)))
    expect(found["g", 0], inner_parallelism=5, innermost_loop_extent=8 * 7)
    expect(found["f", 0], num_realizations=5, bytes_at_realization=66 * 7 * 4)


def test_loops_that_are_all_parallel_leave_one_iteration_inside():
    algorithm = stencil()
    nest = rows()
    loops = (nest.loops[0], ScheduledLoop("v0_o", "parallel"), nest.loops[2])
    found = by_name(algorithm, scheduled(algorithm, g=(ROOT, ROOT, replace(nest, loops=loops))))
    expect(
        found["g", 0],
        inner_parallelism=8 * 32,
        innermost_loop_extent=1,
        bytes_at_task=8 * 4,
        vector_size=8,
    )


def invariant():
    a, out = hl.Func("a"), hl.Func("out")
    x, y = hl.Var("x"), hl.Var("y")
    a[x] = hl.f32(x)
    out[x, y] = a[x] + hl.f32(y)
    out.bound(x, 0, 8).bound(y, 0, 4)
    out.set_estimates([hl.Range(0, 8), hl.Range(0, 4)])
    return load(hl.Pipeline(out))


def test_loads_are_shared_by_unrolled_iterations():
    algorithm = invariant()
    nest = StageSchedule(
        (Split("v0", "v0_o", "v0_i", 8, "round_up"),),
        (ScheduledLoop("v0_i", "vectorized"), ScheduledLoop("v0_o"), ScheduledLoop("v1")),
    )
    schedule = scheduled(algorithm, a=(ROOT, ROOT, plain("v0")), out=(ROOT, ROOT, nest))
    found = by_name(algorithm, schedule, cores=1)
    expect(found["out", 0], unrolled_loop_extent=4, vector_loads_per_vector=1 / 4)


def parity():
    f, g = hl.Func("f"), hl.Func("g")
    x, y = hl.Var("x"), hl.Var("y")
    f[x, y] = hl.f32(x + y)
    g[x, y] = f[x, y // 2 + y % 2]
    g.set_estimates([hl.Range(0, 64), hl.Range(0, 32)])
    return load(hl.Pipeline(g))


def test_remainders_take_all_values_as_in_halides_lowering():
    algorithm = parity()
    found = by_name(algorithm, scheduled(algorithm, f=(ROOT, ROOT, rows()), g=(ROOT, ROOT, rows())))
    expect(found["g", 0], unique_lines_read_per_vector=2, unique_bytes_read_per_vector=2 * 8 * 4)


def sums():
    f, s = hl.Func("f"), hl.Func("s")
    x = hl.Var("x")
    r = hl.RDom([(0, 10)], name="r")
    f[x] = hl.f32(x)
    s[x] = hl.f32(0)
    s[x] += f[x + 2 * r]
    s.set_estimates([hl.Range(0, 16)])
    return load(hl.Pipeline(s))


def plain(*loops):
    return StageSchedule((), tuple(ScheduledLoop(name) for name in loops))


def test_an_update_reads_what_it_updates():
    algorithm = sums()
    schedule = scheduled(
        algorithm,
        f=(ROOT, ROOT, plain("v0")),
        s=(ROOT, ROOT, plain("v0"), plain("r0", "v0")),
    )
    found = by_name(algorithm, schedule, cores=1)
    expect(
        found["s", 1],
        points_computed_total=160,
        unique_bytes_read_per_realization=(16 + 18) * 4 + 16 * 4,
        scalar_loads_per_scalar=2,
        num_scalars=160,
        num_vectors=0,
    )
    expect(found["s", 0], points_computed_total=16, scalar_loads_per_scalar=0)


def branches():
    a, b, c, d = (hl.Func(name) for name in "abcd")
    x = hl.Var("x")
    a[x], b[x] = hl.f32(x), hl.f32(x + 1)
    c[x] = a[x] + b[x]
    d[x] = c[x]
    d.set_estimates([hl.Range(0, 64)])
    return load(hl.Pipeline(d))


@pytest.mark.parametrize(("as_released", "loads"), [(True, 1), (False, 2)])
def test_loads_behind_an_inlined_func_are_lost_as_in_the_released_code(as_released, loads):
    algorithm = branches()
    schedule = scheduled(
        algorithm,
        a=(ROOT, ROOT, plain("v0")),
        b=(ROOT, ROOT, plain("v0")),
        c=(INLINE, INLINE),
        d=(ROOT, ROOT, plain("v0")),
    )
    found = by_name(algorithm, schedule, as_released=as_released)
    assert found["d", 0]["scalar_loads_per_scalar"] == loads


def test_rows_of_factors_are_each_row_by_itself():
    algorithm = stencil()
    schedule = at_each_row(algorithm)
    sizes = np.array([4.0, 8.0, 16.0, 32.0])
    places = [(0, 0, 0), (1, 0, 0)]
    together = features(algorithm, schedule, dict.fromkeys(places, sizes))
    assert together.values.shape == (4, 2, 39)
    for i, size in enumerate(sizes):
        alone = features(algorithm, schedule, dict.fromkeys(places, float(size)))
        np.testing.assert_array_equal(together.values[i], alone.values[0])
    assert len({tuple(row.ravel()) for row in together.values}) == 4


def test_a_fused_loop_that_is_split_is_refused():
    algorithm = stencil()
    nest = StageSchedule(
        (Fuse("v0", "v1", "t"), Split("t", "t_o", "t_i", 8, "guard_with_if")),
        (ScheduledLoop("t_i"), ScheduledLoop("t_o")),
    )
    with pytest.raises(ScheduleError, match=r"fused loop t of g.* is split"):
        features(algorithm, scheduled(algorithm, g=(ROOT, ROOT, nest)))


def counts(algorithm, func, stage=0, **options):
    """The features of a stage's definition that are not 0, by operation and type."""
    pipeline = cpu_features.Pipeline(algorithm, REGISTER)
    found = algorithm_features.algorithm_features(pipeline, **options)
    place = next(
        i
        for i, s in enumerate(pipeline.stages)
        if (base(s.node.func.name), s.index) == (func, stage)
    )
    return {
        (algorithm_features.NAMES[i], algorithm_features.TYPES[j]): found[place, i, j]
        for i, j in zip(*np.nonzero(found[place]), strict=True)
    }


def test_operations_and_accesses_are_counted_by_type():
    found = counts(stencil(), "g")
    assert found == {
        ("add", "float"): 2,
        ("func_call", "float"): 3,
        ("pointwise func", "float"): 3,
        ("transpose func", "float"): 3,
        ("broadcast func", "float"): 3,
        ("slice func", "float"): 3,
        ("pointwise store", "float"): 1,
        ("transpose store", "float"): 1,
        ("broadcast store", "float"): 1,
        ("slice store", "float"): 1,
        # Coordinates: x - 1 is x + -1; y and x on both sides.
        ("add", "32 bits"): 2,
        ("const", "32 bits"): 2,
        ("variable", "32 bits"): 8,
    }


def test_casts_are_not_counted_as_in_the_released_code():
    assert ("cast", "float") not in counts(stencil(), "f")
    assert counts(stencil(), "f", as_released=False)["cast", "float"] == 1


def test_a_common_subexpression_is_one_operation_and_a_variable_for_each_use():
    f = hl.Func("f")
    x = hl.Var("x")
    square = hl.f32(x) * hl.sqrt(hl.f32(x))
    f[x] = square * square + square
    f.set_estimates([hl.Range(0, 8)])
    found = counts(load(hl.Pipeline(f)), "f")
    assert found["let", "float"] == 1
    assert found["mul", "float"] == 2
    assert found["variable", "float"] == 3


def harris_like():
    f, g, h, out = (hl.Func(name) for name in ("f", "g", "h", "out"))
    x, y = hl.Var("x"), hl.Var("y")
    f[x, y] = hl.f32(x * y)
    g[x, y] = f[x, y] * f[x + 1, y] + f[x, y + 2]
    h[x, y] = g[x, y] + g[x - 1, y - 1]
    out[x, y] = hl.sqrt(h[x, y] + h[x, y + 1]) * f[x, y]
    out.set_estimates([hl.Range(0, 512), hl.Range(0, 256)])
    return load(hl.Pipeline(out))


def reduction():
    f, s, out = (hl.Func(name) for name in ("f", "s", "out"))
    x, y = hl.Var("x"), hl.Var("y")
    r = hl.RDom([(0, 9)], name="r")
    f[x, y] = hl.u16(x + y)
    s[x, y] = hl.u32(0)
    s[x, y] += hl.u32(f[x + r, y]) * 3
    out[x, y] = s[x, y // 2] + s[x, y]
    out.set_estimates([hl.Range(0, 256), hl.Range(0, 128)])
    return load(hl.Pipeline(out))


@pytest.mark.parametrize("make", [harris_like, reduction])
@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.few(2)
def test_features_are_those_of_the_plugin(make, seed):
    algorithm = make()
    parameters = {
        "parallelism": str(CORES),
        "random_dropout": "60",
        "random_dropout_seed": seed,
        "beam_size": "2",
    }
    peer = Peer("Adams2019", "Adams2019", parameters)
    # AVX2 whatever the machine: registers of 32 bytes.
    target = "x86-64-linux-avx-avx2-f16c-fma-sse41"
    inputs = make_inputs(algorithm)
    (made,) = run_peers(algorithm, inputs, [peer], target=target)
    assert made.status == "ok", made.message
    assert made.serialized is not None
    schedule = read_schedule(made.serialized).schedule
    stored = np.frombuffer(base64.b64decode(made.featurization), np.float32)
    table = stored.reshape(-1, len(cpu_features.NAMES) + 7 + 280)
    found = features(algorithm, schedule)
    np.testing.assert_allclose(found.values[0], table[:, : len(cpu_features.NAMES)], rtol=1e-5)
    pipeline = cpu_features.Pipeline(algorithm, REGISTER)
    own = algorithm_features.algorithm_features(pipeline).reshape(len(table), -1)
    np.testing.assert_array_equal(own, table[:, -280:])
