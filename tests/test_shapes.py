"""Data from outside: taken as what it should be, or refused with its place."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import detect_cpu, gpu, machine_from_json, machine_to_dict
from tilewright.shapes import ShapeError, conform, damaged, parse_json, read_json


@dataclasses.dataclass(frozen=True)
class Part:
    size: int
    share: float | None = None


@dataclasses.dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...] = ()
    pair: tuple[int, int] = (0, 0)
    on: bool = False


def test_plain_data_become_what_the_annotations_say():
    data = {"name": "a", "parts": [{"size": 1, "share": 2}, {"size": 3}], "pair": [4, 5]}
    assert conform(data, Whole) == Whole("a", (Part(1, 2), Part(3)), (4, 5))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "it is .*an object"),
        ({}, "name is missing"),
        ({"name": 1}, "name is 1; it has to be text"),
        ({"name": "a", "nme": 1}, "nme is unknown; there are name, parts"),
        ({"name": "a", "parts": 1}, "parts is 1; it has to be a list"),
        ({"name": "a", "parts": [{"size": "x"}]}, r"parts\[0\].size is 'x'; .*a whole number"),
        ({"name": "a", "parts": [{"size": True}]}, r"parts\[0\].size is True"),
        ({"name": "a", "parts": [{"size": 1.5}]}, r"parts\[0\].size is 1.5"),
        ({"name": "a", "parts": [{"size": 1, "share": []}]}, r"share is \[\]; .*a number"),
        ({"name": "a", "parts": [{"size": 1, "share": float("nan")}]}, "finite"),
        ({"name": "a", "pair": [1]}, "a list of 2"),
        ({"name": "a", "on": 1}, "true or false"),
        ({"name": "a" * 500, "on": "b" * 500}, "b…; it has to be true or false"),
    ],
)
def test_data_of_another_shape_are_refused_with_their_place(data, message):
    with pytest.raises(ShapeError, match=message):
        conform(data, Whole)


def test_text_that_is_not_json_is_refused(tmp_path):
    for text in ("{", "[" * 100_000, b"\xff\xfe\x00"):
        with pytest.raises(TilewrightError, match="the file is not JSON"):
            parse_json(text, "the file", TilewrightError)
    with pytest.raises(TilewrightError, match=r"cannot read .*nowhere: No such file"):
        read_json(tmp_path / "nowhere", TilewrightError)


def test_stumbling_becomes_an_error_and_errors_stay():
    missing = pytest.raises(TilewrightError, match=r"^it is damaged: 'a' is missing$")
    with missing, damaged("it is damaged", TilewrightError):
        _ = {"b": 1}["a"]
    mine = pytest.raises(TilewrightError, match=r"^mine$")
    with mine, damaged("it is damaged", TilewrightError):
        raise TilewrightError("mine")
    with pytest.raises(KeyboardInterrupt), damaged("it is damaged", TilewrightError):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": "4"}, "cores is '4'"),
        ({"cores": 0}, "cores is 0; it has to be from 1"),
        ({"cores": 10**30}, "it has to be from 1 to"),
        ({"caches": [{"level": 1}]}, r"caches\[0\].bytes is missing"),
        ({"caches": [{"level": 1, "bytes": -1, "line_bytes": 64, "shared_by": 1}]}, "bytes is -1"),
        ({"isa": "avx2"}, "isa is 'avx2'; it has to be a list"),
    ],
)
def test_a_damaged_machine_is_refused_with_the_cure(changes, message):
    text = json.dumps({**machine_to_dict(detect_cpu()), **changes})
    with pytest.raises(TilewrightError, match=f"{message}.*describe the machine again"):
        machine_from_json(text)


@pytest.mark.parametrize("name", ["a100", "k40c"])
def test_known_machines_are_taken(name):
    assert machine_from_json(json.dumps(machine_to_dict(gpu(name)))) == gpu(name)
    assert machine_from_json(json.dumps(machine_to_dict(detect_cpu()))) == detect_cpu()
