"""The loop nest of a schedule as the published schedulers describe it.

They describe a stage by *levels*: sets of loops, one per dimension of the stage, between the places
where other Funcs are stored or computed. The outermost level of a stage at root may be parallel,
and the innermost one is a vector. A level has a representative iteration (the middle), at which the
regions of everything inside are evaluated::

    for y parallel:          output: level (1, 24), parallel
      for yi, xo:            output: level (6, 40);    f computed here
        f: ...
        for xi:              output: level (4, 1)
          vector of x        output: level (8, 1), innermost

Extents of levels that a schedule does not mention are 1. A level whose extents are all 1 leaves no
trace in a schedule and is not read, except below a parallel level.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewright.halide.analysis.bounds import Bound
from tilewright.halide.analysis.scheduled_nest import Factors
from tilewright.halide.ir.nest import original_loops
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Fuse,
    Level,
    Schedule,
    ScheduleError,
    StageSchedule,
)
from tilewright.halide.schedulers.learned.published.level_spans import middle, tile
from tilewright.halide.schedulers.learned.published.pipeline import (
    FuncNode,
    LoopSpan,
    Pipeline,
    Region,
    Spans,
    StageNode,
    ceil_div,
    union,
)

StageKey = tuple[int, int]  # the identifier of a node, and the stage
LoopKey = tuple[int, int, str]  # the position of a Func, the stage and the loop


@dataclass(eq=False)
class LevelNode:
    """One level of a stage, or the root of the nest.

    Attributes:
        stage: The stage; None at root.
        parent: The level around it; None at root.
        size: The extent of each loop of the stage.
        parallel, innermost: Whether it is the parallel level, or a vector or single iteration.
        vector_loop: Position of the vectorised loop in the stage; -1 without one.
        vector_dim: The innermost dimension in memory; -1 for a Func without dimensions.
        children: The levels inside, the stage's own first.
        stored: The nodes stored here.
        inlined: The nodes inlined here (at innermost levels), with the number of calls.
        label: On GPUs ``block``, ``thread``, ``serial`` or ``simd``; else empty.
        regions: The region of each node at the representative iteration, by identifier.
    """

    stage: StageNode | None
    parent: LevelNode | None
    size: tuple[Bound, ...] = ()
    parallel: bool = False
    innermost: bool = False
    vector_loop: int = -1
    vector_dim: int = -1
    children: list[LevelNode] = field(default_factory=list)
    stored: list[FuncNode] = field(default_factory=list)
    inlined: dict[int, int] = field(default_factory=dict)
    label: str = ""
    regions: dict[int, Region] = field(default_factory=dict)

    @property
    def node(self) -> FuncNode | None:
        """The node of the stage; None at root."""
        return None if self.stage is None else self.stage.node

    @property
    def root(self) -> bool:
        """Whether this is the root of the nest."""
        return self.stage is None


@dataclass(eq=False)
class StageSite:
    """Where a stage is computed, stored and produced.

    `produce` is its outermost level, `innermost` its innermost one and `task` the outermost level
    around it. Inputs are computed and stored at root and have no others.
    """

    compute: LevelNode
    store: LevelNode
    produce: LevelNode | None = None
    innermost: LevelNode | None = None
    task: LevelNode | None = None
    inlined: bool = False


@dataclass(eq=False)
class LoopPart:
    """A piece of a loop of the definition after splits: position of the loop, and extent."""

    loop: int
    extent: Bound


class PublishedNest:
    """The levels of a schedule, for one set of split factors or N rows of them.

    Args:
        pipeline: The pipeline.
        schedule: The schedule; without clones.
        factors: As in `ScheduledNest`: factors that replace those of the schedule, by the
            positions of entry, stage and split; floats or arrays of shape (N,).
        cores: The tasks that run at once; with one, no level is parallel.

    Raises:
        ScheduleError: Levels cannot describe the schedule: a fused loop is split again.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        factors: Factors | None = None,
        cores: int = 2,
    ) -> None:
        self.pipeline = pipeline
        self.cores = cores
        self.factors = factors or {}
        self.root = LevelNode(None, None)
        self.sites: dict[StageKey, StageSite] = {}
        self._entries = {entry.func: (i, entry) for i, entry in enumerate(schedule.funcs)}
        self._at: dict[LoopKey, LevelNode] = {}
        # Nodes stored further out than the loop in which they are computed, the last of each loop.
        # Those that were placed in that loop before are one level further in.
        self._cuts, self._slid = self._marked()
        self._inside: dict[LoopKey, LevelNode] = {}
        self._inner: list[LevelNode] = []
        for node in pipeline.nodes:
            self._place(node)

    def _marked(self) -> tuple[dict[LoopKey, list[int]], dict[LoopKey, int]]:
        """Return the nodes at each loop where something is computed or stored, and `_slid`."""
        found: dict[LoopKey, list[int]] = {}
        slid: dict[LoopKey, int] = {}
        for position, (_, entry) in self._entries.items():
            node = self.pipeline.by_position[position]
            for level in (entry.compute, entry.store):
                if level.kind == "at":
                    key = self._loop_at(level, node)
                    found.setdefault(key, []).append(node.id)
                    if entry.compute != entry.store and level is entry.compute:
                        slid[key] = max(node.id, slid.get(key, 0))
        return found, slid

    def _loop_at(self, level: Level, node: FuncNode) -> LoopKey:
        """Return the loop of a level in the stage in which a node is read.

        Levels do not distinguish loops of the same name in several stages of a Func. In Halide, the
        outer loop of a split may have the name of the loop that was split.
        """
        stages = self.pipeline.by_position[level.func].stages
        entry = self._entries[level.func][1]
        same, alike = [], []
        for i, nest in enumerate(entry.stages):
            if node.id in stages[i].depends:
                names = [loop.name for loop in nest.loops]
                same += [(level.func, i, name) for name in names if name == level.loop]
                stem = _stem(level.loop)
                alike += [(level.func, i, name) for name in names if _stem(name) == stem]
        key = level.func, level.stage, level.loop
        return key if key in same else (same + alike + [key])[0]

    def _place(self, node: FuncNode) -> None:
        if node.input:
            for stage in node.stages:
                self.sites[node.id, stage.index] = StageSite(self.root, self.root)
            return
        place, entry = self._entries.get(node.position, (-1, None))
        inline = entry is None or entry.compute.kind == "inline"
        if inline and not node.output and len(node.stages) == 1:
            self._inline(node)
            return
        compute = self._level(entry.compute, node) if entry else self.root
        store = self._store(entry, node, compute)
        for stage in reversed(node.stages):
            self._add_stage(stage, place, entry, compute, store)

    def _store(self, entry: FuncSchedule | None, node: FuncNode, compute: LevelNode) -> LevelNode:
        """Note a node at its store level; return the level."""
        store = self._level(entry.store, node) if entry else self.root
        store.stored.append(node)
        return store

    def _level(self, level: Level, node: FuncNode) -> LevelNode:
        if level.kind != "at":
            return self.root
        key = self._loop_at(level, node)
        found = self._at.get(key)
        if key in self._inside and node.id < self._slid.get(key, -1):
            return self._inside[key]
        if found is None:
            name = self.pipeline.algorithm.funcs[level.func].name
            raise ScheduleError(f"the loop {level.loop} of {name}, at which a Func is computed or "
                                "stored, is not one of its loops")  # fmt: skip
        return found

    def _inline(self, node: FuncNode) -> None:
        site = StageSite(self.root, self.root, inlined=True)
        for level in self._inner:
            calls = 0
            for edge in node.readers:
                calls += level.inlined.get(edge.consumer.node.id, 0) * edge.calls
                if edge.consumer is level.stage:
                    calls += edge.calls
            if calls:
                level.inlined[node.id] = calls
                site.compute = site.store = site.produce = site.innermost = level
                site.task = task_of(level)
        self.sites[node.id, 0] = site

    # --- the levels of a stage ------------------------------------------------------------

    def _add_stage(
        self,
        stage: StageNode,
        place: int,
        entry: FuncSchedule | None,
        compute: LevelNode,
        store: LevelNode,
    ) -> None:
        node = stage.node
        around = self.region_at(compute, node).loops[stage.index]
        nest = entry.stages[stage.index] if entry and entry.stages else StageSchedule()
        key = (node.position, stage.index)
        loops, vector = self._loops(stage, nest, place, around)
        groups, parallel = self._groups(stage, nest, loops, key)
        vector_dim = innermost_dimension(node, entry)
        vector_loop = -1 if vector is None else vector.loop
        # The representative iteration of the last level before the vector: the middle one.
        lanes = 1.0 if vector is None else vector.extent
        inside = middle(around, vector_loop, lanes)
        outer, parent, first = around, compute, None
        for at, group in enumerate(groups):
            size = sizes_of(len(stage.loops), [part for _, part in group])
            last = at == len(groups) - 1
            level = LevelNode(stage, parent, size, parallel and at == 0, last and vector is None)
            level.vector_loop, level.vector_dim = vector_loop, vector_dim
            spans = inside if last else tile(outer, size, stage, parallel and at == 0)
            self.own_region(level, spans)
            for name, _ in group:
                self._at[*key, name] = level
            if at and not group and groups[at - 1]:
                self._inside[*key, groups[at - 1][-1][0]] = level
            parent.children.append(level)
            outer, parent, first = spans, level, first or level
        if vector is not None:
            parent = self._vector_level(parent, vector, vector_dim, inside)
        self.note_innermost(parent)
        site = StageSite(compute, store, first or parent, parent)
        site.task = task_of(parent)
        self.sites[node.id, stage.index] = site

    def _vector_level(
        self, parent: LevelNode, vector: LoopPart, dimension: int, inside: Spans
    ) -> LevelNode:
        """Add the level of a vector inside the last level of a stage; return it."""
        assert parent.stage is not None
        size = sizes_of(len(parent.stage.loops), [vector])
        level = LevelNode(parent.stage, parent, size, False, True, vector.loop, dimension)
        one = inside[vector.loop]
        lane = LoopSpan(one.lo, one.lo, True)
        self.own_region(level, (*inside[: vector.loop], lane, *inside[vector.loop + 1 :]))
        parent.children.insert(0, level)
        return level

    def own_region(self, level: LevelNode, spans: Spans) -> None:
        """Set the region of a level's own node: its loops are the level's."""
        assert level.stage is not None
        assert level.parent is not None
        node = level.stage.node
        around = self.region_at(level.parent, node)
        loops = list(around.loops)
        loops[level.stage.index] = spans
        level.regions[node.id] = Region(around.required, around.computed, loops)

    def note_innermost(self, level: LevelNode) -> None:
        """Note an innermost level, into which later nodes may be inlined."""
        self._inner.append(level)

    def note(self, node: FuncNode, stage: StageNode, loop: str, level: LevelNode) -> None:
        """Note the level of a loop, at which later nodes may be computed."""
        self._at[node.position, stage.index, loop] = level

    def final_loops(
        self, stage: StageNode, place: int, entry: FuncSchedule | None, around: Spans
    ) -> tuple[list[tuple[str, list[LoopPart]]], dict[str, str]]:
        """Return the final loops, outermost first, with their parts, and their mappings."""
        nest = entry.stages[stage.index] if entry and entry.stages else StageSchedule()
        parts = self._parts(stage, nest, place, around)
        listed = [loop.name for loop in nest.loops] or list(parts)
        mapping: dict[str, str] = {loop.name: loop.mapping for loop in nest.loops}
        return [(name, parts[name]) for name in reversed(listed)], mapping

    def _loops(
        self, stage: StageNode, nest: StageSchedule, place: int, around: Spans
    ) -> tuple[list[tuple[str, list[LoopPart]]], LoopPart | None]:
        """Return the final loops, outermost first, with their parts, and the vectorised part."""
        parts = self._parts(stage, nest, place, around)
        listed = [loop.name for loop in nest.loops] or list(parts)
        mapping = {loop.name: loop.mapping for loop in nest.loops}
        vector: LoopPart | None = None
        loops = []
        for name in reversed(listed):
            if mapping.get(name) == "vectorized" and vector is None and len(parts[name]) == 1:
                vector = parts[name][0]
            else:
                loops.append((name, parts[name]))
        return loops, vector

    def _parts(
        self, stage: StageNode, nest: StageSchedule, place: int, around: Spans
    ) -> dict[str, list[LoopPart]]:
        """Return the parts of every loop after splits and fusions, innermost part first."""
        func, definition = stage.node.func, stage.stage
        names = [loop.name for loop in original_loops(func, definition)]
        parts = {name: [LoopPart(i, around[i].extent)] for i, name in enumerate(names)}
        for at, change in enumerate(nest.splits):
            if isinstance(change, Fuse):
                parts[change.fused] = parts.pop(change.inner) + parts.pop(change.outer)
                continue
            factor = self.factors.get((place, stage.index, at), float(change.factor))
            old = parts.pop(change.old)
            if len(old) != 1:
                raise ScheduleError(
                    f"the fused loop {change.old} of {func.name} is split: the published features "
                    "have no such loop"
                )
            parts[change.outer] = [LoopPart(old[0].loop, ceil_div(old[0].extent, factor))]
            parts[change.inner] = [LoopPart(old[0].loop, factor)]
        return parts

    def _groups(
        self,
        stage: StageNode,
        nest: StageSchedule,
        loops: Sequence[tuple[str, list[LoopPart]]],
        key: tuple[int, int],
    ) -> tuple[list[list[tuple[str, LoopPart]]], bool]:
        """Return the loops of each level, outermost first, and whether the first is parallel."""
        mapping = {loop.name: loop.mapping for loop in nest.loops}
        parallel = self._is_parallel(stage)
        groups: list[list[tuple[str, LoopPart]]] = [[]]
        running, placed = parallel, False
        for name, parts in loops:
            if running and mapping.get(name) != "parallel":
                running = False
                if not placed:
                    groups.append([])
            placed = False
            used = {part.loop for _, part in groups[-1]}
            if any(part.loop in used for part in parts):
                groups.append([])
            groups[-1] += [(name, part) for part in parts]
            if (*key, name) in self._cuts:
                if self._goes_inside((*key, name), groups[-1], len(stage.loops)):
                    groups.append([])
                groups.append([])
                placed = True
        if running and not placed:
            groups.append([])
        elif not groups[-1] and len(groups) > 1 and not running and _has_vector(nest):
            groups.pop()  # what is computed in the last loop is computed beside the vector
        return groups, parallel

    def _goes_inside(
        self, loop: LoopKey, group: Sequence[tuple[str, LoopPart]], loops: int
    ) -> bool:
        """Return whether a level of extents 1 follows that computes some of a loop's nodes.

        The released code makes one where a node slides along loops and the outermost has extent 1.
        """
        slid = self._slid.get(loop)
        if slid is None or any(part.loop == loops - 1 for _, part in group):
            return False
        return any(other < slid for other in self._cuts[loop])

    def _is_parallel(self, stage: StageNode) -> bool:
        """Return whether the first level is parallel.

        The tiling into tasks is one for all stages of a Func. A stage in which it has one task, or
        a Func with one iteration, has a parallel level without a parallel loop.
        """
        place, entry = self._entries.get(stage.node.position, (-1, None))
        if entry is None or entry.compute.kind != "root" or not stage.node.dimensions:
            return False
        if any(loop.mapping == "parallel" for nest in entry.stages for loop in nest.loops):
            return True
        if self.cores < 2 or not entry.stages:
            return False
        first = stage.node.stages[0]
        around = self.region_at(self.root, stage.node).loops[0]
        loops, _ = self._loops(first, entry.stages[0], place, around)
        return all(_is_one(p.extent) for _, ps in loops for p in ps if not first.reduction[p.loop])

    # --- regions --------------------------------------------------------------------------

    def region_at(self, level: LevelNode, node: FuncNode) -> Region:
        """Return what is computed of a node in one iteration of a level if it is computed there."""
        found = level.regions.get(node.id)
        if found is None:
            found = level.regions[node.id] = self.pipeline.region(node, self._required(level, node))
        return found

    def _required(self, level: LevelNode, node: FuncNode) -> Spans:
        if level.root and node.output:
            box = self.pipeline.boxes[node.func.name]
            return tuple(LoopSpan(i.lo, i.hi, node_bound(node, d)) for d, i in enumerate(box))
        spans: Spans | None = None
        for edge in node.readers:
            stage = level.stage
            reader = edge.consumer
            if stage is None or reader is stage or reader.node.id in stage.depends:
                loops = self.region_at(level, reader.node).loops[reader.index]
                part = self.pipeline.footprint(edge, loops)
                spans = part if spans is None else union(spans, part)
        if spans is None:
            raise ScheduleError(f"nothing reads {node.func.name} in the loops around it")
        return spans


def node_bound(node: FuncNode, dimension: int) -> bool:
    """Return whether the user promised the extent of a dimension of an output."""
    return node.func.args[dimension] in node.func.bounds


def innermost_dimension(node: FuncNode, entry: FuncSchedule | None) -> int:
    """Return the dimension that is innermost in memory; -1 for a Func without dimensions."""
    if not node.dimensions:
        return -1
    return entry.storage_order[0] if entry and entry.storage_order else 0


def _stem(loop: str) -> str:
    """Return a loop's name without what marks it as the outer loop of a split."""
    return loop.replace("o", "").replace("_", "")


def task_of(level: LevelNode) -> LevelNode:
    """Return the outermost level around a level."""
    while level.parent is not None and not level.parent.root:
        level = level.parent
    return level


def _is_one(extent: Bound) -> bool:
    return isinstance(extent, float) and extent == 1.0


def _has_vector(nest: StageSchedule) -> bool:
    return any(loop.mapping == "vectorized" for loop in nest.loops)


def sizes_of(count: int, parts: Iterable[LoopPart]) -> tuple[Bound, ...]:
    """Return the extents of a level with these parts, by loop of the definition."""
    sizes: list[Bound] = [1.0] * count
    for part in parts:
        sizes[part.loop] = sizes[part.loop] * part.extent
    return tuple(sizes)
