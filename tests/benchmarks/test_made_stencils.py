"""Stencils for training: distinct, not among those that are ranked, and well defined."""

import numpy as np
import pytest

import made_stencils
from tilewright.patterns import interpret, random_inputs, ranking, to_json
from tilewright.patterns.programs import STENCILS
from tilewright.patterns.ranking.trained import is_stencil

MADE = made_stencils.made_stencils()
SIZE = 12


def test_the_made_stencils_differ_from_each_other_and_from_those_that_are_ranked():
    programs = [str(to_json(one.build(SIZE, SIZE))) for one in MADE.values()]
    assert len(set(programs)) == made_stencils.COUNT
    assert not set(programs) & {str(to_json(s.build(SIZE, SIZE))) for s in STENCILS.values()}
    assert made_stencils.made_stencils() == MADE


@pytest.mark.parametrize("name", MADE)
def test_a_made_stencil_has_a_point_for_each_of_the_grid(name):
    program = MADE[name].build(SIZE, SIZE)
    found = interpret(program, *random_inputs(program, None, 0))
    assert np.shape(found) == (SIZE, SIZE)
    assert np.isfinite(found).all()
    assert np.ptp(found) > 0
    assert is_stencil(program)


@pytest.mark.parametrize(("shape", "count"), [("star", 5), ("box", 9), ("row", 3), ("column", 3)])
def test_shapes_have_their_points(shape, count):
    one = made_stencils.MadeStencil(1, shape, "clamp", "sum", 0, (0.5,) * 9)
    assert len(one.points()) == count
    assert (1, 1) in one.points()


def test_programs_for_training_are_not_ranked():
    def measured(name: str) -> ranking.MeasuredProgram:
        return ranking.MeasuredProgram(name, {}, np.eye(3), np.arange(1.0, 4.0), ("a", "b", "c"))

    fitted: list[int] = []

    class Model:
        def fit(self, features, performance):
            fitted.append(len(performance))

        def predict(self, features):
            return np.ones(len(features))

    found = ranking.leave_one_program_out([measured("a")], Model, [measured("b"), measured("a")])
    assert [q.program for q in found] == ["a"]
    assert fitted == [3]
