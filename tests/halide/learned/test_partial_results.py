"""Reductions that are split: only if that is right, with the right answer, and predicted faster."""

import itertools
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
import reductions
from test_moves import MACHINE, answers

from tilewright.halide.ir.clones import positions, with_clones
from tilewright.halide.ir.json import to_json
from tilewright.halide.ir.renumbering import number_of, with_added
from tilewright.halide.ir.schedule import Clone, Factored, Level, ScheduleError, Split
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu import scheduler
from tilewright.halide.schedulers.learned import moves, sampling
from tilewright.halide.schedulers.learned.partial_results import Factor
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import make_task

SPLIT = Split("r0", "r0o", "r0i", 16, "guard_with_if")


@pytest.fixture(autouse=True)
def unsplit_seeds(monkeypatch):
    """Let the analytic scheduler, where the moves start, split nothing itself."""
    monkeypatch.setattr(scheduler, "split_reductions", lambda *given: ())


def splits(made):
    """The first of a pipeline's seeds, with the moves that split its reductions."""
    start = sampling.seeds(made, 1)[0]
    scene = sampling.scene_of(made, start)
    found = [m for m in moves.possible_moves(start, scene) if isinstance(m, Factor)]
    return start, scene, found


@pytest.mark.parametrize("kind", reductions.KINDS)
@pytest.mark.few(3)
def test_split_reductions_give_the_right_answer_also_after_further_moves(kind, tmp_path):
    made = reductions.pipeline(kind)
    start, scene, found = splits(made)
    assert found
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(found), min(3, len(found)), replace=False)
    for number, at in enumerate(chosen):
        state = moves.applied(start, found[at], scene)
        assert moves.violations(state, scene) == []
        for _ in range(number):  # none, one and two
            step = sampling.random_move(state, scene, rng)
            state = step[1] if step else state
        assert any(isinstance(added, Factored) for added in state.clones)
        answers(made, state, tmp_path / str(at))


@pytest.mark.parametrize("kind", reductions.KINDS)
def test_all_splits_are_legal_and_leave_the_schedule_as_it_is(kind):
    made = reductions.pipeline(kind)
    start, scene, found = splits(made)
    before = to_json(start)
    for move in found:
        after = moves.applied(start, move, scene)
        assert check(after, made.algorithm) == []
        assert after != start
        partial = with_clones(made.algorithm, after.clones).funcs[move.func]
        assert partial.name in with_clones(made.algorithm, after.clones).partials
    assert to_json(start) == before


@pytest.mark.parametrize("kind", ["position", "histogram"])
def test_positions_of_extremes_and_histograms_are_not_split_into_lanes(kind):
    _, _, found = splits(reductions.pipeline(kind))
    assert {(move.lanes, move.vectors) for move in found} == {(1, 1)}


@pytest.mark.parametrize("kind", reductions.KINDS)
def test_additions_to_places_that_depend_on_data_are_not_vectorised(kind):
    """Halide takes such vectors apart, into atomic additions: 14 times as long in one histogram."""
    made = reductions.pipeline(kind)
    naive = sampling.seeds(made, 1)[-1]
    possible = moves.possible_moves(naive, sampling.scene_of(made, naive))
    mappings = {move.mapping for move in possible if isinstance(move, moves.Steps)}
    one_by_one = kind in ("histogram", "position")
    assert mappings == ({"unrolled"} if one_by_one else {"unrolled", "vectorized"})


@pytest.mark.parametrize("kind", ["total", "dot", "rows"])
def test_slices_and_lanes_are_combined(kind):
    _, _, found = splits(reductions.pipeline(kind, 4096, 4096))
    assert {move.slices for move in found} == {1, 2, 16}
    for slices, lanes in itertools.product((1, 2, 16), (True, False)):
        some = [m for m in found if m.slices == slices and (m.lanes > 1) == lanes]
        assert bool(some) == (slices > 1 or lanes)


def no_split(update, extent=64):
    x, r = hl.Var("x"), hl.RDom([(0, 4096)], "r")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    out = hl.Func("out")
    out[x] = 0.0
    update(out, x, r, image)
    image.set_estimates([(0, 8192)])
    out.set_estimates([(0, extent)])
    return splits(make_task(out, machine=MACHINE, target="host"))[2]


def difference(out, x, r, image):
    out[x] = image[r.x] - out[x]


def independent(out, x, r, image):
    out[r.x] += image[r.x]


def added_up(out, x, r, image):
    out[x] += image[r.x] * image[x]


def where(out, x, r, image):
    r.where(image[r.x] > 0.0)
    out[x] += image[r.x]


@pytest.mark.parametrize(
    ("update", "extent", "offered"),
    [
        (added_up, 64, True),
        (added_up, 8192, False),  # enough results side by side
        (difference, 64, False),
        (independent, 4096, False),
        (where, 64, True),
    ],
)
def test_associative_reductions_with_few_results_are_split(update, extent, offered):
    assert bool(no_split(update, extent)) == offered


def test_no_vectors_run_along_slices():
    start, scene, found = splits(reductions.pipeline("histogram"))
    for move in found:
        after = moves.applied(start, move, scene)
        assert scene.of(after).slices == {scene.of(after).extended.funcs[move.func].name: {1}}
        reshapes = (m for m in moves.possible_moves(after, scene) if m.func == move.func)
        shapes = [m.shape for m in reshapes if isinstance(m, moves.Reshape)]
        assert {shape.vector for shape in shapes} == {0, None}


def test_a_split_reduction_is_not_split_again():
    start, scene, found = splits(reductions.pipeline("total"))
    after = moves.applied(start, found[-1], scene)
    assert not [m for m in moves.possible_moves(after, scene) if isinstance(m, Factor)]


def two_funcs(algorithm):
    """The positions of the only output and of the Func that it reads."""
    (output,) = algorithm.outputs
    (read,) = set(algorithm.producers[output]) - {output}
    return algorithm.order[read], algorithm.order[output]


def test_what_a_reduction_reads_in_its_loops_follows_it():
    made = reductions.pipeline("columns")
    start, scene, found = splits(made)
    double, columns = two_funcs(made.algorithm)
    loops = start.funcs[columns].stages[1].loops
    entry = replace(start.funcs[double], compute=Level("at", columns, 1, loops[-1].name))
    entry = replace(entry, store=entry.compute, stages=())
    hosted = replace(start, funcs=tuple(entry if e.func == double else e for e in start.funcs))
    assert moves.violations(hosted, scene) == []
    after = moves.applied(hosted, next(m for m in found if m.func == columns), scene)
    assert after.funcs[double].compute.func == columns  # where the partial results are now
    assert moves.violations(after, scene) == []


@pytest.mark.parametrize("kind", ["total", "dot", "position", "histogram"])
def test_the_model_expects_long_reductions_to_be_faster_in_parts(kind):
    made = reductions.pipeline(kind, 1 << 11, 1 << 11) if kind != "dot" else long_dot()
    start, scene, found = splits(made)
    best = min(predicted(made, moves.applied(start, m, scene)).seconds for m in found)
    assert best < 0.7 * predicted(made, start).seconds


def long_dot():
    return reductions.pipeline("dot", 1 << 20, 2)


def test_the_model_expects_short_reductions_to_be_slower_in_parts():
    made = reductions.pipeline("dot", 512, 2)
    start, scene, found = splits(made)
    parallel = [m for m in found if m.slices > 1]
    assert parallel
    times = [predicted(made, moves.applied(start, m, scene)).seconds for m in parallel]
    assert min(times) > predicted(made, start).seconds


def test_positions_follow_a_func_that_is_added_before_copies():
    made = reductions.pipeline("columns")
    start = sampling.seeds(made, 1)[0]
    assert not start.clones
    algorithm = made.algorithm
    double, columns = two_funcs(algorithm)
    wrapped, wrapper = with_added(start, algorithm, Clone(double, (columns,), wrapper=True))
    assert wrapper == double + 1
    again = Clone(number_of(wrapper, wrapped, algorithm), (columns,), wrapper=True)
    wrapped, wrapper = with_added(wrapped, algorithm, again)
    assert wrapper == double + 2
    number = number_of(columns + 2, wrapped, algorithm)
    after, partial = with_added(wrapped, algorithm, Factored(number, 1, ("r0o",), (SPLIT,)))
    new = len(algorithm.funcs)
    # The partial results read the copies now.
    copies = Clone(double, (new,), wrapper=True), Clone(new + 1, (new,), wrapper=True)
    assert after.clones == (Factored(columns, 1, ("r0o",), (SPLIT,)), *copies)
    assert partial == columns + 2
    names = {entry.func: func for entry, func in zip(start.funcs, algorithm.funcs, strict=True)}
    extended = with_clones(algorithm, after.clones)
    for old, entry in zip(start.funcs, after.funcs, strict=True):
        assert extended.funcs[entry.func].name == names[old.func].name
        assert (entry.compute.kind, entry.stages) == (old.compute.kind, old.stages)


def test_a_func_that_cannot_be_added_is_refused_with_the_reason():
    made = reductions.pipeline("columns")
    start = sampling.seeds(made, 1)[0]
    with pytest.raises(ScheduleError, match="would become a dimension"):
        with_added(start, made.algorithm, Factored(start.funcs[-1].func, 1, ("r0",)))


def test_numbers_of_funcs_are_those_of_clones():
    made = reductions.pipeline("dot")
    start, scene, found = splits(made)
    after = moves.applied(start, found[0], scene)
    places = positions(made.algorithm, after.clones)
    assert sorted(places) == list(range(len(made.algorithm.funcs) + len(after.clones)))
    for number, place in enumerate(places):
        assert number_of(place, after, made.algorithm) == number
