"""How a pipeline is to run: the immutable `Schedule`, plain data with a JSON form.

Nothing here depends on names that Halide or a user chose, so that a schedule fits the same
pipeline built twice. A Func is known by its place in realisation order. A loop is known by a
canonical name: ``v0``, ``v1`` … are the stage's pure dimensions in the order of the Func's
arguments, ``r0``, ``r1`` … its reduction variables in the order of the reduction domain, and
splits and fusions introduce further names, unique within the stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.errors import TilewrightError

Mapping = Literal["serial", "unrolled", "vectorized", "parallel", "gpu_block", "gpu_thread"]
Partition = Literal["auto", "never", "always"]
Tail = Literal[
    "round_up",
    "guard_with_if",
    "predicate",
    "predicate_loads",
    "predicate_stores",
    "shift_inwards",
    "shift_inwards_and_blend",
    "round_up_and_blend",
]
MemoryType = Literal["auto", "heap", "stack", "register", "gpu_shared"]


class ScheduleError(TilewrightError):
    """A schedule that is malformed, illegal, or made for another pipeline."""


@dataclass(frozen=True, slots=True)
class Split:
    """Loop `old` becomes `outer` and `inner`, with `factor` iterations of `inner`.

    A split by a dimension's expected extent, with ``guard_with_if``, is how a small dimension
    is unrolled whole and the schedule stays right at any extent.
    """

    old: str
    outer: str
    inner: str
    factor: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class Fuse:
    """Adjacent loops `inner` and `outer` become the single loop `fused`."""

    inner: str
    outer: str
    fused: str


@dataclass(frozen=True, slots=True)
class ScheduledLoop:
    """A loop of the final nest and what it is mapped to.

    `partition` says whether Halide cuts the loop into a prologue, a body without border
    conditions and an epilogue; it multiplies the code inside for every loop that it cuts.
    """

    name: str
    mapping: Mapping = "serial"
    partition: Partition = "auto"


@dataclass(frozen=True, slots=True)
class KnownValue:
    """The condition that a number the caller gives has a certain value.

    `parameter` is the input's or scalar's place among the algorithm's parameters. `field` is
    ``value`` for a scalar, ``min``, ``extent`` or ``stride`` for dimension `dimension` of an
    input.
    """

    parameter: int
    field: Literal["value", "min", "extent", "stride"]
    dimension: int
    value: int


@dataclass(frozen=True, slots=True)
class StageSchedule:
    """One stage's nest: splits and fusions in order of application, then the loops.

    `loops` lists every loop that is left, innermost first. `atomic` makes the stage's writes
    atomic, so that an associative reduction may run in parallel or in vectors. With
    `single_thread` a GPU runs the whole nest as one thread of one block; such a nest maps
    no loop to blocks or threads.

    Where `specialize` lists conditions, the nest and all that is computed in it are compiled
    twice: for calls where all of them hold (loops of known length can be unrolled, divisions
    by known numbers go), and for all others.
    """

    splits: tuple[Split | Fuse, ...] = ()
    loops: tuple[ScheduledLoop, ...] = ()
    atomic: bool = False
    single_thread: bool = False
    specialize: tuple[KnownValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """Where a Func is computed or stored: inlined, at root, or at a loop of a consumer.

    For ``at``, `func` is the consumer's place in realisation order, `stage` the consumer's
    stage whose nest has the loop, and `loop` the loop's name there. Halide does not tell the
    loops of one Func's stages apart when they have one name, and neither do we: a producer
    that several stages read is computed anew at the loop of that name in each of them.
    """

    kind: Literal["inline", "root", "at"]
    func: int = -1
    stage: int = 0
    loop: str = ""


INLINE = Level("inline")
ROOT = Level("root")


@dataclass(frozen=True, slots=True)
class FuncSchedule:
    """One Func: where it is computed and stored, in which memory, and its stages' nests.

    An inlined Func has no stages here. A Func that is not inlined has one entry a stage, or
    none at all when every stage keeps the nest it was defined with. `align_storage` pads the
    innermost storage dimension to a multiple of so many elements. `storage_order` lists the
    dimensions from innermost to outermost in memory; empty means the order of the arguments.
    """

    func: int
    compute: Level
    store: Level
    memory: MemoryType = "auto"
    stages: tuple[StageSchedule, ...] = ()
    align_storage: int = 1
    storage_order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of Func `func`, with a schedule of its own, that `readers` read in its place.

    `func` and the readers are known by their places in the algorithm as it was given. A reader
    may be a copy itself: clone number i of a schedule for an algorithm of n Funcs is n + i here.
    """

    func: int
    readers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole pipeline's schedule for one target, tied to an algorithm by its digest.

    `target` is a Halide target string, or ``host``, ``cuda``, ``opencl``. Funcs that are
    fixed (extern, memoised) or kept as the user scheduled them have no entry.

    Where `clones` lists copies of Funcs, `funcs` and the levels in it count the copies: they
    give places in `tilewright.halide.ir.clones.with_clones`, where every copy comes right after
    the Func that it is made of.
    """

    algorithm: str
    target: str
    funcs: tuple[FuncSchedule, ...]
    clones: tuple[Clone, ...] = ()
