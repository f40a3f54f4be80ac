"""Rivals of a search's schedule, and the choice among them by the model of loop nests."""

import dataclasses
import importlib
from pathlib import Path

import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import Clone, Level
from tilewright.halide.schedulers.analytic.cpu import retries
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.panels import copied_input
from tilewright.halide.schedulers.analytic.cpu.reports import reported
from tilewright.halide.schedulers.analytic.cpu.scheduler import (
    POLICIES,
    schedule_cpu,
    schedule_with,
)
from tilewright.halide.schedulers.learned.random_pipelines import build, random_pipeline
from tilewright.machines import Cache, CpuMachine

EXAMPLES = Path(__file__).parents[3] / "examples"
CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 32 << 20, 64, 2))
MACHINE = CpuMachine("test", "x86-64", 2, ("avx2", "fma"), 256, CACHES)
MODEL = model_of(MACHINE)
# Operations, so that runs take milliseconds.
WORK = (2e7, 2e9)


def searched(seed):
    """A random pipeline, its boxes, and the plan of its first search."""
    algorithm = load(build(random_pipeline(seed, WORK)))
    boxes = estimated_boxes(View(algorithm))
    found = schedule_with(algorithm, MACHINE, boxes, algorithm.symbols, POLICIES[0])
    return algorithm, boxes, reported(*found)


@pytest.mark.parametrize("seed", [7101, 7111])
def test_a_rival_that_the_other_model_predicts_to_be_faster_is_chosen(seed):
    algorithm, boxes, first = searched(seed)
    best = schedule_cpu(algorithm, MACHINE)[0]
    seconds = [retries.nest_seconds(algorithm, p, boxes, MODEL) for p in (best, first)]
    assert seconds[0] < 0.7 * seconds[1]


def test_doubtful_schedules_have_all_policies_as_rivals():
    algorithm, boxes, first = searched(7101)
    seconds = retries.nest_seconds(algorithm, first, boxes, MODEL)
    assert retries.is_doubtful(first, seconds, MODEL)
    found = retries.rival_policies(algorithm, True, POLICIES[1:])
    assert sorted(map(str, found)) == sorted(map(str, POLICIES[1:]))
    dear = dataclasses.replace(first, cost=first.cost * 100)
    assert not retries.is_doubtful(dear, seconds, MODEL)
    few = retries.rival_policies(algorithm, False, POLICIES[1:])
    assert few == (retries.LESS_INLINED, retries.MORE_INLINED)


def test_large_pipelines_have_few_rivals_and_none_without_a_doubt(monkeypatch):
    algorithm, _, _ = searched(7101)
    monkeypatch.setattr(
        retries, "SEARCH", dataclasses.replace(SEARCH, rival_funcs=len(algorithm.funcs) - 1)
    )
    assert retries.rival_policies(algorithm, False, POLICIES[1:]) == ()
    found = retries.rival_policies(algorithm, True, POLICIES[1:])
    assert found == (retries.FIXED, retries.DEAR_MEMORY, retries.UNFUSED)


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [((1.0, 0.9), 1), ((1.0, 0.98), 0), ((None, 0.5), 0), ((1.0, None), 0), ((1.0, 1.1), 0)],
)
def test_only_a_clear_gain_counts(monkeypatch, seconds, chosen):
    algorithm, boxes, first = searched(7101)
    plans = [first, dataclasses.replace(first, notes=("other",))]
    known = {id(plan): value for plan, value in zip(plans, seconds, strict=True)}
    monkeypatch.setattr(retries, "nest_seconds", lambda _, plan, *rest: known[id(plan)])
    found = retries.fastest(algorithm, plans[0], plans, boxes, MODEL, {})
    assert found is plans[chosen]


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, 1), (0.7, 0)])
def test_added_funcs_give_way_to_a_large_gain_only(monkeypatch, seconds, chosen):
    algorithm, boxes, first = searched(7101)
    schedule = dataclasses.replace(first.schedule, clones=(Clone(0, (1,)),))
    plans = [dataclasses.replace(first, schedule=schedule), first]
    known = {id(plans[0]): 1.0, id(first): seconds}
    monkeypatch.setattr(retries, "copies_in", lambda *_: ())
    monkeypatch.setattr(retries, "nest_seconds", lambda _, plan, *rest: known[id(plan)])
    assert retries.fastest(algorithm, plans[0], plans, boxes, MODEL, {}) is plans[chosen]


def test_page_faults_count_in_the_choice(monkeypatch):
    algorithm, boxes, first = searched(7101)
    other = dataclasses.replace(first, schedule=dataclasses.replace(first.schedule, target="x"))
    known = {id(first): 1.0, id(other): 1.2}
    monkeypatch.setattr(retries, "nest_seconds", lambda _, plan, *rest: known[id(plan)])
    for faults, chosen in ((0.0, first), (0.3, other)):
        cycles = {first.schedule: faults * MODEL.constants.clock_hz}
        assert MODEL.seconds(cycles[first.schedule]) == pytest.approx(faults)
        found = retries.fastest(algorithm, first, [first, other], boxes, MODEL, cycles)
        assert found is chosen


def test_the_time_of_a_specialised_schedule_is_known(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    algorithm = load(importlib.import_module("camera_pipe").camera_pipe())
    boxes = estimated_boxes(View(algorithm))
    found = reported(
        *schedule_with(algorithm, MACHINE, boxes, algorithm.symbols, retries.MORE_INLINED)
    )
    assert any(nest.specialize for entry in found.schedule.funcs for nest in entry.stages)
    assert retries.nest_seconds(algorithm, found, boxes, MODEL) == pytest.approx(
        MODEL.seconds(found.cost), rel=0.2
    )


def test_copies_of_inputs_are_not_judged_by_the_model_of_loop_nests(monkeypatch):
    algorithm, boxes, first = searched(7101)
    copy = next(f for f in algorithm.funcs if copied_input(f) is not None)
    place = algorithm.order[copy.name]
    entries = {entry.func: entry for entry in first.schedule.funcs}
    inside = next(e.compute for e in first.schedule.funcs if e.compute.kind == "at")
    assert isinstance(inside, Level)
    entries[place] = dataclasses.replace(entries[place], compute=inside, store=inside)
    schedule = dataclasses.replace(first.schedule, funcs=tuple(entries.values()))
    copying = dataclasses.replace(first, schedule=schedule)
    monkeypatch.setattr(
        retries, "nest_seconds", lambda _, plan, *rest: 0.1 if plan is copying else 1.0
    )
    assert retries.fastest(algorithm, first, [first, copying], boxes, MODEL, {}) is first
    monkeypatch.setattr(
        retries, "nest_seconds", lambda _, plan, *rest: 1.0 if plan is copying else 0.1
    )
    assert retries.fastest(algorithm, copying, [first, copying], boxes, MODEL, {}) is copying
