"""Measure every configuration of one of the package's real problems and keep the table.

    python benchmarks/tuning_record.py cc_flags --seconds 100

The outcomes measured so far are kept in --work and taken up by the next call; when all are
known, the table is written to the package's recordings, which `tuning_quality.py` replays.
Configurations are built in parallel and timed alone; the table has the least of a
configuration's samples, which a shared machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import tuning_common  # noqa: F401 (sets the number of threads)
from tilewright.measure import machine_id
from tilewright.tuning import problems
from tilewright.tuning.problems.c_programs import CProgram
from tilewright.tuning.problems.measured import MeasuredProblem
from tilewright.tuning.problems.recordings import FOLDER, configurations, write_recording
from tilewright.tuning.trial import plain
from tilewright.tuning.tune import FailedError

PROBLEMS: dict[str, Callable[[], Any]] = {
    "cc_flags": problems.cc_flags,
    "c_loop_nest": problems.c_loop_nest,
    "halide_blur": problems.halide_blur,
    "halide_matmul": problems.halide_matmul,
    "halide_harris": problems.halide_harris,
    "halide_laplacian": problems.halide_laplacian,
    "opencl_matmul": problems.opencl_matmul,
}
Outcomes = Generator[tuple[dict[str, Any], float | str], None, None]


def measured(problem: MeasuredProblem, missing: list[dict[str, Any]]) -> Outcomes:
    """The outcomes of configurations in workers, as they end."""
    for configuration, found in problem.measure(missing):
        yield configuration, found.minimum if found.ok else found.status


def compiled(problem: CProgram, missing: list[dict[str, Any]]) -> Outcomes:
    """The outcomes of C programs; those of the same flags are built once."""
    built: dict[tuple[str, ...], Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        for configuration in missing:
            flags = tuple(problem.flags(configuration))
            try:
                if flags not in built:
                    own = Path(folder) / str(len(built))
                    own.mkdir()
                    built[flags] = problem.build(flags, own)
                yield configuration, problem.run(built[flags], configuration)
            except FailedError as failure:
                yield configuration, failure.status


def name_of(configuration: dict[str, Any]) -> str:
    """What an outcome is kept under."""
    return json.dumps(plain(configuration))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=sorted(PROBLEMS))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / ".work" / "recording")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    problem = PROBLEMS[args.problem]()
    path = args.work / f"{problem.name}.json"
    known: dict[str, float | str] = json.loads(path.read_text()) if path.exists() else {}
    everything = list(configurations(problem.space))
    missing = [c for c in everything if name_of(c) not in known]
    end = time.monotonic() + args.seconds
    run = measured if isinstance(problem, MeasuredProblem) else compiled
    with closing(run(problem, missing)) as outcomes:
        for configuration, outcome in outcomes:
            known[name_of(configuration)] = outcome
            if len(known) % 50 == 0:
                path.write_text(json.dumps(known))
            if time.monotonic() > end:
                break
    path.write_text(json.dumps(known))
    print(f"{problem.name}: {len(known)} of {len(everything)}")
    if len(known) == len(everything):
        space = problem.space
        outcomes_by_key = {space.key(space.encode(c)): known[name_of(c)] for c in everything}
        about = {
            "machine": machine_id(),
            "system": platform.platform(),
            "objective": "seconds, the least of a few samples",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
        FOLDER.mkdir(exist_ok=True)
        write_recording(FOLDER / f"{problem.name}.json.gz", space, outcomes_by_key, about)
        print(f"wrote {FOLDER / problem.name}.json.gz")


if __name__ == "__main__":
    main()
