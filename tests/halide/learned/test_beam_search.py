"""The beam search: deterministic, counted, never worse than its starts by its own model."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from test_moves import stencils, task

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.learned import beam_search, random_pipelines, scheduler
from tilewright.halide.schedulers.learned.beam_search import BeamSearch, Effort, structure_of
from tilewright.halide.schedulers.learned.cost_model import (
    BoostedTrees,
    CorrectionModel,
    LearnedModel,
)
from tilewright.halide.schedulers.learned.evaluation import CHANGE_NAMES
from tilewright.halide.schedulers.learned.part_features import NAMES
from tilewright.halide.schedulers.learned.sampling import seeds
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task

LITTLE = Effort(structures=30, rounds=3, moves=4, beam=3)


def constant(*values):
    """A model whose members correct by a constant each."""
    trees = [
        BoostedTrees(np.zeros((1, 1), dtype=int), np.full((1, 1), np.inf), np.full((1, 2), value))
        for value in values
    ]
    parts = (CorrectionModel(names, tuple(trees)) for names in (NAMES, CHANGE_NAMES))
    return LearnedModel(*parts)


def by_change(name):
    """A model that corrects by a unit, up where a feature exceeds the analytic schedule's."""
    feature = np.full((1, 1), CHANGE_NAMES.index(f"change of {name}"))
    tree = BoostedTrees(feature, np.zeros((1, 1)), np.array([[-1.0, 1.0]]))
    return LearnedModel(CorrectionModel(NAMES, ()), CorrectionModel(CHANGE_NAMES, (tree,)))


PLAIN = constant(0.0)
UNSURE = constant(-5.0, 5.0)


def searched(made, seed=0, model=PLAIN, effort=LITTLE):
    search = BeamSearch(made, model, effort, seed, plan(made)[0].schedule)
    return search, search.run(seeds(made))


def test_the_same_seed_gives_the_same_schedules():
    runs = [[s.schedule for s in searched(stencils())[1]] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 10
    assert runs[0] != [s.schedule for s in searched(stencils(), seed=1)[1]]


def test_the_models_error_is_in_the_note():
    made = stencils()
    state = searched(made)[1][0]
    planned = scheduler.planned_state(state, None, made, 0.2)
    assert "give or take 22%" in planned.notes[0]


@pytest.mark.parametrize("name", ["tasks", "trips", "roofline"])
@pytest.mark.few(1)
def test_the_correction_is_relative_to_the_analytic_schedule(name):
    made = stencils()
    search, states = searched(made, model=by_change(name))
    analytic = search.costed(exact_size(plan(made)[0].schedule))
    assert math.log(analytic.seconds / analytic.prior) == pytest.approx(-1.0)
    at = CHANGE_NAMES.index(name)
    above = [state.row[0, at] > analytic.row[0, at] for state in states]
    assert len(set(above)) == 2
    for state, greater in zip(states, above, strict=True):
        assert math.log(state.seconds / state.prior) == pytest.approx(1.0 if greater else -1.0)


def test_without_an_analytic_schedule_nothing_is_corrected():
    made = stencils()
    states = BeamSearch(made, constant(2.0), LITTLE).run(seeds(made))
    assert states
    assert all(state.seconds == state.prior for state in states)


def test_the_effort_is_counted():
    search, states = searched(stencils())
    assert len(states) <= search.structures <= LITTLE.structures + 1
    assert search.rows > search.structures


@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (3, 7))]
)
def test_the_best_is_legal_lowers_and_is_no_worse_than_the_starts(seed):
    made = task(seed)
    _, states = searched(made)
    starts = {structure_of(start) for start in seeds(made)}
    scores = [state.score for state in states]
    assert scores == sorted(scores)
    own = [state.score for state in states if structure_of(state.schedule) in starts]
    assert own
    assert states[0].score <= min(own)
    assert check(states[0].schedule, made.algorithm) == []
    assert refusal(states[0].schedule, made.algorithm) == ""


def test_states_say_which_moves_led_to_them():
    _, states = searched(stencils())
    assert any(state.moves for state in states)


def test_auto_keeps_the_analytic_schedule_if_the_model_is_unsure():
    made = stencils()
    best = plan(made)[0].schedule
    (found,) = plan_learned(made, auto=True, effort=LITTLE, model=UNSURE)
    assert found.schedule == best


def test_several_schedules_have_the_analytic_one_among_them():
    made = stencils()
    found = plan_learned(made, k=3, effort=LITTLE, model=PLAIN)
    assert len({each.schedule for each in found}) == len(found) == 3
    best = plan(made)[0].schedule
    assert exact_size(best) in {exact_size(each.schedule) for each in found}


def pipeline():
    return random_pipelines.build(random_pipelines.random_pipeline(2, work=(2e5, 6e5)))


@pytest.mark.thorough
def test_it_is_verified_like_any_other(monkeypatch):
    monkeypatch.setattr(scheduler, "Effort", lambda: LITTLE)
    result = tilewright.schedule(pipeline(), target="host", scheduler="learned", verify=True)
    assert result.verified
    assert "structures" in " ".join(result.planned.notes)


def test_gpus_several_sizes_and_unknown_names_are_refused():
    a100 = make_task(pipeline(), target="cuda", machine="a100")
    with pytest.raises(TilewrightError, match="has no model for the target"):
        plan_learned(a100, auto=True)
    with pytest.raises(TilewrightError, match=r"scheduler='best'.*analytic"):
        tilewright.schedule(pipeline(), scheduler="best")


def test_states_with_the_levels_of_better_ones_give_way_to_others(monkeypatch):
    monkeypatch.setattr(beam_search, "levels_of", lambda schedule: schedule[0])
    states = [SimpleNamespace(schedule=name, score=score) for name, score in LEVELS.items()]
    search = SimpleNamespace(effort=Effort(beam=4, penalty=1.05))
    kept = BeamSearch.best(search, states)
    # a3 comes after two of its levels: 0.09 + 2 ln 1.05 > 0.15
    assert [state.schedule for state in kept] == ["a1", "a2", "b1", "a3"]
    search = SimpleNamespace(effort=Effort(beam=4, penalty=1.0))
    assert [s.schedule for s in BeamSearch.best(search, states)] == ["a1", "a2", "a3", "b1"]


LEVELS = {"a1": 0.0, "b1": 0.15, "a3": 0.09, "a2": 0.05, "b2": 0.18}
