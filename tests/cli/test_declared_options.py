"""Options declared as in a usage line."""

import argparse

import pytest

from tilewright.cli import options
from tilewright.cli.values import parameter, query, setting, share

TABLE = {
    "runs RUNS.csv": "the runs",
    "[more FILE ...]": "more files",
    "-n --count N = 250": "how many",
    "--mode fast|exact = exact": "how",
    "--set NAME=VALUE ...": "a value",
    "--output FILE required": "the file",
    "--json": "print JSON",
}


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(exit_on_error=False)
    options.add_options(made, TABLE)
    return made


def test_options_have_the_defaults_of_their_declarations(parser):
    found = vars(parser.parse_args(["a.csv", "--output", "x"]))
    assert found == {
        "runs": "a.csv",
        "more": [],
        "count": 250,
        "mode": "exact",
        "set": [],
        "output": "x",
        "json": False,
    }


def test_options_are_parsed_by_their_placeholders(parser):
    words = "a.csv b c -n 3 --mode fast --set a=1 --set b=x --output x --json".split()
    found = parser.parse_args(words)
    assert (found.runs, found.more, found.count, found.mode) == ("a.csv", ["b", "c"], 3, "fast")
    assert (found.set, found.json) == ([("a", 1), ("b", "x")], True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["a.csv", "--output", "x", "-n", "0"], "is not a whole number from 1"),
        (["a.csv", "--output", "x", "--mode", "slow"], "invalid choice: 'slow'"),
        (["a.csv", "--output", "x", "--set", "a"], "is not of the form NAME=VALUE"),
    ],
)
def test_values_of_another_kind_are_refused(parser, words, error):
    with pytest.raises(argparse.ArgumentError, match=error):
        parser.parse_args(words)


@pytest.mark.parametrize("words", [[], ["a.csv"], ["--output", "x"]])
def test_required_arguments_are_asked_for(parser, words, capsys):
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        parser.parse_args(words)


def test_help_shows_placeholders_and_defaults_once(parser):
    text = parser.format_help()
    assert "RUNS.csv [FILE ...]" in text
    assert "--output FILE" in text
    assert text.count("(default: 250)") == 1
    assert "how (default: exact)" in text
    assert "the file\n" in text


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (query, "m=512, d=0.25,layout=row", {"m": 512, "d": 0.25, "layout": "row"}),
        (parameter, "n=1:1000", ("n", (1.0, 1000.0))),
        (parameter, "n=1,2,4", ("n", [1.0, 2.0, 4.0])),
        (setting, "threads=1,2", ("threads", (1.0, 2.0))),
        (share, "0.9", 0.9),
    ],
)
def test_values_of_predict_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parameter, "n"),
        (parameter, "=1:2"),
        (parameter, "n=1:2:3"),
        (parameter, "n=a"),
        (setting, "threads"),
        (setting, "threads=1:4"),
        (share, "1"),
        (share, "0"),
        (share, "half"),
        (query, "m"),
    ],
)
def test_wrong_values_of_predict_are_refused_by_quoting_them(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        read(text)
