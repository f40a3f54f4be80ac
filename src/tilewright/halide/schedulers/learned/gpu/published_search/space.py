"""The kernels that the published search makes, and where a Func can be computed in them.

A Func is computed in the blocks of another, in its threads, or in the serial loops of its threads.
Funcs in blocks have threads of their own, in which further Funcs can be computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.halide.analysis.scheduled_nest import UNKNOWN
from tilewright.halide.ir.algorithm import Call, Const, Func, Op, Variable, walk
from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule
from tilewright.halide.schedulers.learned.gpu.choices import Extents, Kind, Placement, State
from tilewright.halide.schedulers.learned.gpu.nests import Nest
from tilewright.halide.schedulers.learned.gpu.published_search.constants import CONSTANTS as C
from tilewright.halide.schedulers.learned.gpu.published_search.states import PlacedKernel
from tilewright.halide.schedulers.learned.gpu.published_search.tiles import (
    StageShape,
    fits,
    lined_up,
)
from tilewright.halide.schedulers.learned.gpu.space import (
    KernelPlacement,
    PlacementSpace,
    Refused,
)
from tilewright.halide.schedulers.learned.published.gpu_features import NAMES, GpuLimits
from tilewright.halide.schedulers.learned.published.levels import LevelNode
from tilewright.halide.schedulers.learned.published.pipeline import FuncNode, FuncReads, Pipeline

_TOTAL = NAMES.index("points_computed_total")
_MINIMUM = NAMES.index("points_computed_minimum")
_CALLS = NAMES.index("inlined_calls")
_IDLE = NAMES.index("idle_lane_wastage")
_MAPPINGS = {"block": ("gpu_block",), "thread": ("gpu_thread",), "serial": ("serial", "unrolled")}


@dataclass(frozen=True, slots=True)
class PlacementSite:
    """A place for a Func in a kernel: a placement without tile, and the region in one iteration."""

    kernel: PlacedKernel
    choice: Placement
    extents: Extents


class PublishedSpace(PlacementSpace):
    """The kernels of one pipeline on a GPU.

    Args:
        pipeline: The pipeline (`gpu_pipeline`).
        limits: Limits of the GPU.
        base: A legal schedule without clones, as in `PlacementSpace`.
    """

    def __init__(self, pipeline: Pipeline, limits: GpuLimits, base: Schedule) -> None:
        super().__init__(pipeline, limits, base)
        self.shapes = {node.position: self._shapes(node) for node in self.nodes if not node.input}
        self.trivial = {node.id for node in self.nodes if _is_trivial(node.func)}
        self.pointwise = {node.id for node in self.nodes if is_pointwise(node.func)}
        self.placed: dict[KernelPlacement, PlacedKernel] = {}

    def _shapes(self, node: FuncNode) -> tuple[StageShape, ...]:
        region = self.parts.regions[node.id]
        return tuple(
            StageShape(stage.dimension, tuple(int(span.extent) for span in spans))
            for stage, spans in zip(node.stages, region.loops, strict=True)
        )

    # --- kernels ----------------------------------------------------------------------------

    def kernel(self, placed: KernelPlacement) -> PlacedKernel:
        """Return a kernel with its features."""
        if placed not in self.placed:
            self.placed[placed] = self._new_kernel(placed)
        return self.placed[placed]

    def _new_kernel(self, placed: KernelPlacement) -> PlacedKernel:
        inside = [placed.root, *(place for place, _ in placed.members)]
        nodes = placed.inlined | {self.pipeline.by_position[place].id for place in inside}
        self.evaluated += 1
        try:
            nest = self.parts.nest(self.built(placed), placed.inlined)
            part = self.parts.features(nest)
        except (Refused, *UNKNOWN):
            return PlacedKernel(placed, nodes, None, None)
        values = part.values
        most = C.most_recompute * values[:, _MINIMUM]
        again = part.rows[np.flatnonzero(values[:, _TOTAL] > most)]
        recomputed = frozenset(self.pipeline.stages[row].node.id for row in again)
        idle = float(values[:, _IDLE].max(initial=0.0))
        return PlacedKernel(placed, nodes, nest, part, recomputed, idle)

    def is_inlined_too_often(self, node: FuncNode, kernels: Sequence[PlacedKernel]) -> bool:
        """Return whether a Func's calls exceed the limit for points that are computed again."""
        row = self.parts.rows[node.id, 0]
        parts = [k.part.inlined[row] for k in kernels if k.part and row in k.part.inlined]
        calls = sum(float(values[_CALLS]) for values in parts)
        return bool(parts) and calls > C.most_recompute * float(parts[0][_MINIMUM])

    def forget(self) -> None:
        """Forget all kernels; states that have them stay valid."""
        self.placed.clear()
        self._built.clear()

    # --- where a Func can be computed -------------------------------------------------------

    def sites(
        self, state: State, kernels: Sequence[PlacedKernel], node: FuncNode
    ) -> Iterator[PlacementSite]:
        """Yield the places for a Func below root, outermost first.

        At each level exactly one loop nest reads the Func, and its region is smaller than further
        out.
        """
        if node.position not in self._members or node.output:
            return
        reads = {(e.consumer.node.id, e.consumer.index) for e in node.readers}
        readers = {(kernel, level) for kernel, level in self._root_readers(kernels, node, reads)}
        if len(readers) != 1:
            return
        (kernel, level) = readers.pop()
        assert kernel.nest is not None
        edges = self._reads(state, node)
        outer = math.prod(float(s.extent) for s in self.parts.regions[node.id].computed)
        while level.label in _MAPPINGS and kernel.placed.choice.tile is not None:
            spans = kernel.nest.region_at(level, node).computed
            size = math.prod(float(span.extent) for span in spans)
            if size >= outer or (level.label == "block" and not _is_long(level)):
                return
            outer = size
            constant = all(bool(span.constant) for span in spans)
            choice = self._choice(kernel, level)
            if choice is not None and self._is_possible(edges, node, choice, size, constant):
                yield PlacementSite(kernel, choice, tuple(int(span.extent) for span in spans))
            inside = [child for child in level.children if _calls(child, node, reads)]
            if len(inside) != 1:
                return
            level = inside[0]

    @staticmethod
    def _root_readers(
        kernels: Sequence[PlacedKernel], node: FuncNode, reads: set[tuple[int, int]]
    ) -> Iterator[tuple[PlacedKernel, LevelNode]]:
        for kernel in kernels:
            if kernel.nest is not None and any(
                e.consumer.node.id in kernel.nodes for e in node.readers
            ):
                for level in kernel.nest.root.children:
                    if _calls(level, node, reads):
                        yield kernel, level

    def _choice(self, kernel: PlacedKernel, level: LevelNode) -> Placement | None:
        """Return the placement in a level's loops; None if Halide has no such loop."""
        assert level.stage is not None
        at, root = level.stage.node.position, kernel.placed.root
        kind: Kind = {"block": "block", "thread": "thread"}.get(level.label, "serial")  # type: ignore[assignment]
        choice = Placement(kind, root, None, -1 if at == root else at, level.stage.index)
        entries = {entry.func: entry for entry in self.built(kernel.placed)}
        return choice if _loop(entries[at], choice) else None

    def _is_possible(
        self,
        edges: Sequence[FuncReads],
        node: FuncNode,
        choice: Placement,
        size: float,
        constant: bool,
    ) -> bool:
        """Return whether the region is known, and in a thread whether registers can hold it."""
        known = all(self._is_readable(edge) for edge in edges)
        if choice.kind == "block":
            return known
        small = constant and size * node.bytes <= C.thread_bytes and size <= C.most_unrolled
        return known and small and all(_is_unrolled(edge) for edge in edges)

    def _is_readable(self, edge: FuncReads) -> bool:
        return self._reads_well((None,) * len(self.algorithm.funcs), edge, Placement("block"))

    # --- the entries of a kernel ------------------------------------------------------------

    def _build(self, kernel: KernelPlacement) -> tuple[FuncSchedule, ...]:
        place, tile = kernel.root, kernel.choice.tile
        if tile is None:
            return (self.entries[place],)
        if not tile.legal or self._called_too_often(kernel):
            raise Refused
        shifted = any(choice.kind == "block" for _, choice in kernel.members)
        func = self.algorithm.funcs[place]
        root = Nest(place, func, self.first[place], tile, self.extents(place), shifted)
        entries = {place: root.at_root()}
        threads = self._threads(place, tile.threads)
        shared = 0.0
        for position, choice in kernel.members:
            assert choice.tile is not None
            at = kernel.root if choice.at < 0 else choice.at
            loop = _loop(entries[at], choice)
            around = self.parts.nest(tuple(entries.values()), kernel.inlined)
            node = self.pipeline.by_position[position]
            level = Level("at", at, choice.stage, loop)
            spans = around.region_at(around.level_of(at, loop, choice.stage), node).computed
            extents = [float(span.extent) for span in spans]
            own = Nest(position, node.func, self.first[position], choice.tile, extents)
            if choice.kind != "block":
                entries[position] = own.in_thread(level)
                continue
            entries[position] = own.in_block(level)
            counts = [math.ceil(e / s) for e, s in zip(extents, choice.tile.serial, strict=True)]
            threads += self._threads(position, counts)
            shared += node.bytes * math.prod(extents)
        if shared > self.limits.shared_per_block or not fits(threads):
            raise Refused
        return tuple(entries.values())

    def _threads(self, place: int, counts: Sequence[int]) -> list[Extents]:
        first = self.first[place]
        return [lined_up(s.along(counts), s.dimensions, first) for s in self.shapes[place]]

    def siblings(self, kernel: KernelPlacement) -> list[Extents]:
        """Return the threads of all stages of a kernel."""
        found: list[Extents] = []
        for place, choice in ((kernel.root, kernel.choice), *kernel.members):
            if choice.tile is not None and choice.kind in ("root", "block"):
                found += self._threads(place, choice.tile.threads)
        return found


def with_member(kernel: KernelPlacement, place: int, choice: Placement) -> KernelPlacement:
    """Return a kernel in which one more Func is computed."""
    return replace(kernel, members=(*kernel.members, (place, choice)))


def with_inlined(kernel: KernelPlacement, node: FuncNode) -> KernelPlacement:
    """Return a kernel in which one more Func is inlined."""
    return replace(kernel, inlined=kernel.inlined | {node.id})


def _loop(entry: FuncSchedule, choice: Placement) -> str:
    """Return the loop at which a Func is computed; empty without one."""
    if entry.compute.kind == "inline" or not entry.stages:
        return ""
    loops = entry.stages[choice.stage].loops
    if choice.kind == "serial":
        return loops[0].name if loops and loops[0].mapping in _MAPPINGS["serial"] else ""
    wanted = _MAPPINGS[choice.kind]
    return next((loop.name for loop in loops if loop.mapping in wanted), "")


def _is_long(level: LevelNode) -> bool:
    """Return whether a level has more than one iteration."""
    return any(float(size) > 1 for size in level.size)


def _calls(level: LevelNode, node: FuncNode, reads: set[tuple[int, int]]) -> bool:
    """Return whether something in a level reads a Func."""
    if level.innermost and level.stage is not None:
        inlined = {(identifier, 0) for identifier in level.inlined}
        return bool(reads & {(level.stage.node.id, level.stage.index), *inlined})
    return any(_calls(child, node, reads) for child in level.children)


def _follows(edge: FuncReads) -> bool:
    """Return whether a stage reads a Func at linear forms of its loops."""
    return all(plan is not None for plan in edge.plans)


def _is_unrolled(edge: FuncReads) -> bool:
    """Return whether the places that are read are known once the pure loops are unrolled."""
    stage = edge.consumer
    loops = {loop for plan in edge.plans for _, _, terms in plan or () for loop, _ in terms}
    return _follows(edge) and not any(stage.reduction[loop] for loop in loops)


def is_pointwise(func: Func) -> bool:
    """Return whether a Func has one stage, which reads Funcs and images at its own coordinates."""
    if len(func.stages) > 1:
        return False
    return all(
        len(call.args) == len(func.args)
        and all(
            isinstance(arg, Variable) and arg.name == name
            for arg, name in zip(call.args, func.args, strict=True)
        )
        for call in walk(*func.stages[0].values)
        if isinstance(call, Call) and call.kind in ("func", "image")
    )


def _is_trivial(func: Func) -> bool:
    """Return whether evaluating a definition costs no more than loading its value.

    An operation counts as much as a byte, as in Halide's own estimate of costs.
    """
    if len(func.stages) > 1:
        return False
    most = C.trivial_operations + max(kind.bytes for kind in func.types)
    return all(_cost(value) <= most for value in func.stages[0].values)


def _cost(value: Const | Variable | Call | Op) -> int:
    nodes = list(walk(value))
    loads = [n for n in nodes if isinstance(n, Call) and n.kind in ("func", "image")]
    operations = sum(isinstance(n, Op | Call) for n in nodes)
    return operations + sum(load.type.bytes for load in loads)
