"""Counts of a C kernel's operations before it is compiled; they are exact for known sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import Boundary, Div, LoopVariable, Mod, Poly, evaluate
from tilewright.patterns import nodes as n
from tilewright.patterns import scalar
from tilewright.patterns.codegen.borders import inner_range
from tilewright.patterns.codegen.c import SPREAD
from tilewright.patterns.codegen.code import (
    Allocate,
    Block,
    Code,
    ForLoop,
    Statement,
    Store,
    calls,
    indices_of,
    loads,
)
from tilewright.patterns.codegen.generate import UNDECIDED

Array: TypeAlias = np.ndarray[Any, Any]

UNROLLED = 16  # most iterations of loops that GCC unrolls: its max-completely-peel-times
LOOPS = ("innermost", "second", "third")


@dataclass(slots=True)
class CpuFeatures:
    """Counts of one run of a C kernel, over all cores.

    Means are over accesses and operations, weighted by their executions. The innermost loop of a
    statement is the closest enclosing loop that compilers do not unroll (`UNROLLED`).

    Args:
        loads: loaded array elements.
        stores: stored array elements.
        calls: calls of user functions.
        loop_bodies: iterations of all loops.
        vector_share: share of loads and stores in loops over vector lanes.
        parallel: the largest number of iterations that cores share; 1 if there is no such loop.
        parallel_loops: how often threads are started.
        scratch_bytes: bytes of intermediate results.
        operations: operations in user functions.
        tests: executed border tests of indices.
        divisions: executed divisions in indices.
        innermost: mean of log2 of the iterations of the innermost loop.
        second, third: the same for the two loops around it.
        lanes_share: share of operations whose innermost loop is over vector lanes.
        contiguous: share of accesses with stride 0 or 1 in the innermost loop.
        irregular: share of accesses without a fixed stride in it.
        nest: the depth of the deepest loop.
    """

    loads: float = 0.0
    stores: float = 0.0
    calls: float = 0.0
    loop_bodies: float = 0.0
    vector_share: float = 0.0
    parallel: float = 1.0
    parallel_loops: float = 0.0
    scratch_bytes: float = 0.0
    operations: float = 0.0
    tests: float = 0.0
    divisions: float = 0.0
    innermost: float = 0.0
    second: float = 0.0
    third: float = 0.0
    lanes_share: float = 0.0
    contiguous: float = 0.0
    irregular: float = 0.0
    nest: float = 0.0


CPU_FEATURES = (
    "innermost",
    "second",
    "third",
    "contiguous",
    "irregular",
    "lanes_share",
    "outer_lanes",
    "tests",
    "divisions",
    "speedup",
    "parallel_loops",
    "loop_bodies",
    "scratch_bytes",
    "nest",
)


def cpu_vector(f: CpuFeatures, threads: int) -> Array:
    """Return the features that models of C kernels learn from, of shape (len(CPU_FEATURES),).

    Counts are per store, so that programs of different sizes can be compared. ``speedup`` is 1 if
    a single thread has work, and 2 if all threads always have work, for any number of threads.
    Measurements on two threads can therefore rank kernels for more threads.

    Args:
        f: the counts of the kernel.
        threads: the cores that it runs on.
    """
    busy, stores = f.parallel / -(-f.parallel // threads), max(f.stores, 1.0)
    speedup = 1 + (busy - 1) / (threads - 1) if threads > 1 else 1.0
    return np.array(
        [
            f.innermost,
            f.second,
            f.third,
            f.contiguous,
            f.irregular,
            f.lanes_share,
            max(0.0, f.vector_share - f.lanes_share),
            f.tests / stores,
            f.divisions / stores,
            speedup,
            np.log2(1 + f.parallel_loops),
            np.log2(max(f.loop_bodies, 1.0) / stores),  # a kernel without loops has one body
            f.scratch_bytes / stores,
            f.nest,
        ]
    )


def cpu_features(code: Code, known: Mapping[str, int]) -> CpuFeatures:
    """Return the counts of some code for known sizes."""
    found = CpuFeatures()
    _count(code.body, _Around(), found, known)
    accesses = found.loads + found.stores
    for name, total in (
        *((name, accesses) for name in ("vector_share", "contiguous", "irregular")),
        *((name, accesses + found.operations) for name in (*LOOPS, "lanes_share")),
    ):
        setattr(found, name, getattr(found, name) / total if total else 0.0)
    return found


@dataclass(frozen=True, slots=True)
class _Around:
    """The context of a statement.

    Args:
        times: the number of executions of the statement.
        loops: variables and iterations of the enclosing loops, outermost first.
        spread: whether cores share one of the loops.
        vector: whether one of the loops is over vector lanes.
        inside: border tests that always hold here (`codegen.borders`).
    """

    times: float = 1.0
    loops: tuple[tuple[LoopVariable, float], ...] = ()
    spread: bool = False
    vector: bool = False
    lanes: bool = False
    inside: frozenset[tuple[Poly, Poly]] = frozenset()


def _number(p: Poly, known: Mapping[str, int]) -> float:
    return float(evaluate(p, known))


def _unrolled(loop: ForLoop, extent: float) -> bool:
    """Return whether compilers unroll a loop: it is short and only updates scalars."""
    kept = any(isinstance(s, Store | ForLoop | Allocate) for s in loop.body)
    return extent <= UNROLLED and not kept


def _count(block: Block, around: _Around, found: CpuFeatures, known: Mapping[str, int]) -> None:
    for s in block:
        if isinstance(s, ForLoop):
            extent = _number(s.variable.extent, known)
            found.loop_bodies += around.times * extent
            within = replace(around, times=around.times * extent)
            if not _unrolled(s, extent):
                within = _entered(s, extent, within, found, around.times)
            _count(s.body, within, found, known)
            continue
        if isinstance(s, Allocate):
            found.scratch_bytes += _number(s.buffer.size, known) * s.buffer.type.size
        _count_statement(s, around, found)


def _entered(
    s: ForLoop, extent: float, around: _Around, found: CpuFeatures, starts: float
) -> _Around:
    """Return the context of a loop's body; count the loop if cores share it."""
    outermost = s.level is UNDECIDED and not around.loops
    parallel = not around.spread and (s.level.kind in SPREAD or outermost)
    inner = None
    if parallel:
        found.parallel = max(found.parallel, extent)
        found.parallel_loops += starts
    else:
        inner = inner_range(s)
    return replace(
        around,
        loops=(*around.loops, (s.variable, extent)),
        spread=around.spread or parallel,
        vector=around.vector or s.level == n.SIMD,
        lanes=s.level == n.SIMD,
        inside=around.inside | (inner.tests if inner else frozenset()),
    )


def _count_statement(s: Statement, around: _Around, found: CpuFeatures) -> None:
    times = around.times
    indices = [v.index for v in loads([s])]
    found.loads += times * len(indices)
    if isinstance(s, Store):
        indices.append(s.index)
        found.stores += times
    called = calls(s)
    operations = times * sum(scalar.operations(v.function.body) for v in called)
    found.calls += times * len(called)
    found.operations += operations
    atoms = {atom for index in indices_of(s) for atom in index.all_atoms()}
    found.divisions += times * sum(isinstance(a, Div | Mod) for a in atoms)
    borders = [a for a in atoms if isinstance(a, Boundary)]
    found.tests += times * sum((a.x, a.n) not in around.inside for a in borders)
    accesses = times * len(indices)
    found.vector_share += accesses * around.vector
    found.lanes_share += (accesses + operations) * around.lanes
    found.nest = max(found.nest, len(around.loops))
    for name, (_, extent) in zip(LOOPS, reversed(around.loops), strict=False):
        setattr(found, name, getattr(found, name) + (accesses + operations) * log2(extent))
    for index in indices if around.loops else []:
        stride = _stride(index, around.loops[-1][0], around.inside)
        found.contiguous += times * (stride in (0, 1))
        found.irregular += times * (stride is None)


def _stride(
    index: Poly, v: LoopVariable, inside: frozenset[tuple[Poly, Poly]]
) -> float | Fraction | None:
    """Return the stride of an index in a variable, in elements; None if it is not constant."""
    total: float | Fraction = 0
    for monomial, c in index.terms:
        moving = [(a, q) for a, q in monomial if v in Poly.of(a).all_atoms()]
        if not moving:
            continue
        (atom, power), *others = moving
        if others or power != 1 or len(monomial) > 1:
            return None
        step: float | Fraction | None = 1
        if atom != v:
            borders = isinstance(atom, Boundary) and (atom.x, atom.n) in inside
            step = _stride(atom.x, v, inside) if borders and isinstance(atom, Boundary) else None
        if step is None:
            return None
        total += c * step
    return total
