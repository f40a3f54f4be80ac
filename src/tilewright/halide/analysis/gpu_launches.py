"""The GPU kernels that a schedule launches: grid, block, shared memory, registers.

A stage with loops over blocks, together with everything computed in these loops, is a kernel. In
Halide 21 (``FuseGPUThreadLoops.cpp``) all blocks of a kernel have the same size. In each dimension,
a block has as many threads as the longest thread loop in any iteration of any block, and it gets
the shared memory that the largest block needs.

| symbol | meaning | shape, unit |
|---|---|---|
| N | rows: combinations of sizes or split factors | count |
| `grid`, `block` | blocks per launch and threads per block, in x, y, z | 3 x (N,), count |
| `sizes` | the nest evaluated at points spread over the iteration space | |
| `copies` | one loop or allocation at each of these points; the largest is used | |
| `shared` | elements of each allocation in shared memory | (N,), elements |
| `registers` | values of Funcs computed inside a thread, per thread | (N,), words of 4 bytes |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.halide.analysis import slid_storage
from tilewright.halide.analysis.bounds import Bound, Box
from tilewright.halide.analysis.loop_ranges import larger
from tilewright.halide.analysis.nest_parts import Allocation, Corner, LoopSize
from tilewright.halide.analysis.nest_structure import Body, NestStructure, StageKey, StageNest
from tilewright.halide.analysis.scheduled_nest import ScheduledNest
from tilewright.halide.analysis.shared_memory import Array, SharedAllocation, packed_bytes
from tilewright.halide.analysis.slid_storage import elements
from tilewright.halide.analysis.summaries import nothing_to_do

# Added to each output extent so that no tile is cut off: more than the extent of any tile or any
# folded window, in coordinates.
ROOM = 1024.0
MAX_DIMENSIONS = 3
REGISTER_BYTES = 4.0
# Fractions of each dimension at which sizes are evaluated. A single row of sizes can be evaluated
# at many points in one array, so it uses more of them.
_FEW = (0.0, 0.5, 1.0)
_MANY = tuple(k / 24.0 for k in range(25))

Path = tuple[tuple[StageKey, str], ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch; numbers are scalars or arrays of shape (N,).

    Attributes:
        func: Position of the Func whose loops over blocks make the kernel.
        stage: Its stage.
        grid: Blocks in x, y, z.
        block: Threads per block in x, y, z.
        shared_bytes: Shared memory per block, in bytes.
        registers: Words (4 bytes) per thread for the values of Funcs computed inside a thread,
            without the registers of expressions.
        slides: Whether values in shared memory are kept from one iteration of a loop to the next.
            Halide may then fold the storage, so `shared_bytes` is an upper bound.
        partial: Whether a loop over blocks or threads runs inside a serial loop whose iterations
            reuse values of earlier ones. Halide may then compute new values only, so `grid`,
            `block` and `shared_bytes` are upper bounds.
    """

    func: int
    stage: int
    grid: tuple[Bound, Bound, Bound]
    block: tuple[Bound, Bound, Bound]
    shared_bytes: Bound
    registers: Bound = 0.0
    slides: bool = False
    partial: bool = False


def number(value: Bound) -> int:
    """Return the largest row as an integer; 0 if it is unknown."""
    most = float(np.max(np.asarray(value, dtype=np.float64)))
    return int(most) if math.isfinite(most) else 0


def numbers(extents: Iterable[Bound]) -> tuple[int, ...]:
    """Return a grid or block as integers, each the largest row; empty if one is unknown.

    >>> numbers((4.0, 2.0, 1.0)), numbers((4.0, math.inf, 1.0))
    ((4, 2, 1), ())
    """
    found = tuple(number(extent) for extent in extents)
    return found if all(found) else ()


@dataclass
class _Kernel:
    """The loops and allocations inside one kernel."""

    stage: StageNest
    path: Path
    blocks: list[Bound] = field(default_factory=list)
    threads: dict[int, Bound] = field(default_factory=dict)
    shared: dict[tuple[int, Path], Bound] = field(default_factory=dict)
    registers: Bound = 0.0
    slides: bool = False
    partial: bool = False


def launches(nest: ScheduledNest, *, at_most: bool = False) -> tuple[Launch, ...]:
    """Return every kernel of a schedule, with the largest sizes over all blocks.

    Args:
        nest: The scheduled pipeline.
        at_most: Use for each allocation the largest size that Halide's interval arithmetic may
            infer (`ScheduledNest.at_most`), so that `shared_bytes` is an upper bound.
    """
    structure = nest.structure
    if not any(_runs_on_gpu(stage) for stage in structure.stages.values()):
        return ()
    sizes = _everywhere(nest)
    beyond = _everywhere(nest.of_size(_larger_outputs(nest)))
    kernels = _noted(nest, sizes, beyond, at_most=at_most)
    shares = any(kernel.shared for kernel in kernels.values())
    constant = _constant([*sizes, *beyond]) if shares else frozenset()
    return tuple(_launch(nest, kernel, constant) for kernel in kernels.values())


def middle_launches(nest: ScheduledNest) -> tuple[Launch, ...]:
    """Return every kernel with the sizes at one point of the nest; cheaper than `launches`.

    The point is the iteration given by `nest.at`. Blocks at a border may need more threads and
    shared memory. All allocations are assumed to have the same size in all blocks.
    """
    kernels = _noted(nest, [nest], [nest.of_size(_larger_outputs(nest))])
    return tuple(_launch(nest, kernel, frozenset(kernel.shared)) for kernel in kernels.values())


def _noted(
    nest: ScheduledNest,
    sizes: list[ScheduledNest],
    beyond: list[ScheduledNest],
    *,
    at_most: bool = False,
) -> dict[tuple[Path, StageKey], _Kernel]:
    """Return the kernels with the sizes of all loops and allocations, the largest over all points.

    `sizes` has the same nest at different points, `beyond` at these points with larger outputs.
    """
    structure = nest.structure
    kernels = _kernels(structure)
    slid = _slid_loops(structure)
    for copies in zip(*(one.loops for one in sizes), strict=True):
        _note_loop(kernels, nest, copies, slid)
    for copies in zip(*(one.allocations for one in sizes), strict=True):
        extents = []
        for one, item, larger_one in zip(sizes, copies, beyond, strict=True):
            if item.slides:
                extents.append(slid_storage.at_most(one, item, larger_one))
            else:
                extents.append(one.at_most(item) if at_most else item.extents)
        _note_allocation(kernels, nest, copies[0], [elements(found) for found in extents])
    return kernels


def _everywhere(nest: ScheduledNest) -> list[ScheduledNest]:
    """Return the nest at points spread over the iteration space."""
    if any(np.ndim(factor) for factor in nest.factors.values()):
        return [nest.standing_at(Corner(even, odd)) for even in _FEW for odd in _FEW]
    even, odd = np.meshgrid(_MANY, _MANY)
    return [nest.standing_at(Corner(even.ravel(), odd.ravel()))]


def _runs_on_gpu(stage: StageNest) -> bool:
    return stage.single_thread or any(mapping == "gpu_block" for _, mapping in stage.loops)


def _kernels(structure: NestStructure) -> dict[tuple[Path, StageKey], _Kernel]:
    found = {}
    for production, around in structure.productions():
        path = tuple((stage.key, stage.loops[at][0]) for stage, at in around)
        for stage in production.stages:
            if _runs_on_gpu(stage) and not nothing_to_do(stage.stage):
                first = _first_block(stage)
                own = tuple((stage.key, name) for name, _ in stage.loops[:first])
                found[(*path, *own), stage.key] = _Kernel(stage, (*path, *own))
    return found


def _slid_loops(structure: NestStructure) -> dict[int, frozenset[tuple[StageKey, str]]]:
    """Return for each Func the serial loops over which it or a reader of it slides.

    A Func slides over the loops between its store level and its compute level. An iteration does
    not compute values again that earlier iterations computed, and the Funcs that these values read
    are not computed for them again either.
    """
    found: dict[int, set[tuple[StageKey, str]]] = {i: set() for i in structure.entries}
    for production, around in structure.productions():
        entry = structure.entries[production.func]
        if entry.store != entry.compute:
            path = [(stage.key, stage.loops[at][0]) for stage, at in around]
            outside = 0
            if entry.store.kind == "at":
                # A level names a Func's loop in all of its stages.
                level = entry.store.func, entry.store.loop
                outside = 1 + [(key[0], name) for key, name in path].index(level)
            found[production.func].update(path[outside:])
    for i in sorted(structure.entries, reverse=True):
        for func, _ in structure.consumers[i]:
            found[i] |= found[func]
    return {i: frozenset(loops) for i, loops in found.items()}


def _first_block(stage: StageNest) -> int:
    mappings = [mapping for _, mapping in stage.loops]
    return mappings.index("gpu_block") if "gpu_block" in mappings else 0


def _kernel_at(
    kernels: Mapping[tuple[Path, StageKey], _Kernel], structure: NestStructure, path: Path
) -> _Kernel | None:
    """Return the kernel that contains the loops of `path`; None outside of kernels."""
    for at, (key, name) in enumerate(path):
        stage = structure.stages[key]
        if stage.single_thread or dict(stage.loops)[name] == "gpu_block":
            return kernels.get((path[:at], key))
    return None


def _most(nest: ScheduledNest, copies: Sequence[Bound]) -> Bound:
    """Return the maximum over all points, per row."""
    if len(copies) == 1:
        return float(np.max(copies[0]))
    most = copies[0]
    for other in copies[1:]:
        most = larger(most, other)
    return most


def _note_loop(
    kernels: Mapping[tuple[Path, StageKey], _Kernel],
    nest: ScheduledNest,
    copies: Sequence[LoopSize],
    slid: Mapping[int, frozenset[tuple[StageKey, str]]],
) -> None:
    loop, structure = copies[0], nest.structure
    kernel = _kernel_at(kernels, structure, (*loop.path, (loop.stage, loop.name)))
    if kernel is None or loop.mapping not in ("gpu_block", "gpu_thread"):
        return
    kernel.partial |= not slid[loop.stage[0]].isdisjoint(loop.path)
    extent = _most(nest, [copy.extent for copy in copies])
    if loop.mapping == "gpu_block":
        kernel.blocks.append(extent)
        return
    loops = structure.stages[loop.stage].loops
    at = [name for name, _ in loops].index(loop.name)
    inside = sum(mapping == "gpu_thread" for _, mapping in loops[at + 1 :])
    if not nothing_to_do(structure.stages[loop.stage].stage):
        kernel.threads[inside] = larger(kernel.threads.get(inside, 1.0), extent)


def _note_allocation(
    kernels: Mapping[tuple[Path, StageKey], _Kernel],
    nest: ScheduledNest,
    item: Allocation,
    counts: Sequence[Bound],
) -> None:
    structure = nest.structure
    kernel = _kernel_at(kernels, structure, item.path)
    if kernel is None:
        return
    mapped = [dict(structure.stages[key].loops)[name] for key, name in item.path]
    size = _most(nest, counts)
    memory = structure.entries[item.func].memory
    if "gpu_thread" in mapped or kernel.stage.single_thread:
        bytes_each = size * structure.stages[item.func, 0].func.bytes
        kernel.registers = kernel.registers + bytes_each / REGISTER_BYTES
    elif memory in ("auto", "gpu_shared"):
        kernel.shared[item.func, item.path] = size
        kernel.slides |= item.slides


def _larger_outputs(nest: ScheduledNest) -> dict[str, Box]:
    """Return boxes of the outputs that are large enough for every tile to be complete."""
    return {
        name: tuple(part._replace(hi=part.hi + 2.0 * part.extent + ROOM) for part in box)
        for name, box in nest.analysis.output_boxes.items()
    }


def _constant(sizes: list[ScheduledNest]) -> frozenset[tuple[int, Path]]:
    """Return the allocations that have the same size in all blocks and for all output sizes.

    Halide infers constant sizes, too, and packs these allocations separately.
    """
    found = []
    for copies in zip(*(one.allocations for one in sizes), strict=True):
        first = [float(np.max(extent)) for extent in copies[0].extents]
        same = all(
            bool(np.all(extent == one))
            for copy in copies
            for extent, one in zip(copy.extents, first, strict=True)
        )
        if same:
            found.append((copies[0].func, copies[0].path))
    return frozenset(found)


def _launch(nest: ScheduledNest, kernel: _Kernel, constant: frozenset[tuple[int, Path]]) -> Launch:
    grid = [*reversed(kernel.blocks), *[1.0] * MAX_DIMENSIONS][:MAX_DIMENSIONS]
    block = [kernel.threads.get(d, 1.0) for d in range(MAX_DIMENSIONS)]
    shared: Bound = 0.0
    if kernel.shared:
        lives = _Lives(nest.structure, kernel, constant).allocations
        n = max(len(item.elements) for item in lives)
        lives = [replace(a, elements=np.broadcast_to(a.elements, (n,))) for a in lives]
        total = packed_bytes(lives, n)
        shared = float(total[0]) if n == 1 else total
    func, stage = kernel.stage.key
    x, y, z = grid
    tx, ty, tz = block
    return Launch(
        func,
        stage,
        (x, y, z),
        (tx, ty, tz),
        shared,
        kernel.registers,
        kernel.slides,
        kernel.partial,
    )


class _Lives:
    """The first and last use of each allocation of a kernel, in steps between barriers."""

    def __init__(
        self, structure: NestStructure, kernel: _Kernel, constant: frozenset[tuple[int, Path]]
    ) -> None:
        self._structure = structure
        self._sizes = kernel.shared
        self._constant = constant
        self._step = 0
        self._open: dict[int, list[int]] = {}
        # Func, loops around the allocation, first and last step.
        self._lives: list[tuple[int, Path, list[int]]] = []
        self._stage(kernel.stage, kernel.path, _first_block(kernel.stage))

    @property
    def allocations(self) -> list[SharedAllocation]:
        """The allocations: one per Tuple value of each Func."""
        result = []
        for number, (func, path, (first, last)) in enumerate(self._lives):
            size = self._sizes[func, path]
            elements: Array = np.atleast_1d(np.asarray(size, dtype=np.float64))
            known = (func, path) in self._constant
            types = self._structure.stages[func, 0].func.types
            for value, kind in enumerate(types):
                label = f"{number}.{value}"
                result.append(SharedAllocation(label, elements, kind.bytes, first, last, known))
        return result

    def _leaf(self, reads: frozenset[int]) -> None:
        for func in reads:
            if func in self._open:
                self._open[func][1] = self._step
        self._step += 1

    def _stage(self, stage: StageNest, path: Path, depth: int) -> None:
        if nothing_to_do(stage.stage):
            return
        for at in range(depth, len(stage.loops)):
            name, mapping = stage.loops[at]
            path = (*path, (stage.key, name))
            if mapping == "gpu_thread":
                self._leaf(_inside(stage, at))
                return
            body = stage.bodies.get(at)
            if body is not None:
                self._body(body, path)
        self._leaf(stage.reads | {stage.key[0]})

    def _body(self, body: Body, path: Path) -> None:
        stored = sorted(body.stored)
        for production in body.productions:
            while stored and stored[0] <= production.func:
                self._begin(stored.pop(0), path)
            for inner in production.stages:
                self._stage(inner, path, 0)
        for func in stored:
            self._begin(func, path)

    def _begin(self, func: int, path: Path) -> None:
        if (func, path) in self._sizes:
            self._open[func] = [self._step, self._step]
            self._lives.append((func, path, self._open[func]))


def _inside(stage: StageNest, at: int) -> frozenset[int]:
    """Return the Funcs that a stage, and all Funcs computed in its loop `at`, read or write."""
    found = set(stage.reads) | {stage.key[0]}
    for place, body in stage.bodies.items():
        if place >= at:
            for production in body.productions:
                for inner in production.stages:
                    found |= _inside(inner, 0)
    return frozenset(found)
