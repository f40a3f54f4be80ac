"""The large problems of the tuners' comparison: evaluated, remembered, and asked for by a peer."""

import json
import shutil
import subprocess
import sys
import time

import pytest

import tuning_large
import tuning_quality
import tuning_runs
from tilewright.tuning import Categorical, Ordinal, Space
from tilewright.tuning.tune import FailedError
from tuning_large import Live, explored, flags, kept_bytes
from tuning_problems import within

needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("size")), reason="needs gcc and binutils"
)


def small(asked=None):
    """A space of 240 configurations of which some break a constraint and some fail."""
    space = Space(
        [
            Ordinal("x", (1, 2, 4, 8, 16), scale="log"),
            Ordinal("y", (1, 2, 3, 4, 5, 6)),
            Categorical("mode", ("a", "b", "c", "d")),
            Categorical("on", (False, True)),
        ],
        ["x * y <= 48"],
    )

    def evaluate(c):
        if asked is not None:
            asked.append(c)
        if c["mode"] == "d":
            raise FailedError("build_failed", "refused")
        return (c["x"] - 8) ** 2 + (c["y"] - 5) ** 2 + 3 * (c["mode"] != "b") + c["on"] + 1.0

    return Live("small", space, evaluate)


def test_a_configuration_is_evaluated_once_also_where_it_fails():
    asked: list = []
    problem = small(asked)
    good = {"x": 8, "y": 5, "mode": "b", "on": False}
    assert [problem(good), problem(good)] == [1.0, 1.0]
    for _ in range(2):
        with pytest.raises(FailedError) as raised:
            problem({**good, "mode": "d"})
        assert raised.value.status == "build_failed"
    assert len(asked) == 2


def test_a_long_search_finds_the_best_and_describes_the_space():
    problem = small()
    found = explored(problem, 150, seed=2, sample=60)
    assert found["best"] == 1.0
    assert found["configuration"] == {"x": 8, "y": 5, "mode": "b", "on": False}
    assert found["evaluations"] <= 150
    # a quarter of the configurations has the mode that fails
    assert 0.1 < found["failing"] < 0.4
    assert found["worst"] == max(found["sampled"])
    known = Live("small", problem.space, problem.evaluate, found | {"sample": 4, "sampled": [1, 2]})
    assert within(known, 0.5) == 0.5
    assert within(known, 0.9) == 0.25


def test_a_peer_asks_for_what_it_evaluates(tmp_path):
    asked: list = []
    problem = small(asked)
    store = tuning_runs.Store(tmp_path, sys.executable, time.monotonic() + 600)
    store.fill("random", problem, [0, 1])
    runs = store.runs("random", problem, 120)
    assert sorted(runs) == [0, 1]
    assert [len(run) for run in runs.values()] == [120, 120]
    assert runs[0] != runs[1]
    assert all(problem.space.contains(problem.space.encode(c)[None])[0] for c in asked)
    values = {v for v in runs[0] if v is not None}
    assert values <= {found for found in problem._kept.values() if isinstance(found, float)}
    assert 10 < runs[0].count(None) < 60
    assert not store.runs("kernel_tuner_genetic_algorithm", problem, 120)
    # what lists every configuration is not started on a space that has no list
    store.fill("kernel_tuner_genetic_algorithm", problem, [0])
    assert not list(tmp_path.glob("*kernel_tuner*"))


@needs_gcc
def test_the_bytes_are_those_that_binutils_counts(tmp_path):
    source = tmp_path / "f.c"
    source.write_text(
        "static int kept[64] = {1}; const int fixed[5] = {7};\n"
        'const char *f(int i) { kept[i]++; return i ? "some" : "others"; }\n'
        "__attribute__((cold)) double g(double x) { return x * 3.7 + kept[1]; }\n"
    )
    made = tmp_path / "f.o"
    subprocess.run(["gcc", "-O2", "-c", source, "-o", made], check=True)
    said = subprocess.run(["size", "-A", made], capture_output=True, text=True, check=True).stdout
    parts = [line.split() for line in said.splitlines() if line.startswith((".text", ".rodata"))]
    assert len(parts) > 2
    assert kept_bytes(made.read_bytes()) == sum(int(size) for _, size, _ in parts)


@needs_gcc
@pytest.mark.parametrize("name", tuning_large.CODE)
def test_flags_change_the_size_of_the_code(name):
    problem = flags(name)
    off = {p.name: p.values[0] for p in problem.space.parameters} | {"toplevel_reorder": True}
    assert len(off) > 100
    sizes = {problem({**off, "level": level}) for level in ("1", "3")}
    sizes.add(problem({**off, "level": "3", "align_functions": True}))
    assert len(sizes) == 3
    assert flags(name)({**off, "level": "3"}) in sizes


def test_an_absent_compiler_is_not_a_failing_configuration():
    problem = flags("codec", "no-such-compiler")
    with pytest.raises(FileNotFoundError):
        problem({p.name: p.values[0] for p in problem.space.parameters})


def test_the_summary_keeps_the_large_problems_apart():
    def row(problem, tool, share, **more):
        shares = {str(b): [share, share] for b in tuning_runs.BUDGETS}
        about = {"held_out": True, "configurations": 10**6, "within_10_percent": 0.2, "seeds": 2}
        return {
            "problem": problem,
            "tool": tool,
            "shares": shares,
            "to_95": [30, 30],
            **about,
            **more,
        }

    tools = {"random": 0.5, "pyatf": 0.8, "opentuner": 0.6, tuning_runs.OURS: 0.88}
    rows = [row("vast", t, share, large=True) for t, share in tools.items()]
    rows += [row("used", t, 1.0, large=True, held_out=False) for t in tools]
    rows += [row("table", t, 0.9, configurations=500) for t in tuning_quality.PEERS]
    rows.append(row("table", tuning_runs.OURS, 0.9, configurations=500))
    summary = json.loads(json.dumps(tuning_quality.summarise(rows)))
    assert summary["problems"] == 3
    assert summary["over_1e5_or_under_1_percent"] == 2
    assert summary["compared"] == 1
    assert summary["vs_best_peer_at_60"] == pytest.approx(1.0)
    assert summary["large"]["compared"] == 1
    assert summary["large"]["vs_best_peer_at_60"] == pytest.approx(1.1)
    assert summary["large"]["best_peer_at_60"] == "pyatf"
    assert summary["large"]["seeds"]["optuna_gp"] == 0
    assert summary["large_pooled"]["vs_best_peer_at_60"] == pytest.approx(1.1**0.5)
