"""Random pipelines: the same seed gives the same, and every kind of stage can be built."""

import pytest

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.learned.random_pipelines import (
    KINDS,
    RandomPipeline,
    RandomStage,
    build,
    random_pipeline,
)


def test_a_seed_gives_one_pipeline():
    assert random_pipeline(5) == random_pipeline(5)
    assert random_pipeline(5) != random_pipeline(6)
    assert load(build(random_pipeline(5))).digest == load(build(random_pipeline(5))).digest


@pytest.mark.parametrize("choice", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_stage_builds(kind, choice):
    stage = RandomStage(kind, (0, 0), along=choice % 2, choice=choice, type="int16")
    algorithm = load(build(RandomPipeline(0, "uint8", (stage,), (1,), (64, 48, 3))))
    assert len(algorithm.outputs) == 1


def test_a_hundred_seeds_have_every_kind_and_several_outputs():
    recipes = [random_pipeline(seed) for seed in range(100)]
    assert {stage.kind for recipe in recipes for stage in recipe.stages} == set(KINDS)
    assert any(len(recipe.outputs) > 1 for recipe in recipes)
