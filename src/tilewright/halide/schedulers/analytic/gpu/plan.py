"""The plan of a group: one kernel per stage of its output, each with a tiling.

A group consists of an output and the members that are computed in the output's kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tilewright.halide.analysis.windows import Reach
from tilewright.halide.schedulers.analytic.gpu.kernel import Array, FusedKernel
from tilewright.halide.schedulers.analytic.gpu.tiling import Tiles

Mode = Literal["nested", "overlapped", "none"]
# What the search minimises: the predicted time, or the cost of Sioutas 2020.
Objective = Literal["time", "sioutas"]
# The tile of a kernel: its Func, stage and tile.
Place = tuple[str, int, tuple[int, ...]]
KernelKind = Literal["parallel", "single_thread", "host", "nothing"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options that lead to different schedules for the same pipeline.

    Attributes:
        mode: How Funcs are fused: not at all, in overlapped tiles, or also nested in threads.
        unroll: Whether small loops inside threads are unrolled.
        inline: Whether loads have their full weight in the choice of inlined Funcs. If false,
            loads weigh less and fewer Funcs are inlined.
        max_threads: Largest number of threads per block; None for the hardware's limit.
        register_tiles: Whether threads may compute several points of a nested reduction.
        any_size: Whether outputs may be smaller than a tile.
        points: Points per thread along x, y and z. If empty, the search chooses: one point, or
            several where a reduction is kept in registers and that is cheaper.
        steps: Most iterations of a reduction to unroll together. Beyond 1, the operands of these
            iterations are copied to registers.
        unlike: Tiles to avoid, each as Func, stage and tile. New tiles must differ from them by at
            least a factor of two in some dimension.
        tiles: The tile of each kernel for which it is given, each as Func, stage and tile.
        planes: Planes along z that a block computes per iteration of a serial loop, along which
            members slide; 0 without that loop. The tile must be given.
        scanned: Whether Funcs are stored with the dimension innermost that their updates scan, and
            steps of scans are unrolled.
    """

    mode: Mode = "nested"
    unroll: bool = True
    inline: bool = True
    max_threads: int | None = None
    register_tiles: bool = True
    any_size: bool = False
    points: tuple[int, ...] = ()
    steps: int = 1
    unlike: tuple[Place, ...] = ()
    tiles: tuple[Place, ...] = ()
    planes: int = 0
    scanned: bool = False


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """One stage of a group's output, with the members computed inside its blocks.

    Attributes:
        kernel: The stage and its members.
        kind: How the stage runs: as a parallel kernel, in a single thread, on the host or not at
            all.
        tile: Tile size of each parallel loop, in iterations.
        registers: Iterations of each tile per thread, by parallel loop.
        nested: For each member computed inside threads, the Func whose threads compute it.
        cost: The model's cost, in operations.
        blocks: Number of blocks in the launch.
        threads: Threads per block in x, y and z.
        shared: Shared memory per block, in bytes.
        occupancy: Fraction of an SM's warps that are resident.
        relaxed: Number of the model's rejection rules that were waived: 1 for the warp multiple,
            2 for the occupancy as well, 3 for the number of busy SMs as well.
        reason: Why the stage does not run in parallel on the GPU; empty if it does.
        steps: Most iterations of a reduction that are unrolled together.
        planes: As in `Options`.
    """

    kernel: FusedKernel
    kind: KernelKind
    tile: tuple[int, ...] = ()
    registers: tuple[int, ...] = ()
    nested: Mapping[str, str] = field(default_factory=dict)
    cost: float = 0.0
    blocks: float = 1.0
    threads: tuple[int, ...] = ()
    shared: int = 0
    occupancy: float = 0.0
    relaxed: int = 0
    reason: str = ""
    steps: int = 1
    planes: int = 0

    @property
    def sliding(self) -> Mapping[str, Reach]:
        """The members that slide along z."""
        return self.kernel.sliding if self.planes else {}


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """A group's kernels in execution order.

    If the Funcs cannot form a group, `kernels` is empty, `cost` is infinite and `why_not` has the
    reason.
    """

    kernels: tuple[KernelPlan, ...]
    cost: float
    why_not: str = ""

    @property
    def relaxed(self) -> int:
        """The largest number of rules that a kernel of the group waives."""
        return max((kernel.relaxed for kernel in self.kernels), default=0)


def points_each(kernel: FusedKernel, shape: Sequence[int]) -> Array:
    """Return the points per thread of each parallel loop, given those along x, y and z."""
    each = np.ones(len(kernel.extents))
    for i, share in zip(kernel.roles.threads, shape, strict=False):
        each[i] = share
    return each


def given_tile(kernel: FusedKernel, options: Options) -> tuple[Tiles, Tiles] | None:
    """Return the tile that the options give a kernel and its points per thread, one row each."""
    for name, index, tile in options.tiles:
        known = (name, index) == (kernel.output, kernel.stage.index)
        if known and len(tile) == len(kernel.extents):
            each = points_each(kernel, options.points)
            return np.array([tile], dtype=np.float64), each[np.newaxis]
    return None
