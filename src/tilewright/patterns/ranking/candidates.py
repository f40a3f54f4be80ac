"""Candidate kernels of a program: derived programs, each with several launches.

The paper explores about ten numbers of threads for each of a thousand expressions (section 8.1).
A launch is correct for any number of groups and threads, because loops stride by these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import requirements, type_of
from tilewright.patterns.codegen.grid import (
    DIMS,
    MOST_THREADS,
    GridKernel,
    ThreadGrid,
    local_bytes,
    loops,
    relaunched,
)
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.errors import LoweringError, SizeError
from tilewright.patterns.features import Features, kernel_features
from tilewright.patterns.ranking.models import PerformanceModel
from tilewright.patterns.rewriting.exploration import ExplorationSettings, explore
from tilewright.patterns.rewriting.strategies import Derivation
from tilewright.patterns.sizing import size_names, with_sizes

Array: TypeAlias = np.ndarray[Any, Any]
Numbers: TypeAlias = tuple[int, ...]

LAUNCHES = 10  # per expression (section 8.1)
LEAST_THREADS = 32  # per group, if the program can use them: one warp
LEAST_GROUPS = 8  # if the program can use them: Lift's filter for NVIDIA GPUs
STRIDED = ThreadGrid((poly(1), poly(1), poly(1)), (1, 1, 1))  # groups may run several iterations
LARGEST = ("global_size", "local_size", "local_memory")  # prefixes of features that are not summed


@dataclass(frozen=True, slots=True, eq=False)
class KernelCandidate:
    """A derived program with a launch.

    Args:
        derivation: the derivation of the program.
        launch: groups and threads; None for the default, one group per tile and one thread per
            point.
        features: the features of all its kernels together (`combined`).
    """

    derivation: Derivation
    launch: ThreadGrid | None
    features: Features


def candidates(
    program: n.Pattern,
    sizes: Mapping[str, int] | None = None,
    settings: ExplorationSettings | None = None,
    launches: int = LAUNCHES,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[KernelCandidate]:
    """Return derived programs with launches and features, in the order of `explore`.

    Args:
        program: patterns that start at their inputs.
        sizes: the value of every size of the program.
        settings: the settings of `explore`, with target ``gpu``.
        launches: the maximum number of launches per expression, including the default.
        seed: the seed of the choice of launches.
        on_progress: called with the numbers of expressions done and of all expressions.

    Raises:
        PatternTypeError: the program is not well typed.
        SizeError: a size is missing or unknown, or the sizes do not fit the program.
        LoweringError: a grid of threads can run neither the program nor any derived program.
    """
    type_of(program)
    fixed = with_sizes(program, dict(sizes or {}))
    if missing := size_names(fixed):
        raise SizeError(f"no value for {', '.join(missing)}: sizes={{'{missing[0]}': ...}}")
    found: list[KernelCandidate] = []
    derivations = explore(fixed, settings)
    for number, derivation in enumerate(derivations):
        rng = np.random.default_rng([seed, number])
        found += _launched(derivation, launches, rng)
        if on_progress is not None:
            on_progress(number + 1, len(derivations))
    if not found:
        grid_code(fixed, "kernel", None)
    return found


def _launched(
    derivation: Derivation, count: int, rng: np.random.Generator
) -> list[KernelCandidate]:
    """Return a derived program with its launches; none if a grid of threads cannot run it."""
    try:
        for requirement in requirements(derivation.program):
            requirement.check({})
        usual = grid_code(derivation.program, "kernel", None)[1]
        strided = usual
        if any(local_bytes(kernel) for kernel in usual):  # barriers depend on the launch
            strided = grid_code(derivation.program, "kernel", STRIDED)[1]
    except (LoweringError, SizeError):
        return []
    made = [KernelCandidate(derivation, None, combined([kernel_features(k, {}) for k in usual]))]
    largest = max(usual, key=lambda k: prod(k.grid({})) * prod(k.launch.threads))
    for launch in thread_grids(largest, count - 1, rng):
        run = [kernel_features(relaunched(k, launch), {}) for k in strided]
        made.append(KernelCandidate(derivation, launch, combined(run)))
    return made


def thread_grids(kernel: GridKernel, count: int, rng: np.random.Generator) -> list[ThreadGrid]:
    """Return launches of a kernel of known sizes: powers of two, drawn without repetition.

    The threads or groups of a dimension are at most the next power of two above its iterations.
    Launches with at least `LEAST_THREADS` per group and `LEAST_GROUPS` are preferred.

    Args:
        kernel: the kernel.
        count: the maximum number of launches.
        rng: draws the launches.
    """
    threads, iterations = [1] * DIMS, [1] * DIMS
    # Whether loops run over all threads, so that more threads per group need fewer groups.
    shared = False
    for loop in loops(kernel.body):
        d, extent = loop.level.dim, loop.variable.extent.value
        if not isinstance(extent, int) or loop.level.kind not in n.GRID_KINDS:
            continue
        if loop.level.kind in ("lcl", "glb"):
            threads[d] = max(threads[d], extent)
        if loop.level.kind in ("wrg", "glb"):
            iterations[d] = max(iterations[d], extent)
            shared = loop.level.kind == "glb"
    options = _options(tuple(threads), tuple(iterations), shared)
    chosen = rng.choice(len(options), size=min(count, len(options)), replace=False)
    made = []
    for i in sorted(chosen):
        (x, y, z), (a, b, c) = options[i]
        made.append(ThreadGrid((poly(a), poly(b), poly(c)), (x, y, z)))
    return made


@lru_cache(1000)
def _options(
    threads: Numbers, iterations: Numbers, shared: bool
) -> tuple[tuple[Numbers, Numbers], ...]:
    """Return pairs: threads of a group by dimension, and groups by dimension."""
    found = []
    for group in _enough(_powers(threads), LEAST_THREADS, MOST_THREADS):
        rounds = [-(-i // t) if shared else i for i, t in zip(iterations, group, strict=True)]
        found += [(group, grid) for grid in _enough(_powers(rounds), LEAST_GROUPS, None)]
    return tuple(found)


def _powers(most: Sequence[int]) -> list[Numbers]:
    """Return all tuples of powers of two, each at most the next power above its bound."""
    each = [[2**k for k in range((bound - 1).bit_length() + 1)] for bound in most]
    return list(product(*each))


def _enough(options: list[Numbers], least: int, most: int | None) -> list[Numbers]:
    """Return options whose product is in a range; if all are below, those with the largest."""
    possible = [o for o in options if most is None or prod(o) <= most]
    largest = max(prod(o) for o in possible)
    return [o for o in possible if prod(o) >= min(least, largest)]


def combined(kernels: Sequence[Features]) -> Features:
    """Return the combined features of kernels that run in order.

    Sizes and memory are maxima, counts are totals per thread of the largest kernel, and cache lines
    are the mean over all global accesses.
    """
    if len(kernels) == 1:
        return kernels[0]
    threads = [k.global_size_0 * k.global_size_1 * k.global_size_2 for k in kernels]
    accesses = [
        t * (k.global_loads + k.global_stores) for t, k in zip(threads, kernels, strict=True)
    ]
    values = {}
    for f in fields(Features):
        each = [getattr(k, f.name) for k in kernels]
        if f.name.startswith(LARGEST):
            values[f.name] = max(each)
        else:
            total = sum(t * v for t, v in zip(threads, each, strict=True))
            values[f.name] = total / max(threads)
    lines = sum(a * k.lines_per_access for a, k in zip(accesses, kernels, strict=True))
    return replace(Features(**values), lines_per_access=lines / max(sum(accesses), 1.0))


def table(found: Sequence[KernelCandidate]) -> Array:
    """Return the features of candidates, of shape (candidates, features)."""
    return np.array([c.features.vector() for c in found]).reshape(len(found), len(fields(Features)))


def rank(
    found: Sequence[KernelCandidate], model: PerformanceModel
) -> list[tuple[float, KernelCandidate]]:
    """Return candidates with predicted performance, best first; the sort is stable."""
    if not found:
        return []
    predicted = model.predict(table(found))
    order = np.argsort(-predicted, kind="stable")
    return [(float(predicted[i]), found[i]) for i in order]
