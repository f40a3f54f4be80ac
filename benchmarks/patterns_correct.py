"""Derived programs against the interpreter: C, OpenCL under Oclgrind, and CUDA machine code.

22 programs: Lift's eight stencils, RISE's seven programs, and seven others. Each is derived at
three kinds of sizes: numbers that tiles divide, numbers that most do not divide (tiles then reach
over the border), and open sizes. Of the derived programs, `WANTED` are taken per target, evenly
spread over the exploration. The expected result is that of the program before any rewriting.

C is compiled by gcc and run on two threads, both programs derived for CPUs and those for GPUs.
OpenCL runs in Oclgrind, a simulator that reports races between threads, accesses out of bounds,
and memory that is read before it is written. CUDA is compiled by NVRTC to a cubin and not run.
Both have derivations that keep windows in registers; those for GPUs also some with vectors.
Half of the launches have numbers of groups and threads that divide nothing.

A row is a program and a target. Keys of the summary:

- ``programs``, ``expressions_least``: programs, and the fewest derived programs of any row.
- ``expressions``: of all rows together.
- ``wrong``: those whose result differs by more than `TOLERANCE` of the largest number, in C or
  OpenCL.
- ``refused_by_compiler``: those that gcc, Oclgrind's compiler or NVRTC does not take.
- ``races``: kernels that Oclgrind reports also when their program runs alone. Null where Oclgrind
  is not installed: then OpenCL runs on the first platform.
- ``unconfirmed_alarms``: programs that Oclgrind reports only when they run after others. Null as
  above.
- ``cpu_seconds``: of the whole run.

An OpenCL row also has ``alarms``: the number of programs with errors in Oclgrind's report on one
process that runs the whole row. Such a process can make Oclgrind take written memory for
uninitialised. Each of these programs therefore runs again, alone in a process: errors that
Oclgrind reports again are in ``races``, and the others in ``unconfirmed_alarms``.
"""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import common

sys.path.insert(0, str(common.HERE.parent / "tests" / "patterns"))

WANTED = 204  # derived programs of a row
EXPLORED = 300  # derived programs of one kind of sizes, of which they are taken
BATCH = 34  # programs of one compilation
TOLERANCE = 1e-4  # f32 has 6e-8; sums are regrouped, and SRAD divides small differences
SEED = 0
# By the number of a program's sizes: 96 = 2**5 * 3 and so on, then numbers with few divisors.
DIVIDED = {1: (96,), 2: (16, 24), 3: (8, 12, 16)}
OTHERS = {1: (91,), 2: (13, 19), 3: (7, 9, 10)}
FEW = {"nbody": ((24,), (21,))}  # every body meets every other, and short loops are unrolled
TILES = (2, 3, 4, 7, 8, 13)
DEPTHS = ((2, 1), (3, 2), (4, 3))  # rules in a derivation, and of one family: until they suffice
ODD_THREADS = ((3, 2, 1), (5, 1, 1), (7, 3, 1), (33, 1, 1))
ODD_GROUPS = ((2, 1, 1), (1, 3, 1), (3, 2, 1))
# Oclgrind lacks an instruction (freeze) that its compiler's optimiser makes.
OPENCL_OPTIONS = ("-cl-opt-disable",)
RISE = ("mm_cpu", "mm_gpu", "asum", "scal", "kmeans", "harris", "stencil")
OTHER_PROGRAMS = ("dot", "gemv", "nbody", "convolution", "softmax", "life", "heat")
CALLED = {"mm_cpu": "matmul", "mm_gpu": "matmul_at", "stencil": "box"}  # names in `programs`
LOG_KERNEL = re.compile(r"^\n?(?P<said>\S[^\n]*)\n\s+Kernel: kernel_(?P<number>\d+)_\d+", re.M)


def builders() -> dict[str, Callable[..., Any]]:
    """All programs by name."""
    from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA, STENCILS

    known = LINEAR_ALGEBRA | APPLICATIONS
    stencils = {name: s.build for name, s in STENCILS.items()}
    return stencils | {name: known[CALLED.get(name, name)] for name in (*RISE, *OTHER_PROGRAMS)}


@dataclass(frozen=True)
class Sized:
    """A program at some sizes, with inputs and its result."""

    program: Any
    arrays: list[Any]
    expected: Any


@dataclass(frozen=True)
class Derived:
    """A derived program and its launch on a grid of threads."""

    of: Sized
    program: Any
    steps: list[str]
    launch: Any = None


def sized(name: str) -> list[Sized]:
    """A program at the three kinds of sizes."""
    from tilewright.patterns import interpret, random_inputs, size_names, sizes

    build = builders()[name]
    count = len(inspect.signature(build).parameters)
    divided, others = FEW.get(name, (DIVIDED[count], OTHERS[count]))
    found = []
    for program, values in (
        (build(*divided), divided),
        (build(*others), others),
        (build(*sizes("N M K")[:count]), divided),
    ):
        known = {k: dict(zip("NMK", values, strict=False))[k] for k in size_names(program)}
        arrays = random_inputs(program, known, SEED)
        found.append(Sized(program, arrays, interpret(program, *arrays)))
    return found


def derived(name: str, target: str) -> list[Derived]:
    """Derived programs for ``c`` or ``gpu`` that can be mapped to it, evenly spread."""
    import numpy as np

    from tilewright.patterns import rewriting

    starts = sized(name)
    each: list[list[Derived]] = []
    for depth, times in DEPTHS:
        settings = rewriting.ExplorationSettings(
            target,
            tiles=TILES,
            depth=depth,
            times=times,
            limit=EXPLORED,
            sliding=True,
            vectors=(2, 4),
        )
        each = []
        for of in starts:
            found = rewriting.explore(of.program, settings)
            runs = [d for d in found if _runs(d.program, of, target)]
            each.append([Derived(of, d.program, [str(r) for r, _ in d.steps]) for d in runs])
        if sum(map(len, each)) >= WANTED:
            break
    # An equal share of each kind of sizes, as far as it has as many.
    chosen: list[Derived] = []
    for rank, mine in enumerate(sorted(each, key=len)):
        share = min(len(mine), (WANTED - len(chosen)) // (len(each) - rank))
        chosen += [mine[round(i)] for i in np.linspace(0, len(mine) - 1, share)]
    return chosen


def _runs(program: Any, of: Sized, target: str) -> bool:
    """Whether a program can be mapped to a target, and its sizes fit."""
    from tilewright.patterns import LoweringError, SizeError
    from tilewright.patterns.binding import bind, conforming
    from tilewright.patterns.check import requirements
    from tilewright.patterns.codegen.generate import generate
    from tilewright.patterns.compiling import grid_code
    from tilewright.patterns.nodes import inputs

    try:
        if target == "gpu":
            grid_code(program, "kernel", None)
        else:
            generate(program)
        given = inputs(program)
        known = bind(given, conforming(given, of.arrays), {})
        for requirement in requirements(program):
            requirement.check(known)
    except (LoweringError, SizeError):
        return False
    return True


def launched(found: Sequence[Derived]) -> list[Derived]:
    """The same with launches: every other one the default, the rest odd numbers."""
    import numpy as np

    from tilewright.arith import poly
    from tilewright.patterns import ThreadGrid

    rng = np.random.default_rng(SEED)
    made = []
    for number, d in enumerate(found):
        launch = None
        if number % 2:
            a, b, c = ODD_GROUPS[rng.integers(len(ODD_GROUPS))]
            groups = poly(a), poly(b), poly(c)
            launch = ThreadGrid(groups, ODD_THREADS[rng.integers(len(ODD_THREADS))])
        made.append(Derived(d.of, d.program, d.steps, launch))
    return made


Made = Callable[[Sequence[tuple[int, Derived]]], list[Any]]


def batched(found: Sequence[Derived], make: Made, row: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Number and kernel of each derived program; those that are refused go to the row.

    Args:
        found: the derived programs.
        make: compiles some of them at once.
        row: has the list ``refused``.
    """
    from tilewright.patterns import CompileError

    numbered = list(enumerate(found))
    for start in range(0, len(numbered), BATCH):
        batch = numbered[start : start + BATCH]
        try:
            made = make(batch)
        except CompileError:
            made = []
            for item in batch:  # one by one, to find out which
                try:
                    made += make([item])
                except CompileError as error:
                    row["refused"].append([*described(item[1]), str(error)[:300]])
                    made.append(None)
        for (number, _), kernel in zip(batch, made, strict=True):
            if kernel is not None:
                yield number, kernel


def described(d: Derived) -> list[str]:
    """A derived program for the result."""
    return [str(d.of.program)[:60], ", ".join(d.steps), str(d.launch)]


def check(d: Derived, kernel: Any, row: dict[str, Any], **options: Any) -> None:
    """Run a kernel; a wrong result goes to the row."""
    from tilewright.patterns import relative_error

    error = relative_error(kernel(*d.of.arrays, **options), d.of.expected)
    row["error_max"] = max(row["error_max"], error)
    if not error <= TOLERANCE:
        row["wrong"].append([*described(d), error])


def new_row(name: str, target: str, found: Sequence[Derived]) -> dict[str, Any]:
    """A row without any mistake."""
    empty: dict[str, Any] = {"wrong": [], "refused": [], "races": [], "error_max": 0.0}
    return {"program": name, "target": target, "expressions": len(found), **empty}


def in_c(name: str, found: Sequence[Derived]) -> dict[str, Any]:
    """The row of C."""
    from batch import kernels

    row = new_row(name, "c", found)

    def make(some: Sequence[tuple[int, Derived]]) -> list[Any]:
        return list(kernels([d.program for _, d in some]))

    for number, kernel in batched(found, make, row):
        check(found[number], kernel, row, threads=2)
    return row


def sources(some: Sequence[tuple[int, Derived]], target: str) -> tuple[list[Any], str]:
    """Code and kernels of some programs, and their sources joined without clashes of names."""
    from batch import OWN

    from tilewright.patterns.codegen.gpu import print_grid
    from tilewright.patterns.compiling import grid_code

    made, texts = [], []
    for number, d in some:
        code, kernels = grid_code(d.program, f"kernel_{number}", d.launch)
        text = print_grid(kernels, target, code.reserved)
        made.append((d.program, code, text, kernels))
        texts.append(OWN.sub(rf"p{number}_\1", text))
    return made, "\n".join(texts)


def in_opencl(name: str, found: Sequence[Derived]) -> dict[str, Any]:
    """The row of OpenCL, without races: those are in Oclgrind's log."""
    from tilewright.patterns import opencl

    row = new_row(name, "opencl", found)

    def make(some: Sequence[tuple[int, Derived]]) -> list[Any]:
        made, text = sources(some, "opencl")
        program = opencl.built(text, OPENCL_OPTIONS)
        return [opencl.OpenCLKernel(p, code, one, k, program) for p, code, one, k in made]

    for number, kernel in batched(found, make, row):
        check(found[number], kernel, row)
    return row


def in_cuda(name: str, found: Sequence[Derived]) -> dict[str, Any]:
    """The row of CUDA."""
    from tilewright.patterns.nvrtc import compile_cuda

    row = {**new_row(name, "cuda", found), "spill_bytes_max": 0, "registers_max": 0}

    def make(some: Sequence[tuple[int, Derived]]) -> list[Any]:
        made, text = sources(some, "cuda")
        binary = compile_cuda(text)
        assert len(binary.kernels) == sum(len(kernels) for *_, kernels in made), "a kernel is lost"
        for use in binary.kernels:
            row["registers_max"] = max(row["registers_max"], use.registers)
            row["spill_bytes_max"] = max(row["spill_bytes_max"], use.spill_bytes)
        return [None] * len(made)

    for _ in batched(found, make, row):
        pass
    return row


def rows_of(name: str, simulator: bool) -> list[dict[str, Any]]:
    """The rows of one program. This process never opens OpenCL, so that its children can.

    Raises:
        CompileError: NVRTC is not installed; without it every program would count as refused.
    """
    from tilewright.patterns import nvrtc

    nvrtc.library()
    on_grid = launched(derived(name, "gpu"))
    opencl = confirmed(name, on_grid, simulator)  # first: C starts threads, and a fork has none
    return [in_c(name, [*derived(name, "c"), *on_grid]), opencl, in_cuda(name, on_grid)]


def confirmed(name: str, found: Sequence[Derived], simulator: bool) -> dict[str, Any]:
    """The row of OpenCL, with what Oclgrind says.

    In a process that runs several programs, Oclgrind may take written memory for uninitialised.
    So each alarm is confirmed by running that program in a process that runs no other.

    Args:
        name: the program.
        found: its derived programs.
        simulator: whether OpenCL is Oclgrind's.
    """
    row, alarms = apart(partial(in_opencl, name, found))
    if not simulator:
        return row
    row |= {"alarms": len(alarms), "unconfirmed_alarms": []}
    for number, text in sorted(alarms.items()):
        alone, again = apart(partial(in_opencl, name, found[number : number + 1]))
        if alone["refused"]:
            sys.exit(f"{name} {number}: not compiled alone: {alone['refused']}")
        if again:
            row["races"] += [[number, said] for said in again.values()]
        else:
            row["unconfirmed_alarms"].append([number, *described(found[number]), text])
    return row


def apart(work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], dict[int, str]]:
    """Do work in a forked process, with an Oclgrind and a log of its own.

    A fork has the derived programs without deriving them again. Oclgrind reads where its log is
    when OpenCL is opened, and writes every message through at once.

    Args:
        work: what it returns can be pickled.

    Returns:
        What the work returns, and Oclgrind's first alarm about each program, by its number.
    """
    forking = multiprocessing.get_context("fork")
    receiver, sender = forking.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"

        def child() -> None:
            os.environ["OCLGRIND_LOG"] = str(log)
            sender.send(work())

        process = forking.Process(target=child)
        process.start()
        sender.close()
        try:
            returned = receiver.recv()
        except EOFError:
            process.join()
            sys.exit(f"a process that runs OpenCL ended with {process.exitcode}")
        process.join()
        said = log.read_text(errors="replace") if log.exists() else ""
    alarms = dict(reversed([(int(m["number"]), m["said"]) for m in LOG_KERNEL.finditer(said)]))
    if said.strip() and not alarms:
        sys.exit(f"Oclgrind says {said[:1000]}")
    return returned, alarms


def made_apart(name: str, oclgrind: str | None) -> list[dict[str, Any]]:
    """The rows of a program, from a process that finds Oclgrind where others find OpenCL."""
    simulator = [oclgrind, "--data-races", "--uninitialized", "--max-errors", "100000"]
    argv = [sys.executable, __file__, "--row", name]
    command = [*simulator, *argv, "--simulated"] if oclgrind else argv
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr[-3000:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    """Check each program and write the result."""
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(rows_of(sys.argv[2], simulator=sys.argv[3:] == ["--simulated"])))
        return
    everything = list(builders())
    args = common.arguments(__doc__.splitlines()[0], everything).parse_args()
    pieces = common.Pieces(args.work, "patterns_correct", args.fresh)
    oclgrind = shutil.which("oclgrind")
    rows: list[dict[str, Any]] = []
    seconds = 0.0
    for name in common.chosen(args, everything):

        def made(name: str = name) -> Any:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = made_apart(name, oclgrind)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return {"rows": found, "cpu_seconds": used}

        piece = pieces.get(name, made)
        rows += piece["rows"]
        seconds += piece["cpu_seconds"]
        for row in piece["rows"]:
            counted = ("wrong", "refused", "races", "unconfirmed_alarms")
            mistakes = {k: len(row[k]) for k in counted if k in row}
            print(f"{name:12} {row['target']:6} {row['expressions']:4} {mistakes}", flush=True)
    summary = {
        "programs": len({row["program"] for row in rows}),
        "expressions_least": min(row["expressions"] for row in rows),
        "expressions": sum(row["expressions"] for row in rows),
        "wrong": sum(len(row["wrong"]) for row in rows),
        "refused_by_compiler": sum(len(row["refused"]) for row in rows),
        "races": sum(len(row["races"]) for row in rows) if oclgrind else None,
        "unconfirmed_alarms": (
            sum(len(row.get("unconfirmed_alarms", ())) for row in rows) if oclgrind else None
        ),
        "cpu_seconds": seconds,
    }
    common.write(args, "patterns_correct", rows, summary, oclgrind=bool(oclgrind))


if __name__ == "__main__":
    main()
