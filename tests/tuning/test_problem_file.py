import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.tuning.command_line.toml import PROBLEM_TEMPLATE, load_problem

KERNEL = """\
import json, os, sys, time
x, y, order = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with open("asked.log", "a+") as log:
    log.write(f"{x} {y} {order}\\n")
    log.seek(0)
    if len(log.readlines()) > int(os.environ.get("MOST", "1000")):
        time.sleep(600)
if x == 7:
    sys.exit(3)
if x == 6:
    os.abort()
if x == 5:
    time.sleep(600)
if x == 4:
    print("nan is what it took" if y % 2 else "nothing to see")
    sys.exit(0)
cost = 1 + (x - 2) ** 2 + abs(y - 3) + (order != "b,a")
print("warming up")
print(f"took {cost} ms")
print(json.dumps({"result": {"cost": cost, "memory": 10 - y}}))
"""

PROBLEM = """\
name = "toy"
constraints = ["x + y <= 12", "x != 5"]
[objective]
command = [PYTHON, "kernel.py", "{x}", "{y}", "{order}"]
value = "regex"
regex = "took ([0-9.]+) ms"
timeout = 300
[search]
budget = 18
seed = 3
[[start]]
x = 7
y = 0
order = ["a", "b"]
[[parameters]]
name = "x"
type = "integer"
low = 0
high = 7
[[parameters]]
name = "y"
type = "integer"
low = 0
high = 9
[[parameters]]
name = "order"
type = "permutation"
items = ["a", "b"]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    text = PROBLEM.replace("PYTHON", json.dumps(sys.executable))
    (tmp_path / "problem.toml").write_text(text)
    return tmp_path


def asked(folder):
    return (folder / "asked.log").read_text().splitlines()


def command(folder, *more):
    records = str(folder / "records.sqlite")
    return ["tune", str(folder / "problem.toml"), "--records", records, "--quiet", *more]


def test_a_command_is_tuned_and_its_failures_are_distinguished(folder, capsys):
    page = folder / "tune.html"
    assert main(command(folder, "--json", "--report", str(page))) == 0
    assert "--json --report" in page.read_text().split("How this was made")[1]
    found = json.loads(capsys.readouterr().out)
    assert found["evaluations"] == 18
    assert found["best"]["values"][0] <= 3
    assert found["failed"] >= 1
    problem = load_problem(folder / "problem.toml")
    outcomes = {x: problem({"x": x, "y": 1, "order": ("a", "b")})["status"] for x in (7, 6, 4)}
    assert outcomes == {7: "run_failed", 6: "crashed", 4: "run_failed"}
    text = (folder / "problem.toml").read_text().replace("timeout = 300", "timeout = 0.5")
    (folder / "problem.toml").write_text(text)
    hanging = load_problem(folder / "problem.toml")({"x": 5, "y": 1, "order": ("a", "b")})
    assert hanging["status"] == "timeout"


def test_maximised_values_are_shown_as_the_command_prints_them(folder, capsys):
    text = (folder / "problem.toml").read_text()
    (folder / "problem.toml").write_text(text.replace("[search]", "maximise = true\n[search]"))
    page = folder / "tune.html"
    assert main(command(folder, "--json", "--report", str(page))) == 0
    best = json.loads(capsys.readouterr().out)["best"]["values"][0]
    assert best >= 7
    assert f'<b class="good">{best:g}</b>' in page.read_text()
    assert main(command(folder)) == 0
    assert f"best {best:g}\n" in capsys.readouterr().out


def test_json_gives_several_objectives(folder, capsys):
    text = (folder / "problem.toml").read_text()
    text = text.replace('value = "regex"', 'value = "json"')
    text = text.replace('regex = "took ([0-9.]+) ms"', 'json = ["result.cost", "result.memory"]')
    (folder / "problem.toml").write_text(text)
    assert main(command(folder, "--budget", "12")) == 0
    assert "best" in capsys.readouterr().out
    problem = load_problem(folder / "problem.toml")
    assert problem({"x": 2, "y": 3, "order": ("b", "a")}) == {"value": [1.0, 7.0]}
    assert problem.objectives == 2


def test_wall_time_is_the_default_and_repeats_give_its_median(folder):
    text = (folder / "problem.toml").read_text().replace('value = "regex"', "repeat = 3")
    text = text.replace('regex = "took ([0-9.]+) ms"\n', "")
    (folder / "problem.toml").write_text(text)
    found = load_problem(folder / "problem.toml")({"x": 2, "y": 3, "order": ("b", "a")})
    assert len(found["details"]["times"]) == 3
    assert found["value"] > 0
    assert len(asked(folder)) == 3


def test_a_killed_run_is_taken_up_with_the_same_decisions(folder):
    line = [sys.executable, "-m", "tilewright.cli", *command(folder, "--budget", "10")]
    whole = subprocess.run(line, check=True, capture_output=True, text=True)
    expected = asked(folder)
    (folder / "asked.log").unlink()
    os.rename(folder / "records.sqlite", folder / "first.sqlite")
    environment = {**os.environ, "MOST": "6"}  # the seventh evaluation hangs
    process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if (folder / "asked.log").exists() and len(asked(folder)) > 6:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = asked(folder)
    again = subprocess.run(line, check=True, capture_output=True, text=True)
    # what was in flight when it was killed is evaluated again, nothing else is
    both = asked(folder)
    assert len(before) == 7
    assert len(both) == 11
    assert list(dict.fromkeys(both)) == list(dict.fromkeys(expected))
    assert again.stdout == whole.stdout


def test_init_writes_a_problem_that_loads(tmp_path, capsys):
    path = tmp_path / "new.toml"
    assert main(["tune", "--init", str(path)]) == 0
    assert path.read_text() == PROBLEM_TEMPLATE
    problem = load_problem(path)
    assert problem.space.count > 50
    assert problem.start[0]["order"] == ("i", "j", "k")
    assert main(["tune", "--init", str(path)]) == 2
    assert "exists" in capsys.readouterr().err


def test_init_prints_a_problem_to_standard_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "--init", "-"]) == 0
    assert capsys.readouterr().out == PROBLEM_TEMPLATE
    assert not list(tmp_path.iterdir())
    assert main(["tune", "-"]) == 2
    assert "--init" in capsys.readouterr().err


def test_an_export_of_unknown_format_is_refused_before_anything_runs(folder, capsys):
    assert main(command(folder, "--export", str(folder / "found.txt"))) == 2
    assert ".json" in capsys.readouterr().err
    assert not (folder / "asked.log").exists()


def test_a_run_without_a_working_configuration_says_so(folder, capsys):
    (folder / "kernel.py").write_text("import sys\nprint('no device found')\nsys.exit(4)\n")
    assert main(command(folder, "--budget", "3")) == 1
    assert "no device found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[search]", "[search", "line"),
        ("budget = 18", "bugdet = 18", "bugdet"),
        ('"{y}"', '"{z}"', "{z}"),
        ('"x + y <= 12"', '"x + w <= 12"', "'w'"),
        ('"x + y <= 12"', '"x + y <= -12"', "-12"),
        ("took ([0-9.]+) ms", "took ms", "group"),
        ('value = "regex"', 'value = "guess"', "guess"),
        ("timeout = 300", "timeout = -1", "timeout"),
        ("low = 0\nhigh = 9", "low = 0", "high"),
        ('type = "permutation"', 'type = "order"', "order"),
        ("x = 7\n", "x = 99\n", "99"),
        ("budget = 18", "bugdet = 18", "did you mean 'budget'?"),
        ('type = "permutation"', 'type = "permuttion"', "did you mean 'permutation'?"),
        ('value = "regex"', 'value = "regex"\nmaximise = "yes"', "maximise"),
        ('value = "regex"', 'value = "time"\nmaximise = true', "a time is minimised"),
        ('"{y}"', '"{y:zz}"', "y = 0"),
        ('"{order}"', '"{order:03d}"', "order = ('a', 'b')"),
        ('value = "regex"', 'value = "regex"\ndirectory = "nowhere"', "is not a directory"),
        ("timeout = 300", "timeout = nan", "timeout"),
        ("seed = 3", "seed = -1", "search.seed"),
        ("budget = 18", "cutoff = 0.5", "above 1"),
        ("[[start]]", "[start]", "double brackets"),
        ("low = 0\nhigh = 9", "low = 0\nhigh = 99999999999999999999", "2**62"),
        ("low = 0\nhigh = 9", "low = 0\nhigh = 9\nwhen = 3", "'when'"),
        ("low = 0\nhigh = 9", 'low = 0\nhigh = 9\ndefault = "a"', "'a' is not a number"),
    ],
)
def test_mistakes_are_named(folder, capsys, old, new, named):
    text = (folder / "problem.toml").read_text()
    assert old in text
    (folder / "problem.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(TilewrightError) as error:
        load_problem(folder / "problem.toml")
    assert named in str(error.value)
    assert "problem.toml" in str(error.value)
    assert main(command(folder)) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ('["no-such-program", "{x}"]', "in PATH"),
        ('["./kernel.py", "{x}"]', "no executable of that name from"),
        ("[]", "command"),
    ],
)
def test_a_missing_program_is_an_error_before_the_budget_is_spent(folder, capsys, words, cure):
    path = folder / "problem.toml"
    lines = path.read_text().splitlines()
    lines = [f"command = {words}" if line.startswith("command") else line for line in lines]
    path.write_text("\n".join(lines))
    assert main(command(folder)) == 2
    said = capsys.readouterr().err
    assert cure in said
    assert "line" in said
    assert not (folder / "asked.log").exists()


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("budget = 18", "budget = 0", "budget = 0"),
        ('"x + y <= 12"', '"x + w <= 12"', "x + w"),
        ("timeout = 300", "timeout = -1", "timeout = -1"),
        ('type = "permutation"', 'type = "order"', 'name = "order"'),
        ("x = 7\n", "x = 99\n", "[[start]]"),
    ],
)
def test_an_error_names_its_line(folder, old, new, at):
    text = (folder / "problem.toml").read_text().replace(old, new, 1)
    (folder / "problem.toml").write_text(text)
    number = next(n for n, line in enumerate(text.splitlines(), 1) if at in line)
    with pytest.raises(TilewrightError, match=rf"problem\.toml, line {number}: "):
        load_problem(folder / "problem.toml")


def test_an_infeasible_start_is_refused_with_the_constraint(folder):
    path = folder / "problem.toml"
    text = path.read_text().replace("x = 7\ny = 0", "x = 7\ny = 9", 1)
    path.write_text(text)
    with pytest.raises(TilewrightError, match=r"breaks the constraint 'x \+ y <= 12'"):
        load_problem(path)
