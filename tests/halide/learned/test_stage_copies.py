"""Copies of what a Func reads: legal, right, and predicted faster where they save gathers."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_moves import MACHINE, answers, task

from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.schedule import Clone, ScheduleError
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.learned import moves, sampling
from tilewright.halide.schedulers.learned.partial_results import Factor
from tilewright.halide.schedulers.learned.shapes import NestShape
from tilewright.halide.schedulers.learned.staging import StageCopy
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import make_task

TILED = NestShape(((64, 64),), (0, 1), 0, 8, parallel=2)
ROWS = NestShape((), (0, 1), 0, 8, parallel=1)


def transposed(size=512, taps=9):
    """The sum of neighbours in a column, transposed, and another reader of the same Func."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    root, out, other = hl.Func("root"), hl.Func("out"), hl.Func("other")
    root[x, y] = hl.floor(hl.sqrt(image[x, y]))
    out[x, y] = sum(root[y + i, x] for i in range(taps))
    other[x, y] = root[x, y] + root[x + 1, y]
    for each in (out, other):
        each.set_estimates([(0, size), (0, size)])
    return make_task(hl.Pipeline([out, other]), machine=MACHINE, target="host")


def product(size=96):
    """A product of matrices of small integers."""
    x, y, r = hl.Var("x"), hl.Var("y"), hl.RDom([(0, size)], "r")
    a, b = (hl.ImageParam(hl.UInt(8), 2, name) for name in "ab")
    out = hl.Func("out")
    out[x, y] = hl.i32(0)
    out[x, y] += hl.i32(a[r.x, y]) * hl.i32(b[x, r.x])
    out.set_estimates([(0, size), (0, size)])
    return make_task(out, machine=MACHINE, target="host")


def copies(made, state):
    scene = sampling.scene_of(made, state)
    found = [m for m in moves.possible_moves(state, scene) if isinstance(m, StageCopy)]
    return scene, found


def gathering(made):
    """A schedule in which the transposed Func gathers its vectors, and the position of that."""
    start = sampling.seeds(made, 1)[0]
    scene = sampling.scene_of(made, start)
    out, root = (position(made.algorithm, name) for name in ("out", "root"))
    state = moves.applied(start, moves.ComputeRoot(root, ROWS), scene)
    state = moves.applied(state, moves.Reshape(out, TILED), scene)
    funcs = tuple(replace(e, storage_order=()) if e.func == root else e for e in state.funcs)
    return replace(state, funcs=funcs), out


def position(algorithm, name):
    return next(i for i, f in enumerate(algorithm.funcs) if f.name.split("$")[0] == name)


def test_a_copy_of_a_tile_is_predicted_faster_than_gathers():
    made = transposed()
    state, out = gathering(made)
    scene, found = copies(made, state)
    assert moves.violations(state, scene) == []
    tile = [m for m in found if m.func == out and m.loop.startswith("p")]
    assert [m.inner for m in tile] == [1]
    after = moves.applied(state, tile[0], scene)
    assert predicted(made, after).seconds < 0.75 * predicted(made, state).seconds
    copy = next(e for e in after.funcs if e.func == tile[0].source + 1)
    assert copy.compute.func == out + 1
    assert copy.storage_order == (1, 0)


def test_a_copy_of_all_that_a_task_reads_again_and_again_is_not_predicted_faster():
    """A matrix that fits in no near cache is read as often from a copy as from the original."""
    made = product(512)
    start = sampling.seeds(made, 1)[0]
    scene, found = copies(made, start)
    assert found
    for move in found:
        after = moves.applied(start, move, scene)
        if not moves.violations(after, scene):
            assert predicted(made, after).seconds > 0.98 * predicted(made, start).seconds


@pytest.mark.parametrize("make", [transposed, product])
@pytest.mark.few(1)
def test_copies_give_the_right_answer_also_after_further_moves(make, tmp_path):
    made = make(96)
    state = gathering(made)[0] if make is transposed else sampling.seeds(made, 1)[0]
    scene, found = copies(made, state)
    legal = [m for m in found if not moves.violations(moves.applied(state, m, scene), scene)]
    assert len(legal) >= 3
    rng = np.random.default_rng(1)
    for number, at in enumerate(rng.choice(len(legal), 3, replace=False)):
        after = moves.applied(state, legal[at], scene)
        for _ in range(number):
            step = sampling.random_move(after, scene, rng)
            after = step[1] if step else after
        answers(made, after, tmp_path / str(at))


# Of the first pipelines, those in which a copy or a split reduction is possible.
@pytest.mark.parametrize(
    "seed",
    [
        *(2, 9, 19),
        *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (6, 7, 8, 10, 13, 15, 29)),
    ],
)
@pytest.mark.few(1)
def test_added_funcs_in_random_pipelines_are_refused_with_a_reason_or_lowered(seed):
    made = task(seed)
    tried = 0
    for state in sampling.seeds(made, 1):
        scene = sampling.scene_of(made, state)
        found = [m for m in moves.possible_moves(state, scene) if isinstance(m, StageCopy | Factor)]
        for move in found[:: max(1, len(found) // 3)]:
            after = moves.applied(state, move, scene)
            problems = moves.violations(after, scene)
            assert problems == check(after, made.algorithm)
            assert all(str(problem) for problem in problems)
            assert problems or refusal(after, made.algorithm) == ""
            tried += 1
    assert tried


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(
    seed=st.sampled_from([6, 8, 10, 13, 15, 19, 24, 29, 33, 36]),
    number=st.integers(0, 50),
    walk=st.integers(0, 1000),
    steps=st.integers(0, 3),
)
def test_added_funcs_in_random_pipelines_give_the_right_answer(seed, number, walk, steps, tmp_path):
    made = task(seed)
    state = sampling.seeds(made, 1)[number % 2]
    scene = sampling.scene_of(made, state)
    found = [m for m in moves.possible_moves(state, scene) if isinstance(m, StageCopy | Factor)]
    found = [m for m in found if not moves.violations(moves.applied(state, m, scene), scene)]
    if not found:
        return
    state = moves.applied(state, found[number % len(found)], scene)
    rng = np.random.default_rng(walk)
    for _ in range(steps):
        step = sampling.random_move(state, scene, rng)
        state = step[1] if step else state
    answers(made, state, tmp_path / f"{seed}")


def test_reads_with_different_strides_are_not_copied_together():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + image[y, x]
    out.set_estimates([(0, 256), (0, 256)])
    made = make_task(out, machine=MACHINE, target="host")
    for state in sampling.seeds(made, 1):
        assert not copies(made, state)[1]


def test_contiguous_reads_of_each_value_once_are_not_copied():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = image[x, y] + image[x + 1, y]
    out.set_estimates([(0, 256), (0, 256)])
    made = make_task(out, machine=MACHINE, target="host")
    assert not copies(made, sampling.seeds(made, 1)[0])[1]


def test_a_copy_that_is_there_is_not_made_again():
    made = transposed()
    state, out = gathering(made)
    scene, found = copies(made, state)
    move = next(m for m in found if m.func == out and m.loop.startswith("p"))
    after = moves.applied(state, move, scene)
    (copy,) = after.clones
    assert copy == Clone(move.source, (out,), wrapper=True)
    assert with_clones(made.algorithm, after.clones).copies
    again = [m for m in copies(made, after)[1] if m.func == out + 1]
    assert move.source not in {m.source for m in again}
    with pytest.raises(ScheduleError, match="does not read"):
        moves.applied(after, replace(move, func=out + 1), scene)
