"""The benchmark of random reductions: its pipelines and its figures."""

import importlib

import pytest

from tilewright.halide.schedulers.task import make_task


@pytest.fixture(scope="module")
def bench():
    return importlib.import_module("halide_reductions")


@pytest.mark.parametrize("seed", range(0, 12))
def test_the_pipelines_can_be_read_and_depend_on_the_seed_only(bench, seed):
    (pipeline, said), (again, same) = bench.build(seed), bench.build(seed)
    assert said == same
    task = make_task(pipeline, target="host")
    assert any(stage.rvars for func in task.algorithm.funcs for stage in func.stages)
    assert len(task.algorithm.funcs) == len(make_task(again, target="host").algorithm.funcs)


def test_the_seeds_differ_in_kind_and_extents(bench):
    said = {bench.build(seed)[1] for seed in range(40)}
    assert len(said) == 40
    assert {text.split(" ")[0] for text in said} == set(bench.KINDS)


def test_the_figures(bench):
    right, wrong = {bench.OURS: "ok"}, {bench.OURS: "wrong_answer"}
    rows = [
        {"status": right, "seconds": {bench.OURS: 1.0, "A": 2.0, "B": 4.0, bench.WHOLE: 8.0}},
        {"status": right, "seconds": {bench.OURS: 1.0, "A": 0.5}},
        {"status": wrong, "seconds": {}},
    ]
    found = bench.summary(rows)
    assert (found["pipelines"], found["our_failures"]) == (3, 1)
    assert (found["compared"], found["split"]) == (2, 1)
    assert found["vs_best_peer"] == pytest.approx(1.0)
    assert found["vs_best_peer_min"] == 0.5
    assert found["vs_without_partial_results"] == pytest.approx(8.0)
    low, high = found["vs_best_peer_interval"]
    assert low == pytest.approx(0.5)
    assert high == pytest.approx(2.0)
    assert importlib.import_module("random_host").interval([]) is None
