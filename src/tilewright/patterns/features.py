"""Features of a kernel before it is compiled.

Source: "High-level hardware feature extraction for GPU performance prediction of stencils" (2020),
section 4 and Table 1.

Counts are totals over all threads, as polynomials in the program's sizes. For known sizes they
give numbers per thread. There are two deviations from the paper. A loop over threads whose last
round is partial is counted exactly. A warp that spans several rows of a group is laid out as in
hardware, not as if dimension 0 continued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from tilewright.arith import Poly, evaluate, poly
from tilewright.patterns import nodes as n
from tilewright.patterns.cache_lines import mean_lines
from tilewright.patterns.check import requirements
from tilewright.patterns.codegen.code import (
    Barrier,
    Block,
    BufferLoad,
    ForLoop,
    calls,
    lanes_of,
    loads,
)
from tilewright.patterns.codegen.code import Store as StoreStatement
from tilewright.patterns.codegen.grid import (
    DIMS,
    GridKernel,
    ThreadGrid,
    local_bytes,
    loop_form,
)
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.nodes import GRID_KINDS
from tilewright.patterns.scalar import operations

MEMORIES = ("global", "local", "private")
TABLE_1 = 15  # features in Table 1 of the paper, the first fields of `Features`


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals over all threads of a kernel, in the program's sizes.

    Private loads and stores are accesses to private arrays, such as the windows of `slide_seq`.
    ``arithmetic`` counts operators and functions in user functions, for each lane of a vector.
    ``if_statements``, ``loop_bodies`` and ``barriers`` count one execution per thread.
    """

    global_loads: Poly
    global_stores: Poly
    local_loads: Poly
    local_stores: Poly
    private_loads: Poly
    private_stores: Poly
    arithmetic: Poly
    barriers: Poly
    if_statements: Poly
    loop_bodies: Poly


@dataclass(frozen=True, slots=True)
class Features:
    """Sizes in threads and bytes, and counts per thread.

    The first 15 are those of Table 1 of the paper (`table_1`). It has neither private accesses nor
    arithmetic.
    """

    global_size_0: float
    global_size_1: float
    global_size_2: float
    local_size_0: float
    local_size_1: float
    local_size_2: float
    local_memory: float
    global_stores: float
    global_loads: float
    local_stores: float
    local_loads: float
    lines_per_access: float
    barriers: float
    if_statements: float
    loop_bodies: float
    private_stores: float
    private_loads: float
    arithmetic: float

    def vector(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the features in the order of the fields, ``(18,)``."""
        return np.array([getattr(self, f.name) for f in fields(self)])

    def table_1(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the features of Table 1 of the paper, ``(15,)``."""
        return self.vector()[:TABLE_1]


@dataclass(frozen=True, slots=True)
class _Access:
    """A load or store in the code, and the loops around it."""

    index: Poly
    size: int
    kind: str
    around: tuple[ForLoop, ...]


def features(
    program: n.Pattern, sizes: Mapping[str, int] | None = None, launch: ThreadGrid | None = None
) -> tuple[Features, ...]:
    """Return the features of each kernel of a program for known sizes.

    Raises:
        SizeError: the sizes do not fit the program.
        LoweringError: a grid of threads cannot run the program.
    """
    known = dict(sizes or {})
    for requirement in requirements(program):
        requirement.check(known)
    _, kernels = grid_code(program, "kernel", launch)
    return tuple(kernel_features(kernel, known) for kernel in kernels)


def kernel_features(kernel: GridKernel, known: Mapping[str, int]) -> Features:
    """Return the features of one kernel for known sizes."""
    total = counts(kernel, known)
    groups, threads = kernel.grid(known), kernel.launch.threads
    everyone = int(np.prod(groups)) * int(np.prod(threads))
    table = {f.name for f in fields(Features)}
    per_thread = {
        f.name: _number(getattr(total, f.name), known) / everyone
        for f in fields(total)
        if f.name in table
    }
    sizes = {f"global_size_{d}": float(groups[d] * threads[d]) for d in range(DIMS)}
    sizes |= {f"local_size_{d}": float(threads[d]) for d in range(DIMS)}
    memory, lines = float(local_bytes(kernel)), lines_per_access(kernel, known)
    return Features(**sizes, **per_thread, local_memory=memory, lines_per_access=lines)


def _number(p: Poly, known: Mapping[str, int]) -> float:
    return float(evaluate(p, known))


def counts(kernel: GridKernel, known: Mapping[str, int]) -> Counts:
    """Return totals over all threads; exact unless a border test guards an access.

    Args:
        kernel: the kernel.
        known: the values of the program's sizes, which determine the number of groups.
    """
    tally = {f.name: poly(0) for f in fields(Counts)}
    for around, together in _by_loops(_accesses(kernel.body, ())).items():
        times = _executions(kernel, around, known)
        for kind, count in Counter(access.kind for access in together).items():
            tally[kind] += count * times
    _control(kernel, kernel.body, (), tally, known)
    return Counts(**tally)


def _accesses(block: Block, around: tuple[ForLoop, ...]) -> list[_Access]:
    found: list[_Access] = []
    for s in block:
        if isinstance(s, ForLoop):
            found += _accesses(s.body, (*around, s))
            continue
        reads: list[BufferLoad] = list(loads([s]))
        for v in reads:
            if v.buffer.memory in MEMORIES:
                found.append(_access(v, f"{v.buffer.memory}_loads", around))
        if isinstance(s, StoreStatement) and s.buffer.memory in MEMORIES:
            found.append(_access(s, f"{s.buffer.memory}_stores", around))
    return found


def _access(a: BufferLoad | StoreStatement, kind: str, around: tuple[ForLoop, ...]) -> _Access:
    """Return an access; a vector counts as one element of the vector's size."""
    lanes = lanes_of(a)
    return _Access(a.index / poly(lanes), a.buffer.type.size * lanes, kind, around)


def _executions(kernel: GridKernel, around: tuple[ForLoop, ...], known: Mapping[str, int]) -> Poly:
    """Return how often a statement is executed, summed over all threads."""
    total = poly(1)
    for loop in around:
        total = total * loop.variable.extent
    return total * _idle_copies(kernel, around, known)


def _idle_copies(kernel: GridKernel, around: tuple[ForLoop, ...], known: Mapping[str, int]) -> int:
    """Return how many threads execute the same iteration: those of dimensions without a loop."""
    levels = {loop.level for loop in around}
    copies = 1
    groups = kernel.grid(known)
    for d in range(DIMS):
        if n.MapLevel("glb", d) in levels:
            continue
        if n.MapLevel("lcl", d) not in levels:
            copies *= kernel.launch.threads[d]
        if n.MapLevel("wrg", d) not in levels:
            copies *= groups[d]
    return copies


def _control(
    kernel: GridKernel,
    block: Block,
    around: tuple[ForLoop, ...],
    tally: dict[str, Poly],
    known: Mapping[str, int],
) -> None:
    arithmetic = sum(operations(call.function.body) for s in block for call in calls(s))
    if arithmetic:
        tally["arithmetic"] += arithmetic * _executions(kernel, around, known)
    for s in block:
        if isinstance(s, Barrier):
            tally["barriers"] += _executions(kernel, around, known)
        if not isinstance(s, ForLoop):
            continue
        extent, level = s.variable.extent, s.level
        form = "for"
        if level.kind in GRID_KINDS:
            form = loop_form(kernel, level.kind, level.dim, extent)
        if form == "for":
            tally["loop_bodies"] += _executions(kernel, (*around, s), known)
        elif form == "if":
            tally["if_statements"] += _executions(kernel, around, known)
        _control(kernel, s.body, (*around, s), tally, known)


def lines_per_access(kernel: GridKernel, known: Mapping[str, int]) -> float:
    """Return the mean number of cache lines that a warp touches per global access.

    Each access is weighted by its number of executions (`cache_lines.mean_lines`).
    """
    weighted, weight = 0.0, 0.0
    found = [a for a in _accesses(kernel.body, ()) if a.kind.startswith("global")]
    for around, together in _by_loops(found).items():
        times = _number(_executions(kernel, around, known), known)
        lines = mean_lines(kernel, around, [(a.index, a.size) for a in together], known)
        weighted += times * sum(lines)
        weight += times * len(together)
    return weighted / weight if weight else 0.0


def _by_loops(accesses: list[_Access]) -> dict[tuple[ForLoop, ...], list[_Access]]:
    """Return accesses by the loops around them."""
    found: dict[tuple[ForLoop, ...], list[_Access]] = {}
    for access in accesses:
        found.setdefault(access.around, []).append(access)
    return found
