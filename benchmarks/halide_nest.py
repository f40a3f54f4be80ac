"""`ScheduledNest` against Halide's own lowering, on random legal schedules; and how fast it is.

For each of 52 programs (the 19 of ``examples/`` at their reduced sizes, 11 of the tests, 22 of
``strangers/``) random legal schedules are drawn from a fixed seed. Those for the host are lowered
by Halide 21: every loop's first iteration and extent, and the sizes of every allocation, are
compared at the first, the middle and the last iteration of the loops around. Those for CUDA are
run against a driver that records launches and computes nothing (``support/recording_cuda.c``):
grid, block and shared bytes of each kernel are compared.

What is not compared number by number is counted by reason:

- ``interval``: every extent lies between what is touched and the most that Halide's interval
  arithmetic can make of it where nothing cancels (`ScheduledNest.at_most`). The two are equal
  unless an end of a loop moves with a loop around, a loop runs over all the space it is given for
  other iterations, or two fused loops are taken apart by an extent that Halide does not know.
  Which of the terms cancel is decided by its simplifier.
- ``sliding``: the Func is stored further out than it is computed, is read by one that is, or is
  stored in the loops of one. Halide computes only what is new in each iteration, folds the storage
  where it proves that it can, and starts up to one window early. No extent may be above the most
  plus one window; how small it is is not checked, and it may be dropped.
- ``data``: the extent hangs on what an input holds where it is read.
- ``skipped``: a guard leaves nothing required at the iteration looked at, so that the box is empty.
- ``interval`` of a launch: grid and block are equal, and the shared bytes lie between the same two
  bounds.
- ``sliding`` of a launch: a kernel inside a loop that it slides over has at most the blocks and
  threads predicted; shared bytes are never more than predicted.
- ``refused``: Halide does not lower or compile the schedule, or takes more than a minute of CPU
  time.

An allocation or loop that Halide makes at more or fewer places is a mismatch. So is a loop that is
reached at an iteration where a guard is predicted to leave it out (``left_out`` counts where both
agree), or that is not reached where none is.

``evaluations_per_second``: rows of sizes per CPU second of one structure with 1024 rows, each loop
and allocation worked out; the mean over the 18 programs of ``halide_host``, scheduled for here.
The programs in ``HELD_OUT`` had no part in finding mistakes until they were looked at once: 7
allocations of 1,478 differed and no loop of 7,940. What made these differ was repaired afterwards
(``docs/decisions/halide-scheduled-nest.md``); their figures are given apart.
``shares`` are the parts of all allocations that are not compared number by number.
"""

from __future__ import annotations

import pickle
import random
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
# An evaluation is repeated this often, and for so many CPU seconds: other work on the machine
# takes the caches away between two of them.
LEAST_TIMES = 5
SPEED_SECONDS = 1.0
# Why an allocation is not compared number by number.
REASONS = ("interval", "sliding", "data", "skipped")
EXTENTS = (83, 37, 3, 2)
TESTS = Path(__file__).resolve().parent.parent / "tests" / "halide"
CONSTRUCTS = (
    "diamond two_scans several_outputs mirror_interior partial_update selects inline_argmin"
)
KINDS = "blur reductions tuples outputs"
# What hypothesis gives a test case; a schedule of 60 Funcs takes more.
CHOICES = 1 << 20

sys.path.insert(0, str(TESTS))

OWN: list[str] = [
    *common.ALL_PROGRAMS,
    *(f"kind_{name}" for name in KINDS.split()),
    *(f"construct_{name}" for name in CONSTRUCTS.split()),
]
# One or two of each family of small pipelines, chosen before any was compared.
STRANGERS = "max_pool softmax gemv resize_linear_down haar gaussian9 summed_area opening".split()
# A third draw of programs held out, two of each family. All three have been looked at since.
DRAW_SEED = 20261122
DRAWN_PER_FAMILY = 2
TOO_LARGE = ("residual_network",)  # its 300 Funcs take longer to lower than a schedule may


def drawn() -> list[str]:
    """Small pipelines of which none was compared before, by family."""
    from strangers import FAMILIES

    taken = (*STRANGERS, *TOO_LARGE)
    draw = random.Random(DRAW_SEED)
    return [
        f"stranger_{name}"
        for programs in FAMILIES.values()
        for name in draw.sample(
            sorted(program.name for program in programs if program.name not in taken),
            DRAWN_PER_FAMILY,
        )
    ]


HELD_OUT = drawn()
PROGRAMS: list[str] = [*OWN, *(f"stranger_{name}" for name in STRANGERS), *HELD_OUT]


def held_out(name: str) -> bool:
    """Whether a program had no part in finding mistakes."""
    return name in HELD_OUT


def algorithm_of(name: str) -> Any:
    """A program with estimates of all its outputs and inputs."""
    from tilewright.halide.frontend.source import load

    if name in common.ALL_PROGRAMS:
        return load(common.build(name, small=True))
    kind, _, name = name.partition("_")
    if kind == "stranger":
        from strangers import PROGRAMS as strangers

        return load(strangers[name].pipeline(small=True))
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


def lowered(name: str, target: str) -> tuple[Any, list[tuple[Any, Any]]]:
    """A program, and each schedule with what Halide makes of it."""
    from support import nest_conformance

    algorithm = algorithm_of(name)
    wanted = HOST_SCHEDULES if target == "host" else CUDA_SCHEDULES
    schedules = random_schedules(algorithm, target, wanted)
    with nest_conformance.Lowering() as lowering:
        lower = lowering if target == "host" else lowering.launched
        return algorithm, [(s, lower(algorithm, s, SECONDS)) for s in schedules]


class Kept:
    """What Halide makes of the schedules, which no change of `ScheduledNest` alters.

    Lowering takes most of the time. So it is kept apart from the comparisons, a file for each
    program and target; `fresh` lowers again.
    """

    def __init__(self, work: Path, fresh: bool) -> None:
        self._folder = work / "halide_nest" / "lowered"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fresh = fresh

    def __call__(self, name: str, target: str) -> tuple[Any, list[tuple[Any, Any]]]:
        """As `lowered`."""
        path = self._folder / f"{name}-{target}.pickle"
        if self._fresh or not path.exists():
            partial_path = path.with_suffix(".partial")
            partial_path.write_bytes(pickle.dumps(lowered(name, target)))
            partial_path.replace(path)
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


def conformance(kept: Kept, name: str, target: str, most: int | None = None) -> dict[str, Any]:
    """All schedules of one program for one target, or the first `most` of them."""
    from support import nest_conformance

    algorithm, made = kept(name, target)
    made = made[:most]
    counts: Counter[str] = Counter(schedules=len(made))
    wrong: dict[str, list[str]] = {"extents": [], "allocations": [], "launches": []}
    refused: list[str] = []
    for schedule, result in made:
        if target != "host":
            if isinstance(result, str):
                refused.append(result)
                continue
            seen = nest_conformance.compare_launches(algorithm, schedule, result)
            counts.update({"launches": seen.launches, **seen.categories})
            wrong["launches"] += seen.launch_mismatches
            continue
        found = nest_conformance.compare(algorithm, schedule, result)
        if found.error:
            refused.append(found.error)
        counts.update({"loops": found.loops, "allocations": found.allocations, **found.categories})
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
    """Rows per CPU second of the one-shot schedule's structure, the best of many evaluations."""
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

    best, spent, times = evaluate(), 0.0, 0
    while times < LEAST_TIMES or spent < SPEED_SECONDS:
        taken = evaluate()
        best, spent, times = min(best, taken), spent + taken, times + 1
    return {"rows_per_second": ROWS / best}


def piece(make: Callable[[], Any]) -> dict[str, Any]:
    """A part of a row; a failure of ours is a result too."""
    try:
        return {"status": "ok", **make()}
    except Exception as error:  # recorded, never the end of the run
        return {"status": "failed", "message": f"{type(error).__name__}: {error}"[:300]}


def prepare(kept: Kept, names: list[str], part: str | None) -> None:
    """Lower the schedules of all programs."""
    for target in ("cuda", "host"):
        for name in names if part in (None, target) else ():
            began = time.process_time()
            try:
                _, made = kept(name, target)
            except Exception as error:  # a failure of ours is counted when it is compared
                print(name, target, f"{type(error).__name__}: {error}"[:200], flush=True)
                continue
            print(name, target, len(made), round(time.process_time() - began), flush=True)


def main() -> None:
    """Compare, measure, print, write."""
    parser = common.arguments(__doc__.splitlines()[0], PROGRAMS)
    parser.add_argument("--part", choices=("host", "cuda", "speed"), help="only this part")
    parser.add_argument("--prepare", action="store_true", help="only lower, for later comparisons")
    parser.add_argument("--most", type=int, metavar="N", help="only N schedules of each kind")
    args = parser.parse_args()
    kept = Kept(args.work, args.fresh)
    if args.prepare:
        prepare(kept, common.chosen(args, PROGRAMS), args.part)
        return
    pieces = common.Pieces(args.work, "halide_nest", args.fresh)
    rows = []
    for name in common.chosen(args, PROGRAMS):
        row: dict[str, Any] = {"program": name, "held_out": held_out(name)}
        for target in ("host", "cuda"):
            if args.part in (None, target):
                row[target] = pieces.get(
                    f"{name}-{target}-{args.most or 'all'}",
                    partial(piece, partial(conformance, kept, name, target, args.most)),
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
        **{reason: total(reason) for reason in (*REASONS, "left_out")},
        "launches_interval": sum(int(part.get("interval", 0)) for part in cuda),
        "launches_sliding": sum(int(part.get("sliding", 0)) for part in cuda),
        "shares": _shares(host),
        "held_out": _held_out(rows),
        "evaluations_per_second": sum(known) / len(known) if known else None,
    }


def _shares(parts: list[dict[str, Any]]) -> dict[str, float]:
    """Each reason's part of the allocations looked at on the host."""
    counts = {reason: sum(int(part.get(reason, 0)) for part in parts) for reason in REASONS}
    places = sum(int(part.get("allocations", 0)) for part in parts) + sum(counts.values())
    return {reason: round(count / places, 4) for reason, count in counts.items() if places}


def _held_out(rows: list[dict[str, Any]]) -> dict[str, int]:
    """What was counted on the host for programs that had no part in finding mistakes."""
    parts = [row["host"] for row in rows if row["held_out"] and "host" in row]
    keys = "schedules refused loops allocations wrong_extents wrong_allocations".split()
    return {key: sum(int(part.get(key, 0)) for part in parts) for key in (*keys, *REASONS)}


if __name__ == "__main__":
    main()
