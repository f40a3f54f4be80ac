"""What the command line says of itself: examples, defaults, what may have been meant."""

import argparse
import json
import os
import shutil
import subprocess

import pytest

from tilewright.cli import EXIT_CODES, examples, main, parser
from tilewright.cli.completion import SHELLS, script
from tilewright.cli.values import duration, seed


def commands(of=None, path=()):
    """Every command that does something, with its parser."""
    of = of or parser()
    inner = [a for a in of._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield " ".join(path), of
    for action in inner:
        for name, command in action.choices.items():
            yield from commands(command, (*path, name))


ALL = dict(commands())


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_an_example_that_is_right(name):
    text = ALL[name].format_help()
    assert "example:\n  " in text
    line = text.partition("example:\n")[2].splitlines()[0].strip()
    for words in line.removeprefix("eval ").strip('"$()').split(" && "):
        first, *rest = words.replace("'", "").split()
        assert first == "tilewright"
        parser().parse_args(rest)  # exits if it is wrong
    assert name in line


@pytest.mark.parametrize("name", ALL)
def test_common_options_are_the_same_everywhere(name, monkeypatch):
    options = {o: a for a in ALL[name]._actions for o in a.option_strings}
    if name != "completion":
        assert options["-q"] is options["--quiet"]
    if "--output" in options:
        assert options["-o"] is options["--output"]
    if "--quiet" in options:
        assert options["--quiet"].help == "print no progress and no notes"
    if "--seed" in options:
        assert options["--seed"].type is seed
        assert options["--seed"].help.endswith("(default: 0)")
    if "--time-limit" in options:
        assert options["--time-limit"].type is duration
    if "--records" in options:
        assert "records.sqlite" in options["--records"].help


def test_the_place_of_records_may_have_percent_signs(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/100%s")
    assert "/100%s" in dict(commands())["records list"].format_help()


def test_exit_codes_are_in_the_help(capsys):
    assert main(["--help"]) == 0
    assert EXIT_CODES in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "usage", "said"),
    [
        (["shedule"], "tilewright [options] COMMAND ...", "did you mean 'schedule'"),
        (["predict", "fti"], "tilewright predict [options] COMMAND ...", "did you mean 'fit'"),
        (
            ["predict", "fit", "x", "--modl", "c"],
            "tilewright predict fit [options] RUNS.csv",
            "did you mean '--model'",
        ),
        (["records", "list", "extra"], "tilewright records list [options]", "arguments: extra"),
        (
            ["schedule", "a", "--mode", "tpo"],
            "tilewright schedule [options] [PIPELINE]",
            "did you mean 'top'",
        ),
    ],
)
def test_a_mistake_shows_the_usage_of_its_command_and_what_was_meant(capsys, line, usage, said):
    assert main(line) == 2
    err = capsys.readouterr().err
    first, *_, last = err.splitlines()
    assert first == f"usage: {usage}"
    assert last == f"{usage.partition(' [')[0]} --help lists the options."
    assert err.count("\n") == 3
    assert said in err


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_commands_and_options(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "schedule" in text
    assert "--complexity" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_bash_completes_what_follows():
    ask = """
COMP_WORDS=({words} "$1"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _tilewright
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    for words, begun, wanted in (
        ("tilewright", "sch", "schedule"),
        ("tilewright predict", "ev", "evaluate"),
        ("tilewright predict fit runs.csv", "--comp", "--complexity"),
        ("tilewright schedule x.py --json", "--re", "--report"),
    ):
        code = script("bash", parser()) + ask.format(words=words)
        done = subprocess.run(
            ["bash", "-c", code, "bash", begun], capture_output=True, text=True, check=True
        )
        assert wanted in done.stdout.split(), done.stderr


def test_new_copies_an_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new"]) == 0
    listed = capsys.readouterr().out
    assert "harris" in listed
    assert "Harris corner detection" in listed
    assert main(["new", "harris"]) == 0
    assert "tilewright schedule harris.py" in capsys.readouterr().out
    assert (tmp_path / "harris.py").read_text() == examples.path_of("harris").read_text()
    assert os.access(tmp_path / "harris.py", os.W_OK)
    for line, said in (
        (["new", "harris"], "harris.py exists"),
        (["new", "haris"], "did you mean 'harris'"),
        (["new", "blur", "-o", "missing/x.py"], "no folder"),
    ):
        assert main(line) == 2
        assert said in capsys.readouterr().err
    assert main(["new", "blur", "-q", "-o", "mine.py"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["new", "blur", "-o", "-"]) == 0
    assert capsys.readouterr().out.strip() == examples.path_of("blur").read_text().strip()


def test_an_example_is_scheduled_by_its_name(capsys):
    line = ["schedule", "--example", "blur", "--no-check", "-q"]
    assert main(line) == 0
    assert "blur for" in capsys.readouterr().out
    for wrong, said in (
        ([*line, "x.py"], "not both"),
        (["schedule"], "--example harris"),
        (["compare", "--example", "blurr"], "did you mean 'blur'"),
    ):
        assert main(wrong) == 2
        assert said in capsys.readouterr().err


def test_a_machine_is_written_as_json(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    assert main(["machine", "--gpu", "h100", "-o", str(path)]) == 0
    assert "H100" in capsys.readouterr().out
    assert main(["machine", "--gpu", "h100", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_text())
