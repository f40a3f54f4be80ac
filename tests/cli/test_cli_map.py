"""``tilewright map``: plans from a file, with models of tilewright predict."""

import json

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.prediction import Augmented


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of a slow and a fast device for n up to 1000, and a graph of two tasks."""
    made = tmp_path_factory.mktemp("map")
    n = np.arange(1.0, 1000.0, 25.0)[:, None]
    for name, rate in (("cpu", 4e-6), ("gpu", 1e-6)):
        model = Augmented(features=("n",), complexity="n", max_seconds=None)
        model.fit(n, rate * n[:, 0] + 1e-5).save(made / f"{name}.json")
    tasks = [
        {"name": "a", "kernel": "f", "query": {"n": 500}, "result_bytes": 1000},
        {"name": "b", "kernel": "f", "query": {"n": 1_000_000}, "needs": ["a"]},
    ]
    (made / "graph.json").write_text(json.dumps({"tasks": tasks}))
    return made


def run(capsys, folder, *words):
    models = [word for d in ("cpu", "gpu") for word in ("--model", f"{d}:f={folder}/{d}.json")]
    code = main(["map", str(folder / "graph.json"), *models, *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_graph_is_planned_by_models_and_guesses_are_named(capsys, folder, tmp_path):
    page, plan = tmp_path / "plan.html", tmp_path / "plan.json"
    code, out, _ = run(capsys, folder, "--report", page, "-o", plan)
    assert code == 0
    assert "makespan" in out
    assert "guessed, outside what was measured: b" in out
    found = json.loads(plan.read_text())
    assert {step["device"] for step in found["steps"]} == {"gpu"}
    assert found["unsure"] == ["b"]
    assert found["interval"][0] < found["makespan"]
    assert "<svg" in page.read_text()
    assert "guessed" in page.read_text()
    assert "How this was made" in page.read_text()


def test_json_is_printed_alone(capsys, folder):
    code, out, _ = run(capsys, folder, "--json", "--robust", "--method", "exact")
    assert code == 0
    assert json.loads(out)["method"] == "exact"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "gpu=gpu.json"], "DEVICE:KERNEL=MODEL.json"),
        (["--model", "tpu:g=x.json"], "names the kernel 'g', which no task has"),
        (["--model", "tpu:f=missing.json"], "missing.json"),
        (["--coverage", "2"], "between 0 and 1"),
    ],
)
def test_a_wrong_command_line_says_the_cure(capsys, folder, words, message):
    try:
        code, _, err = run(capsys, folder, *words)
    except SystemExit as error:
        code, err = error.code, capsys.readouterr().err
    assert code == 2
    assert message in err


def test_a_graph_without_devices_says_what_to_add(capsys, tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"tasks": [{"name": "a"}]}))
    assert main(["map", str(path)]) == 2
    assert "has no seconds of any task on a device" in capsys.readouterr().err
