"""The loop nests of choices: `Schedule` entries from places and tiles.

All splits are guarded, so that the nests are correct at every size. The exception is the tile of a
Func in whose blocks others are computed: it is shifted inwards where the Func is large enough,
because Halide then knows the shared memory of a block before the launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.halide.ir.algorithm import Func, Stage
from tilewright.halide.ir.loops import part_of
from tilewright.halide.ir.nest import original_loops
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    Mapping,
    Partition,
    ScheduledLoop,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.legality.violations import Limits
from tilewright.halide.schedulers.learned.gpu.choices import Tile

# Serial loops of a thread are unrolled up to this many iterations (paper, Section 6.5).
MOST_UNROLLED = 16
NEVER: Partition = (
    "never"  # loops inside kernels are not partitioned: threads of a warp would diverge
)


class Nest:
    """The nests of a Func at root, or of one in the blocks of another.

    Args:
        position: The position of the Func.
        func: The Func.
        first: The dimension that is innermost in memory.
        tile: Serial iterations and threads along each dimension.
        extents: The extent of each dimension, at root or in a block.
        shifted: Whether tiles are shifted inwards, as far as the extents allow it.
    """

    def __init__(
        self,
        position: int,
        func: Func,
        first: int,
        tile: Tile,
        extents: Sequence[float],
        shifted: bool = False,
    ) -> None:
        self.position, self.func, self.first = position, func, first
        self.tile, self.extents, self.shifted = tile, extents, shifted

    def at_root(self) -> FuncSchedule:
        """Return the entry of the Func at root, with a kernel per stage."""
        stages = tuple(self._kernel(stage) for stage in self.func.stages)
        return FuncSchedule(
            self.position, ROOT, ROOT, "auto", stages, storage_order=self._storage()
        )

    def in_block(self, level: Level) -> FuncSchedule:
        """Return the entry of the Func computed per block at `level`."""
        stages = tuple(self._per_block(stage) for stage in self.func.stages)
        return FuncSchedule(
            self.position, level, level, "gpu_shared", stages, storage_order=self._storage()
        )

    def in_thread(self, level: Level) -> FuncSchedule:
        """Return the entry of the Func computed per thread at `level`."""
        stages = tuple(self._per_thread(stage) for stage in self.func.stages)
        return FuncSchedule(self.position, level, level, "register", stages)

    def block_loop(self) -> str:
        """Return the innermost block loop of the first stage."""
        return self._innermost(self.func.stages[0], "gpu_block")

    def thread_loop(self) -> str:
        """Return the innermost thread loop of the first stage."""
        return self._innermost(self.func.stages[0], "gpu_thread")

    def _innermost(self, stage: Stage, mapping: str) -> str:
        loops = self._kernel(stage).loops
        return next((loop.name for loop in loops if loop.mapping == mapping), "")

    def _storage(self) -> tuple[int, ...]:
        """Return the order of dimensions in memory; empty if it is that of the arguments."""
        if self.first <= 0:
            return ()
        return (self.first, *(d for d in range(len(self.func.args)) if d != self.first))

    def _dimensions(self, stage: Stage) -> list[tuple[int, str]]:
        """Return the dimensions of the pure loops of a stage with these, the first one first."""
        loops = zip(stage.loops, original_loops(self.func, stage), strict=True)
        found = [
            (self.func.args.index(loop.name), nest.name)
            for loop, nest in loops
            if loop.kind == "pure"
        ]
        return sorted(found, key=lambda pair: (pair[0] != self.first, pair[0]))

    def _reductions(self, stage: Stage) -> list[ScheduledLoop]:
        loops = zip(stage.loops, original_loops(self.func, stage), strict=True)
        return [_serial(nest.name) for loop, nest in loops if loop.kind != "pure"]

    def _unrolls(self) -> bool:
        return math.prod(self.tile.serial) <= MOST_UNROLLED

    def _kernel(self, stage: Stage) -> StageSchedule:
        splits: list[Split | Fuse] = []
        serial: list[str] = []
        threads: list[str] = []
        blocks: list[str] = []
        counts: list[int] = []
        for place, (d, loop) in enumerate(self._dimensions(stage)):
            s, t = self.tile.serial[d], self.tile.threads[d]
            counts.append(math.ceil(self.extents[d] / (s * t)))
            # There is always a thread loop, at which other Funcs can be computed.
            threaded = t > 1 or not (place or any(n > 1 for n in self.tile.threads))
            parts = [part_of(loop, "_b")]
            parts += [part_of(loop, "_t")] if threaded else []
            parts += [part_of(loop, "_r")] if s > 1 else []
            if len(parts) == 1:
                blocks.append(loop)
                continue
            inner = parts[1] if len(parts) == 2 else part_of(loop, "_i")
            splits.append(Split(loop, parts[0], inner, s * t, self._tail(stage, d, s * t)))
            if len(parts) > 2:
                splits.append(Split(inner, parts[1], parts[2], s, "guard_with_if"))
            blocks.append(parts[0])
            threads += [part_of(loop, "_t")] if threaded else []
            serial += [part_of(loop, "_r")] if s > 1 else []
        blocks = _fused(blocks, counts, splits)
        return self._stage(stage, splits, serial, threads, (), blocks)

    def _tail(self, stage: Stage, d: int, points: int) -> Tail:
        fits = self.shifted and stage.index == 0 and self.extents[d] >= points
        return "shift_inwards" if fits else "guard_with_if"

    def _per_block(self, stage: Stage) -> StageSchedule:
        splits: list[Split | Fuse] = []
        serial: list[str] = []
        threads: list[str] = []
        outside: list[str] = []
        for d, loop in self._dimensions(stage):
            s, t = self.tile.serial[d], math.ceil(self.extents[d] / self.tile.serial[d])
            # Halide may not see that the region is as large in all blocks: threads are limited.
            whole = part_of(loop, "_o")
            inner = part_of(loop, "_i") if s > 1 else part_of(loop, "_t")
            splits.append(Split(loop, whole, inner, s * t, "guard_with_if"))
            if s > 1:
                splits.append(
                    Split(inner, part_of(loop, "_t"), part_of(loop, "_r"), s, "guard_with_if")
                )
                serial.append(part_of(loop, "_r"))
            if t > 1:
                threads.append(part_of(loop, "_t"))
            outside += [whole] if t > 1 else [part_of(loop, "_t"), whole]
        return self._stage(stage, splits, serial, threads, outside, [])

    def _per_thread(self, stage: Stage) -> StageSchedule:
        pure = [loop for _, loop in self._dimensions(stage)]
        few = math.prod(self.extents) <= MOST_UNROLLED
        mapping: Mapping = "unrolled" if few else "serial"
        inside = [ScheduledLoop(loop, mapping, NEVER) for loop in pure]
        return StageSchedule((), (*inside, *self._reductions(stage)))

    def _stage(
        self,
        stage: Stage,
        splits: Sequence[Split | Fuse],
        serial: Sequence[str],
        threads: Sequence[str],
        outside: Sequence[str],
        blocks: Sequence[str],
    ) -> StageSchedule:
        inner: Mapping = "unrolled" if self._unrolls() else "serial"
        loops = (
            *(ScheduledLoop(name, inner, NEVER) for name in serial),
            *self._reductions(stage),
            *(ScheduledLoop(name, "gpu_thread", NEVER) for name in threads),
            *(_serial(name) for name in outside),
            *(ScheduledLoop(name, "gpu_block", NEVER) for name in blocks),
        )
        return StageSchedule(tuple(splits), loops)


def _serial(name: str) -> ScheduledLoop:
    return ScheduledLoop(name, "serial", NEVER)


def _fused(blocks: list[str], counts: list[int], splits: list[Split | Fuse]) -> list[str]:
    """Return the block loops after fusing the outer ones that exceed the grid."""
    grid = Limits().grid
    blocks, counts = list(blocks), list(counts)
    while len(blocks) > len(grid) or any(
        n > most for n, most in zip(counts[1:], grid[1:], strict=False)
    ):
        fused = f"blocks_{len(blocks)}"
        splits.append(Fuse(blocks[-2], blocks[-1], fused))
        blocks[-2:] = [fused]
        counts[-2:] = [counts[-2] * counts[-1]]
    return blocks


def inlined(position: int) -> FuncSchedule:
    """Return the entry of an inlined Func."""
    return FuncSchedule(position, INLINE, INLINE)
