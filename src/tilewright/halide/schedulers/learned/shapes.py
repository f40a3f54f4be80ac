"""Shapes: a few numbers that determine the loops of a Func, in the same way for all its stages.

With two levels of tiles, blocks of two vectors by four rows, and one parallel loop, a stage becomes
(innermost loop last)::

    parallel y tiles: x tiles:              tiles[0]
      y tiles: x tiles:                     tiles[1]
        rows of blocks: blocks:
          reductions:
            4 rows unrolled: 2 vectors unrolled: lanes vectorised

Other Funcs can be computed at any loop outside the block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.loops import dimension_of, origin, part_of, stage_suffix
from tilewright.halide.ir.nest import guarded, original_loops
from tilewright.halide.ir.schedule import Fuse, ScheduledLoop, Split, StageSchedule, Tail


@dataclass(frozen=True, slots=True)
class NestShape:
    """The loops of a Func. `moves.Resize` may change sizes later.

    Attributes:
        tiles: the levels of tiles, outermost first: tile sizes by dimension of the Func (0: not
            tiled).
        order: the dimensions of the loops within each level, innermost first.
        vector: the vectorised dimension; None: scalar code.
        lanes: elements per vector.
        vectors: vectors per block.
        row: the dimension of the rows of a block.
        rows: rows per block.
        parallel: the number of outermost loops that are fused and run in parallel.
    """

    tiles: tuple[tuple[int, ...], ...] = ()
    order: tuple[int, ...] = ()
    vector: int | None = None
    lanes: int = 1
    vectors: int = 1
    row: int | None = None
    rows: int = 1
    parallel: int = 0


def stages_of(func: Func, shape: NestShape) -> tuple[StageSchedule, ...]:
    """Return the loop nests of all stages of a Func, given its shape."""
    return tuple(_stage(func, stage, shape) for stage in func.stages)


def stages_in_loops(
    func: Func, shape: NestShape, algorithm: Algorithm
) -> tuple[StageSchedule, ...]:
    """Return the loop nests of a Func that is computed at a loop of a reader.

    If it reads an input, or is a copy of what may be one, its splits are guarded. With a boundary
    condition, the part that a tile at a border reads may be smaller than a vector; shifted inwards,
    the vector would begin before the input.
    """
    stages = stages_of(func, shape)
    reads_input = any(call.kind == "image" for stage in func.stages for call in stage.calls)
    if reads_input or any(copy.wrapper and copy.name == func.name for copy in algorithm.copies):
        return tuple(map(guarded, stages))
    return stages


def _stage(func: Func, stage: Stage, shape: NestShape) -> StageSchedule:
    loops = original_loops(func, stage)
    tail: Tail = "shift_inwards" if stage.index == 0 else "guard_with_if"
    splits: list[Split | Fuse] = []
    levels: list[dict[int, str]] = [{} for _ in shape.tiles]
    inside: dict[int, str] = {}
    block: list[ScheduledLoop] = []

    def cut(loop: str, outer: str, inner: str, factor: int) -> str:
        splits.append(Split(loop, outer, inner, factor, tail))
        return inner

    def blocked(d: int, loop: str, root: str) -> None:
        """Split the block along dimension `d`, if any, off the loop."""

        def name(role: str) -> str:
            return part_of(root, role, stage.index)

        if d == shape.vector:
            if shape.vectors > 1:
                loop = cut(loop, name("b"), name("w"), shape.lanes * shape.vectors)
                cut(loop, name("u"), name("v"), shape.lanes)
                block.append(ScheduledLoop(name("u"), "unrolled"))
            else:
                cut(loop, name("b"), name("v"), shape.lanes)
            block.insert(0, ScheduledLoop(name("v"), "vectorized"))
            loop = name("b")
        elif d == shape.row and shape.rows > 1:
            block.append(ScheduledLoop(cut(loop, name("b"), name("r"), shape.rows), "unrolled"))
            loop = name("b")
        inside[d] = loop

    for each in loops:
        d = dimension_of(each.name)
        if d is None:
            continue
        loop = each.name
        for level, sizes in enumerate(shape.tiles):
            if sizes[d]:
                outer, inner = f"t{level}", f"i{level}"
                levels[level][d] = part_of(each.name, outer, stage.index)
                loop = cut(loop, levels[level][d], part_of(each.name, inner, stage.index), sizes[d])
        blocked(d, loop, each.name)
    block.sort(key=lambda loop: "vur".find(loop.name.removesuffix(stage_suffix(stage.index))[-1]))
    reductions = [ScheduledLoop(each.name) for each in loops if dimension_of(each.name) is None]
    ordered = [[names[d] for d in shape.order if d in names] for names in (inside, *levels[::-1])]
    around = [ScheduledLoop(name) for names in ordered for name in names]
    around = _parallel(around, shape.parallel, splits, stage.index)
    nest = StageSchedule(tuple(splits), (*block, *reductions, *around))
    return replace(nest, loops=_cut(nest))


def _parallel(
    loops: list[ScheduledLoop], count: int, splits: list[Split | Fuse], stage: int
) -> list[ScheduledLoop]:
    """Return the loops with the outermost `count` fused and parallel."""
    for i in range(min(count, len(loops)) - 1):
        fused = f"p{i}{stage_suffix(stage)}"
        splits.append(Fuse(loops[-2].name, loops[-1].name, fused))
        loops[-2:] = [ScheduledLoop(fused)]
    if count and loops:
        loops[-1] = replace(loops[-1], mapping="parallel")
    return loops


def _cut(nest: StageSchedule) -> tuple[ScheduledLoop, ...]:
    """Return the loops; Halide may only partition those around vectors and with guarded tails.

    Each partition into borders and a body copies the code within the loop.
    """
    mapped = {loop.name: loop.mapping for loop in nest.loops}
    may = {name for name, mapping in mapped.items() if mapping in ("vectorized", "unrolled")}
    for change in reversed(nest.splits):
        if isinstance(change, Split) and (change.inner in may or change.tail == "guard_with_if"):
            may.add(change.outer)
    if "vectorized" not in mapped.values() and nest.loops:
        may.add(nest.loops[0].name)
    return tuple(
        loop if loop.name in may or origin(loop.name) is None else replace(loop, partition="never")
        for loop in nest.loops
    )
