"""Moves: random ones of random pipelines are refused with a reason, or give the right answer."""

from dataclasses import replace
from pathlib import Path

import halide as hl
import numpy as np
import pytest
import reductions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.halide.execution.lowering import refusal
from tilewright.halide.execution.runner import Reference, Runner
from tilewright.halide.execution.session import Problem, Variant, make_inputs
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.schedule import ROOT, Level, ScheduleError
from tilewright.halide.schedulers.learned import moves, random_pipelines, sampling
from tilewright.halide.schedulers.learned.shapes import NestShape
from tilewright.halide.schedulers.registry import sized
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine

# Operations of a whole run: the pipelines are compiled, not timed.
SMALL = (2e5, 6e5)
MACHINE = CpuMachine("two cores", "x86-64", 2, ("sse4.1", "avx", "avx2"), 256, ())


def task(seed):
    recipe = random_pipelines.random_pipeline(seed, work=SMALL)
    return make_task(random_pipelines.build(recipe), machine=MACHINE, target="host")


def stencils():
    """Two stencils, one of the other."""
    stages = tuple(random_pipelines.RandomStage("stencil", (i,), along=1) for i in (0, 1))
    recipe = random_pipelines.RandomPipeline(0, "uint8", stages, (2,), (256, 128, 3))
    return make_task(random_pipelines.build(recipe), machine=MACHINE, target="host")


def walked(made, start, seed, steps):
    """The states of a random walk from one of the pipeline's seeds."""
    rng = np.random.default_rng(seed)
    starts = sampling.seeds(made, 1)
    states = [starts[start % len(starts)]]
    scene = sampling.scene_of(made, states[0])
    for _ in range(steps):
        step = sampling.random_move(states[-1], scene, rng)
        if step is None:
            break
        states.append(step[1])
    return scene, states


def answers(made, state, folder):
    """Compile a state for all sizes, run it and compare it with the unscheduled pipeline."""
    schedule = sized(state, made).schedule
    assert from_json(to_json(schedule), made.algorithm) == schedule
    problem = Problem(made.algorithm, make_inputs(made.algorithm))
    folder.mkdir(exist_ok=True)
    plain = {**problem.candidate(Variant()).payload, "directory": str(folder), "inline": False}
    Reference(plain).run()
    paths = tuple(map(str, sorted(Path(folder).glob("*.npy"), key=lambda path: int(path.stem))))
    payload = replace(problem, reference=paths).candidate(Variant(schedule)).payload
    runner = Runner(payload)
    verdict = runner.verify()
    assert verdict.ok or runner.recheck().ok, verdict.message


@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 500),
    start=st.integers(0, 1),
    walk=st.integers(0, 1000),
    steps=st.integers(1, 8),
)
def test_a_walk_of_legal_moves_computes_the_right_answer(seed, start, walk, steps, tmp_path):
    made = task(seed)
    _, states = walked(made, start, walk, steps)
    answers(made, states[-1], tmp_path / f"{seed}")


@pytest.mark.parametrize("seed", [3, 7, pytest.param(15, marks=pytest.mark.thorough)])
@pytest.mark.few(1)
def test_what_check_allows_halide_lowers(seed):
    made = task(seed)
    _, states = walked(made, 0, seed, 4)
    assert [refusal(state, made.algorithm) for state in states] == [""] * len(states)


def test_every_class_of_moves_is_found():
    kinds = set()
    for made in (task(11), task(15), reductions.pipeline("rows")):
        for start in (0, 1):
            scene, states = walked(made, start, 5, 6)
            for state in states:
                kinds |= {type(move) for move in moves.possible_moves(state, scene)}
    assert kinds == set(moves.Move.__args__)


def test_a_state_is_unchanged_by_moves_and_can_be_returned_to():
    made = task(2)
    scene, states = walked(made, 0, 0, 1)
    before = to_json(states[0])
    for move in list(moves.possible_moves(states[0], scene))[:50]:
        assert moves.applied(states[0], move, scene).algorithm == states[0].algorithm
    assert to_json(states[0]) == before


def test_illegal_moves_are_refused_with_a_reason():
    made = task(11)
    scene, states = walked(made, 0, 0, 1)
    output = made.algorithm.order[made.algorithm.outputs[0]]
    after = moves.applied(states[0], moves.Inline(output), scene)
    assert "output" in str(moves.violations(after, scene)[0])


def test_a_move_of_a_func_that_is_not_there_is_refused():
    made = task(2)
    scene, states = walked(made, 0, 0, 1)
    with pytest.raises(ScheduleError, match="the schedule has no entry for Func"):
        moves.applied(states[0], moves.Inline(10_000), scene)


def test_what_an_extern_stage_reads_is_computed_at_no_loop():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    before, extern, after = hl.Func("before"), hl.Func("extern"), hl.Func("after")
    before[x] = image[x] + 1.0
    extern.define_extern("user_stage", [hl.ExternFuncArgument(before)], hl.Float(32), [x])
    after[x] = extern[x] * before[x]
    after.set_estimates([(0, 4096)])
    made = make_task(after, machine=MACHINE, target="host")
    scene, states = walked(made, 1, 0, 0)
    placed = [m for m in moves.possible_moves(states[0], scene) if isinstance(m, moves.ComputeAt)]
    assert made.algorithm.order[before.name()] not in {move.func for move in placed}


def test_members_of_a_group_reach_different_levels():
    """What the analytic search cannot make: two Funcs at two loops of one nest, one sliding."""
    made = stencils()
    scene, states = walked(made, 1, 0, 0)
    found = {
        (move.compute != move.store, move.compute.loop)
        for move in moves.possible_moves(states[0], scene)
        if isinstance(move, moves.ComputeAt)
    }
    assert len({loop for _, loop in found}) > 1
    assert any(slides for slides, _ in found)


def test_what_is_computed_at_a_loop_that_goes_is_moved_to_another():
    made = stencils()
    scene, (state, *_) = walked(made, 1, 0, 0)
    move = next(
        move
        for move in moves.possible_moves(state, scene)
        if isinstance(move, moves.ComputeAt) and not moves.violations(
            moves.applied(state, move, scene), scene)
    )  # fmt: skip
    hosted = moves.applied(state, move, scene)
    for shape in moves.root_shapes(scene.extended.funcs[move.compute.func], scene):
        after = moves.applied(hosted, moves.Reshape(move.compute.func, shape), scene)
        entry = next(entry for entry in after.funcs if entry.func == move.func)
        host = next(entry for entry in after.funcs if entry.func == move.compute.func)
        loops = {loop.name for nest in host.stages for loop in nest.loops}
        assert entry.compute == ROOT or entry.compute.loop in loops


def test_the_stages_of_a_func_may_have_different_shapes(tmp_path):
    x, y = hl.vars("x y")
    image, out = hl.ImageParam(hl.Int(32), 2, "image"), hl.Func("out")
    r = hl.RDom([(0, 7)], "r")
    out[x, y] = image[x, y] * 2
    out[x, y] += image[x, y + r]
    image.set_estimates([(0, 100), (0, 77)])
    out.set_estimates([(0, 100), (0, 70)])
    made = make_task(hl.Pipeline(out), machine=MACHINE, target="host")
    state = sampling.seeds(made, 2)[1]
    scene = sampling.scene_of(made, state)
    found = [m for m in moves.possible_moves(state, scene) if isinstance(m, moves.Reshape)]
    assert {move.stage for move in found} == {None, 0, 1}
    (place,) = (scene.extended.order[name] for name in made.algorithm.outputs)

    def stages(schedule):
        return next(entry.stages for entry in schedule.funcs if entry.func == place)

    rows = NestShape((), (0, 1), vector=0, lanes=8, parallel=1)
    tiles = NestShape(((32, 16),), (0, 1), vector=0, lanes=4, row=1, rows=2, parallel=1)
    state = moves.applied(state, moves.Reshape(place, rows), scene)
    after = moves.applied(state, moves.Reshape(place, tiles, 1), scene)
    both = moves.applied(state, moves.Reshape(place, tiles), scene)
    assert stages(after) == (stages(state)[0], stages(both)[1])
    assert moves.violations(after, scene) == []
    answers(made, after, tmp_path)


def test_an_input_behind_a_boundary_condition_is_not_read_beyond_its_border(tmp_path):
    """At a border, a tile reads fewer columns than a vector has lanes."""
    made = task(204)
    start = sampling.seeds(made, 1)[0]
    scene = sampling.scene_of(made, start)
    image = next(i for i, f in enumerate(scene.extended.funcs) if f.name.startswith("image_im"))
    scan = next(i for i, f in enumerate(scene.extended.funcs) if "scan0_scan" in f.name)
    entry = next(entry for entry in start.funcs if entry.func == scan)
    around = next(loop.name for loop in entry.stages[0].loops if loop.name in ("v2", "v2b"))
    level = Level("at", scan, 0, around)
    shape = NestShape((), (0, 1, 2), vector=0, lanes=16)
    after = moves.applied(start, moves.ComputeAt(image, level, level, shape), scene)
    assert moves.violations(after, scene) == []
    answers(made, after, tmp_path)
    again = moves.applied(after, moves.Reshape(image, shape), scene)
    assert again == after
