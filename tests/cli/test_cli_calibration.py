"""``machine --calibrate``, and that schedule uses what it wrote and says so."""

import json
from typing import Any

import halide as hl
import pytest

from tilewright.cli import main
from tilewright.halide import calibration as room
from tilewright.machines import (
    Calibration,
    Quantity,
    detect_cpu,
    processor_key,
    processor_of,
    write_calibration,
)
from tilewright.records import calibration_path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def measured(machine):
    quantities = {
        "clock": Quantity(3e9, "Hz", 0.01, 5, True),
        "fault": Quantity(4e-10, "seconds per byte", 0.01, 5, True),
        "l3_all": Quantity(0.0, "bytes per second", 9.9, 5, False),
    }
    return Calibration(processor_of(machine), "2026-11-22T10:00:00+00:00", 8.0, quantities)


@pytest.fixture
def pipeline(tmp_path):
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    output = hl.Func("output")
    output[x, y] = image[x, y] * 2.0
    output.set_estimates([(0, 640), (0, 480)])
    path = tmp_path / "scaled.hlpipe"
    path.write_bytes(hl.serialize_pipeline(hl.Pipeline([output])))
    return str(path)


def path():
    return calibration_path(processor_key(detect_cpu()))


def test_measuring_writes_what_schedule_reads(monkeypatch, capsys, pipeline):
    monkeypatch.setattr(room, "calibrate", measured, raising=False)
    assert main(["machine", "--calibrate"]) == 0
    out = capsys.readouterr().out
    assert "3 GHz" in out
    assert "1.64 µs" in out
    assert "did not settle" in out
    assert str(path()) in out
    assert main(["schedule", pipeline, "--estimate", "output=640x480"]) == 0
    out = capsys.readouterr().out
    assert "measured on this processor on 2026-11-22, but for l3_all" in out
    command = ["schedule", pipeline, "--estimate", "output=640x480", "--no-calibration"]
    assert main(command) == 0
    assert "measured on" not in capsys.readouterr().out


def test_json(monkeypatch, capsys):
    monkeypatch.setattr(room, "calibrate", measured, raising=False)
    assert main(["machine", "--calibrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quantities"]["clock"]["value"] == 3e9
    assert path().exists()


def test_a_calibration_is_printed_even_if_it_cannot_be_kept(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(room, "calibrate", measured, raising=False)
    (tmp_path / "cache").write_text("in the way")
    assert main(["machine", "--calibrate"]) == 2
    assert "3 GHz" in capsys.readouterr().out


def test_nothing_is_said_without_a_calibration(capsys, pipeline):
    assert main(["schedule", pipeline, "--estimate", "output=640x480"]) == 0
    assert "measured on" not in capsys.readouterr().out


@pytest.mark.parametrize("foreign", [False, True])
def test_a_broken_or_foreign_file_is_an_error_that_can_be_ignored(capsys, pipeline, foreign):
    if foreign:
        found = measured(detect_cpu())
        other = Calibration({**found.processor, "name": "Another"}, found.date, 8.0, {})
        write_calibration(path(), other)
    else:
        path().parent.mkdir(parents=True)
        path().write_text("{")
    command = ["schedule", pipeline, "-q", "--estimate", "output=640x480"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "machine --calibrate" in error
    assert "--no-calibration" in error
    assert "Traceback" not in error
    assert main([*command, "--no-calibration"]) == 0


def test_the_schedule_depends_on_what_was_measured(pipeline):
    from tilewright.halide import schedule

    options: dict[str, Any] = {"estimates": {"output": [(0, 640), (0, 480)]}}
    before = schedule(pipeline, **options)
    machine = detect_cpu()
    slow = measured(machine)
    slow.quantities["launch"] = Quantity(2e-5, "seconds", 0.01, 5, True)
    write_calibration(path(), slow)
    after = schedule(pipeline, **options)
    ignored = schedule(pipeline, calibration=False, **options)
    assert after.planned.cost != before.planned.cost
    assert ignored.planned.cost == before.planned.cost
    assert ignored.schedule == before.schedule
