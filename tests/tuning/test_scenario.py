import itertools
import json
import subprocess
import sys
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.tuning import Integer, Permutation, Real, SpaceError
from tilewright.tuning.interop.hypermapper_constraints import translate
from tilewright.tuning.interop.hypermapper_protocol import ReplyError, optimize, read_samples
from tilewright.tuning.interop.hypermapper_scenario import load_scenario, read_scenario

# As TACO's scenario in BaCO's repository: a permutation under constraints, defaults, logs.
SDDMM = {
    "application_name": "sddmm",
    "baco_mode": {"mode": "client-server"},
    "design_of_experiment": {"doe_type": "random sampling", "number_of_samples": 5},
    "feasible_output": {
        "enable_feasible_predictor": True,
        "name": "Valid",
        "true_value": "True",
        "false_value": "False",
    },
    "epsilon_greedy_threshold": 0,
    "input_parameters": {
        "cs": {
            "constraints": ["cs % 2 == 0"],
            "parameter_default": 16,
            "parameter_type": "ordinal",
            "transform": "log",
            "values": [2, 4, 8, 16, 32, 64],
        },
        "ocs": {
            "constraints": ["(ocs % 2 == 0) | (ocs == 1)"],
            "parameter_default": 1,
            "parameter_type": "ordinal",
            "transform": "log",
            "values": [1, 2, 4, 8],
        },
        "p": {
            "constraints": ["((p_i2 < p_i3) & (p_i0 < p_i2)) | (p_i3 < p_i0)"],
            "parameter_default": [0, 1, 2, 3],
            "parameter_type": "permutation",
            "parametrization": "spearman",
            "values": [4],
        },
        "uf": {
            "constraints": ["uf < cs", "uf % 2 == 0"],
            "dependencies": ["cs"],
            "parameter_default": 8,
            "parameter_type": "ordinal",
            "transform": "log",
            "values": [2, 4, 8, 16, 32],
        },
    },
    "log_transform_output": True,
    "models": {"model": "gaussian_process"},
    "optimization_iterations": 7,
    "optimization_method": "bayesian_optimization",
    "optimization_objectives": ["compute_time"],
    "reuse_gp_hyperparameters": True,
    "scalarization_method": "linear",
    "multistart_hyperparameter_optimization_initial_points": 10,
}
# The client of BaCO's wiki, reading what it is asked line by line.
CLIENT = """\
import subprocess, sys
tuner = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
while True:
    request = tuner.stdout.readline()
    if not request or "End of HyperMapper" in request:
        break
    header = tuner.stdout.readline().strip()
    assert header == "cs,ocs,p,uf", header
    reply = header + ",compute_time,Valid\\n"
    for _ in range(int(request.split(" ")[1])):
        line = tuner.stdout.readline().strip()
        cs, ocs, *order, uf = line.split(",")
        valid = int(ocs) != 8
        time = 1 + abs(int(cs) - 32) + abs(int(uf) - 4) + ("(2" not in order[0])
        reply += f"{line},{time if valid else 0},{valid}\\n"
        print(line)
    tuner.stdin.write(reply)
    tuner.stdin.flush()
sys.exit(tuner.wait())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "scenario.json").write_text(json.dumps(SDDMM))
    return tmp_path


def changed(**more):
    return {**SDDMM, **more}


def test_a_client_of_baco_runs_unchanged(folder):
    line = [sys.executable, "client.py", sys.executable, "-m", "tilewright.cli", "tune"]
    line += ["scenario.json", "--records", "records.sqlite"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=True)
    asked = done.stdout.splitlines()
    assert len(asked) == len(set(asked)) == 12
    assert asked[0] == "16,1,(0, 1, 2, 3),8"  # the defaults first
    space = load_scenario("scenario.json").space
    samples = read_samples(load_scenario("scenario.json"), folder / "output_samples.csv")
    assert len(samples) == 12
    assert all(space.is_feasible(t.configuration) for t in samples)
    assert {t.status for t in samples} <= {"ok", "run_failed"}
    assert all((t.status == "ok") == (t.configuration["ocs"] != 8) for t in samples)
    assert (folder / "output_samples.csv").read_text().startswith("cs,ocs,p,uf,compute_time,Valid,")


@pytest.mark.parametrize(
    "option",
    [
        ("-o", "x.json"),
        ("--report", "x.html"),
        ("--export", "x.json"),
        ("--json",),
        ("--budget", "9"),
        ("--jobs", "2"),
        ("--time-limit", "1m"),
        ("--warm-start",),
        ("--serve",),
    ],
)
def test_options_that_a_scenario_would_ignore_are_refused(folder, capsys, option):
    assert main(["tune", "scenario.json", "--records", "records.sqlite", *option]) == 2
    assert f"leave out {option[0]}\n" in capsys.readouterr().err
    assert sorted(p.name for p in folder.iterdir()) == ["client.py", "scenario.json"]


@pytest.mark.parametrize("setting", ["log_file", "output_data_file", "output_pareto_file"])
@pytest.mark.parametrize("place", ["scenario.json/below", "."])
def test_a_file_of_the_scenario_that_cannot_be_written_is_named(folder, capsys, setting, place):
    several = {"optimization_objectives": ["time", "size"]}
    (folder / "scenario.json").write_text(json.dumps(changed(**{setting: place}, **several)))
    assert main(["tune", "scenario.json", "--records", "records.sqlite"]) == 2
    captured = capsys.readouterr()
    assert str(folder) in captured.err or place in captured.err
    assert "Request" not in captured.out


def test_a_log_that_can_no_longer_be_written_is_an_error(folder, capsys):
    (folder / "scenario.json").write_text(json.dumps(changed(log_file="/dev/full")))
    assert main(["tune", "scenario.json", "--records", "records.sqlite"]) == 2
    assert "/dev/full: No space left on device; make room" in capsys.readouterr().err


def test_constraints_of_numexpr():
    p = {"p": (2, 0, 1)}
    for text, ours in [
        ("(a % 2 == 0) | ~(b > 1) & (a < 3)", "a % 2 == 0 or (not b > 1 and a < 3)"),
        ("p_i2 < p_i0", "p.index(2) < p.index(0)"),
        ("p_2 == 1", "p[2] == 1"),
        ("where(a > 1, b, a) == 2", "(b if a > 1 else a) == 2"),
        ("a << 2 <= 8", "a * 2 ** 2 <= 8"),
        ("sqrt(a) == 3", "a ** 0.5 == 3"),
    ]:
        assert translate(text, p, ["a", "b", "p"]) == ours
    assert translate("p_i2 == 4", p, ["p", "p_i2"]) == "p_i2 == 4"
    for wrong, named in [("a &", "not an expression"), ("a & b == 1", "parentheses")]:
        with pytest.raises(SpaceError, match=named):
            translate(wrong, p, ["a", "b"])


def test_the_space_of_a_scenario():
    scenario = read_scenario(SDDMM)
    pairs = sum(u < c for c in (2, 4, 8, 16, 32, 64) for u in (2, 4, 8, 16, 32))
    orders = sum(
        o.index(0) < o.index(2) < o.index(3) or o.index(3) < o.index(0)
        for o in itertools.permutations(range(4))
    )
    assert scenario.space.count == pairs * 4 * orders
    assert scenario.budget == 12
    assert scenario.queue == [{"cs": 16, "ocs": 1, "p": (0, 1, 2, 3), "uf": 8}]
    more = read_scenario(
        {
            "optimization_objectives": ["f1", "f2"],
            "hypermapper_mode": {"mode": "client-server"},
            "models": {"model": "random_forest"},
            "allow_duplicate_samples": True,
            "log_transform_output": False,
            "time_budget": 2,
            "evaluations_per_optimization_iteration": 4,
            "optimization_iterations": 3,
            "input_parameters": {
                "x-1": {"parameter_type": "real", "values": [-20, 20], "parameter_default": 0},
                "n": {"parameter_type": "integer", "values": [5, -5], "prior": "decay"},
                "k": {"parameter_type": "categorical", "values": ["a", "b"], "prior": [3, 1]},
            },
        }
    )
    assert more.space.parameters[0] == Real("_x_1", -20.0, 20.0, 0.0)
    assert more.space["n"] == Integer("n", -5, 5)
    assert more.budget == 22
    assert more.seconds == 120
    assert (more.settings.surrogate, more.settings.objective) == ("rf", "plain")
    assert more.settings.repeats
    decaying: Any = more.prior.weights["n"]
    assert decaying[-5] > decaying[5]
    assert more.prior.weights["k"] == {"a": 1.0, "b": pytest.approx(1 / 3)}
    named = read_scenario(SDDMM).space["p"]
    assert isinstance(named, Permutation)
    assert named.named


def test_a_python_function_in_the_clients_place(folder):
    scenario = read_scenario(
        {
            "optimization_objectives": ["f1", "f2"],
            "feasible_output": {"enable_feasible_predictor": True, "name": "ok"},
            "design_of_experiment": {"number_of_samples": 4},
            "optimization_iterations": 5,
            "run_directory": "out",
            "input_parameters": {
                "x-1": {"parameter_type": "integer", "values": [0, 20]},
                "y": {"parameter_type": "integer", "values": [0, 20]},
            },
        }
    )

    def function(c):
        return {"f1": c["x-1"] + 1, "f2": 22 - c["x-1"] + c["y"], "ok": c["y"] < 18}

    found = optimize(scenario, function)
    assert len(found.trials) == 9
    assert {t.values for t in found.pareto} <= {t.values for t in found.trials if t.ok}
    front = (folder / "out" / "output_pareto.csv").read_text().splitlines()
    assert front[0] == "x-1,y,f1,f2,ok,Timestamp"
    assert len(front) == 1 + len(found.pareto)
    again = read_scenario(
        {
            "optimization_objectives": ["f1", "f2"],
            "feasible_output": {"enable_feasible_predictor": True, "name": "ok"},
            "design_of_experiment": {"number_of_samples": 4},
            "optimization_iterations": 7,
            "run_directory": "out",
            "resume_optimization": True,
            "resume_optimization_file": "out/output_samples.csv",
            "input_parameters": {
                "x-1": {"parameter_type": "integer", "values": [0, 20]},
                "y": {"parameter_type": "integer", "values": [0, 20]},
            },
        }
    )
    more = optimize(again, function)
    assert [t.configuration for t in more.trials[:9]] == [t.configuration for t in found.trials]
    assert len(more.trials) == 11


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("cs,ocs,p,uf,Valid\n", "compute_time"),
        ("cs,ocs,p,uf,compute_time,Valid\n16,1\n", "line 2"),
        ("cs,ocs,p,uf,compute_time,Valid\n16,1,(0, 1, 2, 3),8,fast,True\n", "'fast'"),
        ("", "ended after line 0"),
    ],
)
@pytest.mark.few(2)
def test_replies_that_cannot_be_read_are_named(folder, reply, named):
    line = [sys.executable, "-m", "tilewright.cli", "tune", "scenario.json"]
    line += ["--records", "records.sqlite"]
    done = subprocess.run(line, input=reply, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("Request 5\ncs,ocs,p,uf\n16,1,(0, 1, 2, 3),8\n")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (changed(optimisation_iterations=3), "did you mean 'optimization_iterations'"),
        (changed(optimization_objectives="time"), "optimization_objectives"),
        (changed(input_parameters={}), "input_parameters"),
        (changed(input_parameters={"x": {"parameter_type": "real", "values": [1]}}), "two bounds"),
        (changed(input_parameters={"x": {"parameter_type": "odd", "values": [1]}}), "'odd'"),
        (
            changed(
                input_parameters={
                    "x": {"parameter_type": "ordinal", "values": [1, 2], "constraints": ["x > z"]}
                }
            ),
            "'z'",
        ),
        (
            changed(
                input_parameters={"x": {"parameter_type": "permutation", "values": [2147483648]}}
            ),
            "too long",
        ),
        (changed(baco_mode={"mode": "exhaustive"}), "exhaustive"),
        (changed(models={"model": "oracle"}), "oracle"),
        ([], "object"),
    ],
)
def test_mistakes_in_a_scenario_are_named(folder, capsys, data, named):
    (folder / "scenario.json").write_text(json.dumps(data))
    with pytest.raises(SpaceError, match=r"scenario\.json"):
        load_scenario("scenario.json")
    assert main(["tune", "scenario.json", "--records", "records.sqlite"]) == 2
    assert named in capsys.readouterr().err


def test_text_that_is_not_json_is_answered_with_its_line(folder):
    (folder / "scenario.json").write_text('{\n "a": 1,\n "b" 2\n}')
    with pytest.raises(SpaceError, match="line 3"):
        load_scenario("scenario.json")
    (folder / "old.csv").write_text("cs,ocs,p,uf,compute_time,Valid\n1,2\n")
    with pytest.raises(ReplyError, match="line 2"):
        read_samples(read_scenario(SDDMM), folder / "old.csv")
