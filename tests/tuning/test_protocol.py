import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.tuning.command_line.stdio import Conversation

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tune_protocol.c"
OPENING = {
    "seed": 1,
    "space": {
        "parameters": [
            {"name": "x", "type": "integer", "low": 0, "high": 9},
            {"name": "p", "type": "permutation", "length": 3},
        ],
        "constraints": ["p[0] < p[1]"],
    },
    "queue": [{"x": 3, "p": [0, 1, 2]}],
}


def opened():
    session = Conversation()
    assert session.answer(json.dumps(OPENING)) == {"ok": True, "protocol": 1, "count": 30}
    return session


def test_a_conversation():
    session = opened()
    asked = session.answer('{"ask": 2}')["ask"]
    assert asked[0] == {"index": 0, "configuration": {"x": 3, "p": [0, 1, 2]}}
    assert session.answer('{"best": true}') == {"best": None}
    assert session.answer('{"tell": {"index": 1, "status": "timeout"}}') == {"ok": True}
    assert session.answer('{"tell": {"index": 0, "value": 4.5}}') == {"ok": True}
    best = session.answer('{"best": true}')["best"]
    assert best == {"configuration": {"x": 3, "p": [0, 1, 2]}, "values": [4.5]}
    assert session.answer('{"quit": true}') == {"ok": True}
    assert not session.open


def test_a_value_that_is_not_a_number_is_refused_and_may_be_sent_again():
    session = opened()
    session.answer('{"ask": 1}')
    assert "'fast'" in session.answer('{"tell": {"index": 0, "value": "fast"}}')["error"]
    assert session.answer('{"tell": {"index": 0, "value": 2}}') == {"ok": True}
    assert session.answer('{"best": true}')["best"]["values"] == [2.0]


def test_everything_asked_is_an_empty_list():
    session = opened()
    assert len(session.answer('{"ask": 40}')["ask"]) == 30
    assert session.answer('{"ask": 1}') == {"ask": []}


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "JSON"),
        ("[1]", "object"),
        ('{"ask": 0}', "from 1"),
        ('{"tell": {"index": 7, "value": 1}}', "7"),
        ('{"tell": {"value": 1}}', "index"),
        ('{"tell": 3}', "index"),
        ('{"tell": {"index": [0], "value": 1}}', "index"),
        ('{"hello": 3}', "ask, tell, best, quit"),
    ],
)
def test_wrong_requests_are_answered_and_change_nothing(line, named):
    session = opened()
    assert named in session.answer(line)["error"]
    assert session.answer('{"ask": 1}')["ask"][0]["index"] == 0


def test_a_wrong_space_is_named_and_may_be_given_again():
    session = Conversation()
    assert "first line" in session.answer('{"ask": 1}')["error"]
    bad = json.dumps({"space": {"parameters": [{"name": "x", "type": "whole"}]}})
    assert "whole" in session.answer(bad)["error"]
    for change, named in (
        ({"seed": -1}, "seed is -1"),
        ({"seed": "one"}, "seed is 'one'"),
        ({"sede": 1}, "did you mean 'seed'"),
        ({"space": 3}, "object"),
        ({"queue": {"x": 1}}, "list"),
        ({"objectives": 0}, "objectives is 0"),
    ):
        assert named in session.answer(json.dumps(OPENING | change))["error"]
    assert session.answer(json.dumps(OPENING))["ok"]


def test_the_c_example_finds_its_optimum(tmp_path):
    program = tmp_path / "tune_protocol"
    subprocess.run(["cc", "-Wall", "-Werror", str(EXAMPLE), "-o", str(program)], check=True)
    tuner = f"{sys.executable} -m tilewright.tuning.command_line.stdio"
    done = subprocess.run([program, tuner], capture_output=True, text=True, timeout=600, check=True)
    best = json.loads(done.stdout)["best"]
    assert best == {"configuration": {"tile": 32, "unroll": 4}, "values": [1.0]}
