"""Structural hashes of states and kernels to a depth (Section 3 of Anderson 2021).

A depth of 2 is one level of loops: the pipeline, blocks, threads. An even depth sees which Funcs
are stored, computed and inlined at its level; an odd one also whether each loop inside is longer
than 1, and a larger one the exact extents::

    depth   sees
    0       Funcs at root
    1       and which block loops are longer than 1, and the innermost dimensions
    2       and the numbers of blocks, and the Funcs in blocks
    3       and which thread loops are longer than 1
    4       and the numbers of threads, and the Funcs in threads
    5       and which serial loops are longer than 1

As in the released code, a Func in the loops of another counts as stored at all levels around.
Larger depths than 5 do not occur with five passes, and see everything here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tilewright.halide.schedulers.learned.gpu.choices import Placement
from tilewright.halide.schedulers.learned.gpu.published_search.states import SearchState
from tilewright.halide.schedulers.learned.gpu.published_search.tiles import StageShape
from tilewright.halide.schedulers.learned.gpu.space import KernelPlacement

Seen = tuple[object, ...]
# Levels of loops by the depth that sees what is in them.
BLOCKS, THREADS, SERIAL = 2, 4, 6


class StructuralHash:
    """Hashes of one pipeline's states.

    Args:
        shapes: The stages of each Func, by its position.
        first: The innermost dimension in memory of each Func, by its position.
    """

    def __init__(
        self, shapes: Mapping[int, Sequence[StageShape]], first: Mapping[int, int]
    ) -> None:
        self.shapes, self.first = shapes, first
        self._known: dict[tuple[KernelPlacement, int, bool], Seen] = {}

    def forget(self) -> None:
        """Forget what was seen of kernels."""
        self._known.clear()

    def of(self, state: SearchState, depth: int) -> int:
        """Return the hash of a state; equal states have equal hashes."""
        if depth < 0:
            return 0
        stored = tuple(
            place
            for place, choice in enumerate(state.choices)
            if choice is not None and choice.kind != "inline"
        )
        kernels = tuple(
            self.kernel(k.placed, depth, k.placed.root == state.whole) for k in state.kernels
        )
        return hash((stored, kernels, state.inlined if depth > SERIAL - 1 else None))

    def kernel(self, placed: KernelPlacement, depth: int, whole: bool = False) -> Seen:
        """Return what a depth sees of a kernel; `whole`: whether its tile is not decided yet."""
        key = placed, depth, whole
        if key not in self._known:
            self._known[key] = self._kernel(placed, depth, whole)
        return self._known[key]

    def _kernel(self, placed: KernelPlacement, depth: int, whole: bool) -> Seen:
        found: list[object] = [placed.root]
        if depth < 0:
            return ()
        if depth > 0:
            found += [self.first.get(placed.root, -1), self._blocks(placed, whole, depth == 1)]
        if depth >= BLOCKS and whole:
            # Blocks are not split yet: inside are single iterations.
            found.append(placed.inlined if depth >= THREADS else ())
        elif depth >= BLOCKS:
            inside = placed.members
            found.append(tuple((place, c.stage) for place, c in inside))
            found.append(tuple(place for place, c in inside if c.kind == "block"))
            if depth > BLOCKS:
                found.append(self._threads(placed, depth == BLOCKS + 1))
            if depth >= THREADS:
                found.append(tuple((p, c.at, c.stage) for p, c in inside if c.kind == "thread"))
            if depth > THREADS:
                found.append(self._serial(placed, depth == THREADS + 1))
        if depth >= SERIAL:
            found.append(placed)
        return tuple(found)

    def _blocks(self, placed: KernelPlacement, whole: bool, long: bool) -> Seen:
        found = []
        for shape in self.shapes[placed.root]:
            sizes: Sequence[int] = shape.extents
            tile = placed.choice.tile
            if tile is not None and not whole:
                points = shape.along(tile.points)
                sizes = [
                    math.ceil(e / p) if d >= 0 else 1
                    for e, p, d in zip(shape.extents, points, shape.dimensions, strict=True)
                ]
            found.append(_sizes(sizes, long))
        return tuple(found)

    def _threads(self, placed: KernelPlacement, long: bool) -> Seen:
        found = []
        for place, choice in self._tiled(placed):
            assert choice.tile is not None
            found += [
                (place, _sizes(shape.along(choice.tile.threads), long))
                for shape in self.shapes[place]
            ]
        return tuple(found)

    def _serial(self, placed: KernelPlacement, long: bool) -> Seen:
        found = []
        for place, choice in self._tiled(placed):
            assert choice.tile is not None
            for shape in self.shapes[place]:
                sizes = [
                    choice.tile.serial[d] if d >= 0 else extent
                    for d, extent in zip(shape.dimensions, shape.extents, strict=True)
                ]
                found.append((place, _sizes(sizes, long)))
        return tuple(found)

    @staticmethod
    def _tiled(placed: KernelPlacement) -> list[tuple[int, Placement]]:
        """Return the Funcs with threads of their own."""
        inside = [(place, choice) for place, choice in placed.members if choice.kind == "block"]
        own = [(placed.root, placed.choice)] if placed.choice.tile is not None else []
        return own + inside


def _sizes(sizes: Sequence[int], long: bool) -> tuple[int, ...]:
    """Return extents, or with `long` only whether each is longer than 1."""
    return tuple(int(size > 1) for size in sizes) if long else tuple(sizes)
