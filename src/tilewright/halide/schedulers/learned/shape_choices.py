"""Shapes worth trying for a Func: of its loops at root, and at a loop of a reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.halide.ir.algorithm import Func
from tilewright.halide.schedulers.learned.scene import LEAST_LANES, Scene
from tilewright.halide.schedulers.learned.shapes import NestShape

# Candidates for the rows of a block.
ROWS = (2, 4)
# Initial sizes of a shape: tasks per core, and iterations per tile of the inner level.
TASKS_PER_CORE = 8
INNER_TILE = 32


def blocks(func: Func, scene: Scene) -> Iterator[NestShape]:
    """Yield shapes without tiles, the usual one first: vectors along the first dimension."""
    extents = scene.extents.get(func.name, ())
    dims = tuple(range(len(func.args)))
    along = [d for d in dims if LEAST_LANES <= extents[d] < np.inf] if extents else []
    along = [d for d in along if d not in scene.slices.get(func.name, ())]
    for vector in along[:2]:
        order = (vector, *(d for d in dims if d != vector))
        found = [NestShape((), order, vector, lanes) for lanes in scene.lanes(func)]
        found = [s for s in found if s.lanes <= extents[vector]] or [
            NestShape((), order, vector, 1 << int(np.log2(extents[vector])))
        ]
        rows = [d for d in along if d != vector][:1]
        yield from found
        yield replace(found[-1], vectors=2)
        for row in rows:
            for count in ROWS:
                yield replace(found[-1], row=row, rows=count)
            yield replace(found[-1], row=row, rows=2, vectors=2)
    yield NestShape((), dims)


def member_shapes(func: Func, scene: Scene) -> Iterator[NestShape]:
    """Yield shapes for a Func that is computed at a loop of a reader."""
    yield from blocks(func, scene)


def root_shapes(func: Func, scene: Scene) -> Iterator[NestShape]:
    """Yield shapes for a Func at root: untiled with parallel rows, tiles, nested tiles."""
    extents = scene.extents.get(func.name, ())
    tasks = TASKS_PER_CORE * scene.machine.cores
    for block in blocks(func, scene):
        ordered = [d for d in block.order if LEAST_LANES <= extents[d] < np.inf]
        yield replace(block, parallel=1)
        if not ordered:
            continue
        last = ordered[-1]
        strip = max(_width(block, last), int(extents[last]) // tasks)
        task = tuple(strip if d == last else 0 for d in range(len(extents)))
        if strip < extents[last]:
            yield replace(block, tiles=(task,), parallel=1)
        if len(ordered) < 2:
            continue
        first = ordered[0]
        wide = INNER_TILE * _width(block, first)
        tile = tuple(
            INNER_TILE if d == last else wide if d == first and wide < extents[d] else 0
            for d in range(len(extents))
        )
        if extents[last] > INNER_TILE:
            yield replace(block, tiles=(tile,), parallel=2 if tile[first] else 1)
            rows = tuple(_width(block, d) if d == last else size for d, size in enumerate(tile))
            if strip > rows[last]:
                yield replace(block, tiles=(task, rows), parallel=1)


def _width(block: NestShape, d: int) -> int:
    if d == block.vector:
        return block.lanes * block.vectors
    return block.rows if d == block.row else 1
