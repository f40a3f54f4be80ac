"""What a GPU loads and stores at one level, for the features of Anderson et al. 2021."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.schedulers.learned.published.derivatives import Jacobian, entry, through
from tilewright.halide.schedulers.learned.published.gpu_warps import (
    Steps,
    Threads,
    Transactions,
    threads_of,
    transactions_of,
)
from tilewright.halide.schedulers.learned.published.levels import LevelNode, PublishedNest, StageKey
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    FuncReads,
    LoopSpan,
    Spans,
    StageNode,
)

MEMORIES = ("global", "shared", "register")
# Shared memory is accessed by vectors of at most this many elements and bytes.
MOST_ELEMENTS, MOST_BYTES = 4, 16


@dataclass(frozen=True)
class GpuPlace:
    """Where in a GPU's loops a level is.

    `outer_serial` and `inner_serial` are the iterations of the serial loops between blocks and
    threads and inside threads; `stack` lists the latter.
    """

    block: LevelNode | None = None
    thread: LevelNode | None = None
    threads: Threads | None = None
    blocks: float = 1.0
    outer_serial: float = 1.0
    inner_serial: float = 1.0
    stack: tuple[LevelNode, ...] = ()

    @property
    def serial(self) -> float:
        """Iterations of one thread."""
        return self.outer_serial * self.inner_serial

    def inside(self, level: LevelNode) -> GpuPlace:
        """Return the place inside a level."""
        size = 1.0
        for extent in level.size:
            size = size * float(extent)
        if level.label == "block":
            return replace(self, block=level, blocks=size)
        if level.label == "thread":
            assert self.block is not None
            assert level.stage is not None
            most = _most_threads(self.block)
            sizes = tuple(int(extent) for extent in level.size)
            found = threads_of(sizes, level.stage.loops, level.vector_loop, tuple(most))
            return replace(self, thread=level, threads=found)
        if level.label == "serial" and self.block is not None:
            if self.thread is None:
                return replace(self, outer_serial=self.outer_serial * size)
            inner = self.inner_serial * size
            return replace(self, inner_serial=inner, stack=(*self.stack, level))
        return self

    def serial_outside(self, node: FuncNode) -> float:
        """Return the serial iterations of a thread outside the loops of a node."""
        total = 1.0
        for level in self.stack:
            if level.node is node:
                break
            for extent in level.size:
                total *= float(extent)
        return total


def _most_threads(level: LevelNode) -> list[int]:
    """Return the largest numbers of threads of all stages inside a level, by dimension."""
    most = [1, 1, 1]
    for child in level.children:
        if child.label == "thread":
            found = _lowered(child)
        elif child.children:
            found = _most_threads(child)
        else:
            continue
        most += [1] * (len(found) - len(most))
        for i, size in enumerate(found):
            most[i] = max(most[i], size)
    return most


def _lowered(level: LevelNode) -> list[int]:
    """Return the extents other than 1, that along the innermost dimension first."""
    sizes = [int(extent) for extent in level.size]
    v = level.vector_loop
    first = [sizes[v]] if v >= 0 and sizes[v] > 1 else []
    return first + [size for i, size in enumerate(sizes) if i != v and size > 1]


@dataclass(eq=False)
class GpuLoads:
    """Loads at one site, by memory: distinct bytes and contiguous runs (lines) of them.

    `thread_bytes` and `thread_lines` are for one thread, `allocated` the bytes of the allocations.
    `loads` are the transactions of a block; `stores` those of its stores, with their memory.
    """

    bytes: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEMORIES, 0.0))
    lines: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEMORIES, 0.0))
    thread_bytes: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEMORIES, 0.0))
    thread_lines: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEMORIES, 0.0))
    allocated: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MEMORIES, 0.0))
    loads: dict[str, Transactions] = field(
        default_factory=lambda: {"global": Transactions(), "shared": Transactions()}
    )
    stores: tuple[str, Transactions] | None = None


@dataclass
class _Load:
    """A load of a node: derivatives by loops, and by threads with their serial loops."""

    node: FuncNode
    serial: Jacobian
    thread: Jacobian
    count: int


# Per read of a Func that is not inlined: the path of reads to it, and its loads.
Accesses: TypeAlias = list[tuple[tuple[FuncReads, ...], list[_Load]]]


class LoadWalk:
    """Finds the loads of a stage at one level.

    Args:
        nest: The nest.
        level: The stage's outermost or innermost level.
        place: Where it is.
        instances: How often it is reached.
        found: The features of the stages so far.
    """

    def __init__(
        self,
        nest: PublishedNest,
        level: LevelNode,
        place: GpuPlace,
        instances: float,
        found: Mapping[StageKey, Mapping[str, Bound]],
    ) -> None:
        assert level.stage is not None
        assert level.parent is not None
        self.nest, self.level, self.place, self.found = nest, level, place, found
        self.stage: StageNode = level.stage
        self.parent: LevelNode = level.parent
        self.feature = found[self.stage.node.id, self.stage.index]
        self.instances = instances
        self.result = GpuLoads()

    def loads(self) -> GpuLoads:
        """Return the loads, and at an innermost level the stores too."""
        innermost = self.level.innermost
        scale = self._serial_extents() if innermost and self.stage.loops else ()
        if innermost and self.stage.node.dimensions:
            self._stores(scale)
        done: set[int] = set()
        for chain, loads in self._accesses(scale):
            producer = chain[-1].producer
            if innermost:
                self._count(loads, chain)
            if producer.id not in done:
                done.add(producer.id)
                self._footprint(producer)
        return self.result

    def _accesses(self, scale: tuple[float, ...]) -> Accesses:
        """Return the loads of Funcs that are not inlined, by the path that reaches them.

        They are kept for further schedules with the same inlined Funcs.
        """
        if not self.level.innermost:
            return self._found_accesses(scale)
        key = self.stage.node.id, self.stage.index, frozenset(self.level.inlined), scale
        known = self.nest.pipeline.accesses
        if key not in known:
            known[key] = self._found_accesses(scale)
        found: Accesses = known[key]
        return found

    def _found_accesses(self, scale: tuple[float, ...]) -> Accesses:
        innermost = self.level.innermost
        found: Accesses = []
        listed: list[_Load] = []
        pending: list[tuple[StageNode, tuple[FuncReads, ...]]] = [(self.stage, ())]
        while pending:
            reader, chain = pending.pop()
            for edge in reader.edges:
                if innermost:
                    listed = self._listed(listed, reader, edge, scale)
                if self.nest.sites[edge.producer.id, 0].inlined:
                    pending.append((edge.producer.stages[0], (*chain, edge)))
                    continue
                found.append(((*chain, edge), [x for x in listed if x.node is edge.producer]))
        return found

    def _serial_extents(self) -> tuple[float, ...]:
        """Return the iterations of each loop inside the threads."""
        assert self.place.thread is not None
        region = self.nest.region_at(self.place.thread, self.stage.node)
        return tuple(float(span.extent) for span in region.loops[self.stage.index])

    def _listed(
        self, listed: list[_Load], reader: StageNode, edge: FuncReads, scale: Sequence[float]
    ) -> list[_Load]:
        """Return the loads with those of one edge."""
        if reader is self.stage:
            more = [
                _Load(edge.producer, matrix, _scaled(matrix, scale), count)
                for matrix, count in edge.jacobians
            ]
            return listed + more
        lossy = self.nest.pipeline.lossy
        result = []
        for load in listed:
            if load.node is reader.node:
                result += [
                    _Load(
                        edge.producer,
                        through(matrix, load.serial, lossy),
                        through(matrix, load.thread, lossy),
                        count * load.count,
                    )
                    for matrix, count in edge.jacobians
                ]
            result.append(load)
        return result

    # --- transactions ---------------------------------------------------------------------

    def _count(self, loads: Sequence[_Load], chain: tuple[FuncReads, ...]) -> None:
        producer = chain[-1].producer
        memory = memory_of(self.nest, producer)
        if memory == "register":
            return
        site = self.nest.sites[producer.id, 0]
        dim = 0 if producer.input or site.produce is None else site.produce.vector_dim
        stored = self.nest.region_at(site.store, producer).required
        sizes: dict[tuple[float, ...], float] = {}
        for load in loads:
            points = self._points(load, chain, memory, dim, sizes)
            found = self._transactions(memory, producer, load.thread, stored, dim, points)
            self.result.loads[memory].add(found)

    def _transactions(
        self,
        memory: str,
        node: FuncNode,
        matrix: Jacobian,
        stored: Spans,
        innermost: int,
        requests: float,
    ) -> Transactions:
        threads = self.place.threads
        steps: Steps = ()
        if threads is not None:
            steps = self._steps(node, matrix, stored, innermost, threads)
        return transactions_of(memory, threads, steps, node.bytes, requests)

    def _steps(
        self, node: FuncNode, matrix: Jacobian, stored: Spans, innermost: int, threads: Threads
    ) -> Steps:
        order = [innermost, *(d for d in range(node.dimensions) if d != innermost)]
        distances, distance = [], 1
        for d in order[: node.dimensions]:
            distances.append(distance)
            distance *= int(stored[d].extent)
        steps: list[tuple[tuple[float, int], ...] | None] = []
        for name in threads.loops:
            if name not in self.stage.loops:
                steps.append(tuple((0.0, distance) for distance in distances))
                continue
            loop = self.stage.loops.index(name)
            along = [entry(matrix, d, loop) for d in order[: node.dimensions]]
            known = [float(step) for step in along if step is not None]
            same = len(known) == len(along)
            steps.append(tuple(zip(known, distances, strict=True)) if same else None)
        return tuple(steps)

    def _points(
        self,
        load: _Load,
        chain: tuple[FuncReads, ...],
        memory: str,
        innermost: int,
        sizes: dict[tuple[float, ...], float],
    ) -> float:
        """Return the distinct points of a load that one thread reads.

        `sizes` keeps the points that tiles of the innermost loops read along the path `chain`.
        """
        producer = chain[-1].producer
        unrolled = float(self.feature["unrolled_loop_extent"]) > 1
        tile = [1.0] * len(self.stage.loops)
        repeated = every = 1.0
        for i in range(len(self.stage.loops)):
            if all(entry(load.thread, d, i) == 0 for d in range(producer.dimensions)):
                continue
            extent = float(self.parent.size[i])
            every *= extent
            if self.stage.pure[i] and unrolled:
                tile[i] = extent
            else:
                repeated *= extent
        shape = tuple(tile)
        if shape not in sizes:
            region = 1.0
            for span in self._along(chain, tile):
                region *= float(span.extent)
            sizes[shape] = region
        points, most = sizes[shape] * repeated, load.count * every
        if most <= points:
            points = most
            vector = self._vector(load.serial, producer, innermost) if memory == "shared" else 1
            if points % vector == 0:
                points /= vector
        points *= self.place.outer_serial
        return points * self.place.serial_outside(self.stage.node)

    def _along(self, chain: tuple[FuncReads, ...], tile: Sequence[float]) -> Spans:
        """Return what one tile of the innermost loops reads of a node, by one path."""
        grandparent = self.parent.parent
        assert grandparent is not None
        around = self.nest.region_at(grandparent, self.stage.node).loops[self.stage.index]
        loops = []
        for span, extent, size in zip(around, tile, self.parent.size, strict=True):
            outer = -(-float(size) // extent)
            lo = span.lo + outer // 2 * extent
            loops.append(LoopSpan(lo, lo + extent - 1.0, True))
        spans: Spans = tuple(loops)
        pipeline = self.nest.pipeline
        for edge in chain:
            required = pipeline.footprint(edge, spans)
            region = pipeline.region(edge.producer, required)
            spans = region.loops[0]
        return region.required

    def _vector(self, matrix: Jacobian, node: FuncNode, innermost: int) -> int:
        """Return the elements that an access to shared memory reads at once."""
        found = 1
        for loop in range(len(self.level.size)):
            steps = [entry(matrix, d, loop) for d in range(node.dimensions)]
            if all(step == (1 if d == innermost else 0) for d, step in enumerate(steps)):
                found = max(found, self._access(loop))
        return found

    def _access(self, loop: int) -> int:
        extent = int(self.parent.size[loop])
        most = max(1, min(MOST_ELEMENTS, MOST_BYTES // self.stage.node.bytes))
        if extent >= most:
            return most if extent % most == 0 else 1
        return extent if most % extent == 0 else 1

    def _stores(self, scale: Sequence[float]) -> None:
        node = self.stage.node
        site = self.nest.sites[node.id, self.stage.index]
        memory = memory_of(self.nest, node)
        if memory == "register":
            return
        region = self.nest.region_at(site.store, node)
        matrix = self.stage.store_jacobian
        requests, vector = self.place.serial, 1
        dim = self.level.vector_dim
        if region.computed[dim].extent == 1:
            longer = [d for d, span in enumerate(region.computed) if span.extent > 1]
            dim = longer[0] if longer else dim
        for loop in range(len(self.stage.loops)):
            steps = [entry(matrix, d, loop) for d in range(node.dimensions)]
            if all(step == 0 for step in steps):
                requests /= float(self.parent.size[loop])
            elif memory == "shared" and all(
                step == (1 if d == dim else 0) for d, step in enumerate(steps)
            ):
                vector = max(vector, self._access(loop))
        scaled = _scaled(matrix, scale)
        found = self._transactions(
            memory, node, scaled, region.required, self.level.vector_dim, requests / vector
        )
        self.result.stores = memory, found
        if self.stage.index:
            self.result.loads[memory].add(found)

    # --- footprints -----------------------------------------------------------------------

    def _footprint(self, producer: FuncNode) -> None:
        nest, level = self.nest, self.level
        own = nest.sites[self.stage.node.id, self.stage.index]
        site = nest.sites[producer.id, 0]
        consumer = self.parent if level.innermost else own.store
        times = self.instances
        if not level.innermost:
            times = float(self.feature["num_realizations"])
        dim = 0 if producer.input or site.produce is None else site.produce.vector_dim
        read = _size(nest.region_at(consumer, producer).required, producer, dim)
        stored = _size(nest.region_at(site.store, producer).required, producer, dim)
        computed = nest.region_at(site.compute, producer).computed
        thread = (float(producer.bytes), 1.0)
        if level.innermost and self.place.thread is not None:
            spans = nest.region_at(self.place.thread, producer).required
            thread = _size(spans, producer, dim)
        memory = memory_of(nest, producer)
        result = self.result
        if memory != "register":
            result.allocated[memory] += _size(computed, producer, dim)[0]
        nested = False
        if not producer.input:
            inside = float(self.found[producer.id, 0]["num_realizations"])
            nested = inside > times and inside // times > 1
        chosen = stored if nested else read
        result.bytes[memory] += chosen[0]
        result.lines[memory] += chosen[1]
        if nested or (memory == "register" and site.store is not self.place.thread):
            thread = stored
        result.thread_bytes[memory] += thread[0]
        result.thread_lines[memory] += thread[1]


def memory_of(nest: PublishedNest, node: FuncNode) -> str:
    """Return the memory in which a node is stored, by its store level."""
    level: LevelNode | None = nest.sites[node.id, 0].store
    assert level is not None
    if level.root:
        return "global"
    while level is not None:
        if level.label == "thread":
            return "register"
        level = level.parent
    return "shared"


def _scaled(matrix: Jacobian, scale: Sequence[float]) -> Jacobian:
    """Return the derivatives by threads, whose neighbours are a serial loop apart."""
    if not scale:
        return matrix
    return tuple(
        tuple(None if e is None else e * int(by) for e, by in zip(row, scale, strict=True))
        for row in matrix
    )


def _size(spans: Spans, node: FuncNode, innermost: int) -> tuple[float, float]:
    """Return the bytes of a region and its contiguous runs."""
    size, lines = float(node.bytes), 1.0
    for d, span in enumerate(spans):
        extent = float(span.extent)
        size *= extent
        if d != innermost:
            lines *= extent
    return size, lines
