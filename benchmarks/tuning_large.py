"""Large search spaces that are evaluated while a tuner runs, since no table could hold them.

Nothing is timed, so that every machine with the same compiler and package gives the same values.

- ``flags_*``: about a hundred choices of gcc (switches, parameters, the level) for a C file of
  ``data/code_size``; the objective is the bytes of code and constants. What gcc refuses fails.
- ``factors_*``: the factors of all splits of an example's schedule, on a CPU or an A100; the
  objective is the time that the model predicts. What `check` refuses fails.

The best value of such a space is not known. ``data/tuning_large.json`` has the best that any tool
or this script's own search has found, and what a uniform sample says of the space. Run as a script,
it samples and searches the problems that are not in that file yet (it climbs by single changes from
the best of the sample, then from the next), and takes in the runs of --work:

    python benchmarks/tuning_large.py --evaluations 3000 --work .work/tuning
"""

from __future__ import annotations

import argparse
import functools
import json
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.tuning import Categorical, Ordinal, Space
from tilewright.tuning.space.parameters import Parameter
from tilewright.tuning.space.space import Configuration
from tilewright.tuning.trial import plain
from tilewright.tuning.tune import FailedError

DATA = Path(__file__).parent / "data"
KNOWN = DATA / "tuning_large.json"
SAMPLE = 500  # uniform configurations that describe a space
MOST_KNOBS = 40  # more than any of the schedules has
CODE = ("codec", "matrices", "parser", "containers")
SCHEDULES = (
    ("iir_blur", "cpu"),
    ("iir_blur", "a100"),
    ("bilateral_grid", "a100"),
    ("histogram", "cpu"),
    ("conv_layer", "cpu"),
    ("depthwise_conv", "a100"),
)
SWITCHES = """
    aggressive-loop-optimizations align-functions align-jumps align-labels align-loops
    branch-count-reg caller-saves code-hoisting combine-stack-adjustments compare-elim
    conserve-stack cprop-registers crossjumping cse-follow-jumps dce defer-pop
    delete-null-pointer-checks dse early-inlining expensive-optimizations forward-propagate gcse
    gcse-after-reload gcse-las gcse-lm gcse-sm guess-branch-probability hoist-adjacent-loads
    if-conversion if-conversion2 inline-functions inline-functions-called-once
    inline-small-functions ipa-cp ipa-icf ipa-modref ipa-pta ipa-pure-const ipa-ra ipa-sra ipa-vrp
    ira-hoist-pressure ira-loop-pressure ira-share-save-slots ivopts jump-tables
    live-range-shrinkage loop-interchange loop-unroll-and-jam lra-remat modulo-sched
    move-loop-invariants move-loop-stores omit-frame-pointer optimize-sibling-calls
    partial-inlining peel-loops peephole2 predictive-commoning prefetch-loop-arrays ree
    rename-registers reorder-blocks rerun-cse-after-loop sched-interblock sched-pressure
    schedule-insns schedule-insns2 section-anchors shrink-wrap split-loops split-paths
    split-wide-types store-merging strict-aliasing thread-jumps toplevel-reorder tracer
    tree-bit-ccp tree-ccp tree-ch tree-coalesce-vars tree-dce tree-dominator-opts tree-dse
    tree-fre tree-loop-distribute-patterns tree-loop-distribution tree-loop-im tree-loop-vectorize
    tree-partial-pre tree-pre tree-pta tree-reassoc tree-sink tree-slp-vectorize tree-slsr tree-sra
    tree-switch-conversion tree-tail-merge tree-ter tree-vrp unroll-loops unswitch-loops web
""".split()
PARAMETERS = {
    "max-inline-insns-auto": (0, 5, 15, 30, 60),
    "max-inline-insns-small": (0, 2, 8, 16),
    "max-unrolled-insns": (0, 50, 100, 200, 400),
    "max-completely-peel-times": (0, 2, 4, 8, 16),
    "max-crossjump-edges": (1, 10, 100, 1000),
    "min-crossjump-insns": (1, 2, 3, 5, 8),
    "case-values-threshold": (2, 4, 8, 16),
    "max-grow-copy-bb-insns": (1, 2, 4, 8, 16),
}


@dataclass(frozen=True)
class Live:
    """A problem that is evaluated when it is asked; what was asked before is remembered.

    Attributes:
        name: its name.
        space: its space.
        evaluate: returns the objective of a configuration, or raises `FailedError`.
        known: what `KNOWN` has of it.
    """

    name: str
    space: Space
    evaluate: Callable[[Configuration], float] = field(repr=False)
    known: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _kept: dict[bytes, float | str] = field(default_factory=dict, repr=False)

    @property
    def optimum(self) -> float:
        """The best value that is known."""
        return float(self.known["best"])

    @property
    def worst(self) -> float:
        """The largest value of the uniform sample."""
        return float(self.known["worst"])

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        """Return the objective.

        Raises:
            FailedError: the compiler or the model refuses the configuration.
        """
        key = self.space.key(self.space.encode(configuration))
        if key not in self._kept:
            try:
                self._kept[key] = float(self.evaluate(dict(configuration)))
            except FailedError as failure:
                self._kept[key] = failure.status
        found = self._kept[key]
        if isinstance(found, str):
            raise FailedError(found, "refused")
        return found


def problems() -> list[Live]:
    """Return the problems."""
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    made = [flags(name) for name in CODE]
    made += [factors(name, machine) for name, machine in SCHEDULES]
    return [Live(p.name, p.space, p.evaluate, known.get(p.name, {})) for p in made]


def flags(name: str, compiler: str = "gcc") -> Live:
    """Return the choices of a compiler for one of the files of ``data/code_size``."""
    source = DATA / "code_size" / f"{name}.c"
    names = {text: text.replace("-", "_") for text in (*SWITCHES, *PARAMETERS)}
    parameters: list[Parameter] = [Categorical("level", ("1", "2", "3", "s"))]
    parameters += [Categorical(names[text], (False, True)) for text in SWITCHES]
    parameters += [Ordinal(names[text], values) for text, values in PARAMETERS.items()]

    def evaluate(c: Configuration) -> float:
        chosen = [f"-O{c['level']}"]
        chosen += [f"-f{'' if c[names[text]] else 'no-'}{text}" for text in SWITCHES]
        chosen += [f"--param={text}={c[names[text]]}" for text in PARAMETERS]
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "made.o"
            words = [compiler, "-std=c11", "-w", *chosen, "-c", str(source), "-o", str(made)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise FailedError("build_failed", done.stderr[-400:])
            return float(kept_bytes(made.read_bytes()))

    return Live(f"flags_{name}", Space(parameters), evaluate)


def version(compiler: str = "gcc") -> str:
    """Return the compiler's name and version."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def kept_bytes(elf: bytes) -> int:
    """Return the bytes of code and constants of an object file (64 bits, little-endian).

    These are the sections that are loaded and not written, without tables for unwinding.
    """
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    # name, type, flags, address, offset, size of each section
    headers = [struct.unpack_from("<IIQQQQ", elf, start + size * i) for i in range(count)]
    texts = headers[names][4]
    total = 0
    for name, kind, flag, _, _, length in headers:
        unwinding = elf[texts + name :].startswith(b".eh_frame\0")
        # of contents (SHT_PROGBITS), loaded (SHF_ALLOC) and not SHF_WRITE
        total += length if kind == 1 and flag & 3 == 2 and not unwinding else 0
    return total


@functools.cache
def factors(name: str, machine: str) -> Live:
    """Return the factors of the analytic schedule of an example."""
    import common
    from make_gallery import CPU
    from tilewright.halide.legality.check import check
    from tilewright.halide.schedulers.prediction import predicted
    from tilewright.halide.schedulers.registry import device_limits
    from tilewright.halide.schedulers.several_sizes import plan_sizes
    from tilewright.halide.schedulers.task import make_task
    from tilewright.halide.search.factors import find_knobs, turned

    target, chosen = ("host", CPU) if machine == "cpu" else ("cuda", machine)
    task = make_task(common.build(name), target=target, machine=chosen, name=name)
    plan = plan_sizes(task, k=1)[0]
    knobs = find_knobs([plan], task.algorithm, MOST_KNOBS)
    limits = device_limits(task) if task.gpu else None

    def evaluate(c: Configuration) -> float:
        schedule = turned(plan.schedule, knobs, c)
        refused = check(schedule, task.algorithm, limits)
        if refused:
            raise FailedError("build_failed", str(refused[0]))
        found = predicted(task, schedule)
        if found is None:
            raise FailedError("run_failed", "the model cannot predict it")
        return found.seconds

    space = Space([Ordinal(k.name, k.values, scale="log") for k in knobs.knobs], knobs.constraints)
    return Live(f"factors_{name}_{machine}", space, evaluate)


def explored(
    problem: Live, evaluations: int, seed: int = 0, sample: int = SAMPLE
) -> dict[str, Any]:
    """Sample a problem and search it for long; return what `KNOWN` keeps."""
    space, rng = problem.space, np.random.default_rng(seed)
    found: dict[bytes, tuple[float, Any]] = {}

    def value(code: Any) -> float:
        key = space.key(code)
        if key not in found:
            try:
                found[key] = problem(space.decode(code)), code
            except FailedError:
                found[key] = np.inf, code
        return found[key][0]

    sampled = space.sample(rng, sample, False)
    values = np.array([value(code) for code in sampled])
    starts = sampled[np.argsort(values, kind="stable")]
    for tried, start in enumerate(starts, 1):  # noqa: B007
        code, improved = start, True
        while improved and len(found) < evaluations:
            before, improved = code, False
            for near in rng.permutation(space.neighbours(before)):
                if len(found) >= evaluations:
                    break
                # the same change, of what is the best by now
                changed = np.where(near != before, near, code)
                if space.contains(changed[None])[0] and value(changed) < value(code):
                    code, improved = changed, True
        if len(found) >= evaluations:
            break
    best, code = min(found.values(), key=lambda pair: pair[0])
    good = values[np.isfinite(values)]
    return {
        "best": best,
        "configuration": plain(space.decode(code)),
        "by": "its own search",
        "evaluations": len(found),
        "starts": tried,
        "worst": float(good.max()),
        "sample": sample,
        "failing": 1 - len(good) / sample,
        "sampled": sorted(good.tolist()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=3000)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--problems", default="", help="only those whose name holds this")
    parser.add_argument("--work", type=Path, help="take in the runs of this folder")
    args = parser.parse_args()
    for problem in problems():
        if args.problems not in problem.name:
            continue
        entry = dict(problem.known) or explored(problem, args.evaluations, sample=args.sample)
        if problem.name.startswith("flags_"):
            entry.setdefault("compiler", version())
        for path in args.work.glob(f"{problem.name}--*.json") if args.work else ():
            runs = json.loads(path.read_text())
            met = [v for run in runs.values() for v in run if v is not None]
            tool = path.name.split("--")[1]
            # the gains that our model expected are kept beside its runs
            if not tool.endswith("_expected") and met and min(met) < entry["best"]:
                entry |= {"best": min(met), "by": tool}
                entry.pop("configuration", None)
        known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
        known |= {problem.name: entry}
        # a line for each problem
        lines = [f"{json.dumps(k)}: {json.dumps(known[k], sort_keys=True)}" for k in sorted(known)]
        KNOWN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        shown = {k: v for k, v in entry.items() if k not in ("sampled", "configuration")}
        print(problem.name, f"{problem.space.dense:.3g}", shown, flush=True)


if __name__ == "__main__":
    main()
