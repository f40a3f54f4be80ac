"""The points that one step of a stage's innermost loops computes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH


@dataclass(frozen=True, slots=True)
class Block:
    """The points that one step of a kernel computes.

    A block has `vectors` vectors of `lanes` elements along dimension `vector` (None: scalar code),
    times `rows` points of dimension `row`. `steps` is the number of iterations of the innermost
    reduction loop executed as vectors (see `reduction_steps`). `unrolled` holds further dimensions
    with their points: one for each residue of a Func with aligned bounds (see `alignment`).
    Blocks are `swept` if the loop over those of a row is inside the reduction loops (`streams`).
    """

    vector: int | None = None
    lanes: int = 1
    vectors: int = 1
    row: int | None = None
    rows: int = 1
    steps: int = 1
    unrolled: tuple[tuple[int, int], ...] = ()
    swept: bool = False

    @property
    def width(self) -> int:
        """Elements along the vector dimension."""
        return self.lanes * self.vectors

    @property
    def points(self) -> int:
        """Points of the Func in one block."""
        return self.lanes * self.vectors * self.rows * self.phases

    @property
    def phases(self) -> int:
        """Points along the dimensions of `unrolled`."""
        return math.prod(size for _, size in self.unrolled)


SCALAR = Block()


def fit_block(block: Block, extents: Mapping[int, float]) -> Block:
    """Return the block, shrunk to fit in a region with these extents by dimension."""
    lanes, vectors, rows = block.lanes, block.vectors, block.rows
    unrolled = tuple((d, size) for d, size in block.unrolled if extents[d] >= size)
    if block.vector is not None:
        room = max(1, int(extents[block.vector]))
        vectors = max(1, min(vectors, room // lanes))
        while lanes > room:
            lanes //= 2
        if lanes < SEARCH.least_lanes:
            return Block(row=block.row, rows=rows) if block.row is not None else SCALAR
    if block.row is not None:
        rows = max(1, min(rows, int(extents[block.row])))
    row = block.row if rows > 1 else None
    rows = rows if row is not None else 1
    return Block(block.vector, lanes, vectors, row, rows, block.steps, unrolled, block.swept)
