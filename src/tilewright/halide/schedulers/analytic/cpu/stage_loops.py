"""What the cost model reads from a stage's loops: its tiles, and its block in registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.halide.analysis.nest_structure import StageKey, StageNest
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.schedule import Fuse, Split
from tilewright.halide.schedulers.analytic.cpu.blocks import Block

IN_REGISTERS = ("vectorized", "unrolled")


def tile_depth(stage: StageNest) -> int:
    """Return how many of a stage's outermost loops are over tiles, parallel, or around those.

    A loop is over tiles if it is the outer part of a split whose inner part has a loop that is
    neither vectorised nor unrolled.
    """
    mapped = dict(stage.loops)
    finals: dict[str, set[str]] = {name: {name} for name in mapped}
    for change in reversed(stage.splits):
        if isinstance(change, Split):
            finals[change.old] = finals[change.outer] | finals[change.inner]
        else:
            finals[change.inner] = finals[change.outer] = finals[change.fused]
    inside: set[str] = set()
    tiles: set[str] = set()
    for change in stage.splits:
        if isinstance(change, Fuse):
            if inside & {change.inner, change.outer}:
                inside.add(change.fused)
            if tiles & {change.inner, change.outer}:
                tiles.add(change.fused)
            continue
        if change.old in inside:
            inside.add(change.outer)
        inside.add(change.inner)
        cut = any(mapped[loop] not in IN_REGISTERS for loop in finals[change.inner])
        if cut or change.old in tiles:
            tiles.add(change.outer)
    depth = 0
    while depth < len(stage.loops):
        name, mapping = stage.loops[depth]
        if mapping != "parallel" and (name in inside or name not in tiles):
            break
        depth += 1
    parallel = [at for at, (_, mapping) in enumerate(stage.loops) if mapping == "parallel"]
    return max([depth, *(at + 1 for at in parallel)])


def outside_registers(stage: StageNest) -> int:
    """Return how many loops of a stage are outside its innermost vectorised and unrolled loops."""
    count = len(stage.loops)
    while count and stage.loops[count - 1][1] in IN_REGISTERS:
        count -= 1
    return count


def block_of(
    stage: StageNest, sizes: Mapping[tuple[StageKey, str], float], moduli: Mapping[int, int]
) -> Block:
    """Return the block of vectors and rows that a stage's innermost loops compute.

    `sizes` gives the extents of loops, and `moduli` those to which bounds are aligned, by
    dimension. Unrolled loops further out, and those over a second dimension of rows that is not
    aligned, are not part of the block.
    """
    sources: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in stage.variables}
    for change in stage.splits:
        if isinstance(change, Fuse):
            sources[change.fused] = sources[change.inner] | sources[change.outer]
        else:
            sources[change.inner] = sources[change.outer] = sources[change.old]
    block = Block()
    unrolled: list[tuple[int, int]] = []
    innermost = next((loop.name for loop in stage.stage.loops if loop.kind != "pure"), None)
    for name, mapping in stage.loops[outside_registers(stage) :]:
        names = {stage.variables[loop] for loop in sources[name]}
        if names == {innermost} and mapping in IN_REGISTERS:
            block = replace(block, steps=block.steps * int(sizes.get((stage.key, name), 1.0)))
        along = [dimension_of(loop) for loop in sources[name]]
        if len(along) != 1 or along[0] is None:
            continue
        dimension, size = along[0], int(sizes.get((stage.key, name), 1.0))
        if mapping == "vectorized" and block.vector is None and size > 1:
            block = replace(block, vector=dimension, lanes=size)
        else:
            unrolled.append((dimension, size))
    block = _with_rows(block, unrolled[::-1], moduli)
    return replace(block, swept=_is_swept(stage, sources, block.vector))


def _is_swept(stage: StageNest, sources: Mapping[str, frozenset[str]], vector: int | None) -> bool:
    """Return whether a loop along dimension `vector` is inside the reduction loops."""
    reductions = {loop.name for loop in stage.stage.loops if loop.kind != "pure"}
    inside = False
    swept = False
    for name, _ in stage.loops[: outside_registers(stage)]:
        if {stage.variables[loop] for loop in sources[name]} & reductions:
            inside, swept = True, False
        elif inside and vector is not None:
            swept = swept or any(dimension_of(loop) == vector for loop in sources[name])
    return swept


def _with_rows(block: Block, unrolled: list[tuple[int, int]], moduli: Mapping[int, int]) -> Block:
    """Return the block with unrolled loops, given by dimension and size, innermost first."""
    for dimension, size in unrolled:
        if dimension == block.vector:
            block = replace(block, vectors=block.vectors * size)
        elif dimension in moduli and size > 1 and dimension not in dict(block.unrolled):
            block = replace(block, unrolled=tuple(sorted((*block.unrolled, (dimension, size)))))
        elif block.row in (None, dimension) and size > 1:
            block = replace(block, row=dimension, rows=block.rows * size)
    return block
