"""``machine --calibrate-gpu``, and that schedule uses what it wrote and says so."""

import dataclasses
import gzip
import json

import pytest

from tilewright.cli import main
from tilewright.cli.machine import recorded_pipeline
from tilewright.halide.ir.json import to_data
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import PRIORS
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import (
    GpuCalibration,
    gpu,
    gpu_calibration_from_json,
    gpu_facts,
    gpu_key,
    machine_to_json,
    write_gpu_calibration,
)
from tilewright.records import calibration_path

MACHINE = gpu("v100")
SIZE = {"width": 640, "height": 480}
SLOWER = 6.0


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def path():
    return calibration_path(gpu_key(MACHINE))


@pytest.fixture(scope="module")
def records():
    """Schedules of a blur as if a GPU had run them that issues a sixth as many instructions."""
    task = make_task(recorded_pipeline("blur", SIZE), machine=MACHINE)
    issuing = dataclasses.replace(GpuConstants(), issue_rate=GpuConstants().issue_rate / SLOWER)
    from tilewright.halide.schedulers.prediction import with_prediction

    return [
        {
            "program": "blur",
            "size": SIZE,
            "schedule": to_data(planned.schedule),
            "seconds": with_prediction(planned, task, issuing).seconds,
        }
        for planned in plan(task, k=14)
    ]


def written(folder, rows, name="records.jsonl"):
    file = folder / name
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(file)


def failure(capsys, *words):
    assert main(["machine", *words]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
@pytest.mark.few(1)
def test_a_fit_is_what_schedule_uses(name, capsys, tmp_path, records):
    file = written(tmp_path, records, name)
    assert main(["machine", "--calibrate-gpu", file, "--gpu", "v100"]) == 0
    out = capsys.readouterr().out
    assert f"fitted to {len(records)} schedules of 1 programs" in out
    assert "issue rate" in out
    assert str(path()) in out
    found = gpu_calibration_from_json(path().read_text())
    assert set(found.constants) == set(PRIORS)
    assert found.error < found.default_error

    from tilewright.halide import schedule

    measured = schedule(recorded_pipeline("blur", SIZE), machine="v100")
    default = schedule(recorded_pipeline("blur", SIZE), machine="v100", calibration=False)
    assert "measured on this GPU" in measured.explain()
    assert "measured on this GPU" not in default.explain()
    assert measured.report().facts["time model"].startswith("fitted to")
    assert measured.predicted > 1.1 * predicted(default.task, measured.schedule).seconds


def test_the_result_as_json(capsys, tmp_path, records):
    file = written(tmp_path, records)
    assert main(["machine", "--calibrate-gpu", file, "--gpu", "v100", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["gpu"]["name"] == MACHINE.name
    assert data["programs"] == ["blur"]


def test_a_gpu_described_in_a_file(capsys, tmp_path, records):
    described = tmp_path / "small.json"
    small = dataclasses.replace(MACHINE, name="a small one", sms=2)
    described.write_text(machine_to_json(small))
    file = written(tmp_path, records)
    assert main(["machine", "--calibrate-gpu", file, "--gpu", str(described)]) == 0
    assert "a small one" in capsys.readouterr().out
    assert calibration_path(gpu_key(small)).exists()
    assert not path().exists()


def test_cycles_and_launches_are_accepted_and_wrong_answers_left_out(tmp_path, capsys, records):
    rows = []
    for row in records:
        launches = [{"kernel": "_kernel_output_s0_", "blocks": [9], "threads": [64], "cycles": 900}]
        cycles = {**row, "cycles": row["seconds"] * MACHINE.clock_hz, "kernels": launches}
        del cycles["seconds"]
        rows.append(cycles)
    rows += [{**records[0], "right": False}, {**records[0], "schedule": None}]
    file = written(tmp_path, [*rows, ""])
    assert main(["machine", "--calibrate-gpu", file, "--gpu", "v100"]) == 0
    assert f"{len(records)} schedules" in capsys.readouterr().out


def test_bad_records_are_named(tmp_path, capsys, records):
    good = records[0]
    cases = {
        "{": "line 1 of .* is not JSON",
        "[1]": "line 1 of .* is not a JSON object",
        json.dumps({**good, "program": None}): 'line 1 of .*: "program" is missing',
        json.dumps({**good, "size": [1]}): '"size" is not an object',
        json.dumps({**good, "estimates": 3}): '"estimates" cannot be used',
        json.dumps({**good, "estimates": [None]}): '"estimates" cannot be used',
        json.dumps({**good, "seconds": None}): 'line 1 of .* has neither "seconds" nor "cycles"',
        json.dumps({**good, "seconds": -1}): '"seconds" is -1, not a positive number',
        json.dumps({**good, "seconds": True}): '"seconds" is True, not a positive number',
        json.dumps({**good, "schedule": {}}): "line 1 of .*schema",
        json.dumps({**good, "size": {"width": 64, "depth": 3}}): "depth",
        json.dumps({**good, "kernels": [{"kernel": "f"}]}): 'a launch in "kernels" has blocks None',
        json.dumps({**good, "program": "no_such.py:blur"}): "no_such.py does not exist",
        json.dumps(good): "has 1 usable schedules, a fit needs 12",
    }
    import re

    for line, message in cases.items():
        error = failure(capsys, "--calibrate-gpu", written(tmp_path, [line]), "--gpu", "v100")
        assert re.search(message, error), (line[:60], error)
    assert not path().exists()


def test_files_that_cannot_be_read(tmp_path, capsys):
    missing = str(tmp_path / "none.jsonl")
    assert "cannot read" in failure(capsys, "--calibrate-gpu", missing, "--gpu", "v100")
    broken = tmp_path / "records.jsonl.gz"
    broken.write_bytes(b"not compressed")
    assert "cannot read" in failure(capsys, "--calibrate-gpu", str(broken), "--gpu", "v100")


def test_what_does_not_go_together(tmp_path, capsys, records):
    file = written(tmp_path, records)
    assert "-o writes" in failure(capsys, "--calibrate-gpu", file, "-o", "-")
    assert "give only --gpu" in failure(capsys, "--calibrate-gpu", file, "--list")
    described = tmp_path / "cpu.json"
    assert main(["machine", "-o", str(described), "-q"]) == 0
    capsys.readouterr()
    error = failure(capsys, "--calibrate-gpu", file, "--gpu", str(described))
    assert "describes a CPU" in error


def test_without_a_gpu_one_is_named(tmp_path, capsys, monkeypatch, records):
    from tilewright import machines

    monkeypatch.setattr(machines, "detect_cuda", list, raising=False)
    error = failure(capsys, "--calibrate-gpu", written(tmp_path, records))
    assert "--gpu v100" in error


def test_a_gpu_without_rates_cannot_be_fitted(tmp_path, capsys, records):
    described = tmp_path / "slow.json"
    described.write_text(machine_to_json(dataclasses.replace(MACHINE, clock_hz=None)))
    file = written(tmp_path, records)
    error = failure(capsys, "--calibrate-gpu", file, "--gpu", str(described))
    assert "the clock and the bandwidth" in error


def stored(**changes):
    constants = {"issue_rate": 1.0}
    whole = GpuCalibration(
        gpu_facts(MACHINE), "2026-11-23T10:00:00+00:00", 20, ("blur",), 1.1, 2.0, constants
    )
    return dataclasses.replace(whole, **changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ('{"schema": 9}', "schema 1 is wanted"),
        ('{"schema": 1, "gpu": {}}', "'date'"),
    ],
)
def test_a_damaged_calibration_is_an_error_with_a_cure(text, message, capsys):
    path().parent.mkdir(parents=True)
    path().write_text(text)
    command = ["schedule", "--example", "blur", "--machine", "v100", "-q"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "--calibrate-gpu" in error
    assert main([*command, "--no-calibration"]) == 0


def test_a_constant_that_is_no_rate_is_refused(capsys):
    write_gpu_calibration(path(), stored(constants={"issue_rate": 0.0}))
    assert main(["schedule", "--example", "blur", "--machine", "v100", "-q"]) == 2
    assert "constants.issue_rate is 0.0" in capsys.readouterr().err


def test_a_calibration_of_another_description_is_refused(capsys):
    write_gpu_calibration(path(), stored(gpu={**gpu_facts(MACHINE), "sms": 3}))
    assert main(["schedule", "--example", "blur", "--machine", "v100", "-q"]) == 2
    assert "another description" in capsys.readouterr().err
