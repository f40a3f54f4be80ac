"""The schedules that one shot chooses for the programs, kept as text: a change of one is a diff.

    make golden                 # write those that are not as they were
    make golden ARGS=--check    # only say which

They are for machines that are described here, so that they are the same wherever they are made.
The suite checks those of the programs in `QUICK`.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cpu_machines import FOUR_CORES

import common
from tilewright.halide.ir.json import to_data
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task

FOLDER = Path(__file__).with_name("golden")
PROGRAMS = common.ALL_PROGRAMS
MACHINES = {"host": FOUR_CORES, "cuda": "rtx2080ti"}
# Less than half a second of CPU time each; the others take up to five.
QUICK = ("blur", "matmul", "unsharp", "iir_blur", "conv_layer")


def place(program: str, target: str) -> Path:
    """The file of a program's schedule."""
    return FOLDER / f"{program}.{target}.jsonl"


def chosen(program: str, target: str) -> str:
    """The schedule that is chosen now: a line of JSON per Func, by its place in the pipeline.

    Names are not in it: Halide numbers those that were used before in the process.
    """
    task = make_task(
        common.build(program),
        target=target,
        machine=MACHINES[target],
        name=program,
        calibration=False,
    )
    data = to_data(plan(task)[0].schedule)
    funcs = data.pop("funcs")
    return "".join(json.dumps(part) + "\n" for part in (data, *funcs))


def main() -> int:
    """Compare each schedule with the one that is kept, and keep it, except with `check`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where any differs")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="by default all")
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    changed = 0
    for program in args.programs or PROGRAMS:
        for target in MACHINES:
            file, now = place(program, target), chosen(program, target)
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            if now == before:
                continue
            changed += 1
            lines = (before.splitlines(), now.splitlines())
            print(*difflib.unified_diff(*lines, "kept", f"{file.name} now", lineterm=""), sep="\n")
            if not args.check:
                file.write_text(now, encoding="utf-8")
    print(f"{changed} schedules differ from those kept")
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
