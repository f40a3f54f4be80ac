"""What a C kernel does, counted before it is compiled, and an estimate of its time on a CPU.

The counts are exact for known sizes. The estimate is a first order for choosing what to measure:
its constants are not fitted to measurements, and caches are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.arith import Poly, evaluate
from tilewright.machines import CpuMachine
from tilewright.patterns import nodes as n
from tilewright.patterns.codegen.c import SPREAD
from tilewright.patterns.codegen.code import (
    Allocate,
    Block,
    Code,
    ForLoop,
    FunctionCall,
    Store,
    all_values,
    loads,
    values_of,
)
from tilewright.patterns.codegen.generate import UNDECIDED

LOOP_INSTRUCTIONS = 2.0  # chosen: compare and branch of an iteration
ACCESS_INSTRUCTIONS = 1.0  # chosen: a load or store, its address included
CALL_INSTRUCTIONS = 4.0  # chosen: operations of a user function, on average
INSTRUCTIONS_PER_CYCLE = 2.0  # chosen: of all instructions together
SPREAD_CYCLES = 5000.0  # chosen: to start the threads of a parallel loop and wait for them
DEFAULT_HZ = 2.5e9  # where the clock of a machine is not known
FLOAT_BITS = 32


@dataclass(slots=True)
class CpuFeatures:
    """Counts of one run of a C kernel, all cores together.

    Args:
        loads: of arrays, each element for itself.
        stores: likewise.
        calls: of user functions.
        loop_bodies: iterations of all loops.
        vector_share: share of loads and stores in loops over vector lanes.
        parallel: the largest number of iterations that cores share; 1 if none are.
        parallel_loops: how often threads are started.
        scratch_bytes: memory for intermediate results.
    """

    loads: float = 0.0
    stores: float = 0.0
    calls: float = 0.0
    loop_bodies: float = 0.0
    vector_share: float = 0.0
    parallel: float = 1.0
    parallel_loops: float = 0.0
    scratch_bytes: float = 0.0


def cpu_features(code: Code, known: Mapping[str, int]) -> CpuFeatures:
    """Return the counts of some code for known sizes."""
    found = CpuFeatures()
    _count(code.body, 1.0, False, False, found, known)
    total = found.loads + found.stores
    found.vector_share = found.vector_share / total if total else 0.0
    return found


def _number(p: Poly, known: Mapping[str, int]) -> float:
    return float(evaluate(p, known))


def _count(
    block: Block,
    times: float,
    spread: bool,
    vector: bool,
    found: CpuFeatures,
    known: Mapping[str, int],
) -> None:
    for s in block:
        if isinstance(s, ForLoop):
            extent = _number(s.variable.extent, known)
            outermost = s.level is UNDECIDED and times == 1.0
            parallel = not spread and (s.level.kind in SPREAD or outermost)
            if parallel:
                found.parallel = max(found.parallel, extent)
                found.parallel_loops += times
            found.loop_bodies += times * extent
            simd = vector or s.level == n.SIMD
            _count(s.body, times * extent, spread or parallel, simd, found, known)
            continue
        if isinstance(s, Allocate):
            found.scratch_bytes += _number(s.buffer.size, known) * s.buffer.type.size
        read, written = len(list(loads([s]))), int(isinstance(s, Store))
        found.loads += times * read
        found.stores += times * written
        found.vector_share += times * (read + written) * vector
        inside = [part for v in values_of(s) for part in all_values(v)]
        found.calls += times * sum(isinstance(v, FunctionCall) for v in inside)


def cpu_seconds(f: CpuFeatures, machine: CpuMachine, threads: int) -> float:
    """Return the estimated time of a run on some cores of a CPU."""
    lanes = machine.lanes(FLOAT_BITS)
    work = (
        ACCESS_INSTRUCTIONS * (f.loads + f.stores)
        + CALL_INSTRUCTIONS * f.calls
        + LOOP_INSTRUCTIONS * f.loop_bodies
    )
    scalar = work * (1 - f.vector_share) + work * f.vector_share / lanes
    cycles = scalar / INSTRUCTIONS_PER_CYCLE / min(threads, f.parallel)
    return (cycles + SPREAD_CYCLES * f.parallel_loops) / DEFAULT_HZ
