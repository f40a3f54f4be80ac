"""The pieces of the pattern room: kernels of Lift's stencils, measured and ranked on a GPU.

Each piece takes one stencil and one language. It draws candidates (derived programs with launches),
compares each with the interpreter and times it, launches included, in rounds of alternating order.
Then every stencil is ranked by the paper's model and by `TrendAndTrees`, which have learnt from the
others, and by the estimate that has seen no measurement (`StaticEstimate`).
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from gpu.pieces import Piece, Setting

SECONDS = 80.0  # of a piece
SHARE = 0.6  # of the time of a piece, after which no further kernel is built
SIZE, SMALL_SIZE = 4096, 32
EXPRESSIONS, LAUNCHES = 120, 4  # drawn of a stencil; launches of each
SMALL_EXPRESSIONS = 2
EXPLORED = 1000
ROUNDS = 7
LEAST_SECONDS = 2e-4  # of a sample: shorter kernels are run several times
TOLERANCE = 1e-4
TARGETS = ("cuda", "opencl")


def names(setting: Setting) -> list[str]:
    """The stencils; the first one only of a small campaign."""
    from tilewright.patterns.programs import STENCILS

    return list(STENCILS)[: 1 if setting.small else None]


def pieces(setting: Setting) -> list[Piece]:
    """One for each stencil and language."""
    return [
        Piece(f"patterns {target} {name}", SECONDS, partial(measure, name, target))
        for target in TARGETS
        for name in names(setting)
    ]


def measure(name: str, target: str, setting: Setting) -> dict[str, Any]:
    """The points of a stencil: features, seconds of each kernel, and what failed."""
    import numpy as np

    from tilewright.patterns import interpret, random_inputs
    from tilewright.patterns.programs import STENCILS

    began = time.monotonic()
    prepare(target, setting.small)
    size = SMALL_SIZE if setting.small else SIZE
    program = STENCILS[name].build(size, size)
    inputs = random_inputs(program)
    expected = interpret(program, *inputs)
    drawn = draw(program, np.random.default_rng(0), setting.small)
    until = began + SHARE * min(SECONDS, setting.deadline - began)
    failed: dict[str, int] = {}
    running: list[tuple[Any, Any]] = []
    for candidate in drawn:
        if time.monotonic() > until and running:
            break
        outcome = built(candidate, target, inputs, None if setting.small else expected)
        if isinstance(outcome, str):
            failed[outcome] = failed.get(outcome, 0) + 1
        else:
            running.append((candidate, outcome))
    seconds = rounds([bound.run for _, bound in running], setting.deadline)
    return {
        "drawn": len(drawn),
        "features": [c.features.vector().tolist() for c, _ in running],
        "seconds": seconds,
        "failed": failed,
    }


def prepare(target: str, small: bool) -> None:
    """Whether the device is a GPU; where nothing is computed, have the driver take any kernel.

    Raises:
        RuntimeError: OpenCL finds another device; nothing is learnt from its times.
    """
    from tilewright.patterns import cuda, opencl
    from tilewright.patterns.nvrtc import CudaBinary

    if target == "cuda" and small:
        driver = cuda.CudaDriver(ctypes.CDLL(None))
        replaced: Any = cuda
        replaced.driver = lambda: driver
        replaced.compile_cuda = lambda source, architecture: CudaBinary(source.encode(), ())
    if target == "opencl" and not small:
        import pyopencl as cl

        (device,) = opencl.context().devices
        if not device.type & cl.device_type.GPU:
            raise RuntimeError(f"OpenCL's first device is {device.name}, not a GPU")


def draw(program: Any, rng: Any, small: bool) -> list[Any]:
    """Candidates in random order, so that the time may be up after any of them."""
    from tilewright.patterns.ranking import candidates
    from tilewright.patterns.rewriting import ExplorationSettings

    count = SMALL_EXPRESSIONS if small else EXPRESSIONS
    settings = ExplorationSettings(tiles=(4, 8, 16, 32, 64), limit=40 if small else EXPLORED)
    found = candidates(program, {}, settings, LAUNCHES)
    order = rng.permutation(len(found))[: count * LAUNCHES]
    return [found[i] for i in order]


def built(candidate: Any, target: str, inputs: Sequence[Any], expected: Any) -> Any:
    """A kernel with its arguments; a text if it fails or is wrong. None is expected: no check."""
    from tilewright.patterns import PatternError, compile, relative_error

    try:
        kernel = compile(candidate.derivation.program, target, launch=candidate.launch)
        bound = kernel.bound(*inputs)
        bound.run()
        if expected is not None and not relative_error(bound.result(), expected) <= TOLERANCE:
            return "wrong"
    except PatternError as error:
        return str(error).splitlines()[0][:80]
    except Exception as error:  # of pyopencl: its classes are not ours
        return f"{type(error).__name__}: {error}"[:80]
    return bound


def rounds(runs: Sequence[Any], deadline: float) -> list[float]:
    """The median seconds of each run, of rounds in alternating order."""
    repeats = []
    for run in runs:
        took = clock(run, 1)
        repeats.append(max(1, int(LEAST_SECONDS / max(took, 1e-7))))
    samples: list[list[float]] = [[] for _ in runs]
    for number in range(ROUNDS):
        order = range(len(runs)) if number % 2 == 0 else reversed(range(len(runs)))
        for i in order:
            samples[i].append(clock(runs[i], repeats[i]))
        if time.monotonic() > deadline:
            break
    return [statistics.median(s) for s in samples]


def clock(run: Any, repeats: int) -> float:
    """Seconds of a run, of several in a row."""
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - began) / repeats


def results(setting: Setting, done: dict[str, Any]) -> dict[str, Any]:
    """``gpu_patterns_LANGUAGE``: how well each model ranks, a row for each stencil and model.

    The summary has the figures of `tilewright.patterns.ranking.summary` for each model, with its
    name in front, and ``kernels``, ``failed`` and ``wrong``.
    """
    from tilewright.patterns import ranking

    found: dict[str, Any] = {}
    for target in TARGETS:
        given = {name: done.get(f"patterns {target} {name}") for name in names(setting)}
        measured = [
            ranking.MeasuredProgram(name, {}, one["features"], one["seconds"])
            for name, one in given.items()
            if one and one["seconds"]
        ]
        if not measured:
            continue
        qualities = {"estimate": estimated(measured, setting)}
        if len(measured) > 1:
            for model, make in (
                ("paper", ranking.NearestNeighbours),
                ("trend", ranking.TrendAndTrees),
            ):
                qualities[model] = ranking.leave_one_program_out(measured, make)
        failed = [one["failed"] for one in given.values() if one]
        summary = {
            f"{model}_{key}": value
            for model, each in qualities.items()
            for key, value in ranking.summary(each).items()
        }
        summary["kernels"] = sum(len(m.seconds) for m in measured)
        summary["failed"] = sum(sum(f.values()) for f in failed)
        summary["wrong"] = sum(f.get("wrong", 0) for f in failed)
        found[f"patterns_{target}"] = ranking.rows(qualities), summary
    return found


def estimated(measured: Sequence[Any], setting: Setting) -> list[Any]:
    """The quality of the estimate, which has learnt nothing."""
    from tilewright.patterns import ranking

    model = ranking.StaticEstimate(setting.machine)
    return [ranking.quality(p, model.predict(p.features)) for p in measured]
