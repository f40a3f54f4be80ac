"""Features: arrays agree with single rows, and say what they are called."""

from dataclasses import replace

import numpy as np
import pytest
from test_moves import stencils, task, walked

from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.ir.schedule import ROOT, Split
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.learned import moves
from tilewright.halide.schedulers.learned.features import features
from tilewright.halide.schedulers.learned.part_features import NAMES
from tilewright.halide.schedulers.prediction import schedule_nest

FACTORS = (2, 4, 8, 16)


def row(made, schedule):
    found = features(schedule_nest(made, schedule), model_of(made.machine))
    return dict(zip(NAMES, found.rows[0], strict=True))


def sizes(schedule):
    """Every factor of the outer loops of splits, all of them 2, 4, 8 and 16."""
    return {
        (e, s, i): np.array(FACTORS, dtype=float)
        for e, entry in enumerate(schedule.funcs)
        for s, nest in enumerate(entry.stages)
        for i, change in enumerate(nest.splits)
        if isinstance(change, Split) and change.inner in {
            loop.name for loop in nest.loops if loop.mapping == "serial"}
    }  # fmt: skip


@pytest.mark.parametrize("made", [task(2), task(11), stencils()], ids=["2", "11", "stencils"])
@pytest.mark.few(1)
def test_all_sizes_at_once_are_each_size_by_itself(made):
    scene, (state, *_) = walked(made, 0, 0, 0)
    output = made.algorithm.order[made.algorithm.outputs[0]]
    shapes = moves.root_shapes(scene.extended.funcs[output], scene)
    shape = next(shape for shape in shapes if shape.tiles)
    state = moves.applied(state, moves.Reshape(output, shape), scene)
    nest = schedule_nest(made, state)
    given = sizes(state)
    assert given
    model = model_of(made.machine)
    together = features(ScheduledNest(nest.analysis, state, given), model)
    assert together.rows.shape == (len(FACTORS), len(NAMES))
    for i, factor in enumerate(FACTORS):
        one = dict.fromkeys(given, float(factor))
        alone = features(ScheduledNest(nest.analysis, state, one), model)
        np.testing.assert_allclose(together.rows[i], alone.rows[0])
        assert together.roofline[i] == pytest.approx(alone.roofline[0])


def test_factors_that_change_no_loop_still_make_a_row_each():
    made = stencils()
    _, (state, *_) = walked(made, 0, 0, 0)
    nest = schedule_nest(made, state)
    elsewhere = {(len(state.funcs), 0, 0): np.array(FACTORS, dtype=float)}
    together = features(ScheduledNest(nest.analysis, state, elsewhere), model_of(made.machine))
    assert together.rows.shape == (len(FACTORS), len(NAMES))


def test_vectors_parallel_loops_and_recomputation_are_seen():
    made = stencils()
    scene, (naive, *_) = walked(made, 1, 0, 0)
    func = made.algorithm.order[made.algorithm.outputs[0]] - 2
    plain = row(made, naive)
    shapes = list(moves.root_shapes(scene.extended.funcs[func], scene))
    vector = row(made, moves.applied(naive, moves.ComputeRoot(func, shapes[0]), scene))
    assert vector["lanes"] > plain["lanes"]
    assert vector["vectorised"] > plain["vectorised"]
    inlined = row(made, moves.applied(naive, moves.Inline(func), scene))
    assert inlined["parts"] < plain["parts"]


def test_a_func_that_slides_computes_each_value_once():
    made = stencils()
    scene, (naive, *_) = walked(made, 1, 0, 0)
    host = made.algorithm.order[made.algorithm.outputs[0]] - 1
    member = host - 1
    shape = moves.NestShape((), (0, 1, 2))
    state = moves.applied(naive, moves.Reshape(host, shape), scene)
    levels = {
        (move.compute.loop, move.store): move
        for move in moves.possible_moves(state, scene, member)
        if isinstance(move, moves.ComputeAt)
    }
    here = next(m for (loop, store), m in levels.items() if loop == "v1" and store == m.compute)
    again = row(made, moves.applied(state, here, scene))
    slid = replace(here, store=replace(here.compute, loop="v2"))
    once = row(made, moves.applied(state, slid, scene))
    rooted = row(made, moves.applied(state, replace(here, compute=ROOT, store=ROOT), scene))
    assert again["recomputed"] > once["recomputed"] + 0.2
    assert once["recomputed"] == pytest.approx(rooted["recomputed"], abs=0.05)
