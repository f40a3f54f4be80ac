"""What a command prints in place of its objective, and expressions that never end."""

import json

import pytest

from tilewright.cli import main
from tilewright.tuning.command_line.regex import SlowRegexError, last_match
from tilewright.tuning.command_line.toml import load_problem

PROBLEM = """
[objective]
command = ["echo", {printed}]
{how}
[[parameters]]
name = "n"
type = "integer"
low = 1
high = 3
"""
REGEX = "value = 'regex'\nregex = 'took ([0-9.x]+) ms'"
JSON = "value = 'json'\njson = 'seconds'"


def outcome(tmp_path, how, printed):
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM.format(how=how, printed=json.dumps(printed)))
    return load_problem(path)({"n": 2})


@pytest.mark.parametrize(
    ("how", "printed", "said"),
    [
        (REGEX, "error: no device", "does not match the regex; it printed 'error: no device'"),
        (REGEX, "", "it printed nothing"),
        (REGEX, "took 1x ms", "'1x' is not a number; it printed 'took 1x ms'"),
        (REGEX, "long " * 100 + "end", "it ended with"),
        (JSON, "usage: kernel", "no line of JSON in its output; it printed 'usage: kernel'"),
        (JSON, '{"second": 1}', "it printed '{\"second\": 1}'"),
    ],
)
def test_unusable_output_is_shown_in_the_error(tmp_path, how, printed, said):
    found = outcome(tmp_path, how, printed)
    assert found["status"] == "run_failed"
    assert said in found["message"]
    assert len(found["message"]) < 400


def test_values_take_their_places_and_text_in_double_braces_stays(tmp_path):
    assert outcome(tmp_path, REGEX, "took {n:03d} ms") == {"value": 2.0}
    assert "{n}" in outcome(tmp_path, REGEX, "{{n}}")["message"]


@pytest.mark.parametrize("repeat", [1, 3])
def test_a_failing_command_is_shown_with_what_it_printed(tmp_path, repeat):
    path = tmp_path / "problem.toml"
    script = "echo size {n}; echo no memory; exit 3"
    text = PROBLEM.format(how=f"repeat = {repeat}", printed="1")
    path.write_text(text.replace('["echo", 1]', json.dumps(["sh", "-c", script])))
    message = load_problem(path)({"n": 2})["message"]
    assert "exit code 3" in message
    assert message.endswith("it printed 'size 2 no memory'")


def test_a_failing_command_is_shown_with_its_error_first(tmp_path):
    path = tmp_path / "problem.toml"
    script = "echo size {n}; echo warning >&2; echo bad >&2; exit 3"
    text = PROBLEM.format(how="", printed="1")
    path.write_text(text.replace('["echo", 1]', json.dumps(["sh", "-c", script])))
    assert load_problem(path)({"n": 2})["message"].endswith(": bad; it printed 'size 2'")


def test_the_last_match_counts():
    assert last_match("a(.)", "a1 a2 \u00e4") == "2"
    assert last_match("b(.)", "a1") is None


def test_an_expression_that_never_ends_is_stopped():
    with pytest.raises(SlowRegexError, match="make it simpler"):
        last_match("(?:a|aa)+$(b)", "a" * 200, seconds=0.5)


def test_a_place_without_a_parameter_says_how_text_is_written(tmp_path, capsys):
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM.format(how="", printed='"{print}"'))
    assert main(["tune", str(path)]) == 2
    assert "{{print}}" in capsys.readouterr().err
