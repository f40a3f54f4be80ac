"""The plan of a group: its kernels, each with a tiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel

Mode = Literal["nested", "overlapped", "none"]
# What the search minimises: the predicted time, or the cost of Sioutas 2020.
Objective = Literal["time", "sioutas"]
KernelKind = Literal["parallel", "single_thread", "host", "nothing"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options that lead to different schedules for the same pipeline.

    `mode` says how Funcs are fused: not at all, in overlapped tiles, or also nested in threads.
    `inline` is false if loads weigh less when inlining, so that less is inlined; `max_threads`
    bounds a block, and with `any_size` outputs may be smaller than a tile. `points` are those that
    a thread computes along x, y and z; if empty, one, or as many as pay where a reduction is in
    registers. Up to `steps` iterations of a reduction are unrolled together, and their operands
    copied to registers. `unlike` lists final tiles of kernels, each with its Func and stage; new
    tiles have to differ from them by at least a factor of two in some dimension.
    """

    mode: Mode = "nested"
    unroll: bool = True
    inline: bool = True
    max_threads: int | None = None
    register_tiles: bool = True
    any_size: bool = False
    points: tuple[int, ...] = ()
    steps: int = 1
    unlike: tuple[tuple[str, int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """One stage of a group's output, with the members computed inside its blocks.

    `tile` and `registers` are by parallel loop; `steps` bounds the iterations of a reduction that
    are unrolled together. `nested` maps members computed inside threads
    to the Func in whose threads they are. `relaxed` counts the model's rejections that had to
    be waived: 1 the warp multiple, 2 also the occupancy, 3 also the SM count.
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


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """A group's kernels in order; `cost` is infinite where the group cannot be one."""

    kernels: tuple[KernelPlan, ...]
    cost: float
    why_not: str = ""

    @property
    def relaxed(self) -> int:
        """The most that any kernel had to waive."""
        return max((kernel.relaxed for kernel in self.kernels), default=0)
