"""Schedules as JSON."""

import copy
import json

import pytest
from schedule_cases import all_cases

from tilewright.halide.ir.json import from_data, from_json, to_data, to_json
from tilewright.halide.ir.schedule import ScheduleError

CASES = all_cases()


@pytest.mark.parametrize("name", CASES)
def test_round_trip(name):
    algorithm, schedule = CASES[name]
    text = to_json(schedule)
    assert from_json(text, algorithm) == schedule
    assert from_json(text.encode()) == schedule
    assert json.loads(text)["version"] == 1


def changed(path, value):
    """The data of a schedule with the field at `path` set, or removed where `value` is None."""
    data = copy.deepcopy(to_data(CASES["sliding_window"][1]))
    *parents, last = path
    target = data
    for step in parents:
        target = target[step]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["version"], 2, "schema version 2"),
        (["schema"], "other", "schema is 'other'"),
        (["algorithm"], "0" * 64, "made for the algorithm 000000000000"),
        (["target"], None, "schedule.target is missing"),
        (["funcs"], {}, "schedule.funcs must be a list, not an object"),
        (["funcs", 1], 7, r"schedule.funcs\[1\] must be an object, not a whole number"),
        (["funcs", 1, "func"], True, r"funcs\[1\].func must be a whole number, not true or false"),
        (["funcs", 1, "func"], -1, r"funcs\[1\].func is -1; it must be at least 0"),
        (["funcs", 1, "compute"], "nowhere", r"funcs\[1\].compute must be 'inline', 'root'"),
        (["funcs", 1, "store", "loop"], None, r"funcs\[1\].store.loop is missing"),
        (["funcs", 1, "memory"], "tape", r"funcs\[1\].memory is 'tape'; it must be one of auto"),
        (["funcs", 1, "storage_order"], ["x"], r"storage_order must be a list of dimensions"),
        (["funcs", 1, "stages", 0, "splits", 0, "factor"], 0, r"splits\[0\].factor is 0"),
        (["funcs", 1, "stages", 0, "splits", 0, "tail"], "cut", r"splits\[0\].tail is 'cut'"),
        (["funcs", 1, "stages", 0, "loops", 0, "mapping"], 3, r"loops\[0\].mapping must be a str"),
        (["funcs", 1, "stages", 0, "colour"], 3, r"stages\[0\] has an unknown field 'colour'"),
    ],
)
def test_malformed_data_is_refused_with_the_fields_name(path, value, message):
    with pytest.raises(ScheduleError, match=message):
        from_data(changed(path, value), CASES["sliding_window"][0])


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff\xfe", "null", "[]"])
def test_json_that_is_not_a_schedule_is_refused(text):
    with pytest.raises(ScheduleError):
        from_json(text)
