import gzip
import json

import pytest

from tilewright.tuning import SpaceError, Tuner, tune
from tilewright.tuning.interop.replay import read_cache, read_t1, read_t4
from tilewright.tuning.interop.t4 import write_t4
from tilewright.tuning.interop.value_lists import listed

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


def test_a_cache_that_a_killed_process_left_has_its_whole_entries(tmp_path):
    head = {"tune_params_keys": ["block"], "tune_params": {"block": [16, 32, 64]}}
    head |= {"objective": "time", "cache": {}}
    entries = [json.dumps({"block": b, "time": t}) for b, t in ((16, 2.5), (32, 1.5), (64, 0.5))]
    lines = [f'"{16 << place}": {entry},' for place, entry in enumerate(entries)]
    begun = json.dumps(head).removesuffix("{}}")
    path = tmp_path / "cache.json"
    for length in range(len(lines[-1])):
        path.write_text("\n".join([begun + "{", *lines[:-1], lines[-1][:length]]))
        replay = read_cache(path)
        whole = length == len(lines[-1]) - 1  # the last comma is missing
        assert replay.optimum == (0.5 if whole else 1.5)


def cache_of(tmp_path, objective):
    entries = [(16, 2.5, 40.0), (32, 1.5, 90.0), (64, "RuntimeFailedConfig", 0.0)]
    cache = {
        "tune_params_keys": ["block"],
        "tune_params": {"block": [16, 32, 64]},
        "objective": objective,
        "cache": {str(b): {"block": b, "time": t, "GFLOP/s": rate} for b, t, rate in entries},
    }
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(cache))
    return path


def test_caches_of_kernel_tuner_1_5_list_their_objectives(tmp_path):
    path = cache_of(tmp_path, ["time"])
    assert read_cache(path).optimum == 1.5
    rate = read_cache(path, objective="GFLOP/s")
    assert rate({"block": 32}) == rate.optimum == -90.0  # the more, the better
    with pytest.raises(SpaceError, match="no objective 'energy'"):
        read_cache(path, objective="energy")


def test_several_objectives_of_a_cache_are_tuned_together(tmp_path):
    replay = read_cache(cache_of(tmp_path, ["time", "GFLOP/s"]))
    assert replay({"block": 16}) == (2.5, -40.0)
    found = tune(replay, replay.space, budget=3, objectives=2)
    assert [trial.configuration for trial in found.pareto] == [{"block": 32}]
    with pytest.raises(SpaceError, match="2 objectives"):
        _ = replay.optimum


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2] + list(range(4, 8 + 1, 2))", [1, 2, 4, 6, 8]),
        ("[2**i for i in range(0, 6)]", [1, 2, 4, 8, 16, 32]),
        ("[i // 2 for i in [4, 6]]", [2, 3]),
        ("(-1, 0.5, 'a')", [-1, 0.5, "a"]),
    ],
)
def test_values_written_as_python_lists(text, values):
    assert listed(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "range(10**9)",
        "[open('x')]",
        "[x for y in [1]]",
        "list(3)",
        "['a' * 10**9]",
        "1 / 0",
        "[i for i in range(2) if i]",
        "(",
        "7",
    ],
)
def test_texts_that_are_not_short_lists_of_values_are_refused(text):
    with pytest.raises(ValueError, match=r"is not a|more than"):
        listed(text)


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
