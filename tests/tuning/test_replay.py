import gzip
import json

import pytest

from tilewright.tuning import SpaceError, Tuner, tune
from tilewright.tuning.interop.replay import read_cache, read_t1, read_t4
from tilewright.tuning.interop.t4 import write_t4

T1 = {
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "block", "Type": "int", "Values": "[16, 32, 64]", "Default": 16},
            {"Name": "tile", "Type": "int", "Values": "list(range(1, 4))", "Default": 1},
            {"Name": "mode", "Type": "string", "Values": "['a', 'b']", "Default": "a"},
        ],
        "Conditions": [{"Expression": "block * tile <= 128", "Parameters": ["block", "tile"]}],
    }
}


def result(block, tile, mode, time):
    good = not isinstance(time, str)
    return {
        "configuration": {"block": block, "tile": tile, "mode": mode},
        "invalidity": "correct" if good else time,
        "measurements": [{"name": "time", "value": time if good else "CompilationFailedConfig"}],
    }


@pytest.fixture
def files(tmp_path):
    results = [
        result(b, t, m, "compile" if b == 16 and t == 3 else b / t + (m == "b"))
        for b in (16, 32, 64)
        for t in (1, 2, 3)
        for m in "ab"
        if b * t <= 128
    ]
    (tmp_path / "kernel.T1.json").write_text(json.dumps(T1))
    path = tmp_path / "kernel_GPU_T4.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"results": results}).encode()))
    return tmp_path, path


def test_t4_results_are_replayed_with_the_description_next_to_them(files):
    _, path = files
    replay = read_t4(path)
    assert replay.name == "kernel_GPU"
    assert replay.space.count == len(replay.values) == 16
    assert replay.optimum == 8.0
    assert replay.space["block"].scale == "log"
    found = tune(replay, replay.space, budget=16)
    assert found.best.value == 8.0
    assert {t.status for t in found.trials} == {"ok", "build_failed"}


def test_t4_results_without_a_description_give_the_values_that_occur(files):
    folder, path = files
    (folder / "kernel.T1.json").unlink()
    replay = read_t4(path)
    assert replay.space.count == 18
    found = tune(replay, replay.space, budget=18)
    missing = [t for t in found.trials if "not among" in t.message]
    assert len(missing) == 2


def test_trials_written_as_t4_are_read_back(files):
    folder, path = files
    replay = read_t4(path)
    found = tune(replay, replay.space, budget=10, seed=3)
    write_t4(folder / "kernel_mine_T4.json.gz", found.trials)
    again = read_t4(folder / "kernel_mine_T4.json.gz")
    for trial in found.trials:
        key = again.space.key(again.space.encode(trial.configuration))
        assert again.values[key] == (trial.value if trial.ok else trial.status)


def test_kernel_tuner_cache_files_are_replayed(tmp_path):
    cache = {
        "tune_params_keys": ["block", "tile"],
        "tune_params": {"block": [16, 32], "tile": [1, 2]},
        "objective": "time",
        "cache": {
            "16,1": {"block": 16, "tile": 1, "time": 2.5},
            "16,2": {"block": 16, "tile": 2, "time": 1.5},
            "32,1": {"block": 32, "tile": 1, "time": "RuntimeFailedConfig"},
        },
    }
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(cache))
    replay = read_cache(path, ["block * tile <= 32"])
    assert replay.space.count == 3
    assert replay.optimum == 1.5
    trial = tune(replay, replay.space, budget=3).tuner
    assert isinstance(trial, Tuner)
    assert [t.status for t in trial.trials].count("run_failed") == 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"ConfigurationSpace": {}}', "T1"),
        (
            '{"ConfigurationSpace": {"TuningParameters": [{"Name": "a", "Values": "__import__"}]}}',
            "T1",
        ),
    ],
)
def test_malformed_files_are_named(tmp_path, content, named):
    path = tmp_path / "bad.T1.json"
    path.write_text(content)
    with pytest.raises(SpaceError) as error:
        read_t1(path)
    assert named in str(error.value)
    assert "bad.T1.json" in str(error.value)
