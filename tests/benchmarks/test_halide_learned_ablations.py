"""Ablations of the learned search: each idea is off where it is said to be, and on otherwise."""

import dataclasses
import time

import halide as hl
import numpy as np
import pytest

import halide_learned_ablations as ablations
from halide_learned_ablations import FULL, IDEAS, Idea, without
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.schedulers.learned.cost_model import shipped
from tilewright.halide.schedulers.learned.moves import Reshape, Swap
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import make_task


@pytest.fixture(scope="module")
def task():
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = data[x, y] + data[x + 1, y] + data[x + 2, y]
    g[x, y] = f[x, y] + f[x, y + 1] + f[x, y + 2]
    g.set_estimates([(0, 1024), (0, 512)])
    return make_task(g)


def few(task, idea, structures=40):
    search = without(idea, task, 0, starts(task)[0])
    search.effort = dataclasses.replace(search.effort, structures=structures)
    search.most = structures
    return search


def starts(task):
    return [exact_size(plan(task)[0].schedule), naive(task)]


@pytest.mark.parametrize("key", ["memo", "arrays"])
def test_what_saves_time_does_not_change_the_result(task, key):
    searches = [few(task, idea) for idea in (Idea(), IDEAS[key])]
    first, second = ([s.score for s in search.run(starts(task))] for search in searches)
    np.testing.assert_allclose(first, second, rtol=1e-12)
    assert len(first) > 5


def kinds(search, task):
    return {type(move) for state in search.run(starts(task)) for move in state.moves}


@pytest.mark.thorough
def test_moves_are_left_out(task):
    full = few(task, Idea(), 150)
    assert {Swap, Reshape} <= kinds(full, task)
    assert Swap not in kinds(few(task, IDEAS["loop order"], 150), task)

    def levels(key):
        search = few(task, IDEAS[key] if key else Idea(), 150)
        moves = [move for state in search.run(starts(task)) for move in state.moves]
        return {len(m.shape.tiles) for m in moves if isinstance(m, Reshape)}

    assert max(levels("several levels")) <= 1 < max(levels(None))


def test_other_ideas_are_off(task):
    assert few(task, IDEAS["beam"]).effort.beam == 1
    assert few(task, IDEAS["diversity"]).effort.penalty == 1.0
    without_sizes = few(task, IDEAS["sizes"])
    without_sizes.run(starts(task))
    assert without_sizes.rows == 0
    schedule = starts(task)[0]
    other = few(task, IDEAS["prior"]).evaluator.prior(schedule).seconds
    assert other != few(task, Idea()).evaluator.prior(schedule).seconds


def test_a_search_ends_when_its_time_is_over(task):
    search = without(Idea(), task, 0, starts(task)[0])
    began = time.process_time()
    search.deadline = began + 0.3
    search.run(starts(task))
    assert 0.3 <= time.process_time() - began < 1.5
    assert search.structures > 10


def test_losses_are_relative_to_the_search_with_all_ideas():
    def row(name, *losses):
        seeds = {
            str(s): {"loss": loss, "predicted_loss": None, "structures": 0.5}
            for s, loss in enumerate(losses)
        }
        return {"program": name, "our_failures": 0, "losses": {"memo": seeds}}

    found = ablations.summary([row("a", 1.0, 4.0), row("b", 1.0, 1.0)], ["memo", "beam"])
    assert found["loss"] == {"memo": pytest.approx(4.0**0.25), "beam": None}
    assert (found["loss_least"]["memo"], found["loss_most"]["memo"]) == (1.0, pytest.approx(2.0))
    assert found["predicted_loss"]["memo"] is None
    assert found["structures"]["memo"] == pytest.approx(0.5)
    assert not set(found["absent"]) & {*IDEAS, FULL}


def test_the_shipped_model_is_searched_with(task):
    assert without(Idea(), task, 0, starts(task)[0]).model is shipped()
