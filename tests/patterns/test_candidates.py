"""Kernels that are ranked: their launches, sizes and features, and the estimate without a model."""

import itertools

import numpy as np
import pytest
from test_features import DOUBLE
from test_grid_kernels import GLB, GRID, simulated
from test_rewriting import STAR, data

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.machines import gpu
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.grid import ThreadGrid, relaunched
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.features import features, kernel_features
from tilewright.patterns.ranking import FEATURES, StaticEstimate, candidates, rank, table
from tilewright.patterns.ranking.candidates import STRIDED, combined, thread_grids

N, M = tp.sizes("N M")
STENCIL = tp.array("A", tp.f32[N, M]) >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(STAR)
SMALL = rw.ExplorationSettings(tiles=(4, 8), limit=40)


def product(numbers):
    return int(np.prod([int(str(x)) for x in numbers]))


def test_sizes_become_numbers_everywhere():
    W = tp.table([1.0, 2.0], tp.f32)
    reverse = tp.gather(lambda i, n: n - 1 - i)
    pairs = tp.zip(tp.array("x", tp.f32[N]) >> reverse, W >> tp.at(0) >> tp.repeat(N))
    program = pairs >> tp.map(tp.mul) >> tp.split(M) >> tp.join
    assert tp.size_names(program) == ("M", "N")
    fixed = tp.with_sizes(program, {"N": 6, "M": 3})
    assert tp.size_names(fixed) == ()
    assert str(tp.type_of(fixed)) == "f32[6]"
    x = np.arange(6, dtype=np.float32)
    assert np.array_equal(tp.interpret(fixed, x), x[::-1])
    assert tp.with_sizes(program, {"N": 6}) is not program
    assert str(tp.type_of(tp.with_sizes(program, {"M": 3}))) == "f32[N]"
    for wrong, said in (({"K": 3}, "no size K; it has M, N"), ({"N": 0}, "N is 0")):
        with pytest.raises(tp.SizeError, match=said):
            tp.with_sizes(program, wrong)


def test_candidates_are_explored_programs_with_different_launches():
    sizes = {"N": 16, "M": 32}
    found = candidates(STENCIL, sizes, SMALL, launches=5, seed=1)
    programs = {c.derivation.program for c in found}
    explored = rw.explore(tp.with_sizes(STENCIL, sizes), SMALL)
    assert 10 < len(programs) <= len(explored)
    for p in programs:
        launches = [str(c.launch) for c in found if c.derivation.program is p]
        assert 1 < len(launches) == len(set(launches)) <= 5
        assert launches[0] == "None"
    again = candidates(STENCIL, sizes, SMALL, launches=5, seed=1)
    assert [str(c.launch) for c in again] == [str(c.launch) for c in found]
    other = candidates(STENCIL, sizes, SMALL, launches=5, seed=2)
    assert [str(c.launch) for c in other] != [str(c.launch) for c in found]
    assert table(found).shape == (len(found), len(FEATURES))


def test_features_of_candidates_are_those_of_their_kernels():
    for c in candidates(STENCIL, {"N": 16, "M": 32}, SMALL, launches=4)[::7]:
        expected = features(c.derivation.program, {}, c.launch)
        assert c.features == combined(expected)


def test_launches_are_right_kernels():
    found = candidates(STENCIL, {"N": 8, "M": 8}, SMALL, launches=3)
    integers = tp.array("A", tp.i32[8, 8])
    arrays = data(integers)
    expected = stencil_in_numpy(arrays[0])
    for c in found[::9]:
        (result,), _, _ = simulated(c.derivation.program, arrays, c.launch)
        assert np.array_equal(result.reshape(8, 8), expected), f"{c.derivation}\n{c.launch}"


def stencil_in_numpy(a):
    b = np.pad(a, 1, mode="edge")
    return b[:-2, 1:-1] + b[1:-1, :-2] - 2 * a + b[1:-1, 2:] + b[2:, 1:-1]


def test_launches_have_no_more_threads_than_iterations():
    A = tp.array("A", tp.f32[100, 300])
    (over_all,) = grid_code(
        rw.derive(A >> tp.map2(DOUBLE), rw.lower_nest(*GLB)).program, "k", None
    )[1]
    rng = np.random.default_rng(0)
    for launch in thread_grids(over_all, 60, rng):
        (x, y, z), (a, b, c) = launch.threads, (int(str(g)) for g in launch.groups)
        assert 32 <= x * y * z <= 1024
        assert a * b * c >= 8
        assert x <= 512
        assert y <= 128
        assert (z, c) == (1, 1)
        assert a * x < 2 * max(300, x) + x
        assert b * y < 2 * max(100, y) + y
    tiles = rw.derive(
        tp.array("A", tp.f32[16, 16]) >> tp.map2(DOUBLE), rw.split2(4, 2), rw.lower_nest(*GRID)
    )
    (tiled,) = grid_code(tiles.program, "k", None)[1]
    options = thread_grids(tiled, 10_000, rng)
    # 4 x 8 groups of 4 x 2 threads: no warp can be filled, so groups are as large as they can be.
    assert {launch.threads for launch in options} == {(2, 4, 1)}
    assert {product(launch.groups) for launch in options} == {8, 16, 32}
    assert len(thread_grids(tiled, 3, rng)) == 3


def test_a_relaunched_kernel_is_the_kernel_of_that_launch():
    p = rw.derive(
        tp.with_sizes(STENCIL, {"N": 16, "M": 32}),
        rw.tiling2(4, 8),
        rw.lower_nest(*GRID),
        rw.stage_tile(),
    ).program
    launch = ThreadGrid((poly(2), poly(1), poly(5)), (4, 2, 7))
    (direct,) = grid_code(p, "k", launch)[1]
    (strided,) = grid_code(p, "k", STRIDED)[1]
    assert relaunched(strided, launch).launch == direct.launch
    assert kernel_features(relaunched(strided, launch), {}) == kernel_features(direct, {})
    assert (
        kernel_features(direct, {}).barriers
        > kernel_features(grid_code(p, "k", None)[1][0], {}).barriers
    )


def test_kernels_of_one_program_are_combined():
    x = tp.array("x", tp.f32[4096])
    p = x >> tp.to_global(tp.map_glb(DOUBLE)) >> tp.split(4) >> tp.map_glb(tp.map_seq(DOUBLE))
    first, second = features(p, {})
    both = combined((first, second))
    assert (first.global_size_0, second.global_size_0) == (4096, 1024)
    assert both.global_size_0 == 4096
    # 4096 loads of each kernel, by 4096 threads.
    assert (both.global_loads, both.global_stores) == (2, 2)
    assert both.lines_per_access == (first.lines_per_access + second.lines_per_access) / 2
    assert combined((first,)) is first


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"N": 16}, "no value for M"),
        ({"N": 16, "M": 16, "K": 1}, "no size K"),
        ({"N": 6, "M": 8}, "does not fit the sizes"),
    ],
)
def test_sizes_that_cannot_be_used_are_refused(sizes, said):
    program = STENCIL >> tp.map(tp.split(4) >> tp.join) >> tp.split(4) >> tp.join
    with pytest.raises(tp.SizeError, match=said):
        candidates(program, sizes, SMALL)


def test_the_estimate_knows_what_makes_kernels_slow():
    sizes = {"N": 1024, "M": 1024}
    fixed = tp.with_sizes(STENCIL, sizes)
    rows = rw.derive(fixed, rw.lower_nest(*GLB)).program
    columns = rw.derive(fixed, rw.lower_nest(*GLB[::-1])).program
    model = StaticEstimate(gpu("a100")).fit(None, None)

    def speed(program, launch=None):
        (found,) = features(program, {}, launch)
        return model.predict(found.vector()[None, :])[0]

    one = poly(1)
    assert speed(rows) > 2 * speed(columns)  # 32 lines for each access of a warp
    assert speed(rows) > 5 * speed(rows, ThreadGrid((one, one, one), (32, 4, 1)))  # one group
    (found,) = features(rows, {})
    too_much = found.vector()
    too_much[FEATURES.index("local_memory")] = 1e6
    assert model.predict(too_much[None, :]) == [0]


def test_candidates_are_ranked_best_first_and_equal_ones_in_their_order():
    found = candidates(STENCIL, {"N": 16, "M": 32}, SMALL, launches=3)

    class Threads:
        def fit(self, features, performance): ...

        def predict(self, features):
            return features[:, FEATURES.index("local_size_0")]

    ranked = rank(found, Threads())
    values = [value for value, _ in ranked]
    assert values == sorted(values, reverse=True)
    place = {id(c): i for i, c in enumerate(found)}
    for (a, c), (b, d) in itertools.pairwise(ranked):
        assert a > b or place[id(c)] < place[id(d)]
    assert rank([], Threads()) == []
