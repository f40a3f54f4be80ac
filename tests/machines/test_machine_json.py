import json

import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import (
    detect_cpu,
    gpu,
    gpu_names,
    machine_from_dict,
    machine_from_json,
    machine_to_dict,
    machine_to_json,
)


@pytest.mark.parametrize("name", gpu_names())
def test_gpus_come_back_equal(name):
    assert machine_from_json(machine_to_json(gpu(name))) == gpu(name)


def test_cpus_come_back_equal():
    machine = detect_cpu()
    assert machine_from_json(machine_to_json(machine)) == machine
    assert machine_from_dict(machine_to_dict(machine)) == machine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "needs a"),
        ("{}", "needs a"),
        ('{"kind": "tpu", "schema": 1}', "needs a"),
        ('{"kind": "cpu", "schema": 99}', "schema 99"),
        ('{"kind": "cpu", "schema": 1}', "name is missing"),
        ('{"kind": "cpu", "schema": 1, "colour": 3}', "colour is unknown"),
    ],
)
def test_other_data_is_refused(text, message):
    with pytest.raises(TilewrightError, match=message):
        machine_from_json(text)


def test_a_malformed_cache_is_refused():
    data = json.loads(machine_to_json(detect_cpu()))
    data["caches"] = [{"size": 3}]
    with pytest.raises(TilewrightError, match=r"caches\[0\].size is unknown"):
        machine_from_dict(data)
