"""Search over whole GPU loop nests by the released network of Anderson 2021."""

import math

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.halide.analysis.gpu_launches import launches, numbers
from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.gpu import scheduler as gpu_scheduler
from tilewright.halide.schedulers.learned.gpu.choices import (
    INLINED,
    Placement,
    Tile,
    starting_tiles,
    usual_tile,
)
from tilewright.halide.schedulers.learned.gpu.scheduler import plan_released, searched
from tilewright.halide.schedulers.learned.gpu.space import PlacementSpace
from tilewright.halide.schedulers.learned.gpu.structure_search import KernelEffort, StructureSearch
from tilewright.halide.schedulers.learned.published.gpu_features import NAMES
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel
from tilewright.halide.schedulers.learned.published.weights import embedded_weights
from tilewright.halide.schedulers.learned.random_pipelines import build, random_pipeline
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.registry import device_limits
from tilewright.halide.schedulers.task import make_task

PIPELINE = "examples/unsharp.py:unsharp"
BLUR = "examples/blur.py:blur"
LITTLE = KernelEffort(beam=2, kernels=60)
THREADS = 1024
INLINED_CALLS = NAMES.index("inlined_calls")


def model_for(pipeline):
    task = make_task(pipeline, target="cuda", machine="a100", exact_sizes=True)
    return PublishedGpuModel(task, embedded_weights(plugin_path("Anderson2021")))


def space_for(model):
    task = model.task
    return PlacementSpace(
        model.pipeline, model.limits, naive_schedule(task.algorithm, task.target, task.machine)
    )


@pytest.fixture(scope="module")
def model():
    return model_for(PIPELINE)


@pytest.fixture
def space(model):
    return space_for(model)


@pytest.fixture(scope="module")
def found(model):
    return searched(model, LITTLE)


def with_choice(space, state, name, choice):
    place = space.algorithm.order[name]
    return (*state[:place], choice, *state[place + 1 :])


def members(space):
    """States with one Func in the blocks or threads of another, where that is possible."""
    start = space.start(inline=False)
    for node in space.nodes:
        for kind in ("block", "thread"):
            readers = space.kernels_reading(start, node)
            if len(readers) == 1 and not node.input:
                choice = Placement(kind, min(readers), Tile((1,) * node.dimensions))
                if space.possible(start, node, choice):
                    yield with_choice(space, start, node.func.name, choice)


def test_parts_add_up_to_the_whole_schedule(model, space):
    search = StructureSearch(space, model.predicted, LITTLE)
    states = [space.start(inline=True), space.start(inline=False), *members(space)]
    assert len(states) > 4
    for state in states:
        whole = model.milliseconds(space.schedule(state, "cuda"))
        assert search.cost(state) == pytest.approx(whole, rel=1e-5)


def test_every_kind_of_place_is_legal_and_lowers(model, space):
    task = model.task
    kinds = set()
    for state in members(space):
        schedule = space.schedule(state, task.target)
        kinds |= {choice.kind for choice in state if choice}
        assert check(schedule, task.algorithm, device_limits(task)) == []
        assert refusal(schedule, task.algorithm, THREADS) == ""
    assert kinds >= {"root", "block", "thread"}


def test_the_result_is_better_than_its_starts_and_than_the_plans(model, space, found):
    starts = [space.schedule(space.start(inline), "cuda") for inline in (True, False)]
    costs = [each.milliseconds for each in found]
    assert costs == sorted(costs)
    assert costs[0] < 0.8 * min(model.milliseconds(start) for start in starts)
    assert costs[0] == pytest.approx(model.milliseconds(found[0].schedule), rel=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_search_follows_the_cost(model, space, sign):
    """The costs are made up: inlined Funcs are either all that costs, or all that is wanted."""

    def costs(tables):
        return 1e6 + sign * np.count_nonzero(tables[..., INLINED_CALLS], axis=-1)

    search = StructureSearch(space, costs, KernelEffort(beam=1, kernels=400))
    (cost, state) = search.run()[0]
    can = space.inlinable & space.tiled
    inlined = {i for i in can if state[i] == INLINED}
    assert cost == 1e6 + sign * len(inlined)
    assert inlined == (can if sign < 0 else set())


def test_the_schedules_are_legal_and_lower(model, found):
    task = model.task
    for rated in found:
        assert check(rated.schedule, task.algorithm, device_limits(task)) == []
        assert refusal(rated.schedule, task.algorithm, THREADS) == ""
    nest = sized_nest(task.algorithm, found[0].schedule)
    for launch in launches(nest):
        assert math.prod(numbers(launch.block)) <= THREADS


def test_the_effort_is_a_count_and_the_result_repeats(model, found):
    spaces = [space_for(model) for _ in range(2)]
    results = []
    for each in spaces:
        search = StructureSearch(each, model.predicted, LITTLE)
        results.append(search.run())
        assert each.evaluated <= LITTLE.kernels + len(each.nodes) * 10
    assert results[0] == results[1]
    more = searched(model, KernelEffort(beam=1, kernels=600))
    assert more[0].milliseconds <= found[0].milliseconds


def test_a_kernel_beyond_the_limits_is_refused(model, space):
    start = space.start(inline=False)
    out = space.algorithm.outputs[0]
    dimensions = len(space.extents(space.algorithm.order[out]))
    wide = Placement("root", -1, Tile((1,) * dimensions, (2048, *(1,) * (dimensions - 1))))
    search = StructureSearch(space, model.predicted, LITTLE)
    assert math.isfinite(search.cost(start))
    assert math.isinf(search.cost(with_choice(space, start, out, wide)))


def test_a_member_moves_to_root_when_another_kernel_reads_it(space):
    start = space.start(inline=False)
    state = next(members(space))
    place = next(i for i, choice in enumerate(state) if choice and choice.kind == "block")
    reader = space.pipeline.by_position[state[place].of]
    inlined = with_choice(space, state, reader.func.name, INLINED)
    repaired = space.repaired(inlined, start)
    owner = repaired[place].of
    assert repaired[place] == start[place] or repaired[owner].kind == "root"
    assert space.repaired(state, start) == state


@pytest.mark.parametrize("seed", [3, 11, 29])
def test_random_pipelines_lower(seed):
    model = model_for(build(random_pipeline(seed), limited=True))
    best = searched(model, LITTLE)[0].schedule
    assert check(best, model.task.algorithm, device_limits(model.task)) == []
    assert refusal(best, model.task.algorithm, THREADS) == ""


def test_starting_tiles_have_several_shapes():
    tiles = starting_tiles(usual_tile((640.0, 480.0, 3.0), 0), (640.0, 480.0, 3.0), 0)
    assert Tile((1, 4, 3), (32, 4, 1)) in tiles
    assert all(tile.legal and tile.serial[2] == 3 for tile in tiles)


def test_the_learned_scheduler_plans_for_cuda():
    task = make_task(BLUR, target="cuda", machine="a100")
    plans = plan_learned(task, k=2)
    assert len(plans) == 2
    assert "released network of Anderson 2021" in plans[0].notes[0]
    assert plans[0].groups
    assert all(check(p.schedule, task.algorithm, device_limits(task)) == [] for p in plans)


def test_it_has_no_model_for_opencl_and_auto():
    with pytest.raises(TilewrightError, match=r"no model for the target '.*opencl"):
        plan_learned(make_task(BLUR, target="opencl", machine="pocl"))
    with pytest.raises(TilewrightError, match="scheduler='auto' has no model"):
        plan_learned(make_task(BLUR, target="cuda", machine="a100"), auto=True)


def test_without_a_schedule_of_its_own_it_returns_the_analytic_one(monkeypatch):
    monkeypatch.setattr(gpu_scheduler, "searched", lambda model, effort: [])
    weights = embedded_weights(plugin_path("Anderson2021"))
    task = make_task(BLUR, target="cuda", machine="a100")
    (only,) = plan_released(task, weights=weights)
    assert "can describe no schedule" in only.notes[-1]
