"""How well C kernels of stencils are ranked by models that have not seen the stencil.

Of each of Lift's eight stencils, on grids of `SIZES` squared, `EXPRESSIONS` programs are drawn from
the first `EXPLORED` of the exploration. Each is compiled, compared with the interpreter (NumPy) and
timed on one and on two threads of this machine: that makes `2 x EXPRESSIONS` points. A kernel that
is refused or wrong is counted and left out.

Before every timed run, the stencil as it is written (lowered in the simplest way, one thread) is
timed as an anchor; the points of a part are timed in turn, in `ROUNDS` rounds in alternating order.
A time is the median over the rounds of its ratio to the anchor next to it, so a machine whose speed
drifts does not change the ranking. The fastest of these points are timed again, all of a stencil in
turn and in `FINAL_ROUNDS` rounds, because the best one decides what 90% of it is.

Every stencil is ranked by models that have learnt from the other seven, on `CPU_FEATURES`. Stencils
with ``held_out`` took no part in any decision about features or models. Our model is a forest of
extremely randomised trees. Over the stencils that are not held out, it is among the best in the
median correlation and in the runs to 90%, and it is the simplest of these. Before, it was boosted
trees on a linear trend: on another machine, its figures were lower than those of the paper's model.

Seven stencils are few to learn from, so `TRAINING_EXPRESSIONS` programs of each of twelve other
stencils, drawn from a family (``made_stencils.py``), are measured alike. All models learn from
them, too; they are not ranked.

A row is a stencil, a grid and a model. All grids of the ranked stencil are left out of training.
With ``--shipped``, the points of the larger grid, and all of the made stencils, are those in the
package. Keys of
the summary (`tilewright.patterns.ranking.summary`), for our model; for the paper's model (principal
components, five nearest neighbours) with the prefix ``paper_``, for the trend and trees with
``trend_``, for trees on a small network's trend with ``network_``, for a Gaussian process with
``gp_``, for a network of at most 75 numbers with ``small_``, and with the suffix ``_held_out`` for
the stencils that are held out only:

- ``correlation_median``: of predicted and measured performance (Pearson).
- ``runs_to_90_median``, ``runs_to_90_worst``: points that are run, best prediction first, until one
  has 90% of the best performance.
- ``fewer_runs_than_random``: ratio of the mean number of runs of a random order to that.
- ``points_least``, ``wrong``, ``refused``: points of a stencil, and kernels that were left out.

``redundancy`` is the paper's table: what each feature says of the performance, from 0 to 0.5.

With ``--ship``, the points are also written to the package, which ranks C kernels from them. With
``--others``, so are points of `OTHERS`, measured alike: reductions, products of matrices and more.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import common
from made_stencils import made_stencils

SIZE = 1024  # rows and columns: runs of 0.2 to 5 ms
SIZES = (SIZE, 512)  # an array of the smaller grid fits into a second-level cache of 1 MiB
EXPLORED = 3000  # programs of a stencil, in the order of the exploration
EXPRESSIONS = 256  # of them that are measured
THREADS = (1, 2)
PART = 32  # programs that are timed in turn, and kept together
ROUNDS = 14
FINAL_ROUNDS = 31
FINAL = 1.4  # times the best time, up to which points are timed again
TOLERANCE = 1e-4  # of the largest number, as in patterns_correct
HELD_OUT = ("srad1", "jacobi9")
SEED = 0
OTHER_EXPRESSIONS = 48  # of each of `OTHERS`
TRAINING_EXPRESSIONS = 96  # of each made stencil
DIGITS = 4  # of features and times that are shipped


# Sizes of other programs, so that most kernels run for 0.2 to 20 ms.
OTHERS: dict[str, tuple[int, ...]] = {
    "asum": (2**20,),
    "dot": (2**20,),
    "scal": (2**20,),
    "gemv": (1024, 1024),
    "matmul": (128, 128, 128),
    "convolution": (512, 512),
    "softmax": (512, 512),
    "kmeans": (4096, 16, 8),
    "harris": (512, 512),
    "nbody": (512,),
}
MADE = made_stencils()


def program_of(name: str, size: int = SIZE) -> Any:
    """A program, with its sizes; of a stencil, the rows and columns of its grid."""
    from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA, STENCILS

    if name in STENCILS:
        return STENCILS[name].build(size, size)
    if name in MADE:
        return MADE[name].build(size, size)
    return {**LINEAR_ALGEBRA, **APPLICATIONS}[name](*OTHERS[name])


@dataclass(frozen=True)
class Drawn:
    """A derived program and its source in C."""

    program: Any
    code: Any
    source: str


def draw(name: str, size: int) -> list[Any]:
    """The derived programs that are measured, as data, the simplest one first."""
    import numpy as np

    from tilewright.patterns import PatternError, rewriting, to_json
    from tilewright.patterns.check import requirements

    settings = rewriting.ExplorationSettings(target="c", limit=EXPLORED)
    found = rewriting.explore(program_of(name, size), settings)
    order = np.random.default_rng(SEED).permutation(len(found))
    made: dict[str, Any] = {}  # some programs have the same source
    for number in [0, *order]:
        try:
            for requirement in requirements(found[number].program):
                requirement.check({})
            one = compiled(found[number].program)
        except PatternError:
            continue
        made.setdefault(one.source, to_json(one.program))
        if len(made) > expressions_of(name):
            break
    return list(made.values())


def expressions_of(name: str) -> int:
    """How many derived programs of a program are measured."""
    if name in OTHERS:
        return OTHER_EXPRESSIONS
    return TRAINING_EXPRESSIONS if name in MADE else EXPRESSIONS


def compiled(program: Any) -> Drawn:
    """A program with its source."""
    from tilewright.patterns.codegen.c import print_c
    from tilewright.patterns.codegen.generate import generate

    code = generate(program)
    return Drawn(program, code, print_c(code))


def library(work: Path, source: str) -> Path | None:
    """The compiled source, kept between runs; None if the compiler refuses it."""
    from tilewright.patterns.compiling import FLAGS, compiler, options

    folder = work / "patterns_ranking" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    given = [*FLAGS, *options()]
    key = hashlib.sha256(" ".join([*given, source]).encode()).hexdigest()[:20]
    path = folder / f"{key}.so"
    if not path.exists():
        text, made = folder / f"{key}.c", folder / f"{key}.partial"
        text.write_text(source)
        command = [compiler(), *given, "-o", str(made), str(text), "-lm"]
        done = subprocess.run(command, capture_output=True, check=False)
        text.unlink()
        if done.returncode:
            return None
        made.replace(path)
    return path


def timed(run: Callable[[], Any]) -> float:
    """The seconds of a run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


Points = list[tuple[int, int]]
"""Numbers of programs, each with a number of threads."""


def measured(
    start: Any, programs: Sequence[Drawn], points: Points, rounds: int, work: Path
) -> dict[str, Any]:
    """The times of points, relative to the anchor, which is program 0 on one thread."""
    from tilewright.patterns import interpret, random_inputs, relative_error
    from tilewright.patterns.compiling import CKernel

    inputs = random_inputs(start, None, SEED)
    expected = interpret(start, *inputs)
    runs: dict[tuple[int, int], Callable[[], Any]] = {}
    refused, wrong = [], []
    for number, threads in [(0, 1), *points]:
        one = programs[number]
        path = library(work, one.source)
        if path is None:
            refused.append((number, threads))
            continue
        bound = CKernel(one.program, one.code, one.source, path).bound(*inputs, threads=threads)
        bound.run()
        if relative_error(bound.result(), expected) > TOLERANCE:
            wrong.append((number, threads))
        else:
            runs[number, threads] = bound.run
    anchor = runs.pop((0, 1))
    times: dict[tuple[int, int], list[float]] = {key: [] for key in runs}
    anchors: dict[tuple[int, int], list[float]] = {key: [] for key in runs}
    for turn in range(rounds):
        for key in list(runs)[:: 1 if turn % 2 else -1]:
            anchor()
            anchors[key].append(timed(anchor))
            runs[key]()
            times[key].append(timed(runs[key]))
    found = [
        {
            "number": number,
            "threads": threads,
            "seconds": values,
            "anchor": anchors[number, threads],
        }
        for (number, threads), values in times.items()
    ]
    return {"points": found, "refused": refused, "wrong": wrong}


def relative(found: dict[str, Any]) -> dict[tuple[int, int], float]:
    """The median ratio of each point to its anchor."""
    return {
        (p["number"], p["threads"]): statistics.median(
            a / b for a, b in zip(p["seconds"], p["anchor"], strict=True)
        )
        for p in found["points"]
    }


def digest(programs: Sequence[Drawn]) -> str:
    """Of kernels: measurements of the same ones are taken from earlier runs."""
    from tilewright.patterns.compiling import options

    text = "".join([*options(), *(one.source for one in programs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def points_of(name: str, size: int, programs: list[Drawn], args: Any) -> dict[str, Any]:
    """Features and times of a program's points."""
    import numpy as np

    from tilewright.patterns.ranking import cpu_features, cpu_vector

    pieces = common.Pieces(args.work, "patterns_ranking_times", args.fresh, ours=False)
    start, called = program_of(name, size), piece_name(name, size)
    ratios: dict[tuple[int, int], float] = {}
    left: dict[str, list[Any]] = {"refused": [], "wrong": []}
    for first in range(1, len(programs), PART):
        part = range(first, min(first + PART, len(programs)))
        points = [(number, threads) for number in part for threads in THREADS]
        key = f"{called}-{first}-{digest([programs[i] for i in (0, *part)])}"
        found = pieces.get(key, partial(measured, start, programs, points, ROUNDS, args.work))
        ratios |= relative(found)
        for why, which in left.items():
            which += found[why]
    final = [key for key, ratio in ratios.items() if ratio <= FINAL * min(ratios.values())]
    key = f"{called}-final-{digest([programs[i] for i, _ in final])}"
    found = pieces.get(key, partial(measured, start, programs, final, FINAL_ROUNDS, args.work))
    ratios |= relative(found)
    counted = {number: cpu_features(programs[number].code, {}) for number, _ in ratios}
    again = f"{len(final)} timed again"
    print(f"{called:15} {len(ratios)} points, {again}, left out {left}", flush=True)
    return {
        "features": np.array([cpu_vector(counted[i], threads) for i, threads in ratios]),
        "ratios": np.array(list(ratios.values())),
        **left,
    }


def piece_name(name: str, size: int) -> str:
    """What the parts of a stencil on a grid, or of another program, are called."""
    return name if size == SIZE else f"{name}-{size}"


def compile_all(name: str, programs: list[Drawn], work: Path) -> None:
    """Compile what will be measured, on all cores."""
    with ThreadPoolExecutor(len(THREADS)) as pool:
        made = list(pool.map(lambda one: library(work, one.source), programs))
    print(f"{name:10} {len(made)} kernels, {made.count(None)} refused", flush=True)


def shortened(values: Any) -> Any:
    """Numbers with as many digits as are shipped."""
    import numpy as np

    return np.vectorize(lambda v: float(f"{v:.{DIGITS}g}"), otypes=[float])(values)


def ship(programs: list[Any]) -> None:
    """Write the points to the package, with their origin, and how they rank what is left out.

    Programs in the package that were not measured now stay as they are.
    """
    from tilewright.measure import machine_id
    from tilewright.patterns import ranking
    from tilewright.patterns.compiling import compiler, options
    from tilewright.patterns.ranking.trained import CPU_POINTS

    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    measured_now = {p.program for p in programs}
    kept = [p for p in ranking.cpu_points() if p.program not in measured_now]
    before = json.loads(CPU_POINTS.read_text())["about"]
    short = [
        ranking.MeasuredProgram(
            p.program, p.sizes, shortened(p.features), shortened(p.seconds), p.names
        )
        for p in programs
    ]
    short += kept
    about = {
        "written_by": "benchmarks/patterns_ranking.py --ship",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": SEED,
        "machine": machine_id(),
        "compiler": version.stdout.splitlines()[0],
        "options": " ".join(options()),
        "tilewright": importlib.metadata.version("tilewright"),
        "sizes": {"stencils": (SIZE, SIZE), **OTHERS},
        "seconds": "relative to the program as it is written, on one thread",
        "left_out": {
            q.program: {"correlation": round(q.correlation, 3), "runs_to_90": q.runs}
            for q in ranking.leave_one_program_out(short, ranking.NearestNeighbours)
        },
    }
    if kept:
        origin = {key: before[key] for key in ("date", "machine", "compiler", "options")}
        about["kept"] = {"programs": [p.program for p in kept], **origin}
    ranking.write_measured(CPU_POINTS, short, about)
    print(f"{CPU_POINTS}: {CPU_POINTS.stat().st_size} bytes")


def ranked(programs: list[Any]) -> list[dict[str, Any]]:
    """The rows of all models; all but the made stencils are ranked."""
    from tilewright.patterns import ranking
    from tilewright.prediction import NN, Boosted, GaussianProcess

    models: dict[str, Callable[[], Any]] = {
        "forest": ranking.RandomisedTrees,
        "paper": ranking.NearestNeighbours,
        "network": lambda: ranking.FromRunTimes(Boosted(folds=0)),
        "gp": lambda: ranking.FromRunTimes(GaussianProcess(folds=0)),
        "small": lambda: ranking.FromRunTimes(NN(folds=0)),
        "trend": ranking.TrendAndTrees,
    }
    judged = [p for p in programs if p.program not in MADE]
    made = [p for p in programs if p.program in MADE]
    qualities = {
        model: ranking.leave_one_program_out(judged, make, made) for model, make in models.items()
    }
    return [
        row | {"rows": q.sizes.get("rows", SIZE), "held_out": q.program in HELD_OUT}
        for row, q in zip(ranking.rows(qualities), chain(*qualities.values()), strict=True)
    ]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of each model, over all stencils and over those that are held out."""
    from tilewright.patterns import ranking

    figures: dict[str, Any] = {}
    others = ("paper", "trend", "network", "gp", "small")
    for prefix, model in (("", "forest"), *((f"{m}_", m) for m in others)):
        for suffix, only in (("", False), ("_held_out", True)):
            found = [
                ranking.RankingQuality(
                    row["program"],
                    {},
                    row["points"],
                    row["correlation"],
                    row["runs_to_90"],
                    row["random_runs"],
                )
                for row in rows
                if row["model"] == model and (row["held_out"] or not only)
            ]
            if found:
                each = ranking.summary(found)
                figures |= {f"{prefix}{key}{suffix}": value for key, value in each.items()}
    return figures


def measured_programs(
    name: str, args: Any, pieces: common.Pieces
) -> tuple[list[Any], dict[str, int]]:
    """A program on its grids, with what was left out; only compiled with ``--prepare``."""
    from tilewright.patterns import from_json, ranking

    found: list[Any] = []
    left = {"wrong": 0, "refused": 0}
    for size in (SIZE,) if name in OTHERS else SIZES:
        if args.shipped and (size == SIZE or name in MADE):
            found += [p for p in ranking.cpu_points() if p.program == name]
            continue
        called = piece_name(name, size)
        drawn = pieces.get(f"drawn-{called}", partial(draw, name, size))
        programs = [compiled(from_json(data)) for data in drawn]
        if args.prepare:
            compile_all(called, programs, args.work)
            continue
        one = points_of(name, size, programs, args)
        sizes = {} if name in OTHERS else {"rows": size}
        found.append(
            ranking.MeasuredProgram(
                name, sizes, one["features"], one["ratios"], ranking.CPU_FEATURES
            )
        )
        left = {why: count + len(one[why]) for why, count in left.items()}
    return found, left


def main() -> None:
    """Compile, measure and rank, and write the result."""
    from tilewright.patterns.programs import STENCILS

    parser = common.arguments(__doc__.splitlines()[0], list(STENCILS))
    parser.add_argument(
        "--prepare", action="store_true", help="only derive and compile; the machine may be busy"
    )
    parser.add_argument("--ship", action="store_true", help="write the points to the package, too")
    parser.add_argument("--others", action="store_true", help="measure other programs, too")
    parser.add_argument(
        "--shipped", action="store_true", help=f"take points of {SIZE} x {SIZE} from the package"
    )
    args = parser.parse_args()
    if args.ship and args.shipped:
        parser.error("--ship measures what --shipped reads: give one of them")
    pieces = common.Pieces(args.work, "patterns_ranking", False)
    programs: list[Any] = []
    figures: dict[str, Any] = {}
    others = (*MADE, *(OTHERS if args.others else ()))
    for name in [*common.chosen(args, list(STENCILS)), *others]:
        found, left = measured_programs(name, args, pieces)
        programs += found
        figures = {why: figures.get(why, 0) + count for why, count in left.items()}
    if args.prepare:
        return
    from tilewright.patterns import ranking

    if args.ship:
        ship([p for p in programs if p.sizes.get("rows", SIZE) == SIZE])
    stencils = [p for p in programs if p.program in STENCILS]
    rows = ranked([*stencils, *(p for p in programs if p.program in MADE)])
    figures = summary(rows) | {"points_least": min(row["points"] for row in rows)} | figures
    common.write(args, "patterns_ranking", rows, figures, redundancy=ranking.redundancy(stencils))


if __name__ == "__main__":
    main()
