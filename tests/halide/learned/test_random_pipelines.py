"""Random pipelines: the same seed gives the same, and every kind of stage can be built."""

import halide as hl
import pytest

from tilewright.halide.execution.runner import schedule_plainly
from tilewright.halide.frontend.importer import import_pipeline
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


def test_sums_that_an_index_depends_on_do_not_overflow():
    stages = (
        RandomStage("scan", (0,), type="int32"),
        RandomStage("up", (1,), choice=2),
        RandomStage("gather", (2,), choice=3),
    )
    recipe = RandomPipeline(0, "uint8", stages, (3,), (64, 48, 3))
    with pytest.raises(hl.HalideError, match="overflow"):
        compile_at_root(build(recipe))
    compile_at_root(build(recipe, limited=True))


def compile_at_root(pipeline):
    schedule_plainly(import_pipeline(bytes(hl.serialize_pipeline(pipeline))), pipeline)
    pipeline.compile_jit()
