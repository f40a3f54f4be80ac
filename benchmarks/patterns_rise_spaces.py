"""RISE's published GPU spaces: configurations as derivations, run under Oclgrind and compiled.

For each of the six spaces, `CONFIGURATIONS` feasible configurations whose tiles fit small sizes are
derived from the space's program by rules (`tilewright.patterns.rise`). Their kernels run in
Oclgrind, a simulator that reports races between threads, accesses out of bounds, and memory that is
read before it is written; results are compared with the interpreter's of the program before any
rewriting. So that the simulator ends, launches have at most `MOST_THREADS` threads. NVRTC compiles
the same kernels to cubins for an A100, which are not run. `DERIVED` feasible configurations of the
whole space are derived and generated at the default sizes, and not run.

A row is a space. Keys of the summary:

- ``spaces``, ``configurations``: the spaces, and the configurations of all of them that were run.
- ``refused``: further configurations at the small sizes that a rule or the generator refuses.
- ``wrong``: results that differ by more than `TOLERANCE` of the largest number.
- ``refused_by_compiler``: kernels that Oclgrind's compiler does not take.
- ``races``: alarms of Oclgrind that it repeats when the kernel runs alone (see patterns_correct).
  Null where Oclgrind is not installed: then OpenCL runs on the first platform.
- ``unconfirmed_alarms``: kernels with alarms that it does not repeat. Null likewise.
- ``cubin_failures``: kernels that NVRTC does not take.
- ``derive_share``: the share of feasible configurations at the default sizes that are derived and
  generated; ``derive_share_least``: of the space where it is smallest.
- ``cpu_seconds``: of the whole run.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections import Counter
from typing import Any

import common
import patterns_correct as correct

CONFIGURATIONS = 200  # of a space at small sizes
DERIVED = 300  # of a space at the default sizes
MOST_THREADS = 4096  # of a launch in the simulator
DRAWN = 50  # times as many configurations are drawn at most, for those with few threads
TOLERANCE = correct.TOLERANCE
SEED = 0
COUNTED = (
    *("refused", "wrong", "refused_by_compiler"),
    *("races", "unconfirmed_alarms", "cubin_failures"),
)
SIMULATOR = (
    *("--data-races", "--uninitialized", "--max-errors", "100000"),
    # It adds up the local memory of all kernels that are compiled together.
    *("--local-mem-size", str(correct.BATCH * 49152)),
)


def threads(configuration: dict[str, Any]) -> int:
    """The threads of a launch."""
    return int(configuration["gs0"] * configuration.get("gs1", 1))


def drawn(kernel: Any) -> list[dict[str, Any]]:
    """Different configurations that fit a kernel's sizes, with few threads."""
    import numpy as np

    space, rng = kernel.fitting_space(), np.random.default_rng(SEED)
    found: dict[bytes, dict[str, Any]] = {}
    for code in space.sample(rng, DRAWN * CONFIGURATIONS):
        configuration = space.decode(code)
        if threads(configuration) <= MOST_THREADS:
            found.setdefault(space.key(code), configuration)
        if len(found) == CONFIGURATIONS:
            break
    return list(found.values())


def at_small_sizes(name: str) -> tuple[list[correct.Derived], list[Any], Any]:
    """The derived programs of a space, what is refused, and the sizes."""
    from tilewright.patterns import PatternError, interpret
    from tilewright.patterns.rise import small_kernel

    kernel = small_kernel(name)
    arrays = kernel.inputs(SEED)
    of = correct.Sized(kernel.program, arrays, interpret(kernel.program, *arrays))
    found, refused = [], []
    for configuration in drawn(kernel):
        try:
            kernel.grid(configuration)
        except PatternError as error:
            refused.append([configuration, reason(error)])
            continue
        derivation, launch = kernel.derive(configuration)
        steps = [str(configuration)]
        found.append(correct.Derived(of, derivation.program, steps, launch))
    return found, refused, kernel.sizes


def reason(error: Exception) -> str:
    """The last line of an error, which has the reason of a rule, without its numbers."""
    line = str(error).splitlines()[-1].strip()
    return "".join("N" if c.isdigit() else c for c in line)[:120]


def at_default_sizes(name: str) -> dict[str, Any]:
    """How many feasible configurations derive at the default sizes, and why others do not."""
    import numpy as np

    from tilewright.patterns import PatternError
    from tilewright.patterns.rise import rise_kernel

    kernel = rise_kernel(name)
    reasons: Counter[str] = Counter()
    codes = kernel.space.sample(np.random.default_rng(SEED), DERIVED)
    for code in codes:
        try:
            kernel.grid(kernel.space.decode(code))
        except PatternError as error:
            reasons[reason(error)] += 1
    return {
        "default_sizes": kernel.sizes,
        "drawn": len(codes),
        "derive_share": 1 - reasons.total() / len(codes),
        "reasons": dict(reasons),
    }


def row_of(name: str, simulator: bool) -> dict[str, Any]:
    """The row of a space. This process never opens OpenCL, so that its children can.

    Raises:
        CompileError: NVRTC is not installed; without it every configuration would be a failure.
    """
    from tilewright.patterns import nvrtc

    nvrtc.library()
    found, refused, sizes = at_small_sizes(name)
    opencl = correct.confirmed(name, found, simulator)
    cuda = correct.in_cuda(name, found)
    return {
        "space": name,
        "sizes": sizes,
        "configurations": len(found),
        "refused": refused,
        "wrong": opencl["wrong"],
        "error_max": opencl["error_max"],
        "refused_by_compiler": opencl["refused"],
        "races": opencl["races"],
        "alarms": opencl.get("alarms"),
        "unconfirmed_alarms": opencl.get("unconfirmed_alarms", []),
        "cubin_failures": cuda["refused"],
        "registers_max": cuda["registers_max"],
        "spill_bytes_max": cuda["spill_bytes_max"],
        **at_default_sizes(name),
    }


def made_apart(name: str, oclgrind: str | None) -> dict[str, Any]:
    """The row of a space, from a process that finds Oclgrind where others find OpenCL."""
    argv = [sys.executable, __file__, "--row", name]
    command = [oclgrind, *SIMULATOR, *argv, "--simulated"] if oclgrind else argv
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr[-3000:]}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return row | {"cpu_seconds": used}


def main() -> None:
    """Check each space and write the result."""
    from tilewright.patterns.rise import RISE_KERNELS

    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(row_of(sys.argv[2], simulator=sys.argv[3:] == ["--simulated"])))
        return
    args = common.arguments(__doc__.splitlines()[0], RISE_KERNELS).parse_args()
    pieces = common.Pieces(args.work, "patterns_rise_spaces", args.fresh)
    oclgrind = shutil.which("oclgrind")
    rows: list[dict[str, Any]] = []
    for name in common.chosen(args, RISE_KERNELS):

        def made(name: str = name) -> Any:
            return made_apart(name, oclgrind)

        row = pieces.get(name, made)
        rows.append(row)
        mistakes = {k: len(row[k]) for k in COUNTED}
        print(name, row["configurations"], mistakes, row["derive_share"], flush=True)
    totals: dict[str, Any] = {key: sum(len(row[key]) for row in rows) for key in COUNTED}
    if not oclgrind:
        totals |= {"races": None, "unconfirmed_alarms": None}
    shares = [row["derive_share"] for row in rows]
    summary = {
        "spaces": len(rows),
        "configurations": sum(row["configurations"] for row in rows),
        **totals,
        "derive_share": sum(shares) / len(shares),
        "derive_share_least": min(shares),
        "cpu_seconds": sum(row["cpu_seconds"] for row in rows),
    }
    common.write(args, "patterns_rise_spaces", rows, summary, oclgrind=bool(oclgrind))


if __name__ == "__main__":
    main()
