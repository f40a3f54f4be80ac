"""Write ``docs/gallery.md``: every program of ``examples/`` with its one-shot schedules.

Nothing is timed. The machines are descriptions, so that the page is the same wherever it is made:
a CPU with sixteen cores and 256-bit vectors, and the H100 of the table of GPUs. The pages of the
programs, as ``tilewright schedule --report`` writes them, go to ``out/gallery/``, from where the
site takes them.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

import common
import tilewright
from tilewright.machines import Cache, CpuMachine, gpu
from tilewright.report import units

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PAGES = ROOT / "out" / "gallery"

# Lines of a schedule that is shown in full.
LONGEST = 80
# A desktop's processor; its rates are the cost model's defaults.
CPU = CpuMachine(
    name="CPU with AVX2",
    architecture="x86-64",
    cores=16,
    isa=("sse4.1", "avx", "f16c", "fma", "avx2"),
    vector_bits=256,
    caches=(Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 32 << 20, 64, 16)),
    memory_bytes=32 << 30,
    clock_hz=3.5e9,
)
INTRODUCTION = """\
# Gallery

Written by `make docs`; do not edit. This page shows the programs of `examples/`, each with the
schedules of `mode="oneshot"` for a CPU with 16 cores and 256-bit vectors, and for an H100. The
schedules are for exact sizes, without the second version of the loops for small outputs. Times are
predicted by the cost models, not measured; measured times are in [Benchmarks](benchmarks.md).
"""


def main() -> None:
    """Write the page, and the pages of the programs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", metavar="A,B", help="print the parts of these programs instead")
    only = parser.parse_args().only
    if only:
        print("\n".join(map(section, only.split(","))))
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    parts = []
    for name in sorted(common.ALL_PROGRAMS):
        # In a process of its own: Halide numbers names that a process has used before.
        command = [sys.executable, __file__, "--only", name]
        parts.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    PAGE.write_text("\n".join([INTRODUCTION, *parts]), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)} and {PAGES.relative_to(ROOT)}/")


def section(name: str) -> str:
    """One program's part of the page."""
    path = common.EXAMPLES / f"{name}.py"
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    summary = about.split("\n\n")[0]
    lines = [f"## {name}", "", summary, "", f"`tilewright schedule examples/{name}.py:{name}`", ""]
    pipeline = common.build(name)
    for machine in (CPU, gpu("h100")):
        result = tilewright.schedule(
            pipeline, machine=machine, calibration=False, exact_sizes=True, name=name
        )
        if PAGES.is_dir():
            result.write_page(PAGES / f"{name}-{machine_word(machine.name)}.html")
        seconds = result.predicted
        predicted = "unknown" if seconds is None else units.seconds(seconds)
        table = result.explain().split("\n\n")[1]
        lines += [
            f"{machine.name}: predicted time {predicted}",
            "",
            "```text",
            table.rstrip(),
            "```",
            "",
        ]
        lines += [shown(directives(result.to_python())), ""]
    return "\n".join(lines)


def shown(schedule: str) -> str:
    """A schedule for whoever opens it, or how long it is."""
    length = schedule.count("\n") + 1
    if length > LONGEST:
        return f"The schedule has {length} lines: see its page, or write it with `-o schedule.py`."
    summary = "<details markdown><summary>The schedule</summary>"
    return f"{summary}\n\n```python\n{schedule}\n```\n\n</details>"


def machine_word(name: str) -> str:
    """A machine in one word, for names of files."""
    return "h100" if "H100" in name else "cpu"


def directives(source: str) -> str:
    """A printed schedule without its imports and helper functions."""
    found = re.search(r"^def schedule\(.*?(?=^def |\Z)", source, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[0].rstrip()


if __name__ == "__main__":
    main()
