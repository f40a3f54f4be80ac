"""Plans are valid, good, and can be carried out."""

import itertools
import json
import math
import os
import random
import re
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.mapping import (
    Device,
    Edge,
    Execution,
    Graph,
    GraphTask,
    Link,
    MappingError,
    MappingPlan,
    PlanStep,
    Platform,
    cores_as_devices,
    execute,
    graph_from_dict,
    kernel,
    plan,
    platform_from_dict,
    predictor,
    task_seconds,
    trace,
)
from tilewright.mapping.bound import lower_bound
from tilewright.mapping.chart import gantt, plan_page, plan_text
from tilewright.mapping.exact import SearchTimeout, optimum
from tilewright.mapping.heft import heft, peft, upward_ranks
from tilewright.mapping.instance import instance, simulate


def random_graph(count, seed, devices=3, moved=1.0):
    rng = random.Random(seed)
    tasks = [
        GraphTask(
            f"t{i}",
            {f"d{d}": rng.uniform(0.2, 2) for d in range(devices) if d == 0 or rng.random() < 0.9},
            result_bytes=rng.uniform(0, moved),
        )
        for i in range(count)
    ]
    edges = [
        Edge(f"t{j}", f"t{i}")
        for i in range(1, count)
        for j in rng.sample(range(i), min(i, rng.randint(0, 2)))
    ]
    return Graph(tuple(tasks), tuple(edges))


def machine(devices=3):
    return Platform(tuple(Device(f"d{d}") for d in range(devices)), link=Link(0.01, 1.0))


def check(found):
    """The plan keeps to its own rules: devices do one thing at a time, data come first."""
    graph, platform = found.graph, found.platform
    assert sorted(s.task for s in found.steps) == sorted(t.name for t in graph.tasks)
    at = {s.task: s for s in found.steps}
    for step in found.steps:
        task = graph[step.task]
        length = task.seconds[step.device]
        length += platform.transfer(platform.home, step.device, task.input_bytes)
        if task.returned:
            length += platform.transfer(step.device, platform.home, task.result_bytes)
        assert step.end - step.start == pytest.approx(length)
    for name in platform.names:
        row = found.on(name)
        for one, other in itertools.pairwise(row):
            assert other.start >= one.end - 1e-9
    for edge in graph.edges:
        source, target = at[edge.source], at[edge.target]
        moved = platform.transfer(source.device, target.device, graph.bytes_of(edge))
        assert target.start >= source.end + moved - 1e-9


@given(st.integers(0, 10_000), st.integers(1, 14), st.sampled_from(["heft", "peft", "search"]))
def test_plans_keep_the_rules_and_the_bound(seed, count, method):
    found = plan(random_graph(count, seed), machine(), method=method)
    check(found)
    assert found.bound <= found.makespan * (1 + 1e-9)


def brute_force(problem):
    """The least makespan over every order and placement."""
    able = [[d for d, c in enumerate(row) if math.isfinite(c)] for row in problem.cost]
    orders = [
        order
        for order in itertools.permutations(range(problem.count))
        if all(order.index(p) < order.index(t) for t in order for p, _ in problem.before[t])
    ]
    return min(
        simulate(problem, order, device).makespan
        for order in orders
        for device in itertools.product(*able)
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_that_of_trying_everything(seed):
    problem = instance(random_graph(4, seed, moved=0.5), machine())
    best = optimum(problem, heft(problem)).makespan
    assert best == pytest.approx(brute_force(problem))
    assert lower_bound(problem) <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_search_is_near_the_optimum_and_auto_proves_it(seed):
    graph = random_graph(8, seed)
    best = plan(graph, machine(), method="exact")
    assert best.proven
    assert best.bound == best.makespan
    searched = plan(graph, machine(), method="search")
    assert best.makespan <= searched.makespan * (1 + 1e-9)
    assert searched.makespan <= 1.08 * best.makespan
    assert plan(graph, machine()).makespan == pytest.approx(best.makespan)


def test_search_improves_on_both_list_schedules_and_repeats_itself():
    graph = random_graph(40, 3)
    problem = instance(graph, machine())
    found = plan(graph, machine(), method="search", seed=5)
    assert found.makespan <= min(heft(problem).makespan, peft(problem).makespan)
    assert found.makespan <= 1.25 * found.bound
    assert plan(graph, machine(), method="search", seed=5).steps == found.steps


def test_exact_gives_up_in_time_with_a_cure():
    problem = instance(random_graph(40, 0), machine())
    with pytest.raises(SearchTimeout, match="40 tasks"):
        optimum(problem, heft(problem), seconds=0.05)


def test_heft_ranks_are_those_of_the_definition():
    graph = Graph(
        (GraphTask("a", {"d0": 1, "d1": 3}, result_bytes=0.99), GraphTask("b", {"d0": 4, "d1": 2})),
        (Edge("a", "b"),),
    )
    # 3 of b's mean; 2 of a's mean, 1 of the transfer.
    assert upward_ranks(instance(graph, machine(2))) == pytest.approx([6, 3])


def test_the_small_product_leaves_the_gpu_to_the_large_one():
    """The example of the paper's introduction (section I)."""
    graph = Graph(
        (
            GraphTask("small", {"cpu": 2e-4, "gpu": 5e-5}, "matmul"),
            GraphTask("large", {"cpu": 20.0, "gpu": 0.5}, "matmul"),
        )
    )
    for method in ("auto", "search", "heft", "exact"):
        found = plan(graph, Platform((Device("cpu"), Device("gpu"))), method=method)
        assert found.device_of("small") == "cpu"
        assert found.device_of("large") == "gpu"
        assert found.makespan == 0.5


def test_transfers_of_a_task_count():
    task = GraphTask(
        "a", {"cpu": 1.0, "gpu": 0.5}, input_bytes=0.2, result_bytes=0.2, returned=True
    )
    two = (Device("cpu"), Device("gpu"))
    assert plan(Graph((task,)), Platform(two, link=Link(0, 1))).device_of("a") == "gpu"
    assert plan(Graph((task,)), Platform(two, link=Link(0, 0.5))).device_of("a") == "cpu"
    # A link in one direction only.
    links = {("cpu", "gpu"): Link(0, 0.3)}
    found = plan(Graph((task,)), Platform(two, links, Link(0, 10)))
    assert found.device_of("a") == "cpu"


def test_devices_that_cannot_run_a_task_are_left_out():
    graph = Graph((GraphTask("a", {"d1": 5.0}), GraphTask("b", {"d0": 1.0, "d1": 0.1})))
    found = plan(graph, machine(2))
    assert found.device_of("a") == "d1"
    with pytest.raises(MappingError, match="no device can run 'a'"):
        plan(graph, Platform((Device("d0"),)))


def test_models_say_what_the_graph_does_not():
    class PerUnit:
        def __init__(self, seconds):
            self.seconds = seconds

        def predict(self, rows):
            return np.array([self.seconds * row["n"] for row in rows])

    graph = Graph(
        (GraphTask("a", kernel="k", query={"n": 3}), GraphTask("b", {"d1": 9.0}, kernel="other"))
    )
    found = plan(graph, machine(2), predictor({("k", "d0"): PerUnit(2), ("k", "d1"): PerUnit(8)}))
    assert found.device_of("a") == "d0"
    assert found.makespan == 9.0
    with pytest.raises(MappingError, match="nan"):
        plan(graph, machine(2), lambda task, device: float("nan"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "tasks"),
        ({"tasks": [{"nam": "a"}]}, "name"),
        ({"tasks": [{"name": "a", "second": {}}]}, "'second' is unknown"),
        ({"tasks": [{"name": "a", "seconds": {"cpu": "1"}}]}, "numbers"),
        ({"tasks": [{"name": "a", "needs": ["b"]}]}, "there is no 'b'"),
        ({"tasks": [{"name": "a"}, {"name": "a"}]}, "names two tasks"),
        ({"tasks": [{"name": "a", "needs": ["b"]}, {"name": "b", "needs": ["a"]}]}, "cycle"),
        ({"tasks": [{"name": "a", "needs": [3]}]}, "needs"),
        ({"tasks": [{"name": "a", "result_bytes": -1}]}, "from 0"),
    ],
)
def test_a_wrong_graph_is_named(data, words):
    with pytest.raises(MappingError, match=re.escape(words)):
        graph_from_dict(data)


@given(st.integers(0, 1000), st.integers(0, 10))
def test_graphs_and_machines_survive_json(seed, count):
    graph = random_graph(count, seed)
    assert graph_from_dict(json.loads(json.dumps(graph.to_dict()))).to_dict() == graph.to_dict()
    platform = machine()
    assert platform_from_dict(json.loads(json.dumps(platform.to_dict()))) == platform


@pytest.mark.parametrize(
    "data",
    [{}, {"devices": [{}]}, {"devices": [{"name": "a"}], "link": {"bandwidth": 0}}, 3],
)
def test_a_wrong_machine_is_named(data):
    with pytest.raises(MappingError, match="machine"):
        platform_from_dict(data)


def test_links_and_devices_are_checked():
    with pytest.raises(MappingError, match="at least one"):
        Platform(())
    with pytest.raises(MappingError, match="one name"):
        Platform((Device("a"), Device("a")))
    with pytest.raises(MappingError, match="names 'b'"):
        Platform((Device("a"),), {("a", "b"): Link()})
    with pytest.raises(MappingError, match="home"):
        Platform((Device("a"),), home="b")


@kernel("add", lambda a, b: {"n": len(a)}, lambda a, b: a)
def add(a, b):
    return a + b


@kernel("product", lambda a, b: {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]})
def product(a, b):
    return a @ b


def program(a, b):
    left = product(a, b)
    right = product(b, a)
    return add(add(left, right), left)


def example():
    rng = np.random.default_rng(0)
    return rng.uniform(size=(30, 30)), rng.uniform(size=(30, 30))


def test_a_function_becomes_a_graph_and_still_computes():
    a, b = example()
    traced = trace(program, a, b)
    graph = traced.graph
    assert graph.order == ("product 1", "product 2", "add 1", "add 2")
    assert graph.needs("add 2") == ("add 1", "product 1")
    assert graph["product 1"].query == {"m": 30, "n": 30, "k": 30}
    assert graph["product 1"].input_bytes == 2 * a.nbytes
    assert graph["add 1"].result_bytes == a.nbytes
    assert [t.returned for t in graph.tasks] == [False, False, False, True]
    np.testing.assert_array_equal(program(a, b), (a @ b + b @ a) + a @ b)
    with pytest.raises(MappingError, match="no kernel"):
        trace(lambda: 3)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_plan_runs_and_gives_the_functions_result(workers):
    a, b = example()
    traced = trace(program, a, b)
    platform = cores_as_devices()
    found = plan(traced.graph, platform, lambda task, device: 1e-3)
    done = execute(found, traced.work, workers=workers)
    np.testing.assert_allclose(done.results["add 2"], program(a, b))
    assert set(done.results) == {"add 2"}
    assert {(s.task, s.device) for s in done.steps} == {(s.task, s.device) for s in found.steps}
    ends = {s.task: s.end for s in done.steps}
    for edge in traced.graph.edges:
        start = next(s.start for s in done.steps if s.task == edge.target)
        assert start >= ends[edge.source]


def test_workers_are_pinned_and_devices_overlap():
    cores = sorted(os.sched_getaffinity(0))[:2]
    meet = threading.Barrier(len(cores), timeout=300)
    graph = Graph(tuple(GraphTask(f"t{c}", {f"core {c}": 1.0}) for c in cores))

    def work():
        meet.wait()  # passes only while the others run too
        return os.sched_getaffinity(0)

    done = execute(plan(graph, cores_as_devices(cores)), {t.name: work for t in graph.tasks})
    assert done.results == {f"t{c}": {c} for c in cores}
    assert os.sched_getaffinity(0) >= set(cores)


def test_a_failing_task_ends_the_execution_with_its_error():
    graph = Graph(
        (GraphTask("a", {"d0": 1}), GraphTask("b", {"d0": 1}), GraphTask("c", {"d1": 1})),
        (Edge("a", "b"),),
    )
    ran = []

    def fail():
        raise ZeroDivisionError("as expected")

    work = {"a": fail, "b": lambda a: ran.append("b"), "c": lambda: time.sleep(0.01)}
    with pytest.raises(ZeroDivisionError, match="as expected"):
        execute(plan(graph, machine(2)), work)
    assert not ran
    with pytest.raises(MappingError, match="'b'"):
        execute(plan(graph, machine(2)), {"a": fail, "c": fail})


def test_an_empty_graph_is_a_plan():
    found = plan(Graph(()), machine())
    assert found.makespan == 0
    assert execute(found, {}).makespan == 0


def test_the_chart_shows_every_task_and_the_page_the_error():
    graph = Graph((GraphTask("a<b", {"d0": 1.0}), GraphTask("c", {"d1": 2.0})))
    found = plan(graph, machine(2))
    chart = gantt(found)
    assert "a&lt;b: 0 s to 1 s" in chart
    assert "c: 0 s to 2 s" in chart
    done = execute(found, {"a<b": lambda: 1, "c": lambda: 2})
    text = plan_page(found, "Two", done)
    assert "off the plan" in text
    assert "optimal" in text
    assert "makespan 2 s (optimal)" in plan_text(found)


def test_a_task_takes_from_when_it_could_begin_to_its_end():
    graph = Graph((GraphTask("a"), GraphTask("b"), GraphTask("c")), (Edge("a", "c"),))
    steps = (PlanStep("a", "d0", 0, 1), PlanStep("b", "d1", 0, 3), PlanStep("c", "d1", 3, 4))
    planned = MappingPlan(graph, machine(2), steps, 0.0, False, "given")
    ran = (
        PlanStep("a", "d0", 0.1, 5.0),
        PlanStep("b", "d1", 0.2, 3.0),
        PlanStep("c", "d1", 5.5, 6.0),
    )
    assert task_seconds(planned, Execution(ran, {})) == {"a": 5.0, "b": 3.0, "c": 1.0}


class _Bounded:
    """A model that predicts one time, with an interval."""

    calibration_ = object()

    def __init__(self, seconds, low, high):
        self.seconds, self.bounds = seconds, (low, high)

    def predict(self, rows):
        return np.full(len(rows), self.seconds)

    def predict_interval(self, rows, coverage):
        return tuple(np.full(len(rows), bound) for bound in self.bounds)


def test_a_robust_plan_avoids_the_device_whose_time_may_be_long():
    graph = Graph((GraphTask("a", kernel="f"),))
    models = {("f", "fast"): _Bounded(1.0, 0.9, 5.0), ("f", "steady"): _Bounded(1.2, 1.1, 1.3)}
    platform = Platform((Device("fast"), Device("steady")))
    likely, robust = (
        plan(graph, platform, predictor(models), robust=robust) for robust in (False, True)
    )
    assert likely.steps[0].device == "fast"
    assert likely.interval == pytest.approx((0.9, 5.0))
    assert robust.steps[0].device == "steady"
    assert robust.interval == pytest.approx((1.1, 1.3))


def test_negative_seconds_are_refused():
    with pytest.raises(MappingError, match=r"-1\.0 seconds on 'cpu'; give 0 or more"):
        graph_from_dict({"tasks": [{"name": "a", "seconds": {"cpu": -1.0}}]})
