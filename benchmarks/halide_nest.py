"""`ScheduledNest` against Halide's own lowering, on random legal schedules; and how fast it is.

For each of 30 programs (the 19 of ``examples/`` at their reduced sizes, the others those of the
tests) random legal schedules are drawn from a fixed seed. Those for the host are lowered by Halide
21: every loop's first iteration and extent, and the sizes of every allocation, are compared at the
first, the middle and the last iteration of the loops around. Those for CUDA are run against a
driver that records launches and computes nothing (``support/recording_cuda.c``): grid, block and
shared bytes of each kernel are compared.

What Halide decides by symbolic arithmetic of its own is counted by reason, never left out:

- ``sliding``: the Func is stored further out than it is computed, or is read by one that is. Halide
  then computes only what is new in each iteration and may fold the storage. A kernel inside a loop
  that it slides over is counted here only where it has at most the blocks and threads foretold.
- ``interval``: a loop that touches the Func has another extent in other iterations. Halide takes
  both ends of an interval to be independent and allocates more than is touched. Counted here only
  where it does allocate at least what was foretold.
- ``refused``: Halide does not lower or compile the schedule, or takes more than a minute (for
  CUDA, of CPU time).

``evaluations_per_second``: rows of sizes per CPU second of one structure with 1024 rows, each loop
and allocation worked out; the mean over the 18 programs of ``halide_host``, scheduled for here.
Every third program (``held_out``) had no part in finding mistakes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common

ROWS = 1024
HOST_SCHEDULES = 13
CUDA_SCHEDULES = 4
SEED = 20240611
SECONDS = 60.0
EXTENTS = (83, 37, 3, 2)
TESTS = Path(__file__).resolve().parent.parent / "tests" / "halide"
CONSTRUCTS = (
    "diamond two_scans several_outputs mirror_interior partial_update selects inline_argmin"
)
KINDS = "blur reductions tuples outputs"
# What hypothesis gives a test case; a schedule of 60 Funcs takes more.
CHOICES = 1 << 20

for folder in (TESTS, Path(__file__).resolve().parent / "support"):
    sys.path.insert(0, str(folder))

PROGRAMS: list[str] = [
    *common.ALL_PROGRAMS,
    *(f"kind_{name}" for name in KINDS.split()),
    *(f"construct_{name}" for name in CONSTRUCTS.split()),
]


def held_out(name: str) -> bool:
    """Whether a program had no part in finding mistakes."""
    return PROGRAMS.index(name) % 3 == 2


def algorithm_of(name: str) -> Any:
    """A program with estimates of all its outputs and inputs."""
    from tilewright.halide.frontend.source import load

    if name in common.ALL_PROGRAMS:
        return load(common.build(name, small=True))
    kind, _, name = name.partition("_")
    if kind == "kind":
        from scheduled_pipelines import PIPELINES, imported

        return sized(imported(PIPELINES[name]()))
    from halide_constructs import CONSTRUCTS as constructs

    return sized(load(constructs[name]()))


def sized(algorithm: Any, extents: tuple[int, ...] = EXTENTS) -> Any:
    """The algorithm with outputs of these extents, and inputs as large as that needs."""
    from tilewright.halide.frontend.extents import derive_input_extents
    from tilewright.halide.ir.algorithm import Span

    funcs = tuple(
        replace(func, estimates={a: Span(0, extents[d]) for d, a in enumerate(func.args)})
        if func.name in algorithm.outputs
        else func
        for func in algorithm.funcs
    )
    inputs = tuple(
        replace(p, estimates=(None,) * p.dimensions) if p.is_buffer else p
        for p in algorithm.parameters
    )
    return derive_input_extents(replace(algorithm, funcs=funcs, parameters=inputs))


def random_schedules(algorithm: Any, target: str, count: int) -> list[Any]:
    """Distinct legal schedules, the same in every run."""
    import random_schedules as strategies
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis.internal.conjecture import engine

    engine.BUFFER_SIZE = CHOICES
    found: list[Any] = []

    @seed(SEED)
    @settings(
        max_examples=4 * count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(strategies.schedules(algorithm, target, exact=target != "host"))
    def collect(schedule: Any) -> None:
        if schedule not in found and len(found) < count and uses(schedule, target):
            found.append(schedule)

    collect()
    return found


def uses(schedule: Any, target: str) -> bool:
    """Whether a schedule for a GPU has a kernel."""
    return target == "host" or any(
        loop.mapping == "gpu_block"
        for entry in schedule.funcs
        for nest in entry.stages
        for loop in nest.loops
    )


def conformance(name: str, target: str, most: int | None = None) -> dict[str, Any]:
    """All schedules of one program for one target, or the first `most` of them."""
    import nest_conformance

    algorithm = algorithm_of(name)
    wanted = HOST_SCHEDULES if target == "host" else CUDA_SCHEDULES
    schedules = random_schedules(algorithm, target, wanted)[:most]
    counts: Counter[str] = Counter(schedules=len(schedules))
    wrong: dict[str, list[str]] = {"extents": [], "allocations": [], "launches": []}
    refused: list[str] = []
    with nest_conformance.Lowering() as lowering:
        for schedule in schedules:
            if target != "host":
                launched = lowering.launched(algorithm, schedule, SECONDS)
                if isinstance(launched, str):
                    refused.append(launched)
                    continue
                seen = nest_conformance.compare_launches(algorithm, schedule, launched)
                counts.update({"launches": seen.launches, **seen.categories})
                wrong["launches"] += seen.launch_mismatches
                continue
            found = nest_conformance.compare(
                algorithm, schedule, lowering(algorithm, schedule, SECONDS)
            )
            if found.error:
                refused.append(found.error)
            counts.update(
                {"loops": found.loops, "allocations": found.allocations, **found.categories}
            )
            wrong["extents"] += found.extent_mismatches
            wrong["allocations"] += found.allocation_mismatches
    return {
        **counts,
        "refused": len(refused),
        "why_refused": [text.strip()[-200:] for text in refused],
        **{f"wrong_{kind}": len(found) for kind, found in wrong.items()},
        "examples": {kind: found[:5] for kind, found in wrong.items() if found},
    }


def speed(name: str) -> dict[str, float]:
    """Rows per CPU second, the best of five, of the one-shot schedule's structure."""
    import numpy as np

    from tilewright.halide.analysis.nest_structure import NestStructure
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis
    from tilewright.halide.ir.schedule import Split
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import make_task

    task = make_task(common.build(name), name=name)
    schedule = plan(task)[0].schedule
    analysis = nest_analysis(task.algorithm, schedule)
    structure = NestStructure(analysis.view, schedule)
    random = np.random.default_rng(SEED)
    factors = {
        (e, s, i): change.factor * random.choice([1.0, 2.0, 4.0], ROWS)
        for e, entry in enumerate(schedule.funcs)
        for s, nest in enumerate(entry.stages)
        for i, change in enumerate(nest.splits)
        if isinstance(change, Split)
    }

    def evaluate() -> float:
        began = time.process_time()
        nest = ScheduledNest(analysis, schedule, factors, structure=structure)
        assert nest.loops
        assert nest.allocations is not None
        return time.process_time() - began

    return {"rows_per_second": ROWS / min(evaluate() for _ in range(6))}


def piece(make: Callable[[], Any]) -> dict[str, Any]:
    """A part of a row; a failure of ours is a result too."""
    try:
        return {"status": "ok", **make()}
    except Exception as error:  # recorded, never the end of the run
        return {"status": "failed", "message": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    """Compare, measure, print, write."""
    parser = common.arguments(__doc__.splitlines()[0], PROGRAMS)
    parser.add_argument("--part", choices=("host", "cuda", "speed"), help="only this part")
    parser.add_argument("--most", type=int, metavar="N", help="only N schedules of each kind")
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_nest", args.fresh)
    rows = []
    for name in common.chosen(args, PROGRAMS):
        row: dict[str, Any] = {"program": name, "held_out": held_out(name)}
        for target in ("host", "cuda"):
            if args.part in (None, target):
                row[target] = pieces.get(
                    f"{name}-{target}-{args.most or 'all'}",
                    partial(piece, partial(conformance, name, target, args.most)),
                )
        if args.part in (None, "speed") and name in common.PROGRAMS:
            row["speed"] = pieces.get(f"{name}-speed", partial(piece, partial(speed, name)))
        rows.append(row)
        print(name, {k: v for k, v in row.items() if k != "program"}, flush=True)
    common.write(args, "halide_nest", rows, summary(rows))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim."""
    host = [row["host"] for row in rows if "host" in row]
    cuda = [row["cuda"] for row in rows if "cuda" in row]
    rates = [row["speed"].get("rows_per_second") for row in rows if "speed" in row]
    known = [rate for rate in rates if rate is not None]

    def total(key: str) -> int:
        return sum(int(part.get(key, 0)) for part in (*host, *cuda))

    return {
        "programs": len(rows),
        "schedules": total("schedules"),
        "failures": sum(part["status"] != "ok" for part in (*host, *cuda))
        + len(rates)
        - len(known),
        "refused": total("refused"),
        "loops": total("loops"),
        "allocations": total("allocations"),
        "launches": total("launches"),
        "extent_mismatches": total("wrong_extents"),
        "allocation_mismatches": total("wrong_allocations"),
        "launch_mismatches": total("wrong_launches"),
        "sliding": total("sliding"),
        "interval": total("interval"),
        "evaluations_per_second": sum(known) / len(known) if known else None,
    }


if __name__ == "__main__":
    main()
