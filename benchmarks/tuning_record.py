"""Measure every configuration of one of the package's real problems and keep the table.

    python benchmarks/tuning_record.py cc_flags --seconds 150

The outcomes measured so far are kept in --work and taken up by the next call; when all are
known, the table is written to the package's recordings, which `tuning_quality.py` replays.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tuning_common  # noqa: F401 (sets the number of threads)
from tilewright.measure import machine_id
from tilewright.tuning.problems import c_programs
from tilewright.tuning.problems.recordings import FOLDER, configurations, write_recording
from tilewright.tuning.tune import FailedError

PROBLEMS: dict[str, Callable[[], Any]] = {
    "cc_flags": c_programs.cc_flags,
    "c_loop_nest": c_programs.c_loop_nest,
}


def evaluator(problem: Any, folder: str) -> Callable[[dict[str, Any]], float]:
    """The problem's objective; programs of the same flags are built once."""
    if not isinstance(problem, c_programs.CProgram):
        return lambda c: float(problem(c))
    built: dict[tuple[str, ...], Path] = {}

    def run(configuration: dict[str, Any]) -> float:
        flags = tuple(problem.flags(configuration))
        if flags not in built:
            own = Path(folder) / str(len(built))
            own.mkdir()
            built[flags] = problem.build(flags, str(own))
        return problem.run(built[flags], configuration)

    return run


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
    end = time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        evaluate = evaluator(problem, folder)
        for done, configuration in enumerate(everything):
            if time.monotonic() > end:
                break
            name = json.dumps(configuration)
            if name not in known:
                try:
                    known[name] = evaluate(configuration)
                except FailedError as failure:
                    known[name] = failure.status
                if done % 20 == 0:
                    path.write_text(json.dumps(known))
    path.write_text(json.dumps(known))
    print(f"{problem.name}: {len(known)} of {len(everything)}")
    if len(known) == len(everything):
        space = problem.space
        outcomes = {space.key(space.encode(c)): known[json.dumps(c)] for c in everything}
        about = {
            "machine": machine_id(),
            "system": platform.platform(),
            "objective": "seconds",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        }
        FOLDER.mkdir(exist_ok=True)
        write_recording(FOLDER / f"{problem.name}.json.gz", space, outcomes, about)
        print(f"wrote {FOLDER / problem.name}.json.gz")


if __name__ == "__main__":
    main()
