"""The results of `ScheduledNest`: loops, allocations, and points in the nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.halide.analysis.bounds import Bound, Box, Interval
from tilewright.halide.analysis.loop_ranges import Ranges, floor
from tilewright.halide.analysis.nest_structure import Body, StageKey, StageNest
from tilewright.halide.ir.schedule import DimensionBounds
from tilewright.halide.ir.schedule import Mapping as LoopMapping


@dataclass(frozen=True, slots=True)
class Corner:
    """A point of a stage's iteration space, given by its dimensions rather than its loops.

    Dimensions and reduction variables with an even index are at the fraction `even` (0 to 1) of
    their range, those with an odd index at the fraction `odd`. Splits and fusions then determine
    the iteration of each loop. Fractions are scalars or have shape (N,).
    """

    even: Bound
    odd: Bound


@dataclass(frozen=True, slots=True)
class LoopSize:
    """One loop, inside the loops of `path`: `extent` iterations, the first of them `lo`.

    `path` lists the surrounding loops, outermost first, as pairs of a stage's key and a loop's
    name. A loop inside several consumers has one `LoopSize` for each.
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
    """A point in the nest: an iteration of one loop of a stage, or the whole pipeline.

    Attributes:
        boxes: What is required of each stage there.
        body: The inside of the loop, if anything is stored or computed in it.
        stage: The stage that has the loop; None for the whole pipeline.
        depth: Position of the loop in `stage.loops`; -1 for the whole pipeline.
        ranges: Ranges of all loops of the stage.
        fixed: The values of that loop and of the stage's loops outside it.
    """

    boxes: Boxes = field(default_factory=dict)
    body: Body | None = None
    stage: StageNest | None = None
    depth: int = -1
    ranges: Ranges = field(default_factory=dict)
    fixed: Mapping[str, Bound] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The memory of a Func at its store level.

    Attributes:
        func: Position of the Func in realisation order.
        path: The loops around the allocation, outermost first.
        box: The region allocated.
        extents: The extents in memory, innermost first, after `align_storage`.
        bytes: Size in bytes, for all values of a Tuple.
        slides: Whether the size depends on a sliding window: the Func is stored outside a serial
            loop and computed inside it, or such a Func reads it, or it is stored in the loops of
            such a Func. Halide computes only new values per iteration and may fold the storage.
            Funcs that only `ScheduledNest.windows` read do not count.
        loose: Whether Halide may allocate more than is touched. This happens if the extent of a
            loop that touches the Func differs between iterations, because Halide treats the ends of
            an interval as independent. `ScheduledNest.at_most` is the upper bound.
        context: The point of the nest at which the Func is stored.
    """

    func: int
    path: tuple[tuple[StageKey, str], ...]
    box: Box
    extents: tuple[Bound, ...]
    bytes: Bound
    slides: bool
    loose: bool = False
    context: Context = field(default_factory=Context, repr=False)


def definition_env(nest: StageNest, box: Box, rvars: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return the range of every variable of a stage's definition that computes `box`."""
    env = dict(zip(nest.func.args, box, strict=True))
    env.update(rvars)
    return env


def bounded(nest: StageNest, box: Box) -> Box:
    """Return the box with the user's promised bounds substituted."""
    spans = nest.func.bounds
    if not spans:
        return box
    return tuple(
        Interval(float(spans[arg].min), float(spans[arg].max)) if arg in spans else part
        for arg, part in zip(nest.func.args, box, strict=True)
    )


def widened(bounds: Sequence[DimensionBounds], box: Box, produced: bool = True) -> Box:
    """Return the box of a Func after widening it as the schedule's `DimensionBounds` say.

    Args:
        bounds: The bounds.
        box: The box.
        produced: Whether one production computes the box; otherwise several ones in loops compute
            it together, and the extents, which are promised of each, do not apply.
    """
    if not bounds:
        return box
    parts = list(box)
    for bound in bounds:
        low, high = parts[bound.dimension]
        unit = float(bound.modulus)
        if bound.extent and produced:
            high = low + bound.extent - 1.0
        if unit > 1 and bound.remainder is not None:
            offset = float(bound.remainder)
            low = floor((low - offset) / unit) * unit + offset
            high = floor((high + unit - offset) / unit) * unit + offset - 1.0
        elif unit > 1:
            high = low + floor((high - low + unit) / unit) * unit - 1.0
        parts[bound.dimension] = Interval(low, high)
    return tuple(parts)
