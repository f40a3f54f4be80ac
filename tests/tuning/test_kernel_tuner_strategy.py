import json

import kernel_tuner
import pytest

from tilewright.tuning import Categorical, FailedError, Ordinal, Real, Space, SpaceError, tune
from tilewright.tuning.interop.kernel_tuner import TilewrightStrategy
from tilewright.tuning.interop.replay import numbers, read_cache
from tilewright.tuning.interop.t4 import export_t4, write_cache
from tilewright.tuning.space.listing import listed_space

PARAMETERS = {"block": [32, 64, 96, 128], "tile": [1, 2, 3, 4], "cache": [0, 1], "one": [5]}


def time_of(block, tile, cache):
    if block == 96 and tile == 4:
        return None
    return 1.0 + (block != 64) + abs(tile - 3) + 0.5 * cache


@pytest.fixture
def cache_file(tmp_path):
    entries = {}
    for block in PARAMETERS["block"]:
        for tile in PARAMETERS["tile"]:
            for cache in PARAMETERS["cache"]:
                if block * tile <= 384:
                    time = time_of(block, tile, cache)
                    entry: dict = {"block": block, "tile": tile, "cache": cache, "one": 5}
                    entry["time"] = time if time else "RuntimeFailedConfig"
                    if time is None:
                        entry["__error__"] = "RuntimeFailedConfig"
                    entries[f"{block},{tile},{cache},5"] = entry
    path = tmp_path / "cache.json"
    path.write_text(
        json.dumps(
            {
                "device_name": "recorded",
                "kernel_name": "kernel",
                "problem_size": 1,
                "tune_params_keys": list(PARAMETERS),
                "tune_params": PARAMETERS,
                "objective": "time",
                "cache": entries,
            }
        )
    )
    return path


def test_kernel_tuner_tunes_with_it(cache_file):
    results, environment = kernel_tuner.tune_kernel(
        "kernel",
        "__global__ void kernel() {}",
        1,
        [],
        PARAMETERS,
        restrictions=["block * tile <= 384"],
        strategy=TilewrightStrategy(seed=0),
        strategy_options={"max_fevals": 22},
        simulation_mode=True,
        cache=str(cache_file),
        lang="CUDA",
        block_size_names=["none_x", "none_y", "none_z"],
        quiet=True,
    )
    assert environment["best_config"]["time"] == 1.0
    asked = {(r["block"], r["tile"], r["cache"]) for r in results}
    assert len(asked) == len(results) == 22
    assert all(b * t <= 384 for b, t, _ in asked)


def test_listed_spaces_hold_just_their_list():
    parameters = [Ordinal("a", (1, 2, 3, 4)), Categorical("b", ("x", "y")), Ordinal("c", (0, 5))]
    rows = [(1, "x", 0), (1, "y", 5), (2, "x", 5), (4, "y", 0), (4, "y", 5)]
    space = listed_space(parameters, rows)
    assert space.count == 5
    for row in rows:
        assert space.is_feasible(dict(zip("abc", row, strict=True)))
    assert not space.is_feasible({"a": 2, "b": "x", "c": 0})
    assert not space.is_feasible({"a": 3, "b": "x", "c": 0})
    with pytest.raises(SpaceError, match="empty"):
        listed_space(parameters, [])


@pytest.mark.parametrize("name", ["mine.cache.json", "mine.cache.json.gz"])
def test_trials_written_as_a_cache_are_replayed_by_both(tmp_path, name):
    space = Space([numbers(n, v) for n, v in PARAMETERS.items()], ["block * tile <= 384"])

    def objective(c):
        time = time_of(c["block"], c["tile"], c["cache"])
        if time is None:
            raise FailedError("build_failed", "no")
        return time

    found = tune(objective, space, budget=40)
    assert len(found.trials) == 30
    export_t4(tmp_path / name, found.trials, space, "kernel")
    again = read_cache(tmp_path / name, ["block * tile <= 384"])
    for trial in found.trials:
        key = again.space.key(again.space.encode(trial.configuration))
        assert again.values[key] == (trial.value if trial.ok else "build_failed")
    if name.endswith(".gz"):
        return
    results, _ = kernel_tuner.tune_kernel(
        "kernel",
        "__global__ void kernel() {}",
        1,
        [],
        PARAMETERS,
        restrictions=["block * tile <= 384"],
        strategy="brute_force",
        simulation_mode=True,
        cache=str(tmp_path / name),
        quiet=True,
    )
    times = [r["time"] for r in results if "__error__" not in r]
    assert min(times) == found.best.value
    assert len(results) == 30


def test_values_that_a_cache_cannot_hold_are_named(tmp_path):
    space = Space([Real("x", 0.0, 1.0)])
    with pytest.raises(SpaceError, match="x: a Kernel Tuner cache cannot hold a real"):
        write_cache(tmp_path / "c.json", [], space)
