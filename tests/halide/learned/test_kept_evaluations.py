"""What an evaluator keeps of other schedules changes nothing: not a bit of any result."""

import math

import numpy as np
import pytest
import reductions
from test_beam_search import PLAIN, searched
from test_moves import stencils, task

from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.learned.beam_search import tiles_of
from tilewright.halide.schedulers.learned.evaluation import Evaluator
from tilewright.halide.schedulers.learned.moves import applied, level_moves, violations
from tilewright.halide.schedulers.learned.sampling import scene_of, seeds

MADE = {"2": task(2), "11": task(11), "23": task(23), "stencils": stencils()}
MADE["histogram"] = reductions.pipeline("histogram")


@pytest.fixture(scope="module", params=MADE)
def search(request):
    return searched(MADE[request.param])


@pytest.mark.few(1)
def test_states_have_the_features_and_the_time_of_a_fresh_evaluation(search):
    beam, states = search
    for state in states:
        fresh = Evaluator(beam.task.algorithm, beam.machine)
        prior = fresh.prior(state.schedule)
        row = prior.with_features(fresh.features(state.schedule), beam.machine.clock_hz)
        found = fresh.features(state.schedule)
        before = beam.model.before(prior.seconds, found, beam.machine.clock_hz)
        assert math.exp(before) == state.prior
        np.testing.assert_array_equal(row, state.row)


def test_sizes_have_the_features_of_a_fresh_evaluation(search):
    beam, states = search
    compared = 0
    for state in states[:10]:
        for e, entry in enumerate(state.schedule.funcs):
            tiles = [(e, s, i) for _, (s, i), _ in tiles_of(entry)]
            if not tiles:
                continue
            factors = dict.fromkeys(tiles, np.array([2.0, 8.0, 16.0]))
            kept = beam.evaluator.features(state.schedule, factors)
            fresh = Evaluator(beam.task.algorithm, beam.machine).features(state.schedule, factors)
            np.testing.assert_array_equal(kept.rows, fresh.rows)
            np.testing.assert_array_equal(kept.roofline, fresh.roofline)
            np.testing.assert_array_equal(kept.terms, fresh.terms)
            compared += len(kept.rows)
    assert compared


def test_only_parts_that_changed_are_evaluated_again(monkeypatch):
    made = stencils()
    beam, _ = searched(made, model=PLAIN)
    base = max(seeds(made), key=lambda s: sum(e.compute.kind == "root" for e in s.funcs))
    names = [e.func for e in base.funcs if e.compute.kind == "root"]
    assert len(names) > 2
    evaluator = Evaluator(made.algorithm, beam.machine)
    evaluated = []
    touched_by = ScheduledNest.touched_by

    def spy(nest, part):
        evaluated.append(part.func)
        return touched_by(nest, part)

    monkeypatch.setattr(ScheduledNest, "touched_by", spy)
    evaluator.features(base)
    assert sorted(evaluated) == sorted(names)
    evaluated.clear()
    evaluator.features(base)
    assert not evaluated


def test_violations_of_single_funcs_are_those_of_check():
    made = task(2)
    (base, *_) = seeds(made)
    scene = scene_of(made, base)
    found = 0
    for _ in range(2):  # the second time, from what the first one has kept
        for entry in base.funcs:
            for move in [*level_moves(entry, base, scene)][::3]:
                after = applied(base, move, scene)
                assert violations(after, scene) == check(after, made.algorithm)
                found += 1
    assert found
