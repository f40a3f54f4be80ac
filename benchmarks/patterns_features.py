"""Features of pattern kernels compared with counts of what their threads do.

Kernels of Lift's stencils and of linear algebra, derived (also with windows in registers and with
vectors, which count as one load or store each) and launched at random, are run thread by
thread in Python (``tests/patterns/threads.py``), which counts loads, stores and barriers as they
happen. Cache lines are counted by walking all iterations of all threads of all groups
(``tests/patterns/warps.py``). Every kernel is a row.

Keys of the summary:

- ``kernels``: the number of kernels compared.
- ``mismatches``: kernels whose feature for loads or stores (global, local or private), arithmetic
  or barriers differs from the number counted.
- ``line_mismatches``: kernels whose cache lines for each access differ from the brute force by more
  than `LINE_TOLERANCE`. Both count accesses at a border like those in the interior of the grid,
  which is the paper's definition of the feature (section 4.4).
- ``line_error_max``: the largest relative error of the cache lines for each access.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import common

sys.path.insert(0, str(common.HERE.parent / "tests" / "patterns"))

ROWS, COLUMNS, DEPTH = 16, 32, 8
EXPRESSIONS, LAUNCHES = 24, 2
LINE_TOLERANCE = 1e-9  # of a mean of whole numbers
MEMORIES = ("global", "local", "private")


def programs() -> dict[str, Any]:
    """All programs by name, at small sizes."""
    from tilewright.patterns.programs import LINEAR_ALGEBRA, STENCILS

    found = {name: s.build(ROWS, COLUMNS) for name, s in STENCILS.items()}
    for name, build in LINEAR_ALGEBRA.items():
        count = len(inspect.signature(build).parameters)
        found[name] = build(*(ROWS, COLUMNS, DEPTH)[:count])
    return found


def compared(name: str, program: Any) -> Iterator[dict[str, Any]]:
    """A row for each kernel of a program's candidates."""
    import numpy as np
    from threads import run_program
    from warps import lines_by_brute_force

    from tilewright.patterns import ranking, rewriting
    from tilewright.patterns.binding import conforming
    from tilewright.patterns.compiling import grid_code
    from tilewright.patterns.features import counts, kernel_features
    from tilewright.patterns.nodes import inputs
    from tilewright.patterns.types import dimensions

    settings = rewriting.ExplorationSettings(
        target="gpu", tiles=(2, 4, 8), limit=200, sliding=True, vectors=(2, 4)
    )
    found = ranking.candidates(program, {}, settings, LAUNCHES)
    # Evenly spread: neighbours in the order of exploration differ least.
    chosen = sorted({round(i) for i in np.linspace(0, len(found) - 1, EXPRESSIONS * LAUNCHES)})
    rng = np.random.default_rng(0)
    shapes = [[int(k.value or 0) for k in dimensions(p.type)[0]] for p in inputs(program)]
    arrays = [(rng.random(shape) + 0.5).astype(np.float32) for shape in shapes]
    for number in chosen if found else []:
        candidate = found[number]
        derived = candidate.derivation.program
        code, kernels = grid_code(derived, "kernel", candidate.launch)
        _, happened = run_program(code, kernels, conforming(inputs(derived), arrays), {})
        for kernel, seen in zip(kernels, happened, strict=True):
            total = counts(kernel, {})
            wrong = {
                f"{memory}_{what}s": [getattr(total, f"{memory}_{what}s").value, seen[what, memory]]
                for memory in MEMORIES
                for what in ("load", "store")
            } | {
                "barriers": [total.barriers.value, seen["barrier"]],
                "arithmetic": [total.arithmetic.value, seen["arithmetic"]],
            }
            yield {
                "program": name,
                "candidate": number,
                "kernel": kernel.name,
                "steps": [str(rule) for rule, _ in candidate.derivation.steps],
                "wrong": {key: pair for key, pair in wrong.items() if pair[0] != pair[1]},
                "lines": kernel_features(kernel, {}).lines_per_access,
                "lines_counted": float(lines_by_brute_force(kernel, {})),
            }


def line_error(row: dict[str, Any]) -> float:
    """The relative error of a row's cache lines."""
    return abs(float(row["lines"]) / float(row["lines_counted"]) - 1)


def main() -> None:
    """Compare the kernels of each program and write the result."""
    everything = programs()
    args = common.arguments(__doc__.splitlines()[0], list(everything)).parse_args()
    pieces = common.Pieces(args.work, "patterns_features", args.fresh)
    rows: list[dict[str, Any]] = []
    for name in common.chosen(args, list(everything)):

        def made(name: str = name) -> Any:
            return list(compared(name, everything[name]))

        part = pieces.get(name, made)
        rows += part
        wrong = sum(bool(row["wrong"]) for row in part)
        print(f"{name:12} {len(part)} kernels, {wrong} mismatches", flush=True)
    summary = {
        "kernels": len(rows),
        "mismatches": sum(bool(row["wrong"]) for row in rows),
        "line_mismatches": sum(line_error(row) > LINE_TOLERANCE for row in rows),
        "line_error_max": max(map(line_error, rows)),
    }
    common.write(args, "patterns_features", rows, summary, oracle="threads run one by one")


if __name__ == "__main__":
    main()
