"""Two real problems of ``cc``: its flags for a small program, and a tiled loop nest.

Each evaluation compiles and runs a program in a worker with limits of time and memory;
an answer that differs from the plain build's is reported as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.files import scratch_folder
from tilewright.measure import Candidate, Measurement, RunLimits, command, measure_one
from tilewright.tuning.space.parameters import Categorical, Ordinal, Permutation
from tilewright.tuning.space.space import Space
from tilewright.tuning.tune import FailedError

SOURCES = Path(__file__).parent / "sources"
_ORDERS = ("ijk", "ikj", "jik", "jki", "kij", "kji")
_TILES = (8, 24, 60, 240)
_MEMORY = 2 << 30  # bytes


@dataclass(frozen=True)
class CProgram:
    """Compile, run and check a C program; called with a configuration it gives seconds.

    Attributes:
        name: the problem's name.
        space: its space.
        source: the program, which prints seconds and a checksum.
        flags: the compiler's flags for a configuration.
        environment: what a configuration adds to the program's environment.
        arguments: the program's arguments for a configuration.
        compiler: the compiler's command.
        plain: the flags of the reference build.
        timeout: the time limit of compiling and of running, in seconds.
    """

    name: str
    space: Space
    source: Path
    flags: Callable[[Mapping[str, Any]], Sequence[str]] = field(repr=False)
    environment: Callable[[Mapping[str, Any]], Mapping[str, str]] = field(repr=False)
    arguments: Callable[[Mapping[str, Any]], Sequence[str]] = field(repr=False)
    plain: tuple[str, ...] = ()
    compiler: str = "cc"
    timeout: float = 20.0
    _kept: dict[str, float] = field(default_factory=dict, repr=False)

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        """Return the seconds that the program measures itself.

        Raises:
            FailedError: it did not compile, crashed, took too long or gave a wrong answer.
        """
        with scratch_folder("tilewright-build-") as folder:
            return self.run(self.build(self.flags(configuration), folder), configuration)

    def build(self, flags: Sequence[str], folder: Path) -> Path:
        """Return the program built with flags.

        Raises:
            FailedError: the compiler refused or took too long.
        """
        program = folder / "program"
        words = [self.compiler, *flags, str(self.source), "-o", str(program), "-lm"]
        done = _run(command(words, exclusive=False), self.timeout)
        if not done.ok:
            said = str(done.details.get("stderr") or done.message)
            raise FailedError("build_failed", said[-400:])
        return program

    def run(self, program: Path, configuration: Mapping[str, Any]) -> float:
        """Return the seconds of a built program.

        Raises:
            FailedError: as calling the problem.
        """
        seconds, answer = self._answer(program, configuration)
        expected = self._expected(configuration)
        if not abs(answer - expected) <= 1e-6 * abs(expected):
            raise FailedError("wrong_answer", f"the checksum is {answer}, not {expected}")
        return seconds

    def _answer(self, program: Path, configuration: Mapping[str, Any]) -> tuple[float, float]:
        words = [str(program), *self.arguments(configuration)]
        done = _run(command(words, env=self.environment(configuration)), self.timeout)
        if not done.ok:
            raise FailedError(done.status, done.message)
        seconds, answer = map(float, str(done.details["stdout"]).split())
        return seconds, answer

    def _expected(self, configuration: Mapping[str, Any]) -> float:
        """Return the plain build's answer, which no configuration changes."""
        if "answer" not in self._kept:
            with scratch_folder("tilewright-build-") as folder:
                self._kept["answer"] = self._answer(self.build(self.plain, folder), configuration)[
                    1
                ]
        return self._kept["answer"]


def cc_flags(compiler: str = "cc") -> CProgram:
    """Return the optimisation flags of the compiler for a small program (384 sets)."""
    switches = {
        "native": "-march=native",
        "fast_math": "-ffast-math",
        "unroll_loops": "-funroll-loops",
        "vectorise": "-ftree-vectorize",
        "inline": "-finline-functions",
    }
    space = Space(
        [
            Ordinal("level", (1, 2, 3), default=2),
            *(Categorical(name, (False, True), default=False) for name in switches),
            Ordinal("align_loops", (1, 32), scale="log", default=1),
            Categorical("scheduler", ("default", "pressure"), default="default"),
        ]
    )

    def flags(c: Mapping[str, Any]) -> list[str]:
        chosen = [f"-O{c['level']}", f"-falign-loops={c['align_loops']}"]
        for name, flag in switches.items():
            chosen.append(flag if c[name] else "-fno-" + flag[2:] if flag[1] == "f" else "")
        if c["scheduler"] == "pressure":
            chosen += ["-fschedule-insns", "-fsched-pressure"]
        return [flag for flag in chosen if flag]

    source = SOURCES / "programs.c"
    return CProgram(
        "cc_flags", space, source, flags, lambda c: {}, lambda c: (), ("-O0",), compiler
    )


def c_loop_nest(compiler: str = "cc") -> CProgram:
    """Return a matrix product with tile sizes, loop order, unrolling and OpenMP schedule."""
    space = Space(
        [
            *(Ordinal(f"tile_{v}", _TILES, scale="log", default=60) for v in "ijk"),
            Permutation("order", ("i", "j", "k"), default=("i", "k", "j")),
            Ordinal("unroll", (1, 4), scale="log", default=1),
            Categorical("schedule", ("static", "dynamic", "guided"), default="static"),
        ],
    )

    def flags(c: Mapping[str, Any]) -> list[str]:
        order = _ORDERS.index("".join(c["order"]))
        chosen = [f"-DORDER={order}", f"-DUNROLL={c['unroll']}"]
        return ["-O3", "-march=native", "-fopenmp", *chosen]

    def environment(c: Mapping[str, Any]) -> dict[str, str]:
        return {"OMP_SCHEDULE": c["schedule"]}

    def arguments(c: Mapping[str, Any]) -> list[str]:
        return [str(c[f"tile_{v}"]) for v in "ijk"]

    plain = ("-O1", "-fopenmp", "-DORDER=0", "-DUNROLL=1")
    source = SOURCES / "loop_nest.c"
    return CProgram("c_loop_nest", space, source, flags, environment, arguments, plain, compiler)


def _run(candidate: Candidate, seconds: float) -> Measurement:
    """Run a command in a worker, with its children, within limits of time and memory."""
    limits = RunLimits(build_seconds=seconds, run_seconds=seconds, memory_bytes=_MEMORY)
    return measure_one(candidate, limits)
