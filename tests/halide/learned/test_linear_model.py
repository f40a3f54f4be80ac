"""The linear model: what its terms count, and that fitting finds the coefficients."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from test_moves import stencils, task, walked

from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    DimensionBounds,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.learned import moves
from tilewright.halide.schedulers.learned.cost_model import (
    CorrectionModel,
    LearnedModel,
    from_json,
    shipped,
)
from tilewright.halide.schedulers.learned.evaluation import Evaluator
from tilewright.halide.schedulers.learned.features import features
from tilewright.halide.schedulers.learned.linear_model import fitted_coefficients
from tilewright.halide.schedulers.learned.term_counts import TERM_COUNT, TERMS
from tilewright.halide.schedulers.prediction import schedule_nest
from tilewright.halide.schedulers.task import make_task

NAMES = [term.name for term in TERMS]
NONE = CorrectionModel(("x",), ())


def terms(made, schedule):
    found = features(schedule_nest(made, schedule), model_of(made.machine))
    return dict(zip(NAMES, found.terms[0], strict=True))


def output_state(made):
    """A schedule by a random walk, a scene, and the position of the output."""
    scene, (state, *_) = walked(made, 1, 0, 0)
    return scene, state, made.algorithm.order[made.algorithm.outputs[0]]


def reshaped(made, wanted):
    """The output with the first shape that `wanted` accepts."""
    scene, state, output = output_state(made)
    shapes = moves.root_shapes(scene.extended.funcs[output], scene)
    shape = next(shape for shape in shapes if wanted(shape))
    return moves.applied(state, moves.Reshape(output, shape), scene)


def with_output(made, schedule, **changes):
    """The schedule with other loops of the output's only stage."""
    output = made.algorithm.order[made.algorithm.outputs[0]]
    funcs = tuple(
        replace(e, stages=(replace(e.stages[0], **changes), *e.stages[1:]))
        if e.func == output
        else e
        for e in schedule.funcs
    )
    return replace(schedule, funcs=funcs)


def test_the_terms_of_all_sizes_at_once_are_those_of_each_size():
    made = task(2)
    state = reshaped(made, lambda shape: shape.tiles)
    nest = schedule_nest(made, state)
    output = made.algorithm.order[made.algorithm.outputs[0]]
    entry = next(e for e, each in enumerate(state.funcs) if each.func == output)
    split = next(
        i for i, change in enumerate(state.funcs[entry].stages[0].splits)
        if change.inner in {loop.name for loop in state.funcs[entry].stages[0].loops
                            if loop.mapping == "serial"}
    )  # fmt: skip
    factors = np.array([2.0, 8.0, 16.0])
    model = model_of(made.machine)
    given = {(entry, 0, split): factors}
    together = features(ScheduledNest(nest.analysis, state, given), model)
    assert together.terms.shape == (3, TERM_COUNT)
    assert len(np.unique(together.terms, axis=0)) == 3
    for i, factor in enumerate(factors.tolist()):
        one = ScheduledNest(nest.analysis, state, {(entry, 0, split): factor})
        np.testing.assert_allclose(together.terms[i], features(one, model).terms[0])


def test_parallel_loops_inside_parallel_loops_are_counted_apart():
    made = stencils()
    state = reshaped(made, lambda shape: shape.tiles)
    output = made.algorithm.order[made.algorithm.outputs[0]]
    loops = next(e for e in state.funcs if e.func == output).stages[0].loops
    outside = [loop for loop in loops if loop.mapping in ("serial", "parallel")]
    assert len(outside) > 1

    def mapped(names):
        changed = tuple(
            replace(loop, mapping="parallel" if loop.name in names else "serial")
            if loop in outside
            else loop
            for loop in loops
        )
        return terms(made, with_output(made, state, loops=changed))

    serial = mapped(())
    outer = max(outside, key=loops.index).name
    once = mapped((outer,))
    twice = mapped((outer, max((x for x in outside if x.name != outer), key=loops.index).name))
    assert serial["regions"] < once["regions"]
    assert once["nested regions"] == 0.0
    assert twice["nested regions"] > 0.0
    assert twice["nested tasks"] > twice["tasks"] > serial["tasks"]
    assert once["loads"] < serial["loads"]


def test_a_row_of_known_residue_computes_one_branch():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = hl.select(y % 2 == 0, image[x, y // 2] * 3 // 7, image[x, y // 2 + 1])
    out[x, y] = rows[x, y] + rows[x, y + 1]
    out.set_estimates([(0, 640), (0, 480)])
    made = make_task(out, target="host", machine=task(2).machine)
    loops = [ScheduledLoop("v0"), ScheduledLoop("i", "unrolled"), ScheduledLoop("o")]
    pairs = StageSchedule((Split("v1", "o", "i", 2, "guard_with_if"),), tuple(loops))
    plain = StageSchedule((), (ScheduledLoop("v0"), ScheduledLoop("v1")))

    def counted(bounds):
        funcs = (
            FuncSchedule(0, INLINE, INLINE),
            FuncSchedule(1, ROOT, ROOT, stages=(pairs,), bounds=bounds),
            FuncSchedule(2, ROOT, ROOT, stages=(plain,)),
        )
        return terms(made, Schedule(made.algorithm.digest, "host", funcs))

    either, aligned, other = (
        counted(bounds)
        for bounds in ((), (DimensionBounds(1, 0, 2, 0),), (DimensionBounds(1, 0, 3, 0),))
    )
    assert aligned["arithmetic"] < either["arithmetic"]
    assert aligned["loads"] < either["loads"]
    assert other["arithmetic"] >= either["arithmetic"]
    # The output loads twice per point; its rows load twice, or once in known rows.
    assert either["loads"] / aligned["loads"] == pytest.approx(4 / 3, rel=0.05)


def test_vectors_across_rows_store_their_lanes_one_by_one():
    made = stencils()
    scene, state, output = output_state(made)
    shapes = moves.root_shapes(scene.extended.funcs[output], scene)
    found: dict[str, dict[str, float]] = {}
    for shape in shapes:
        after = moves.applied(state, moves.Reshape(output, shape), scene)
        for loop in next(e for e in after.funcs if e.func == output).stages[0].loops:
            if loop.mapping == "vectorized":
                found.setdefault(loop.name[:2], terms(made, after))
    plain = terms(made, state)["strided stores"]
    assert found["v0"]["strided stores"] == plain
    assert found["v1"]["strided stores"] > plain


def test_a_vector_wider_than_what_a_step_adds_computes_points_that_nobody_needs():
    """A Func that slides by one row and has vectors along rows and along columns."""
    made = stencils()
    scene, (naive, *_) = walked(made, 1, 0, 0)
    host = made.algorithm.order[made.algorithm.outputs[0]] - 1
    member = host - 1
    state = moves.applied(naive, moves.Reshape(host, moves.NestShape((), (0, 1, 2))), scene)
    at = next(
        move for move in moves.possible_moves(state, scene, member)
        if isinstance(move, moves.ComputeAt) and move.compute.loop == "v1"
        and move.store != move.compute
    )  # fmt: skip
    slid = moves.applied(state, at, scene)
    entry = next(e for e in slid.funcs if e.func == member)
    work: dict[str, float] = {}
    for shape in moves.member_shapes(scene.extended.funcs[member], scene):
        after = moves.applied(slid, moves.Reshape(member, shape), scene)
        for loop in next(e for e in after.funcs if e.func == member).stages[0].loops:
            if loop.mapping == "vectorized":
                work.setdefault(loop.name[:2], terms(made, after)["issue"])
    assert entry.store != entry.compute
    assert work["v1"] > 1.2 * work["v0"]


@pytest.mark.parametrize("seed", range(3))
def test_fitting_finds_the_coefficients(seed):
    rng = np.random.default_rng(seed)
    labels, pipelines = 2000, 20
    counted = rng.lognormal(0.0, 2.0, (labels, TERM_COUNT))
    true = np.exp(rng.normal(0.0, 0.7, TERM_COUNT))
    of = rng.integers(0, pipelines, labels)
    times = np.log(counted @ true) + rng.normal(0.0, 5.0, pipelines)[of]
    found = fitted_coefficients(counted, times, [str(g) for g in of])
    # A common factor cannot be known: each pipeline has one of its own.
    ratios = np.log(found / true)
    assert np.std(ratios) < 0.2
    assert np.corrcoef(np.log(found), np.log(true))[0, 1] > 0.95


def test_terms_without_evidence_keep_their_cost():
    rng = np.random.default_rng(0)
    counted = rng.lognormal(0.0, 1.0, (50, 3))
    counted[:, 2] = 0.0
    found = fitted_coefficients(counted, np.log(counted @ [1.0, 3.0, 9.0]), ["a"] * 50)
    assert found[2] == pytest.approx(1.0, rel=1e-3)
    assert found[1] > found[0]


def test_half_of_what_adapting_changes_is_applied_to_the_analytic_time():
    made = stencils()
    _, state, _ = output_state(made)
    machine = model_of(made.machine)
    evaluator = Evaluator(made.algorithm, machine)
    found, prior = evaluator.features(state), evaluator.prior(state).seconds
    shipped = LearnedModel(NONE, NONE, coefficients=dict.fromkeys(NAMES, 2.0))
    linear = 2.0 * found.terms[0].sum() / machine.clock_hz
    assert np.exp(shipped.linear(found, machine.clock_hz)[0]) == pytest.approx(linear)
    assert shipped.before(prior, found, machine.clock_hz) == pytest.approx(np.log(prior))
    adapted = dict.fromkeys(NAMES, 18.0)
    model = replace(shipped, coefficients=adapted, reference=shipped.coefficients)
    before = model.before(prior, found, machine.clock_hz)
    assert np.exp(before) == pytest.approx(3.0 * prior)
    assert model.before(prior, None, machine.clock_hz) == pytest.approx(np.log(prior))
    again = from_json(model.to_json())
    assert (again.coefficients, again.reference) == (adapted, shipped.coefficients)
    # A model that was not adapted is its own reference.
    assert from_json(shipped.to_json()).reference == shipped.coefficients
    unknown = replace(model, coefficients={})
    assert unknown.before(prior, found, machine.clock_hz) == pytest.approx(np.log(prior))


def test_the_shipped_model_has_a_coefficient_of_every_term():
    assert set(shipped().coefficients) == set(NAMES)
    assert all(c > 0.0 for c in shipped().coefficients.values())
