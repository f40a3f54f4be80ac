"""What was measured of a processor, to a file and back."""

import dataclasses
import json

import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import (
    Cache,
    Calibration,
    CpuMachine,
    Quantity,
    calibration_from_json,
    calibration_to_json,
    processor_key,
    processor_of,
    read_calibration,
    write_calibration,
)

MACHINE = CpuMachine(
    "Some CPU", "x86-64", 4, ("avx2",), 256, (Cache(1, 32768, 64, 1),),
    vendor="GenuineIntel", family=6, model=85,
)  # fmt: skip
FOUND = Calibration(
    processor_of(MACHINE),
    "2026-11-22T10:00:00+00:00",
    8.0,
    {
        "clock": Quantity(3e9, "Hz", 0.01, 5, True),
        "l2_all": Quantity(4e10, "bytes per second", 0.5, 200, False),
        "l2_core": Quantity(5e10, "bytes per second", 0.01, 9, True),
    },
)


def test_to_a_file_and_back(tmp_path):
    path = tmp_path / "new" / "folder" / "file.json"
    write_calibration(path, FOUND)
    assert read_calibration(path, MACHINE) == FOUND
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


def test_nothing_is_known_before(tmp_path):
    assert read_calibration(tmp_path / "none.json", MACHINE) is None


def test_only_settled_quantities_count():
    assert FOUND.value("clock") == 3e9
    assert FOUND.value("l2_all", "l2_core") == 5e10
    assert FOUND.value("l2_all") is None
    assert FOUND.value("unheard_of") is None
    assert FOUND.doubtful == ("l2_all",)


@pytest.mark.parametrize(
    "change",
    [
        {"cores": 5},
        {"name": "Another CPU"},
        {"model": 86},
        {"vector_bits": 512},
        {"caches": (Cache(1, 49152, 64, 1),)},
    ],
)
def test_another_processor_has_another_file_and_is_refused(tmp_path, change):
    other = dataclasses.replace(MACHINE, **change)
    assert processor_key(other) != processor_key(MACHINE)
    write_calibration(tmp_path / "file.json", FOUND)
    with pytest.raises(TilewrightError, match=r"was measured on Some CPU .*--no-calibration"):
        read_calibration(tmp_path / "file.json", other)


def damaged(**change):
    data = json.loads(calibration_to_json(FOUND))
    data["quantities"]["clock"].update(change)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        calibration_to_json(FOUND).replace('"schema": 1', '"schema": 2'),
        calibration_to_json(FOUND)[:200],
        damaged(value=None),
        damaged(value="fast"),
        damaged(value=float("nan")),
        damaged(value=-1.0),
        json.dumps({**json.loads(calibration_to_json(FOUND)), "quantities": []}),
        json.dumps({**json.loads(calibration_to_json(FOUND)), "quantities": {"clock": 3}}),
        json.dumps({**json.loads(calibration_to_json(FOUND)), "processor": 7}),
    ],
)
def test_a_broken_file_is_an_error_with_a_cure(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(TilewrightError, match=r"file.json cannot be read.*machine --calibrate"):
        read_calibration(path, MACHINE)


def test_binary_files_and_folders_are_errors_too(tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TilewrightError, match="--no-calibration"):
        read_calibration(path, MACHINE)
    with pytest.raises(TilewrightError, match="--no-calibration"):
        read_calibration(tmp_path, MACHINE)
    with pytest.raises(TilewrightError, match="XDG_CACHE_HOME"):
        write_calibration(path / "below.json", FOUND)


def test_from_json_names_its_source():
    with pytest.raises(TilewrightError, match="a calibration cannot be read"):
        calibration_from_json("x")
