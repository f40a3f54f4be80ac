"""The search of Anderson 2021 as published: decisions, beam, freezing, and its schedules."""

from collections import Counter
from dataclasses import replace
from random import Random

import halide as hl
import numpy as np
import pytest
from patience import PATIENT

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.gpu import scheduler as gpu_scheduler
from tilewright.halide.schedulers.learned.gpu.choices import Placement, Tile
from tilewright.halide.schedulers.learned.gpu.published_search import beam
from tilewright.halide.schedulers.learned.gpu.published_search.beam import (
    Pass,
    PublishedSearch,
    StateQueue,
)
from tilewright.halide.schedulers.learned.gpu.published_search.constants import (
    PUBLISHED,
    SearchSettings,
)
from tilewright.halide.schedulers.learned.gpu.published_search.decisions import PRE_PASS
from tilewright.halide.schedulers.learned.gpu.published_search.scheduler import (
    searched_as_published,
    without_spilling,
)
from tilewright.halide.schedulers.learned.gpu.published_search.space import (
    PublishedSpace,
    is_pointwise,
)
from tilewright.halide.schedulers.learned.gpu.published_search.states import SearchState
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel
from tilewright.halide.schedulers.learned.published.weights import embedded_weights
from tilewright.halide.schedulers.learned.random_pipelines import build, random_pipeline
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.registry import device_limits
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.one_shot import _mended
from tilewright.measure import Timing

UNSHARP = "examples/unsharp.py:unsharp"
BLUR = "examples/blur.py:blur"
LITTLE = SearchSettings(beam=4, passes=3, greedy=2)
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.0)
THREADS = 1024
WIDTH, HEIGHT = 96, 64


def chain():
    """A Func that another reads at neighbours and a third at one point, and sums of columns."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    inside = hl.BoundaryConditions.repeat_edge(image, [(0, WIDTH), (0, HEIGHT)])
    blurred, edges, scaled, out = (hl.Func(name) for name in "blurred edges scaled out".split())
    total = hl.Func("total")
    r = hl.RDom([(0, HEIGHT)], "r")
    blurred[x, y] = hl.i32(inside[x - 1, y]) + 2 * inside[x, y] + inside[x + 1, y]
    edges[x, y] = blurred[x, y - 1] - blurred[x, y + 1] + blurred[x - 1, y]
    scaled[x, y] = edges[x, y] * edges[x, y] + hl.i32(inside[x, y])
    total[x] = 0
    total[x] += scaled[x, r]
    out[x, y] = scaled[x, y] + scaled[x + 1, y] + total[x]
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    image.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return out


def model_for(pipeline):
    task = make_task(pipeline, target="cuda", machine="a100", exact_sizes=True)
    return PublishedGpuModel(task, embedded_weights(plugin_path("Anderson2021")))


def search_for(model, settings=LITTLE):
    task = model.task
    base = naive_schedule(task.algorithm, task.target, task.machine)
    space = PublishedSpace(model.pipeline, model.limits, base)
    return PublishedSearch(space, model.stage_times, settings)


@pytest.fixture(scope="module")
def model():
    return model_for(UNSHARP)


@pytest.fixture(scope="module")
def small():
    return model_for(chain())


@pytest.fixture
def search(model):
    return search_for(model)


def first_tiled(search):
    """The state before the output's tile is decided."""
    (state,) = search.decisions.children(search.decisions.start(), 0, Random(0))
    return state


# --- costs and schedules ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pipeline", [UNSHARP, chain, 29, pytest.param(3, marks=pytest.mark.thorough)]
)
@pytest.mark.few(1)
def test_costs_are_those_of_whole_schedules_which_are_legal_and_lower(pipeline):
    """Numbers are seeds of random pipelines."""
    if isinstance(pipeline, int):
        made = build(random_pipeline(pipeline), limited=True)
    else:
        made = pipeline() if callable(pipeline) else pipeline
    model = model_for(made)
    task = model.task
    found = searched_as_published(model, LITTLE)
    assert found
    assert found == sorted(found, key=lambda rated: rated.milliseconds)
    for rated in found:
        whole = model.milliseconds(rated.schedule)
        assert rated.milliseconds == pytest.approx(whole, rel=1e-5)
        assert check(rated.schedule, task.algorithm, device_limits(task)) == []
        assert refusal(rated.schedule, task.algorithm, THREADS) == ""


def placed_everywhere(search):
    """Complete states, each with one Func in the loops of another, by the kind of place."""
    decisions, found = search.decisions, []
    state = decisions.start()
    while state.made < decisions.count:
        node = decisions.nodes[state.made // 2]
        if state.made % 2 == 0 and not node.input:
            for site in search.space.sites(state.choices, state.kernels, node):
                options = decisions._at_site(site, node)
                running = (o for o in options if search.space.kernel(o.placed).part is not None)
                option = next(running, None)
                if option is not None:
                    child = replace(state, choices=list(state.choices), parent=None)
                    child.choices[node.position] = option.choice
                    child.choices = tuple(child.choices)
                    kernel = search.space.kernel(option.placed)
                    child.kernels = tuple(
                        kernel if each.placed.root == option.placed.root else each
                        for each in state.kernels
                    )
                    child.made += 1
                    found.append((option.choice.kind, completed(decisions, child)))
        state = at_root(decisions, state)
    return found


def at_root(decisions, state):
    """The state after one more decision: two serial iterations along each dimension."""
    node, space = decisions.nodes[state.made // 2], decisions.space
    if state.made % 2 or node.input or node.position not in space.tiled:
        return decisions.forced(state)[0]
    size = len(space.extents(node.position))
    threads = [1] * size
    threads[space.first[node.position]] = 16
    tile = Tile((2,) * size, tuple(threads))
    return decisions._at_root(state, node, Placement("root", -1, tile))


def completed(decisions, state):
    """The state with all other Funcs at root."""
    while state.made < decisions.count:
        state = at_root(decisions, state)
    return state


def on_the_cpu(schedule):
    """The same loops and storage without a GPU."""
    funcs = []
    for entry in schedule.funcs:
        stages = tuple(
            replace(
                stage,
                loops=tuple(
                    replace(loop, mapping="serial") if loop.mapping.startswith("gpu") else loop
                    for loop in stage.loops
                ),
            )
            for stage in entry.stages
        )
        funcs.append(replace(entry, memory="auto", stages=stages))
    return replace(schedule, target="host", funcs=tuple(funcs))


def mended(task, schedule, reason):
    """The schedule with promised extents in registers, which Halide lowers."""
    made, _ = _mended(task, PlannedSchedule(schedule, (), 0.0), reason, THREADS)
    assert made is not None
    return made.schedule


@pytest.mark.thorough
def test_every_kind_of_place_is_legal_lowers_and_gives_right_answers(small):
    task, search = small.task, search_for(small)
    found = placed_everywhere(search)
    assert {kind for kind, _ in found} == {"block", "thread", "serial"}
    schedules = [search.space.schedule(state.choices, task.target) for _, state in found]
    for i, schedule in enumerate(schedules):
        assert check(schedule, task.algorithm, device_limits(task)) == []
        reason = refusal(schedule, task.algorithm, THREADS)
        if "constant upper bound" in reason:  # as it is done for all schedules before they are used
            schedules[i] = mended(task, schedule, reason)
        else:
            assert reason == ""
    variants = [Variant(on_the_cpu(schedule), target="host") for schedule in schedules]
    with Session(task.algorithm, limits=PATIENT, timing=ONCE) as session:
        for measured in session.measure(variants):
            assert measured.measurement.ok, measured.measurement


@pytest.mark.opencl
def test_the_best_schedule_gives_right_answers_on_opencl(small):
    best = searched_as_published(small, LITTLE)[0].schedule
    variant = Variant(replace(best, target="opencl"), target="opencl")
    algorithm = small.task.algorithm
    with Session(algorithm, targets=("opencl",), limits=PATIENT, timing=ONCE) as session:
        (measured,) = session.measure([variant])
    assert measured.measurement.ok, measured.measurement


# --- decisions ----------------------------------------------------------------------------------


def test_pointwise_funcs_with_one_reader_are_inlined_at_once(search):
    decisions = search.decisions
    state = decisions.start()
    seen = set()
    while state.made < decisions.count:
        node = decisions.nodes[state.made // 2]
        children = decisions.children(state, 0, Random(0))
        if state.made % 2 == 0 and not node.input and not node.output:
            alone = is_pointwise(node.func) and len(node.readers) == 1
            assert len(children) == 1 or not alone
            seen.add(alone)
        state = children[0]
    assert seen == {True, False}


def test_of_a_bucket_of_b_options_log2_b_are_drawn(model, search):
    state = first_tiled(search)
    whole = search_for(model, replace(LITTLE, buckets=False))
    every = len(whole.decisions.children(first_tiled(whole), 0, Random(0)))
    drawn = [len(search.decisions.children(state, index, Random(0))) for index in (0, 1, 2)]
    assert every > 100
    assert drawn[0] == int(np.log2(every))  # at depth 0, all tiles look alike
    assert drawn[0] < drawn[1] < drawn[2] < every


def test_an_option_that_cannot_run_is_replaced_by_another_of_its_bucket(search, monkeypatch):
    state, legal = first_tiled(search), search.decisions._is_legal
    usual = search.decisions.children(state, 0, Random(0))
    refused = {child.choices for child in usual[:3]}
    monkeypatch.setattr(
        search.decisions,
        "_is_legal",
        lambda child, changed: child.choices not in refused and legal(child, changed),
    )
    found = search.decisions.children(state, 0, Random(0))
    assert len(found) == len(usual)
    assert not refused & {child.choices for child in found}


@pytest.mark.parametrize(("taps", "most"), [(8, 1), (12, 0)])
def test_funcs_are_not_computed_again_more_than_ten_times(taps, most):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    product, out = hl.Func("product"), hl.Func("out")
    product[x, y] = image[x, y] * image[x, y + 1]
    out[x, y] = sum(product[x + i, y] for i in range(taps))
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    image.set_estimates([(0, WIDTH + taps), (0, HEIGHT + 1)])
    search = search_for(model_for(out))
    state = search.decisions.start()
    while search.decisions.nodes[state.made // 2].output or state.made % 2:
        (state,) = search.decisions.forced(state)
    found = search.decisions.children(state, 0, Random(0))
    kinds = Counter(child.choices[search.decisions.nodes[1].position].kind for child in found)
    assert kinds["root"] == 1
    assert kinds["inline"] == most


@pytest.mark.parametrize(("rows", "kinds"), [(1, {"block", "thread", "serial"}), (4, {"block"})])
def test_a_thread_keeps_only_what_registers_can_hold(rows, kinds):
    """Registers have no addresses: the steps of a reduction cannot choose one."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    square, out = hl.Func("square"), hl.Func("out")
    r = hl.RDom([(0, rows)], "r")
    square[x, y] = image[x, y] * image[x + 1, y]
    if rows > 1:
        out[x, y] = 0
        out[x, y] += square[x, r]
    else:
        out[x, y] = square[x, y] + square[x, y + 1]
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    image.set_estimates([(0, WIDTH + 1), (0, HEIGHT + 1)])
    search = search_for(model_for(out))
    state = search.decisions.start()
    while search.decisions.nodes[state.made // 2].output or state.made % 2:
        state = at_root(search.decisions, state)
    node = search.decisions.nodes[state.made // 2]
    sites = search.space.sites(state.choices, state.kernels, node)
    assert {site.choice.kind for site in sites} == kinds


def test_the_pre_pass_only_inlines_and_computes_at_root(search):
    best = search.passed(Pass(PRE_PASS, 4), Random(0))
    assert {choice.kind for choice in best.choices if choice} == {"inline", "root"}


# --- the beam -----------------------------------------------------------------------------------


class Toy:
    """Two decisions; states have a letter, and a hash that is the letter's case or the letter."""

    count = 2
    children_of = ("aAbB", "x")

    def __init__(self, costs):
        self.costs, self.hashes, self.taken = costs, self, []

    def start(self):
        return SearchState(("start",), ())

    def of(self, state, depth):
        return hash(state.choices[0].lower()) if depth > 0 else hash(len(state.choices[0]))

    def children(self, state, index, draws):
        self.taken.append(state.choices[0])
        letters = self.children_of[state.made]
        return [SearchState((each,), (), made=state.made + 1, parent=state) for each in letters]

    def rate(self, states):
        for state in states:
            before = self.costs.get(state.parent.choices[0], 0.0)
            state.cost = self.costs.get(state.choices[0], 0.0) + before


@pytest.fixture
def toy(search, monkeypatch):
    made = Toy({"a": 1.0, "A": 1.1, "b": 1.5, "B": 9.0})
    monkeypatch.setattr(search, "decisions", made)
    monkeypatch.setattr(search, "costs", made)
    return made


def test_states_that_look_alike_are_penalised(search, toy):
    search.passed(Pass(0, 2, penalised=False), Random(0))
    assert toy.taken == ["start", "a", "A"]
    toy.taken.clear()
    search.passed(Pass(0, 2, penalised=True), Random(0))
    assert toy.taken == ["start", "a", "b"]  # A costs 1.1 x 2 as the second of its hash


def test_hashes_that_are_not_blessed_are_penalised_in_later_passes(search, toy):
    search.blessed = {toy.of(SearchState((name,), ()), 1) for name in ("b", "start", "x")}
    search.passed(Pass(2, 1, penalised=True), Random(0))
    assert toy.taken == ["start", "b"]
    toy.taken.clear()
    search.passed(Pass(0, 1, penalised=True), Random(0))  # nothing is blessed before the first pass
    assert toy.taken == ["start", "a"]


def test_states_within_a_fifth_of_the_best_are_blessed_with_all_they_were_made_of(search, toy):
    search.passed(Pass(1, 4, penalised=False, blesses=True), Random(0))
    names = {name for name in ("start", "a", "b", "x") if toy.of(SearchState((name,), ()), 1)
             in search.blessed}  # fmt: skip
    assert names == {"start", "a", "x"}  # b costs half more


def test_states_are_dropped_at_random_while_others_remain(search, toy):
    search.passed(Pass(0, 4, keep=0.0), Random(0))
    assert toy.taken == ["start", "b", "B"]  # the last two are kept


def test_the_queue_keeps_the_order_of_equal_costs():
    queue = StateQueue([SearchState((name,), (), cost=1.0) for name in "abc"])
    queue.push(SearchState(("first",), ()), 0.5)
    popped = [queue.pop() for _ in range(4)]
    assert [state.choices[0] for _, state, _ in popped] == ["first", *"abc"]
    assert [penalised for _, _, penalised in popped] == [True, False, False, False]


def test_freezing_leaves_the_costly_funcs(search, monkeypatch):
    state = search.passed(Pass(PRE_PASS, 1), Random(0))
    nodes = search.space.pipeline.scheduled
    rows = {node.id: search.space.parts.rows[node.id, 0] for node in nodes}
    costly = nodes[2::3]
    costs = {rows[node.id]: 100.0 if node in costly else 1.0 for node in nodes}
    monkeypatch.setattr(search.costs, "stages", lambda state: costs)
    frozen = search.frozen(state)
    assert len(frozen) == int(len(nodes) - np.log2(len(nodes)))
    assert not {node.position for node in costly[:3]} & set(frozen)
    assert all(frozen[place] == state.choices[place] for place in frozen)
    # The released code reads the first stages of the pipeline for every Func: all cost the same.
    search.settings = replace(search.settings, as_released=True)
    assert {node.position for node in costly[:2]} & set(search.frozen(state))


def test_frozen_funcs_keep_their_places(search, monkeypatch):
    first = search.passed(Pass(PRE_PASS, 4), Random(0))
    rows = {search.space.parts.rows[identifier, 0] for identifier in first.inlined}
    costs = {row: 100.0 if row in rows else 1.0 for row in search.costs.stages(first)}
    monkeypatch.setattr(search.costs, "stages", lambda state: costs)
    frozen = search.decisions.frozen = search.frozen(first)
    assert {choice.kind for choice in frozen.values()} == {"inline", "root"}
    for seed in range(3):
        best = search.passed(Pass(0, 4), Random(seed))
        assert all(best.choices[place] == choice for place, choice in frozen.items())


def test_the_seed_decides(small):
    runs = [search_for(small, replace(LITTLE, seed=seed)).run() for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_kernels_can_be_forgotten_between_samples(small, monkeypatch):
    usual = search_for(small).run()
    monkeypatch.setattr(beam, "C", replace(beam.C, kept_kernels=1))
    search = search_for(small)
    assert search.run() == usual
    assert not search.space.placed


def test_one_sample_is_finished_when_there_is_no_time(small):
    assert len(search_for(small, replace(PUBLISHED, seconds=0.0)).run()) == 1


# --- plans --------------------------------------------------------------------------------------


def planned(name, small):
    schedule = naive_schedule(small.task.algorithm, "cuda", small.task.machine)
    return PlannedSchedule(schedule, (), 1.0, (name,))


@pytest.mark.parametrize(
    ("spilled", "kept", "said"),
    [
        ({"a": 0, "b": 0, "c": 0}, ["a", "b"], ""),
        ({"a": 8, "b": 0, "c": None}, ["b", "c"], "1 better samples were left out"),
        ({"a": 100, "b": 14, "c": 10}, ["b"], "All samples spill registers, this one 14"),
    ],
)
def test_samples_that_spill_are_left_out(small, spilled, kept, said):
    candidates = [planned(name, small) for name in spilled]
    found = without_spilling(candidates, 2, lambda each: spilled[each.notes[0]])
    assert [each.notes[0] for each in found] == kept
    assert said in "".join(found[0].notes[1:])


def test_the_learned_scheduler_searches_as_published():
    task = make_task(BLUR, target="cuda", machine="a100")
    plans = plan_learned(task, k=2, search="published-quick", seed=3)
    assert len(plans) == 2
    assert plans[0].notes[0].startswith("Searched as published")
    assert "ptxas was not asked" in plans[0].notes[-1]
    assert all(check(p.schedule, task.algorithm, device_limits(task)) == [] for p in plans)
    asked: Counter[int] = Counter()
    plan_learned(task, search="published-quick", spilled=lambda each: asked.update([1]))
    assert asked[1] == 1


def test_without_a_sample_the_analytic_schedule_is_returned(monkeypatch):
    monkeypatch.setattr(gpu_scheduler, "searched_as_published", lambda model, settings: [])
    task = make_task(BLUR, target="cuda", machine="a100")
    (only,) = plan_learned(task, search="published")
    assert "can describe no schedule" in only.notes[-1]


def test_errors_name_the_cause_and_the_cure():
    with pytest.raises(
        TilewrightError, match=r"is a search for CUDA, and the target is 'host.*cuda"
    ):
        tilewright.schedule(BLUR, target="host", scheduler="learned", search="published")
    with pytest.raises(TilewrightError, match="add scheduler='learned'"):
        tilewright.schedule(BLUR, search="published")
    with pytest.raises(TilewrightError, match="use one of tilewright, published, published-quick"):
        tilewright.schedule(BLUR, scheduler="learned", search="anderson")
