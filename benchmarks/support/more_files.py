"""Good examples of further kinds of JSON files, and what reads and uses each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError

Example = tuple[str, tuple[str, ...], Callable[[Path], object]]

# A problem file with the entries that a time or a regular expression does without.
JSON_PROBLEM = """name = "kernel"
[objective]
command = ["true", "{tile}", "{scratch}"]
build = [["true", "{tile}"], ["true"]]
env = {THREADS = "{tile}"}
value = "json"
json = ["seconds", "bytes"]
require = ["error < 1e-3"]
[search]
budget = 9
time_limit = 60
[prior]
tile = {16 = 3, 32 = 5}
share = {centre = 0.5, spread = 0.1}
[[parameters]]
name = "tile"
type = "ordinal"
values = [4, 8, 16, 32, 64]
[[parameters]]
name = "share"
type = "real"
low = 0
high = 1
"""


def more_files(folder: Path, pipeline: Any) -> list[Example]:
    """Name, examples and use of the files of GPU calibration and of patterns.

    `pipeline` is one that can be scheduled for a GPU.
    """
    return [*_gpu_calibration(pipeline), *_patterns(folder)]


def _gpu_calibration(pipeline: Any) -> list[Example]:
    from tilewright.halide.calibration.gpu import calibrate_gpu
    from tilewright.halide.ir.json import to_json
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task
    from tilewright.machines import (
        GpuCalibration,
        gpu,
        gpu_calibration_to_json,
        gpu_facts,
        read_gpu_calibration,
    )

    machine = gpu("a100")
    found = GpuCalibration(
        gpu_facts(machine), "2026-01-01", 30, ("blur",), 1.1, 1.3, {"launch_seconds": 2e-6}
    )
    schedule = plan(make_task(pipeline, machine=machine), k=1)[0].schedule
    record = {
        "program": "blur",
        "size": {},
        "estimates": None,
        "schedule": json.loads(to_json(schedule)),
        "cycles": 20000,
        "kernels": [{"kernel": "out", "blocks": [8, 8], "threads": [32, 8], "cycles": 20000}],
        "right": True,
    }

    def load(program: str, size: Mapping[str, Any]) -> Any:
        if program != "blur" or size:
            raise TilewrightError(f"there is no pipeline {program!r} of size {dict(size)}")
        return pipeline

    def use_records(path: Path) -> None:
        try:
            calibrate_gpu(path, machine, load)
        except TilewrightError as error:  # a single record is never enough for a fit
            if "usable schedules" not in str(error):
                raise

    return [
        (
            "gpu_calibration",
            (gpu_calibration_to_json(found),),
            lambda path: read_gpu_calibration(path, machine),
        ),
        ("gpu_records", (json.dumps(record),), use_records),
    ]


def _patterns(folder: Path) -> list[Example]:
    from tilewright.cli import main
    from tilewright.cli.patterns.shared import read_entry
    from tilewright.patterns.ranking import MeasuredProgram, read_measured, write_measured

    names = len(MeasuredProgram.__dataclass_fields__["names"].default)
    write_measured(
        folder / "measured.json",
        [MeasuredProgram("a", {"N": 8}, [[1.0 + i] * names for i in range(3)], [1.0, 2.0, 3.0])],
    )
    derived = folder / "derived.json"
    command = (
        f"patterns rank --example jacobi5 --sizes N=64,M=64 --top 2 --limit 20 -q -o {derived}"
    )
    with contextlib.redirect_stdout(None):
        if main(command.split()):
            raise RuntimeError(f"tilewright {command} has failed")

    def use_measured(path: Path) -> None:
        for program in read_measured(path):
            _ = program.performance

    return [
        ("measured", ((folder / "measured.json").read_text(),), use_measured),
        ("derived", (derived.read_text(),), lambda path: read_entry(str(path), 1)),
    ]
