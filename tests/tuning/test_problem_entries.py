"""Entries of a problem file: environment, build steps, scratch folder, requirements, priors."""

import json
import sys

import pytest

from tilewright.errors import TilewrightError
from tilewright.tuning import load_problem

KERNEL = """\
import json, os, sys
from pathlib import Path
built = Path(sys.argv[1], "built").read_text()
error = float(os.environ["SIZE"]) / 8
print(json.dumps({"seconds": len(built), "error": error, "deep": {"sum": 3}}))
"""
STEP = "import sys; open(sys.argv[1] + '/built', 'a').write(sys.argv[2])"
PARAMETERS = """
[[parameters]]
name = "size"
type = "ordinal"
values = [2, 4, 16]
[[parameters]]
name = "count"
type = "integer"
low = -2
high = 2
[[parameters]]
name = "share"
type = "real"
low = 0.0
high = 1.0
"""
BUILD = json.dumps([[sys.executable, "-c", STEP, "{scratch}", text] for text in ("ab", "c")])


def problem(tmp_path, objective="", more=""):
    (tmp_path / "kernel.py").write_text(KERNEL)
    path = tmp_path / "problem.toml"
    path.write_text(
        f"""name = "toy"
{more}
[objective]
command = [{json.dumps(sys.executable)}, "kernel.py", "{{scratch}}"]
build = {BUILD}
env = {{SIZE = "{{size}}"}}
value = "json"
json = "seconds"
{objective}
{PARAMETERS}"""
    )
    return load_problem(path)


def test_steps_of_a_build_share_a_folder_that_is_new_for_each_evaluation(tmp_path):
    toy = problem(tmp_path)
    for size in (2, 4):
        # both steps ran, and nothing is left of the evaluation before
        assert toy({"size": size, "count": 0, "share": 0.5}) == {"value": 3.0}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel.py", "problem.toml"]


def test_a_step_that_fails_ends_the_build(tmp_path):
    toy = problem(tmp_path)
    object.__setattr__(toy, "objective", {**toy.objective, "build": [["false"], ["true"]]})
    assert toy({"size": 2, "count": 0, "share": 0.5})["status"] == "build_failed"


def test_an_output_that_breaks_a_requirement_is_a_wrong_answer(tmp_path):
    toy = problem(tmp_path, 'require = ["error < 1", "seconds > 0 and error >= 0"]')
    assert toy({"size": 4, "count": 0, "share": 0.5}) == {"value": 3.0}
    wrong = toy({"size": 16, "count": 0, "share": 0.5})
    assert wrong["status"] == "wrong_answer"
    assert "error < 1" in wrong["message"]
    assert "error is 2" in wrong["message"]
    said = '{"seconds": 1, "right": %s}\n[2]\n3'
    right = problem(tmp_path, 'require = ["right"]')
    assert right._read(said % "true") == {"value": 1.0}
    assert right._read(said % "false")["status"] == "wrong_answer"
    absent = problem(tmp_path, 'require = ["other < 1"]')({"size": 4, "count": 0, "share": 0.5})
    assert absent["status"] == "run_failed"
    assert "other" in absent["message"]


def test_a_prior_is_read_with_the_values_of_the_space(tmp_path):
    entries = "prior = {size = {16 = 3}, count = {-1 = 2.5}, share = {centre = 0.3, spread = 0.1}}"
    assert problem(tmp_path, more=entries).prior.weights == {
        "size": {16: 3},
        "count": {-1: 2.5},
        "share": (0.3, 0.1),
    }
    assert problem(tmp_path).prior is None
    entries = "prior = {flag = {true = 3}}"
    path = tmp_path / "problem.toml"
    flag = '[[parameters]]\nname = "flag"\ntype = "categorical"\nvalues = [true, false]\n'
    path.write_text(path.read_text().replace("[objective]", f"{entries}\n[objective]", 1) + flag)
    assert load_problem(path).prior.weights == {"flag": {True: 3}}


@pytest.mark.parametrize(
    ("objective", "more", "named"),
    [
        ('require = ["error <"]', "", "objective.require"),
        ('require = "error < 1"', "", "list of texts"),
        ('require = ["error < 1"]\nvalue2 = 1', "", "value2"),
        ("", "prior = {size = {3 = 2}}", "'3' is not one of its values"),
        ("", "prior = {sise = {4 = 2}}", "did you mean"),
        ("", "prior = {size = 4}", "table of tables"),
        ("", "prior = {share = {centre = 0.5}}", "spread"),
        ("", "prior = {count = {zero = 2}}", "'zero' is not one of its values"),
        ("", "prior = {size = {4 = inf}}", "not a finite number"),
        ("", "prior = {size = {4 = true}}", "must be numbers"),
        ("", "prior = {size = {4.5 = 2}}", "in quotes"),
        ("", "prior = {share = {centre = nan, spread = 1}}", "finite"),
        ("", 'prior = {size = {4 = "much"}}', "must be numbers"),
    ],
)
def test_mistakes_in_them_are_named(tmp_path, objective, more, named):
    with pytest.raises(TilewrightError, match=named):
        problem(tmp_path, objective, more)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("{size}", "{sise}", r"objective.env names \{sise\}"),
        ('env = {SIZE = "{size}"}', "env = {SIZE = 4}", "table of texts"),
        ('value = "json"', 'require = ["error < 1"]', "use value = 'json'"),
        ("build = [[", "build = [3, [", "list of such lists"),
        ("build = [[", "build = [[], [", "objective.build is empty"),
        ("env = {SIZE", 'env = {"A=B" = "1", SIZE', "objective.env: no variable can be 'A=B'"),
        ("env = {SIZE", 'env = {"" = "1", SIZE', "objective.env: no variable can be ''"),
    ],
)
def test_mistakes_in_the_objective_are_named(tmp_path, old, new, named):
    problem(tmp_path)
    path = tmp_path / "problem.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(TilewrightError, match=named):
        load_problem(path)
