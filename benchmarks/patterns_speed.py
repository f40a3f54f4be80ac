"""Tuned C kernels of patterns against plain loops, Numba, Halide and OpenBLAS on this CPU.

Lift's eight stencils at `SIZES` squared, on one thread and on two:

- ours: of the programs that `explore` derives, the best `TOP` are measured for that number of
  threads (`tuning.tune_kernels`), and the fastest right one is kept. They are ranked by the
  default model for stencils, fitted to the points in the package of all other stencils.
- plain C: ``support/plain_stencils.c``, the loops that a person would write first, compiled by
  ``gcc -O3 -march=native``; for two threads, the rows are shared out by OpenMP.
- plain C with our flags: the same loops, compiled with the flags that our kernels get
  (`patterns.compiling`), which change mathematical functions and divisions.
- Numba, where it is installed: ``support/numba_stencils.py``, the same loops with ``fastmath``.
- Halide: ``support/halide_stencils.py`` as `tilewright.schedule` schedules it for that number of
  cores (mode ``oneshot``), compiled ahead of time.

The product of two square matrices (MM_CPU) on one thread is compared with NumPy's OpenBLAS: ours
is the best of `products`, which pack one matrix and keep a tile of sums in registers.

Every result is compared with the interpreter's (or NumPy's product) before its time counts. The
contenders of a row are timed in turn, in `ROUNDS` rounds in alternating order, each after a pause
(so that threads of the one before it sleep) and an untimed run. A contender that fails has its
message in ``failed``.

Keys of the summary; ratios are time of the other over ours, so more is better:

- ``vs_plain_c``, ``vs_plain_c_same_flags``, ``vs_halide``, ``vs_numba``: geometric means over all
  rows of stencils; with ``_1`` and ``_2`` over those of one and two threads, with ``_least`` the
  worst row.
- ``mm_vs_openblas``: the smallest ratio of the products.
- ``wrong``, ``failed``: results outside of the tolerance, and contenders that failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import common

SIZES = (1024, 4096)
THREADS = (1, 2)
PRODUCTS = (960, 1024)
TOP = 5  # kernels of the ranking that are measured
EXPLORED = 1000  # programs that are ranked
ROUNDS = 15
PAUSE_SECONDS = 0.005  # longer than a thread of OpenMP spins when it waits for work
LEAST_SECONDS = 0.005  # of runs that are timed together
TOLERANCE = 1e-4  # of the largest number, as in patterns_correct
PLAIN_FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
PLAIN = ("plain_c", "plain_c_same_flags")
REGISTER_TILES = ((4, 16), (6, 16), (8, 16))  # rows and columns of the sums that are kept
ROWS = (64, 128, 192, 256)  # that a strip of the packed matrix is read for
STRIP = 16  # columns of the packed matrix

Run = Callable[[], Any]


def products(size: int) -> Iterator[Any]:
    """Derivations of a product of matrices, for the tiles that divide its size."""
    from tilewright.patterns import nodes as n
    from tilewright.patterns import rewriting as rw
    from tilewright.patterns.programs import LINEAR_ALGEBRA

    program = LINEAR_ALGEBRA["matmul"](size, size, size)
    for rows in ROWS:
        for y, x in REGISTER_TILES:
            if size % rows == 0 and rows % y == 0 and size % x == 0:
                yield rw.derive(
                    program,
                    rw.pack("B", STRIP),
                    rw.split2(rows, STRIP),
                    rw.lower_nest(n.PAR, n.SEQ),
                    rw.bottom_up(rw.split2(y, x)),
                    rw.bottom_up(rw.interchange),
                    rw.bottom_up(rw.interchange),
                )


def ranked_stencil(name: str, size: int, threads: int) -> dict[str, Any]:
    """The kernels of a stencil that will be measured, and how many were ranked."""
    from tilewright.patterns import ranking, to_json, tuning
    from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA, STENCILS
    from tilewright.patterns.rewriting import ExplorationSettings

    program = STENCILS[name].build(size, size)
    left_out = {name, *APPLICATIONS, *LINEAR_ALGEBRA}
    others = [p for p in ranking.cpu_points() if p.program not in left_out]
    model = ranking.fitted(ranking.RandomisedTrees(), others)
    settings = ExplorationSettings(target="c", limit=EXPLORED)
    ranked = tuning.ranked_for_cpu(program, {}, settings, model, threads)
    first = [
        {
            "program": to_json(k.derivation.program),
            "steps": [str(rule) for rule, _ in k.derivation.steps],
        }
        for k in ranked[:TOP]
    ]
    return {"ranked": len(ranked), "kernels": first}


def tuned_stencil(name: str, size: int, threads: int, ranked: dict[str, Any]) -> dict[str, Any]:
    """The best of the kernels that were ranked first, and its place."""
    from tilewright.patterns import from_json, tuning
    from tilewright.patterns.programs import STENCILS
    from tilewright.patterns.rewriting import Derivation, Rule

    program = STENCILS[name].build(size, size)
    done = Rule("derived", "", "", "", lambda site: None)  # when the kernels were ranked
    kernels = [
        tuning.RankedKernel(Derivation(program, ((done, from_json(k["program"])),)))
        for k in ranked["kernels"]
    ]
    options = tuning.TuningOptions(top=TOP, threads=threads)
    found = tuning.tune_kernels(program, kernels, "c", options)
    assert found.best is not None, f"no kernel of {name} is right"
    place = found.best.number
    return {**ranked["kernels"][place - 1], "ranked": ranked["ranked"], "place": place}


def tuned_product(size: int) -> dict[str, Any]:
    """The best derivation of a product of matrices as data."""
    from tilewright.patterns import compile, random_inputs, to_json

    found: list[tuple[float, int, Any]] = []
    for derivation in products(size):
        kernel = compile(derivation.program)
        bound = kernel.bound(*random_inputs(derivation.start, None, 0), threads=1)
        bound.run()
        found.append((min(timed(bound.run) for _ in range(5)), len(found), derivation))
    _, place, best = min(found, key=lambda item: item[0])
    steps = [str(rule) for rule, _ in best.steps]
    program = to_json(best.program)
    return {"program": program, "steps": steps, "measured": len(found), "place": place + 1}


def timed(run: Run) -> float:
    """The seconds of a run."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def in_turn(runs: Mapping[str, Run]) -> dict[str, list[float]]:
    """The times of runs, a number for each round."""
    once = {name: min(timed(run) for _ in range(2)) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS):
        for name in list(runs)[:: 1 if turn % 2 else -1]:
            time.sleep(PAUSE_SECONDS)
            runs[name]()
            count = max(1, round(LEAST_SECONDS / once[name]))
            begin = time.perf_counter()
            for _ in range(count):
                runs[name]()
            times[name].append((time.perf_counter() - begin) / count)
    return times


@cache
def support(name: str) -> Any:
    """A module with the stencils for another system."""
    return common.load_module(common.HERE / "support" / f"{name}.py")


def plain_libraries(folder: Path) -> dict[str, ctypes.CDLL]:
    """The plain loops compiled by contender: with usual flags, and with those of our kernels."""
    from tilewright.patterns.compiling import FLAGS, compiler, options

    text = common.HERE / "support" / "plain_stencils.c"
    commands = {
        "plain_c": ["gcc", *PLAIN_FLAGS],
        "plain_c_same_flags": [compiler(), *FLAGS, *options()],
    }
    found = {}
    for name, command in commands.items():
        library = folder / f"{name}.so"
        subprocess.run([*command, "-o", str(library), str(text), "-lm"], check=True)
        found[name] = ctypes.CDLL(str(library))
    return found


def compared(
    row: dict[str, Any], runs: dict[str, Run], results: Mapping[str, Callable[[], Any]], wanted: Any
) -> dict[str, Any]:
    """A row with times, and their ratios with intervals; ours is the last contender."""
    from tilewright.measure import ratio_interval
    from tilewright.patterns import relative_error

    for run in runs.values():
        run()
    row["wrong"] = [k for k, made in results.items() if relative_error(made(), wanted) > TOLERANCE]
    if "ours" in row["wrong"]:
        return row
    times = in_turn({name: run for name, run in runs.items() if name not in row["wrong"]})
    row["seconds"] = {name: statistics.median(values) for name, values in times.items()}
    for name in times:
        if name != "ours":
            interval = ratio_interval(times[name], times["ours"])
            row[f"vs_{name}"] = interval.estimate
            row[f"vs_{name}_interval"] = [interval.low, interval.high]
    return row


def stencil_row(
    name: str, size: int, threads: int, tuned: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """A stencil on some threads: plain C, Numba, Halide and ours."""
    import numpy as np

    from tilewright.patterns import compile, from_json, interpret, random_inputs
    from tilewright.patterns.programs import STENCILS

    program = STENCILS[name].build(size, size)
    inputs = random_inputs(program, None, 0)
    made = {k: np.empty((size, size), np.float32) for k in (*PLAIN, "numba", "halide")}
    runs: dict[str, Run] = {}
    for kind, library in plain_libraries(folder).items():
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, made[kind])]
        sizes = (ctypes.c_long(size), ctypes.c_long(size), ctypes.c_int(threads))
        runs[kind] = partial(getattr(library, name), *pointers, *sizes)
    row: dict[str, Any] = {"program": name, "size": size, "threads": threads, "failed": {}}
    peers: dict[str, Callable[[], Run]] = {
        "numba": lambda: support("numba_stencils").bound(name, [*inputs, made["numba"]], threads),
        "halide": lambda: support("halide_stencils").bound(
            halide_library(name, size, threads, folder), [*inputs, made["halide"]], threads
        ),
    }
    for peer, make in peers.items():
        try:
            runs[peer] = make()
            runs[peer]()
        except ModuleNotFoundError:
            continue
        except Exception as error:
            row["failed"][peer] = f"{type(error).__name__}: {error}"[:200]
            runs.pop(peer, None)
    ours = compile(from_json(tuned["program"])).bound(*inputs, threads=threads)
    runs["ours"] = ours.run
    results = {k: partial(made.get, k) for k in runs if k != "ours"} | {"ours": ours.result}
    row |= {key: tuned[key] for key in ("steps", "place", "ranked")}
    return compared(row, runs, results, interpret(program, *inputs))


def product_row(size: int, tuned: dict[str, Any]) -> dict[str, Any]:
    """The product of matrices on one thread: OpenBLAS and ours."""
    import numpy as np

    from tilewright.patterns import compile, from_json, random_inputs
    from tilewright.patterns.programs import LINEAR_ALGEBRA

    a, b = random_inputs(LINEAR_ALGEBRA["matmul"](size, size, size), None, 0)
    out = np.empty((size, size), np.float32)
    ours = compile(from_json(tuned["program"])).bound(a, b, threads=1)
    runs: dict[str, Run] = {"openblas": lambda: np.matmul(a, b, out=out), "ours": ours.run}
    row = {"program": "mm_cpu", "size": size, "threads": 1, "steps": tuned["steps"], "failed": {}}
    return compared(row, runs, {"ours": ours.result}, a @ b)


def halide_library(name: str, size: int, threads: int, folder: Path) -> Path:
    """The compiled Halide stencil, kept between runs."""
    library = folder / f"halide-{name}-{size}-{threads}.so"
    if not library.exists():
        support("halide_stencils").build(name, size, threads, library)
    return library


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the claim."""
    found: dict[str, Any] = {}
    for key in (*(f"vs_{kind}" for kind in PLAIN), "vs_halide", "vs_numba"):
        stencils = [row for row in rows if key in row]
        if not stencils:
            continue
        found[key] = common.geometric_mean(row[key] for row in stencils)
        for threads in THREADS:
            part = [row[key] for row in stencils if row["threads"] == threads]
            found[f"{key}_{threads}"] = common.geometric_mean(part)
        found[f"{key}_least"] = min(row[key] for row in stencils)
    products_of = [row["vs_openblas"] for row in rows if "vs_openblas" in row]
    found["mm_vs_openblas"] = min(products_of, default=None)
    found["wrong"] = sum(len(row["wrong"]) for row in rows)
    found["failed"] = sum(len(row["failed"]) for row in rows)
    return found


def main() -> None:
    """Tune, compile and time each stencil and product, and write the result."""
    from tilewright.patterns.programs import STENCILS

    parser = common.arguments(__doc__.splitlines()[0], [*STENCILS, "mm_cpu"])
    parser.add_argument(
        "--prepare", action="store_true", help="only rank and schedule; the machine may be busy"
    )
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "patterns_speed", args.fresh)
    folder = args.work / "patterns_speed"
    rows: list[dict[str, Any]] = []

    def add(key: str, make: Callable[[], Any]) -> None:
        rows.append(pieces.get(key, make))
        print({k: v for k, v in rows[-1].items() if "interval" not in k}, flush=True)

    for name in common.chosen(args, [*STENCILS, "mm_cpu"]):
        if name == "mm_cpu":
            for size in PRODUCTS if not args.prepare else ():
                tuned = pieces.get(f"tuned-mm_cpu-{size}", partial(tuned_product, size))
                add(f"mm_cpu-{size}", partial(product_row, size, tuned))
            continue
        for size, threads in product(SIZES, THREADS):
            key = f"{name}-{size}-{threads}"
            ranked = pieces.get(f"ranked-{key}", partial(ranked_stencil, name, size, threads))
            with contextlib.suppress(Exception):  # its row says why it fails
                halide_library(name, size, threads, folder)
            if args.prepare:
                print(key, *(" ".join(k["steps"]) for k in ranked["kernels"]), sep="\n  ")
                continue
            make = partial(tuned_stencil, name, size, threads, ranked)
            tuned = pieces.get(f"tuned-{key}", make)
            add(key, partial(stencil_row, name, size, threads, tuned, folder))
    if not args.prepare:
        common.write(args, "patterns_speed", rows, summary(rows))


if __name__ == "__main__":
    main()
