"""The schedules that the search for a GPU visits: which choices are possible, and their kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.analysis.inlining import View, may_inline
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.schedule import FuncSchedule, Level, Schedule
from tilewright.halide.schedulers.analytic.gpu.fusable import why_not_member, why_not_read
from tilewright.halide.schedulers.learned.gpu.choices import (
    INLINED,
    MOST_INLINED_CALLS,
    MOST_THREADS,
    THREAD_DIMENSIONS,
    Kind,
    Placement,
    State,
    first_dimension,
    usual_tile,
)
from tilewright.halide.schedulers.learned.gpu.nests import Nest, inlined
from tilewright.halide.schedulers.learned.gpu.parts import GpuPartFeatures, Parts
from tilewright.halide.schedulers.learned.published.gpu_features import GpuLimits
from tilewright.halide.schedulers.learned.published.pipeline import FuncNode, FuncReads, Pipeline

Places = frozenset[int]
Structure = tuple[int, tuple[tuple[int, Kind], ...], frozenset[int]]


class Refused(Exception):
    """A kernel that the GPU cannot run, or that this search does not offer."""


@dataclass(frozen=True, slots=True)
class KernelPlacement:
    """A Func at root, the choices of what is computed in its kernel, and what is inlined there.

    `root` and the positions in `members` are those of Funcs; `inlined` has identifiers of nodes.
    """

    root: int
    choice: Placement
    members: tuple[tuple[int, Placement], ...]
    inlined: frozenset[int]

    @property
    def structure(self) -> Structure:
        """The kernel without its tiles."""
        return self.root, tuple((place, c.kind) for place, c in self.members), self.inlined


class PlacementSpace:
    """The choices of one pipeline on a GPU.

    Args:
        pipeline: The pipeline (`gpu_pipeline`).
        limits: Limits of the GPU.
        base: A legal schedule without clones. Funcs that have no tiles here (their nests are not
            parallel, or run on the host) keep its entries.
    """

    def __init__(self, pipeline: Pipeline, limits: GpuLimits, base: Schedule) -> None:
        self.pipeline, self.limits, self.base = pipeline, limits, base
        self.algorithm = pipeline.algorithm
        self.entries = {entry.func: entry for entry in base.funcs}
        self._analysis = Analysis(View(self.algorithm), pipeline.boxes, self.algorithm.symbols)
        self.first: dict[int, int] = {}
        self.parts = Parts(pipeline, limits, self.first)
        for node in pipeline.nodes:
            self.first[node.position] = self._first_dimension(node)
        self.nodes = [node for node in pipeline.nodes if node.position in self.entries]
        # What may be decided, by position, outputs first.
        self.tiled = {n.position for n in self.nodes if not n.input and self._is_tiled(n)}
        self.inlinable = {n.position for n in self.nodes if may_inline(self.algorithm, n.func)}
        self._members = {
            n.position
            for n in self.nodes
            if n.position in self.tiled
            and not n.output
            and not why_not_member(self._analysis, n.func.name)
        }
        self.evaluated = 0  # kernels whose features were computed
        self._readable: dict[tuple[int, int], bool] = {}
        self._kept: dict[KernelPlacement, GpuPartFeatures | None] = {}
        self._built: dict[KernelPlacement, tuple[FuncSchedule, ...]] = {}

    def _first_dimension(self, node: FuncNode) -> int:
        """Return the dimension of a Func that is innermost in memory."""
        entry = self.entries.get(node.position)
        if node.input or entry is None or not self._is_tiled(node):
            return entry.storage_order[0] if entry and entry.storage_order else 0
        return max(first_dimension(self.extents(node.position), node.output), 0)

    def _is_tiled(self, node: FuncNode) -> bool:
        """Return whether every stage of a Func has a kernel in the base, with pure loops only."""
        entry = self.entries[node.position]
        return (
            bool(node.dimensions)
            and self._runs_on_gpu(node.func, entry)
            and all(any(loop.kind == "pure" for loop in s.loops) for s in node.func.stages)
        )

    @staticmethod
    def _runs_on_gpu(func: Func, entry: FuncSchedule) -> bool:
        if entry.compute.kind == "inline":
            return func.extern is None and not func.fixed
        return bool(entry.stages) and all(
            any(loop.mapping == "gpu_block" for loop in nest.loops) for nest in entry.stages
        )

    # --- states -----------------------------------------------------------------------------

    def extents(self, position: int) -> tuple[float, ...]:
        """Return the extents of a Func at root."""
        return self.parts.extents(self.pipeline.by_position[position])

    def at_root(self, position: int) -> Placement:
        """Return the choice to compute a Func at root, with the usual tile."""
        if position not in self.tiled:
            return Placement("root")
        return Placement("root", -1, usual_tile(self.extents(position), self.first[position]))

    def start(self, inline: bool) -> State:
        """Return a state with all Funcs at root, or with as many inlined as may be."""
        state: list[Placement | None] = [None] * len(self.algorithm.funcs)
        calls: dict[int, int] = {}
        for node in self.nodes:
            place = node.position
            # Funcs that only pass on an input are inlined; the model does not count them.
            want = node.input or (inline and self._calls(node, calls) <= MOST_INLINED_CALLS)
            if want and place in self.inlinable:
                calls[node.id] = self._calls(node, calls)
                state[place] = INLINED
            else:
                state[place] = self.at_root(place)
        return tuple(state)

    @staticmethod
    def _calls(node: FuncNode, calls: Mapping[int, int]) -> int:
        """Return the calls of a Func, given those of the inlined Funcs that read it."""
        return sum(edge.calls * calls.get(edge.consumer.node.id, 1) for edge in node.readers)

    def kernels_reading(self, state: State, node: FuncNode) -> Places:
        """Return the Funcs at root in whose kernels a Func is read."""
        found: set[int] = set()
        for edge in self._reads(state, node):
            choice = state[edge.consumer.node.position]
            if choice is None or choice.kind == "root":
                found.add(edge.consumer.node.position)
            elif choice.kind != "inline":
                found.add(choice.of)
        return frozenset(found)

    def possible(self, state: State, node: FuncNode, choice: Placement) -> bool:
        """Return whether a Func can be computed in the kernel of the Func at root that reads it."""
        if node.position not in self._members:
            return False
        if self.kernels_reading(state, node) != {choice.of}:
            return False
        root = self.pipeline.by_position[choice.of]
        if choice.of not in self.tiled or len(root.stages) > 1 or state[choice.of] is None:
            return False
        return all(self._reads_well(state, e, choice) for e in self._reads(state, node))

    def _reads(self, state: State, node: FuncNode) -> list[FuncReads]:
        """Return the reads of a Func, and those of the inlined Funcs that read it."""
        found: list[FuncReads] = []
        pending, seen = [node], {node.id}
        while pending:
            for edge in pending.pop().readers:
                found.append(edge)
                reader = edge.consumer.node
                choice = state[reader.position]
                if choice is not None and choice.kind == "inline" and reader.id not in seen:
                    seen.add(reader.id)
                    pending.append(reader)
        return found

    def _reads_well(self, state: State, edge: FuncReads, choice: Placement) -> bool:
        reader = edge.consumer.node
        own = state[reader.position]
        if choice.kind == "thread":
            in_thread = reader.position == choice.of or (own is not None and own.kind != "block")
            return in_thread and _pointwise(edge)
        if own is not None and own.kind == "thread":
            return False
        key = reader.position, edge.producer.position
        if key not in self._readable:
            names = reader.func.name, edge.producer.func.name
            self._readable[key] = not why_not_read(self._analysis, *names)
        return self._readable[key]

    def repaired(self, state: State, tiles: State) -> State:
        """Return a state in which every Func can be where it is.

        A Func that cannot be in its kernel moves to the one that reads it now, or else to root with
        its tile in `tiles`.
        """
        now = list(state)
        for node in self.nodes:
            choice = now[node.position]
            if choice is None or choice.kind in ("inline", "root"):
                continue
            if not self.possible(tuple(now), node, choice):
                others = self.kernels_reading(tuple(now), node)
                moved = replace(choice, of=min(others)) if len(others) == 1 else None
                if moved is None or not self.possible(tuple(now), node, moved):
                    moved = tiles[node.position]
                now[node.position] = moved
        return tuple(now)

    # --- kernels ----------------------------------------------------------------------------

    def kernels(self, state: State) -> list[KernelPlacement]:
        """Return the kernels of a state, outputs first."""
        members: dict[int, list[tuple[int, Placement]]] = {}
        for node in self.nodes:
            choice = state[node.position]
            if choice is not None and choice.kind not in ("inline", "root"):
                members.setdefault(choice.of, []).append((node.position, choice))
        found = []
        for node in self.nodes:
            choice = state[node.position]
            if choice is not None and choice.kind == "root" and not node.input:
                inside = tuple(members.get(node.position, ()))
                nodes = [node, *(self.pipeline.by_position[place] for place, _ in inside)]
                found.append(
                    KernelPlacement(node.position, choice, inside, self._inlined(state, nodes))
                )
        return found

    def _inlined(self, state: State, nodes: Sequence[FuncNode]) -> frozenset[int]:
        found: set[int] = set()
        pending = list(nodes)
        while pending:
            for stage in pending.pop().stages:
                for edge in stage.edges:
                    node = edge.producer
                    choice = state[node.position]
                    inline = choice is not None and choice.kind == "inline" and not node.input
                    if inline and node.id not in found:
                        found.add(node.id)
                        pending.append(node)
        return frozenset(found)

    def features(self, kernel: KernelPlacement) -> GpuPartFeatures | None:
        """Return the features of a kernel; None if the GPU cannot run it."""
        if kernel not in self._kept:
            try:
                entries = self.built(kernel)
                self.evaluated += 1
                self._kept[kernel] = self.parts.features(self.parts.nest(entries, kernel.inlined))
            except Refused:
                self._kept[kernel] = None
        return self._kept[kernel]

    def built(self, kernel: KernelPlacement) -> tuple[FuncSchedule, ...]:
        """Return the entries of a kernel's Funcs.

        Raises:
            Refused: The GPU cannot run it.
        """
        if kernel not in self._built:
            self._built[kernel] = self._build(kernel)
        return self._built[kernel]

    def _build(self, kernel: KernelPlacement) -> tuple[FuncSchedule, ...]:
        place, tile = kernel.root, kernel.choice.tile
        if tile is None:
            return (self.entries[place],)
        if not tile.legal or self._called_too_often(kernel):
            raise Refused
        func = self.algorithm.funcs[place]
        shifted = any(choice.kind == "block" for _, choice in kernel.members)
        nest = Nest(place, func, self.first[place], tile, self.extents(place), shifted)
        root = nest.at_root()
        if not kernel.members:
            return (root,)
        around = self.parts.nest((root,), kernel.inlined)
        entries, threads, shared = [root], [_lined_up(tile.threads, self.first[place])], 0.0
        for position, choice in kernel.members:
            assert choice.tile is not None
            in_block = choice.kind == "block"
            loop = nest.block_loop() if in_block else nest.thread_loop()
            node = self.pipeline.by_position[position]
            spans = around.region_at(around.level_of(place, loop), node).computed
            extents = [float(span.extent) for span in spans]
            own = Nest(position, node.func, self.first[position], choice.tile, extents)
            level = Level("at", place, 0, loop)
            entries.append(own.in_block(level) if in_block else own.in_thread(level))
            if in_block:
                counts = [
                    math.ceil(e / s) for e, s in zip(extents, choice.tile.serial, strict=True)
                ]
                threads.append(_lined_up(counts, self.first[position]))
                shared += node.bytes * math.prod(extents)
        if shared > self.limits.shared_per_block or not _fits(threads):
            raise Refused
        return tuple(entries)

    def _called_too_often(self, kernel: KernelPlacement) -> bool:
        """Return whether the calls of an inlined Func exceed the limit of the paper."""
        calls: dict[int, int] = {}
        inside = {kernel.root, *(place for place, _ in kernel.members)}
        for identifier in sorted(kernel.inlined):
            calls[identifier] = sum(
                edge.calls * calls.get(edge.consumer.node.id, 1)
                for edge in self.pipeline.nodes[identifier].readers
                if edge.consumer.node.id in calls or edge.consumer.node.position in inside
            )
        return any(count > MOST_INLINED_CALLS for count in calls.values())

    def schedule(self, state: State, target: str) -> Schedule:
        """Return the schedule of a state."""
        entries = [entry for kernel in self.kernels(state) for entry in self.built(kernel)]
        there = {entry.func for entry in entries}
        for place, choice in enumerate(state):
            if choice is not None and place not in there:
                kept = self.entries[place]
                entries.append(inlined(place) if choice.kind == "inline" else kept)
        ordered = tuple(sorted(entries, key=lambda entry: entry.func))
        return Schedule(self.algorithm.digest, target, ordered)


def _lined_up(counts: Sequence[int], first: int) -> list[int]:
    """Return the threads in x, y and z: dimensions with one thread are left out."""
    order = sorted(range(len(counts)), key=lambda d: (d != first, d))
    return [counts[d] for d in order if counts[d] > 1]


def _fits(threads: Sequence[Sequence[int]]) -> bool:
    """Return whether a block has room for the threads of all its stages."""
    if any(len(counts) > THREAD_DIMENSIONS for counts in threads):
        return False
    padded = [[*counts, 1, 1, 1][:THREAD_DIMENSIONS] for counts in threads]
    most: list[int] = [max(sizes) for sizes in zip(*padded, strict=True)]
    return math.prod(most) <= MOST_THREADS


def _pointwise(edge: FuncReads) -> bool:
    """Return whether a stage reads a Func at its own coordinates only."""
    stage = edge.consumer
    for d, plan in enumerate(edge.plans):
        own = [i for i, dimension in enumerate(stage.dimension) if dimension == d]
        if not own or plan != ((0.0, 0.0, ((own[0], 1.0),)),):
            return False
    return len(edge.plans) == stage.node.dimensions
