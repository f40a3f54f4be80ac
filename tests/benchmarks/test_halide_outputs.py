"""The benchmark of random pipelines with several outputs: its pipelines and its figures."""

import importlib

import pytest

from tilewright.halide.schedulers.task import make_task


@pytest.fixture(scope="module")
def bench():
    return importlib.import_module("halide_outputs")


@pytest.mark.parametrize("seed", range(0, 12))
def test_the_pipelines_can_be_read_and_depend_on_the_seed_only(bench, seed):
    (pipeline, said), (again, same) = bench.build(seed), bench.build(seed)
    assert said == same
    task = make_task(pipeline, target="host")
    assert 2 <= len(task.algorithm.outputs) <= 4
    assert len(task.algorithm.funcs) == len(make_task(again, target="host").algorithm.funcs)


def test_the_seeds_differ_in_size_and_kind(bench):
    said = [bench.build(seed)[1] for seed in range(40)]
    assert len(set(said)) == 40
    assert any("clamped" in text for text in said)
    assert {text.split(" ")[0] for text in said} == {"2", "3", "4"}
    assert {text.split("[")[1].split("]")[0].count(",") for text in said} == {0, 1, 2}


def test_the_figures(bench):
    right, wrong = {bench.OURS: "ok"}, {bench.OURS: "ok", bench.TOGETHER: "wrong_answer"}
    rows = [
        {"status": right, "seconds": {bench.OURS: 1.0, "A": 2.0, "B": 4.0, bench.APART: 1.5}},
        {"status": right, "seconds": {bench.OURS: 1.0, "A": 0.5, bench.TOGETHER: 0.8}},
        {"status": wrong, "seconds": {}},
        {"status": {}, "seconds": {}},
    ]
    found = bench.summary(rows)
    assert (found["pipelines"], found["failures"]) == (4, 2)
    assert (found["compared"], found["shared"], found["not_chosen"]) == (2, 1, 1)
    assert found["vs_best_peer"] == pytest.approx(1.0)
    assert found["vs_best_peer_min"] == 0.5
    assert found["vs_without_shared_loops"] == pytest.approx(1.5)
    assert found["not_chosen_vs_ours"] == pytest.approx(1.25)
