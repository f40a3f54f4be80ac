"""Kernels for a grid of threads: their code, launch sizes, and checks that a grid can run them.

Every outermost loop becomes a kernel, because only the end of a kernel synchronises all threads.
One thread runs the code outside of loops. The default launch has one work-group per iteration of
the loops over groups, and one thread per iteration of the last loop over threads. Any other launch
is also correct: loops stride by the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.arith import Poly, evaluate, parse, poly
from tilewright.patterns.codegen.barriers import with_barriers
from tilewright.patterns.codegen.code import (
    Allocate,
    Block,
    Buffer,
    Code,
    Declare,
    ForLoop,
    Name,
    Store,
    all_values,
    loads,
    statements,
    stores,
    values_of,
)
from tilewright.patterns.errors import LoweringError
from tilewright.patterns.nodes import GRID_KINDS, MapLevel

MOST_THREADS = 1024  # threads in a work-group: the limit of CUDA and most OpenCL devices
DEFAULT_GROUP = {1: (128,), 2: (32, 4), 3: (32, 4, 1)}  # threads of a group, for map_glb
DIMS = 3


@dataclass(frozen=True, slots=True)
class ThreadGrid:
    """The launch of a kernel: numbers by dimension.

    Args:
        groups: work-groups; None for one per iteration.
        threads: threads in a work-group.
    """

    groups: tuple[Poly, Poly, Poly] | None
    threads: tuple[int, int, int]

    def __post_init__(self) -> None:
        count = self.threads[0] * self.threads[1] * self.threads[2]
        if min(self.threads) < 1 or count > MOST_THREADS:
            raise LoweringError(f"a group of {self.threads} threads; give 1 to {MOST_THREADS}")

    def to_json(self) -> dict[str, Any]:
        """Return JSON data that `from_json` reads."""
        groups = None if self.groups is None else [str(g) for g in self.groups]
        return {"groups": groups, "threads": list(self.threads)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ThreadGrid:
        """Read what `to_json` wrote; KeyError, TypeError or ValueError for other data."""
        x, y, z = data["threads"]
        a, b, c = map(parse, data["groups"] or ("1", "1", "1"))
        return ThreadGrid((a, b, c) if data["groups"] else None, (x, y, z))


@dataclass(frozen=True, slots=True)
class GridKernel:
    """One kernel.

    Args:
        reads: arrays and scalar inputs that are only read.
        writes: arrays that are written.
        extents: iterations of the loops over groups, or over all threads, by dimension.
        body: the statements, including barriers.
    """

    name: str
    reads: tuple[Buffer | Name, ...]
    writes: tuple[Buffer, ...]
    sizes: tuple[str, ...]
    body: Block
    extents: tuple[Poly, Poly, Poly]
    launch: ThreadGrid

    @property
    def groups(self) -> tuple[Poly, Poly, Poly]:
        """The work-groups to launch by dimension, in terms of the program's sizes."""
        if self.launch.groups is not None:
            return self.launch.groups
        if not any(s.level.kind == "glb" for s in loops(self.body)):
            return self.extents
        each = zip(self.extents, self.launch.threads, strict=True)
        x, y, z = (e if t == 1 else (e + t - 1) // t for e, t in each)
        return x, y, z

    def grid(self, known: Mapping[str, int]) -> tuple[int, int, int]:
        """Return the work-groups to launch by dimension, for known sizes."""
        x, y, z = (int(evaluate(g, known)) for g in self.groups)
        return x, y, z


def loop_form(kernel: GridKernel, kind: str, dim: int, extent: Poly) -> str:
    """Return the form of a loop over groups or threads, depending on their known number.

    Returns ``plain`` (each runs one iteration), ``if`` (each runs at most one) or ``for``.
    """
    launch = kernel.launch
    exact = launch.groups is None and kernel.extents[dim] == extent
    if kind == "wrg":
        return "plain" if exact else "for"
    if kind == "glb":
        return "if" if exact else "for"
    if not isinstance(extent.value, int) or extent.value > launch.threads[dim]:
        return "for"
    return "plain" if extent.value == launch.threads[dim] else "if"


def loops(block: Block) -> Iterator[ForLoop]:
    """Return all loops of a block, outer before inner."""
    return (s for s in statements(block) if isinstance(s, ForLoop))


def grid_kernels(code: Code, launch: ThreadGrid | None = None) -> tuple[GridKernel, ...]:
    """Return the kernels of some code, in the order in which they run.

    Args:
        code: the code; its body is modified: barriers are inserted.
        launch: the launch of kernels with parallel loops, instead of the default.

    Raises:
        LoweringError: a loop has no level, memory is not available on a grid, or several threads
            would store the same element.
    """
    made = []
    for number, part in enumerate(_parts(code.body)):
        check_grid(part)
        chosen = _launch(part, launch)
        body = with_barriers(part, chosen.groups is None)
        made.append(_kernel(f"{code.name}_{number}", body, code, chosen))
    return tuple(made)


def _parts(body: Block) -> list[Block]:
    """Return the statements of each kernel."""
    parts: list[Block] = []
    sequential: Block = []
    for s in body:
        if isinstance(s, Allocate) and s.buffer.space == "global":
            continue
        if isinstance(s, ForLoop) and any(x.level.kind in GRID_KINDS for x in loops([s])):
            if sequential:
                parts.append(sequential)
                sequential = []
            parts.append([s])
        else:
            sequential.append(s)
    return [*parts, sequential] if sequential else parts


def _kernel(name: str, body: Block, code: Code, launch: ThreadGrid) -> GridKernel:
    writes = list(dict.fromkeys(s.buffer for s in stores(body) if s.buffer.memory == "global"))
    read = [v.buffer for v in loads(body) if v.buffer.memory == "global"]
    arrays: list[Buffer | Name] = [b for b in dict.fromkeys(read) if b not in writes]
    names = _free_names(body)
    scalars = [item for item in code.inputs if isinstance(item, Name) and item.name in names]
    missing = names - {item.name for item in scalars}
    if missing:
        raise LoweringError(
            "a value that one thread computes is used by others: store it with to_global"
        )
    extents = _extents(body)
    reads = (*arrays, *scalars)
    return GridKernel(name, reads, tuple(writes), code.sizes, body, extents, launch)


def _free_names(body: Block) -> set[str]:
    declared = {s.name for s in statements(body) if isinstance(s, Declare)}
    used = {
        part.name
        for s in statements(body)
        for v in values_of(s)
        for part in all_values(v)
        if isinstance(part, Name)
    }
    return used - declared


def _extents(body: Block) -> tuple[Poly, Poly, Poly]:
    """Return iterations over groups, or over all threads, by dimension: the last loop of each."""
    found = [poly(1)] * DIMS
    for loop in loops(body):
        if loop.level.kind in ("wrg", "glb"):
            found[loop.level.dim] = loop.variable.extent
    x, y, z = found
    return x, y, z


def _launch(body: Block, given: ThreadGrid | None) -> ThreadGrid:
    levels = {loop.level for loop in loops(body) if loop.level.kind in GRID_KINDS}
    if not levels:
        return ThreadGrid(None, (1, 1, 1))
    if given is not None:
        return _fitted(given, levels)
    if any(level.kind == "glb" for level in levels):
        dims = sorted(level.dim for level in levels)
        sizes = [1] * DIMS
        for dim, size in zip(dims, DEFAULT_GROUP[len(dims)], strict=True):
            sizes[dim] = size
    else:
        sizes = _group(body)
    x, y, z = sizes
    return ThreadGrid(None, (x, y, z))


def _fitted(given: ThreadGrid, levels: set[MapLevel]) -> ThreadGrid:
    """Return a launch with one thread in each dimension that a kernel does not use.

    Further threads would all compute and store the same elements.
    """
    groups = {v.dim for v in levels if v.kind in ("wrg", "glb")}
    threads = {v.dim for v in levels if v.kind in ("lcl", "glb")}
    x, y, z = (t if d in threads else 1 for d, t in enumerate(given.threads))
    if given.groups is None:
        return ThreadGrid(None, (x, y, z))
    i, j, k = (g if d in groups else poly(1) for d, g in enumerate(given.groups))
    return ThreadGrid((i, j, k), (x, y, z))


def relaunched(kernel: GridKernel, launch: ThreadGrid) -> GridKernel:
    """Return a kernel with another launch; a kernel without parallel loops stays unchanged.

    Barriers stay unchanged, too. They are correct for a launch with given groups if the launch of
    ``kernel`` gives its groups, or if the kernel has no local memory.
    """
    levels = {loop.level for loop in loops(kernel.body) if loop.level.kind in GRID_KINDS}
    return replace(kernel, launch=_fitted(launch, levels)) if levels else kernel


def _group(body: Block) -> list[int]:
    """Return the threads of a group: the iterations of the last thread loop, up to the limit."""
    sizes = [1] * DIMS
    for loop in loops(body):
        if loop.level.kind == "lcl":
            value = loop.variable.extent.value
            sizes[loop.level.dim] = value if isinstance(value, int) else DEFAULT_GROUP[1][0]
    while sizes[0] * sizes[1] * sizes[2] > MOST_THREADS:
        largest = max(reversed(range(DIMS)), key=lambda d: sizes[d])
        sizes[largest] = -(-sizes[largest] // 2)
    return sizes


def check_grid(body: Block) -> None:
    """Check that a grid of threads can run a kernel.

    Raises:
        LoweringError: it cannot; the message says why.
    """
    levels = [loop.level for loop in loops(body)]
    kinds = {level.kind for level in levels}
    if kinds & {"par", "simd"}:
        raise LoweringError("map_par and map_simd are for CPUs: use map_glb, map_wrg and map_lcl")
    if "glb" in kinds and kinds & {"wrg", "lcl"}:
        raise LoweringError(
            "map_glb together with map_wrg or map_lcl: choose one for the whole nest"
        )
    needed = {level for level in levels if level.kind in GRID_KINDS}
    made: dict[Buffer, int] = {}
    _check(body, (), needed, made)
    if any(s.buffer.space == "private" and s.buffer not in made for s in stores(body)):
        raise LoweringError("a window is kept in registers from one kernel to the next: use slide")


def _check(
    block: Block, outer: tuple[MapLevel, ...], needed: set[MapLevel], made: dict[Buffer, int]
) -> None:
    for s in block:
        if isinstance(s, Allocate):
            _check_memory(s.buffer, outer)
            made[s.buffer] = len([v for v in outer if v.kind in GRID_KINDS])
        elif isinstance(s, Store):
            _check_store(s, outer, needed, made)
        elif isinstance(s, ForLoop):
            _check_loop(s, outer)
            _check(s.body, (*outer, s.level), needed, made)


def _check_loop(loop: ForLoop, outer: tuple[MapLevel, ...]) -> None:
    level = loop.level
    if level.kind == "undecided" and not any(v.kind in ("glb", "lcl") for v in outer):
        extent = loop.variable.extent
        raise LoweringError(
            f"no thread is given to a loop of {extent} iterations: use map_glb, map_wrg and "
            "map_lcl, or rewriting.lower_nest"
        )
    if level.kind in GRID_KINDS and level in outer:
        raise LoweringError(f"map_{level.kind} of dimension {level.dim} inside another")
    if level.kind == "lcl" and MapLevel("wrg", level.dim) not in outer:
        raise LoweringError(
            f"map_lcl of dimension {level.dim} outside of map_wrg(..., {level.dim})"
        )
    if level.kind == "wrg" and any(v.kind in ("lcl", "seq") for v in outer):
        raise LoweringError("map_wrg inside a loop of threads")


def _check_memory(buffer: Buffer, outer: tuple[MapLevel, ...]) -> None:
    kinds = {level.kind for level in outer}
    if buffer.space == "global" and kinds & set(GRID_KINDS):
        raise LoweringError("to_global inside of a kernel: use to_local or to_private")
    if buffer.space == "local" and ("wrg" not in kinds or "lcl" in kinds):
        raise LoweringError("to_local outside of map_wrg, or inside of map_lcl: use to_private")
    if not isinstance(buffer.size.value, int):
        raise LoweringError(f"{buffer.size} elements of {buffer.space} memory: give a number")


def _check_store(
    s: Store, outer: tuple[MapLevel, ...], needed: set[MapLevel], made: dict[Buffer, int]
) -> None:
    parallel = [v for v in outer if v.kind in GRID_KINDS]
    if s.buffer.space == "private":
        if made.get(s.buffer, 0) != len(parallel):
            raise LoweringError("to_private of a map that many threads run: use to_local")
        return
    missing = needed - set(parallel)
    if missing:
        level = min(missing, key=lambda v: (v.kind, v.dim))
        raise LoweringError(
            f"a result is stored outside of map_{level.kind}(..., {level.dim}), which other parts "
            "of the kernel use: all those threads would store it"
        )


def local_bytes(kernel: GridKernel) -> int:
    """Return bytes of local memory of a work-group."""
    found = [s.buffer for s in statements(kernel.body) if isinstance(s, Allocate)]
    local = [b for b in found if b.space == "local"]
    return sum(int(b.size.value or 0) * b.type.size for b in local)
