"""The bundled problems: the paper's spaces with their stand-ins, and real ones that run here."""

import json
from importlib import resources

import numpy as np
import pytest

from tilewright.tuning import SpaceError, space_from_dict, tune
from tilewright.tuning.problems import (
    c_loop_nest,
    cc_flags,
    halide_blur,
    halide_harris,
    halide_laplacian,
    halide_matmul,
    opencl_matmul,
    paper_space,
    paper_spaces,
    recorded,
    standin,
    write_recording,
)
from tilewright.tuning.problems.recordings import configurations, read_recording
from tilewright.tuning.problems.standins import landscape
from tilewright.tuning.tune import FailedError, evaluate

STANDINS = [name for name in paper_spaces() if not name.startswith("rise_")]


@pytest.mark.parametrize("name", paper_spaces())
def test_a_stand_in_says_so_and_gives_the_same_again(name):
    first, second = landscape(name), landscape(name)
    assert first.is_stand_in
    space = paper_space(name)
    assert space.count == first.space.count
    outcomes = []
    for problem in (first, second):
        codes = space.sample(np.random.default_rng(3), 60)
        outcomes.append([evaluate(problem, space.decode(c)) | {"seconds": 0} for c in codes])
    assert outcomes[0] == outcomes[1]
    values = [o["value"] for o in outcomes[0] if "value" in o]
    assert min(values) >= 1.0
    assert len(set(values)) > 20  # a landscape, not a plain


def test_some_stand_ins_have_hidden_failures():
    failing = 0
    for name in STANDINS:
        problem = standin(name)
        for code in problem.space.sample(np.random.default_rng(0), 50):
            failing += evaluate(problem, problem.space.decode(code)).get("status") == "run_failed"
    assert 10 < failing < 300


def test_the_counts_are_those_that_were_counted_independently():
    folder = resources.files("tilewright.tuning.problems") / "spaces"
    counted = [json.loads(p.read_text()) for p in folder.iterdir()]
    assert len(counted) == 12
    for data in counted:
        space = space_from_dict(data)
        assert (space.dense, space.count) == (data["dense"], data.get("feasible", space.count))


def test_an_unknown_space_is_named_with_those_there_are():
    with pytest.raises(SpaceError, match="rise_mm_gpu"):
        standin("rise_mm")


@pytest.mark.parametrize("name", sorted({*paper_spaces()} - {*STANDINS}))
def test_real_kernels_have_no_stand_in(name):
    cure = rf"RiseObjective\(rise_kernel\('{name}'\)\), both of tilewright\.patterns\.rise"
    with pytest.raises(SpaceError, match=cure):
        standin(name)


def test_every_recording_replays_the_whole_space_of_its_problem():
    problems = {p.name: p for p in recorded()}
    real = (cc_flags, c_loop_nest, halide_blur, halide_matmul, halide_harris, opencl_matmul)
    assert len(problems) >= 3
    for make in real:
        if make.__name__ not in problems:
            continue
        replay, space = problems[make.__name__], make().space
        assert len(replay.values) == replay.space.count == space.count
        assert [p.name for p in replay.space.parameters] == [p.name for p in space.parameters]
    for replay in problems.values():
        found = tune(replay, replay.space, budget=12, seed=1)
        assert replay.optimum <= found.best.value < 10 * replay.optimum


def test_a_recording_is_read_as_written_and_its_failures_fail(tmp_path):
    space = opencl_matmul().space
    outcomes: dict = {space.key(space.encode(c)): 1.5 for c in configurations(space)}
    failing = next(configurations(space))
    outcomes[space.key(space.encode(failing))] = "run_failed"
    write_recording(tmp_path / "mine.json.gz", space, outcomes, {"machine": "mine"})
    replay = read_recording(tmp_path / "mine.json.gz")
    assert replay.name == "mine"
    assert replay.optimum == 1.5
    with pytest.raises(FailedError) as raised:
        replay(failing)
    assert raised.value.status == "run_failed"
    (tmp_path / "bad.json.gz").write_bytes(b"no gzip")
    with pytest.raises(SpaceError, match=r"bad\.json\.gz is not a recording"):
        recorded(tmp_path)


@pytest.mark.parametrize("make", [halide_blur, halide_matmul, halide_harris, halide_laplacian])
@pytest.mark.few(2)
def test_a_halide_template_is_built_verified_and_timed_elsewhere(make):
    problem = make(64) if make is halide_matmul else make(128, 64)
    found = problem(problem.space.default())
    assert (found.status, found.message) == ("ok", "")
    assert found.verified
    assert found.median > 0
    assert found.max_error < 1e-4


def test_schedules_that_halide_refuses_are_failed_builds():
    problem = halide_harris(128, 64)
    refused = {**(problem.space.default() or {}), "gradients": "row", "products": "root"}
    found = problem(refused)
    assert found.status == "build_failed"
    assert "compute_at" in found.message
    # asked of the tuner, it is a failure that is learned from
    result = tune(problem, problem.space, budget=1, queue=[refused])
    assert (result.trials[0].status, result.best) == ("build_failed", None)


@pytest.mark.opencl
def test_the_opencl_kernel_runs_and_its_driver_refuses():
    problem = opencl_matmul(64)
    tuned = problem(problem.space.default())
    assert (tuned.status, tuned.message) == ("ok", "")
    assert tuned.verified
    uneven = {**(problem.space.default() or {}), "wx": 64, "tx": 4}  # groups of 64 in a range of 16
    refused = problem(uneven)
    assert refused.status == "run_failed"
    assert "INVALID_WORK_GROUP_SIZE" in refused.message


def test_c_programs_compile_run_and_fail():
    nest = c_loop_nest()
    assert nest(nest.space.default()) > 0
    flags = cc_flags()
    assert flags(flags.space.default()) > 0
    absent = cc_flags(compiler="no-such-compiler")
    with pytest.raises(FailedError) as raised:
        absent(absent.space.default())
    assert raised.value.status == "build_failed"
