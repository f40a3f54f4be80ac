"""The results of `ScheduledNest`: loops, allocations, and points in the nest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.loop_ranges import Ranges
from tilewright.halide.analysis.nest_structure import Body, StageKey, StageNest
from tilewright.halide.ir.schedule import Mapping as LoopMapping


@dataclass(frozen=True, slots=True)
class Corner:
    """A point of a stage's iteration space, by its dimensions and not by its loops.

    Dimensions (and reduction variables) of even number stand at the fraction `even` of their
    range, the others at `odd`; the loops stand where splits and fusions take that point.
    """

    even: Bound
    odd: Bound


@dataclass(frozen=True, slots=True)
class LoopSize:
    """One loop at one place: `extent` iterations from `lo` on, around the loops of `path`.

    `path` lists the loops outside, outermost first, as pairs of a stage's key and a loop's name.
    """

    stage: StageKey
    name: str
    mapping: LoopMapping
    lo: Bound
    extent: Bound
    path: tuple[tuple[StageKey, str], ...]
    context: Context = field(repr=False)


@dataclass(frozen=True, slots=True)
class Required:
    """The required box of one stage, and the ranges of its reduction variables."""

    box: Box
    rvars: Mapping[str, Interval]


Boxes = dict[StageKey, Required]


@dataclass(frozen=True, eq=False)
class Context:
    """A point in the nest: the boxes required there, and the positions of surrounding loops."""

    boxes: Boxes = field(default_factory=dict)
    body: Body | None = None
    stage: StageNest | None = None
    depth: int = -1
    ranges: Ranges = field(default_factory=dict)
    fixed: Mapping[str, Bound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory for a Func at the place where it is stored.

    `box` is what is allocated, `extents` the sizes in memory, innermost first, after
    `align_storage`; `bytes` covers all values of a Tuple. `slides` says that the Func is stored
    outside a serial loop and computed inside it: Halide then computes only what is new in each
    iteration, and may fold the storage; the same is said of what such a Func reads, and of what is
    stored in its loops. `loose` says that Halide may allocate more than is touched, because a loop
    that touches the Func has another extent in other iterations, and Halide takes the ends of an
    interval to be independent (`ScheduledNest.at_most` has the most). `context` is the place.
    """

    func: int
    path: tuple[tuple[StageKey, str], ...]
    box: Box
    extents: tuple[Bound, ...]
    bytes: Bound
    slides: bool
    loose: bool = False
    context: Context = field(default_factory=Context, repr=False)
