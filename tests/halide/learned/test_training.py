"""Training on records: the model adapts to a machine's times, and says whether it has gained."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from test_moves import stencils, task, walked

from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.halide import Planning, schedule
from tilewright.halide.execution.session import Variant, machine_key, make_inputs, versions
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.learned.beam_search import BeamSearch
from tilewright.halide.schedulers.learned.cost_model import (
    BoostedTrees,
    CorrectionModel,
    from_json,
    model_of_file,
    shipped,
)
from tilewright.halide.schedulers.learned.evaluation import CHANGE_NAMES, Evaluator
from tilewright.halide.schedulers.learned.part_features import NAMES as NAMES_OF_SIZES
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.learned.term_counts import TERMS
from tilewright.halide.schedulers.learned.training import FEWEST, train
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import make_task
from tilewright.measure import Measurement
from tilewright.records import MeasurementRecord, Records

NAMES = [term.name for term in TERMS]


@pytest.fixture(scope="module")
def made():
    return stencils()


@pytest.fixture(scope="module")
def schedules(made):
    """Distinct schedules of random walks."""
    found = []
    for start in range(3):
        for seed in range(4):
            found += walked(made, start, seed, 8)[1]
    return list(dict.fromkeys(found))


def recorded(made, schedules, seconds, path, **changes):
    """Records of the schedules with times, as a session would write them."""
    key = f"halide/{made.algorithm.digest[:32]}/{make_inputs(made.algorithm).digest[:32]}"
    with Records(path) as records:
        for schedule, time in zip(schedules, seconds, strict=True):
            data = {
                "problem": key,
                "configuration": Variant(schedule, target=made.target).configuration,
                "machine": machine_key(made.target),
                "versions": versions(),
                "measurement": Measurement("ok", (time,) * 3, (0.0,) * 3),
            } | changes
            records.add(MeasurementRecord(**data))
    return path


def times_of(made, schedules, coefficients):
    """Times of a machine that the linear model describes exactly."""
    evaluator = Evaluator(made.algorithm, model_of(made.machine))
    each = np.array([coefficients[name] for name in NAMES])
    clock = model_of(made.machine).clock_hz
    return [float(evaluator.features(exact_size(s)).terms[0] @ each) / clock for s in schedules]


@pytest.mark.thorough
def test_a_model_adapts_to_a_machine_where_other_things_are_slow(made, schedules, tmp_path):
    slow = {**shipped().coefficients, "tasks": 500.0, "loads": 0.01, "arithmetic": 0.01}
    seconds = times_of(made, schedules, slow)
    path = recorded(made, schedules, seconds, tmp_path / "records.sqlite")
    with Records(path) as records:
        found = train({"stencils": made}, records)
    assert found.schedules == {"stencils": len(schedules)}
    assert found.better
    assert found.misordered < 0.8 * found.misordered_before
    before, after = shipped().coefficients, found.model.coefficients
    assert after["tasks"] / before["tasks"] > 1.5 * after["loads"] / before["loads"]
    assert found.model.schedules is shipped().schedules
    assert from_json(found.model.to_json()).provenance["pipelines"] == ["stencils"]


def test_the_adapted_model_searches(made, schedules, tmp_path):
    seconds = times_of(made, schedules, shipped().coefficients)
    path = recorded(made, schedules, seconds, tmp_path / "records.sqlite")
    with Records(path) as records:
        found = train({"stencils": made}, records)
    file = tmp_path / "model.json"
    file.write_text(found.model.to_json())
    assert plan_learned(made, model=model_of_file(file))


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": {"processor": "other"}},
        {"problem": "halide/elsewhere/0"},
        {"measurement": Measurement("crashed")},
        {"configuration": {"schedule": None, "target": "host", "env": {}}},
        {"configuration": {"schedule": {"schema": -1}, "target": "host", "env": {}}},
    ],
    ids=["machine", "pipeline", "failed", "unscheduled", "damaged"],
)
def test_other_records_do_not_count(made, schedules, tmp_path, changes):
    seconds = np.linspace(1.0, 2.0, len(schedules))
    path = recorded(made, schedules, seconds.tolist(), tmp_path / "records.sqlite", **changes)
    with Records(path) as records, pytest.raises(TilewrightError, match=f"needs {FEWEST}"):
        train({"stencils": made}, records)


def test_of_a_schedule_that_was_measured_twice_the_faster_counts(made, schedules, tmp_path):
    seconds = times_of(made, schedules, shipped().coefficients)
    path = recorded(made, schedules, seconds, tmp_path / "a.sqlite")
    with Records(path) as records:
        once = train({"stencils": made}, records)
    path = recorded(made, schedules, [t * 3 for t in seconds], tmp_path / "a.sqlite")
    with Records(path) as records:
        twice = train({"stencils": made}, records)
    assert twice.schedules == once.schedules
    for name in NAMES:
        assert math.isclose(twice.model.coefficients[name], once.model.coefficients[name])


def test_a_file_that_is_no_model_is_named(tmp_path):
    file = tmp_path / "model.json"
    with pytest.raises(TilewrightError, match="cannot read the model"):
        model_of_file(file)
    file.write_text("{}")
    with pytest.raises(TilewrightError, match=r"model\.json: this is not a cost model"):
        model_of_file(file)


def test_the_command_writes_a_model_that_schedule_takes(made, schedules, tmp_path, capsys):
    pipeline = tmp_path / "stencils.hlpipe"
    pipeline.write_bytes(made.algorithm.serialized)
    path = tmp_path / "records.sqlite"
    again = make_task(pipeline.read_bytes(), target="host", calibration=False)
    recorded(again, schedules, times_of(again, schedules, shipped().coefficients), path)
    model = tmp_path / "model.json"
    arguments = [str(pipeline), "--records", str(path), "--no-calibration"]
    assert main(["train", *arguments, "-o", str(model)]) == 0
    shown = capsys.readouterr().out
    assert f"{len(schedules)} recorded schedules" in shown
    assert "were in the wrong order before" in shown
    assert model_of_file(model).coefficients.keys() == set(NAMES)
    learned = ["schedule", *arguments, "--model", str(model), "--no-check"]
    assert main([*learned, "--scheduler", "learned"]) == 0
    assert "Learned scheduler:" in capsys.readouterr().out
    assert main(learned) == 2
    assert "--scheduler learned or auto" in capsys.readouterr().err


def test_the_command_says_what_is_missing(made, tmp_path, capsys):
    pipeline = tmp_path / "stencils.hlpipe"
    pipeline.write_bytes(made.algorithm.serialized)
    missing, empty = tmp_path / "missing.sqlite", tmp_path / "empty.sqlite"
    output = ["-o", str(tmp_path / "model.json")]
    assert main(["train", str(pipeline), "--records", str(missing), *output]) == 2
    assert "measure schedules first" in capsys.readouterr().err
    with Records(empty):
        pass
    assert main(["train", str(pipeline), "--records", str(empty), *output]) == 2
    assert "have 0 measured schedules" in capsys.readouterr().err
    assert not (tmp_path / "model.json").exists()


def test_a_model_is_for_the_learned_scheduler_on_a_cpu(made):
    with pytest.raises(TilewrightError, match="scheduler='learned'"):
        Planning(model="model.json")
    with pytest.raises(TilewrightError, match="is a model of CPUs"):
        schedule(
            made.algorithm.serialized, target="cuda", machine="a100", scheduler="learned",
            model="model.json",
        )  # fmt: skip


def test_the_plan_says_where_its_time_goes_and_what_the_next_one_costs(made):
    notes = " ".join(plan_learned(made)[0].notes)
    assert re.search(r"Largest terms of the linear model: [a-z ]+ \d+%, [a-z ]+ \d+%", notes)
    ratio = re.search(r"The next best structure \(.+\) counts as taking ([\d.]+) times", notes)
    assert ratio is not None
    assert float(ratio.group(1)) >= 1.0


@pytest.mark.parametrize(("drift", "deviation", "residual"), [(0.5, 0.8, 0.35), (1.0, 0.5, 0.2)])
def test_a_predicted_gain_of_the_needed_size_is_an_expected_gain_of_none(
    drift, deviation, residual
):
    model = replace(shipped(), drift=drift, deviation=deviation, residual=residual)
    rng = np.random.default_rng(0)
    true = rng.normal(drift, deviation, 2_000_000)
    predicted = true + rng.normal(0.0, residual, len(true))
    near = np.abs(predicted + model.needed_gain) < 0.02
    assert near.sum() > 1000
    assert np.mean(true[near]) == pytest.approx(0.0, abs=0.03)


def test_the_analytic_schedule_comes_first_unless_a_gain_is_expected(made):
    analytic = exact_size(plan(made)[0].schedule)
    # A machine on which parallel loops cost so much that serial ones are preferred.
    slow = {**shipped().coefficients, "regions": 1e6, "tasks": 1e6}
    model = replace(shipped(), coefficients=slow)
    cautious = plan_learned(made, model=replace(model, drift=1e3))
    assert exact_size(cautious[0].schedule) == analytic
    bold = plan_learned(made, model=replace(model, drift=0.0))
    assert exact_size(bold[0].schedule) != analytic
    doubtful = plan_learned(made, model=replace(model, drift=0.0, residual=100.0))
    assert exact_size(doubtful[0].schedule) == analytic


def likes(name, more_than):
    """A correction that halves the time where a feature exceeds a value."""
    names = NAMES_OF_SIZES if name in NAMES_OF_SIZES else CHANGE_NAMES
    feature = np.full((1, 1), names.index(name))
    tree = BoostedTrees(feature, np.full((1, 1), more_than), np.array([[0.0, -0.7]]))
    return CorrectionModel(names, (tree,))


def with_other_sizes(seed):
    """Return a task, a model and the analytic schedule, if the search changes its sizes."""
    made = task(seed)
    best = plan(made)[0].schedule
    analytic = exact_size(best)
    own = BeamSearch(made, shipped()).costed(analytic).row[0, CHANGE_NAMES.index("tasks")]
    model = replace(
        shipped(),
        sizes=likes("tasks", own + 0.5),
        schedules=likes("change of tasks", 0.5),
        drift=1e3,
        residual=50.0,
    )
    search = BeamSearch(made, model, analytic=best)
    states = search.run([*map(exact_size, (p.schedule for p in plan(made, k=5))), naive(made)])
    return None if analytic in [state.schedule for state in states] else (made, model, analytic)


@pytest.mark.parametrize("auto", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_analytic_schedule_also_comes_first_if_the_search_has_changed_its_sizes(auto):
    """The search keeps one state per structure: here not that of the analytic sizes."""
    made, model, analytic = next(filter(None, map(with_other_sizes, range(4, 40))))
    found = plan_learned(made, model=model, auto=auto)
    assert exact_size(found[0].schedule) == analytic
