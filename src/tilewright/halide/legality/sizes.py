"""Determine the sizes at which a schedule is correct: its requirements on the caller's buffers.

Splits with ``guard_with_if`` and ``predicate`` are correct at every size, unless a predicate of a
reduction domain (``RDom.where``) reads at the loop's variable. With the other tails, a
split may run past the end of its loop or start before its beginning (see Halide's
``TailStrategy``). An output then needs a minimum extent, or an extent that is a multiple of a
number. Another Func may then read inputs, or outputs, outside the region that the unscheduled
pipeline reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.joint import joined
from tilewright.halide.ir.loops import pure_loop
from tilewright.halide.ir.masked_splits import reads_no_further
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    OutputExtent,
    Schedule,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.ir.variants import Conditions, merged, variant_schedules
from tilewright.halide.legality.least_extents import least_extents
from tilewright.halide.legality.limits import Limit, limited
from tilewright.halide.legality.overreach import (
    aligned_reads_further,
    may_align_in_loops,
    overreaching,
    predicate_reads,
)

WRITES_BEYOND: frozenset[Tail] = frozenset(
    {
        "round_up",
        "shift_inwards",
        "predicate_loads",
        "round_up_and_blend",
        "shift_inwards_and_blend",
    }
)
READS_BEYOND: frozenset[Tail] = frozenset(
    {
        "round_up",
        "shift_inwards",
        "predicate_stores",
        "round_up_and_blend",
        "shift_inwards_and_blend",
    }
)
# Predicates of reduction domains are evaluated outside the guards of these.
_GUARDED: frozenset[Tail] = frozenset({"guard_with_if", "predicate", "predicate_loads"})
_SHIFTS: frozenset[Tail] = frozenset({"shift_inwards", "shift_inwards_and_blend"})
# Longest period of the splits of a rounded-up loop, in iterations, for which the extents of two
# periods are tried one by one.
_LARGEST_PERIOD = 1 << 14


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on one dimension of a Func's region for the schedule to be correct.

    `on` is one of:

    - ``"output"``: the output's extent must be at least `minimum` and a multiple of `multiple`. The
      pipeline refuses other extents when it runs. If `maximum` is not 0, it is the exact extent.
    - ``"input"``: if the extent of the Func's region is different, the Func reads inputs (or
      outputs) outside the region that the unscheduled pipeline reads. Inputs sized by
      ``Pipeline.infer_input_bounds`` of the scheduled pipeline are always large enough.
    - ``"storage"``: at most `maximum` elements of the Func may be stored or computed at a time. The
      pipeline refuses a call that needs more when it runs.

    `axis` is the dimension's name, `reason` the cause, and `cure` how to allow any size of an
    output. If `certain` is false, other extents may be correct, too.
    """

    func: int
    name: str
    dimension: int
    minimum: int
    multiple: int
    on: Literal["output", "input", "storage"]
    axis: str = ""
    reason: str = ""
    certain: bool = True
    maximum: int = 0
    cure: str = "without exact sizes it may be of any size"

    def __str__(self) -> str:
        """Return the requirement as a sentence, with its reason and cure."""
        extent = self._extent()
        axis = self.axis or f"dimension {self.dimension}"
        reason = f" ({self.reason})" if self.reason else ""
        if self.on == "storage":
            return (
                f"A call may need at most {self.maximum} elements of {readable(self.name)} in "
                f"{axis} at a time{reason}; remove that directive to allow any size."
            )
        if self.on == "output" and self.maximum:
            return (
                f"Output {readable(self.name)} must be {extent} in {axis}{reason}; remove that "
                "directive to allow any size."
            )
        if self.on == "output":
            must = "must be" if self.certain else "is known to be correct only if it is"
            return f"Output {readable(self.name)} {must} {extent} in {axis}{reason}; {self.cure}."
        return (
            f"If the region of {readable(self.name)} is not {extent} in {axis}{reason}, it may "
            "read inputs outside the region that the unscheduled pipeline reads."
        )

    def _extent(self) -> str:
        if self.maximum:
            return f"exactly {self.maximum}"
        parts = []
        if self.minimum > self.multiple:
            parts.append(f"at least {self.minimum}")
        if self.multiple > 1:
            parts.append(f"a multiple of {self.multiple}")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Need:
    """The extents of a loop at which no split runs beyond it.

    They are at least `minimum` and multiples of `multiple`. `reason` describes the split that
    requires this. If `certain` is false, other extents may be possible, too.
    """

    minimum: int = 1
    multiple: int = 1
    certain: bool = True
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether some extents are excluded."""
        return (self.minimum, self.multiple) != (1, 1)


def requirements(schedule: Schedule, algorithm: Algorithm) -> tuple[Requirement, ...]:
    """Return a schedule's requirements on sizes; none if it is correct at all sizes."""
    found = []
    for conditions, plain in variant_schedules(schedule):
        found += _all_requirements(plain, conditions, algorithm)
    return tuple(dict.fromkeys(found))


def _all_requirements(
    schedule: Schedule, conditions: Conditions, algorithm: Algorithm
) -> list[Requirement]:
    """Return requirements and limits of nests; of Funcs in shared loops, those of the joint."""
    found = [*_requirements(under(schedule, conditions), algorithm), *limits(schedule, algorithm)]
    together, joint = joined(schedule, algorithm)
    if together is schedule:
        return found
    order = with_clones(algorithm, schedule.clones).order
    return [need for need in found if need.on == "output"] + [
        replace(need, func=order.get(need.name, need.func))
        for need in _all_requirements(together, conditions, joint)
        if need.on != "output"
    ]


def limits(schedule: Schedule, algorithm: Algorithm) -> Iterator[Requirement]:
    """Yield requirements from promised bounds, aligned bounds and limited storage."""
    extended = with_clones(algorithm, schedule.clones)
    roots = {entry.func: entry.compute.kind == "root" for entry in schedule.funcs}
    for limit in limited(schedule, extended):
        func = extended.funcs[limit.func]
        output = func.name in extended.outputs
        further = not output and (limit.func, limit.dimension) in reach(extended)
        if further and limit.kind == "aligned":
            place = limit.func, limit.dimension, limit.number
            anywhere = roots.get(limit.func) or may_align_in_loops(extended, *place[:2])
            further = not anywhere or aligned_reads_further(extended, *place)
        if output or limit.kind != "aligned":
            yield _limit(limit, func, "output" if output else "storage")
        if further and limit.kind in ("aligned", "promised"):
            yield replace(_limit(limit, func, "input"), maximum=0)


def _limit(limit: Limit, func: Func, on: Literal["output", "input", "storage"]) -> Requirement:
    exact = limit.kind == "promised"
    aligned = limit.kind == "aligned"
    return Requirement(
        limit.func,
        func.name,
        limit.dimension,
        limit.number if aligned or (exact and on != "storage") else 1,
        limit.number if aligned else 1,
        on,
        readable(func.args[limit.dimension]),
        limit.reason,
        maximum=0 if aligned else limit.number,
    )


def under(schedule: Schedule, conditions: Conditions) -> Schedule:
    """Return the schedule with `conditions` added to the sizes of every nest."""
    if not conditions:
        return schedule
    funcs = []
    for entry in schedule.funcs:
        nests = (replace(nest, sizes=merged(*nest.sizes, *conditions)) for nest in entry.stages)
        funcs.append(replace(entry, stages=tuple(nests)))
    return replace(schedule, funcs=tuple(funcs))


def _requirements(schedule: Schedule, algorithm: Algorithm) -> list[Requirement]:
    algorithm = with_clones(algorithm, schedule.clones)
    result = []
    for func, nests, dimension, need in needs(schedule, algorithm):
        name = algorithm.funcs[func].name
        is_output = name in algorithm.outputs
        if any(nest.sizes for nest in nests) and _ensured(func, nests, dimension, is_output):
            continue
        result.append(
            Requirement(
                func,
                name,
                dimension,
                need.minimum,
                need.multiple,
                "output" if is_output else "input",
                readable(algorithm.funcs[func].args[dimension]),
                need.reason,
                need.certain,
            )
        )
    return result


def needs(
    schedule: Schedule, algorithm: Algorithm
) -> Iterator[tuple[int, list[StageSchedule], int, Need]]:
    """Yield the extents that nests need if their splits are not guarded.

    These are needs of outputs, and of Funcs that would otherwise read inputs or outputs further out
    (see `overreach`). A Func that is not an output needs nothing if it is always computed with a
    sufficient extent. Stages of it that read nothing are ignored. `StageSchedule.sizes` is ignored.

    Args:
        schedule: The schedule.
        algorithm: The algorithm with the schedule's clones.

    Yields:
        The Func's position, its nests, the dimension and the extents.
    """
    beyond: frozenset[tuple[int, int]] | None = None
    least: Mapping[tuple[int, int], float] | None = None
    for entry in schedule.funcs:
        if entry.compute.kind == "inline":
            continue
        func = algorithm.funcs[entry.func]
        is_output = func.name in algorithm.outputs
        nests = [
            nest
            for stage, nest in stage_schedules(algorithm, entry)
            if is_output or reads_anything(stage)
        ]
        for dimension in range(len(func.args)):
            if func.args[dimension] in func.bounds:
                continue
            if masked := _masked(algorithm, entry, dimension):
                yield entry.func, *masked
                continue
            read = _needs(nests, dimension, READS_BEYOND)
            written = _needs(nests, dimension, WRITES_BEYOND)
            if is_output:
                if read and (entry.func, dimension) in (beyond := beyond or reach(algorithm)):
                    written = _needs(nests, dimension, WRITES_BEYOND | READS_BEYOND)
                if written:
                    yield entry.func, nests, dimension, written
            elif read and (entry.func, dimension) in (beyond := beyond or reach(algorithm)):
                if least is None:
                    # Call it once, because its cache hashes the complete schedule.
                    least = least_extents(schedule, algorithm)
                if read.multiple > 1 or read.minimum > least.get((entry.func, dimension), 0.0):
                    yield entry.func, nests, dimension, read


def _masked(
    algorithm: Algorithm, entry: FuncSchedule, dimension: int
) -> tuple[list[StageSchedule], int, Need] | None:
    """Return what is needed so that predicates read no further, in the form of `needs`."""
    nests = [
        nest
        for stage, nest in stage_schedules(algorithm, entry)
        if (entry.func, stage.index, dimension) in predicate_reads(algorithm)
        and not (entry.compute.kind == "root" and reads_no_further(nest, pure_loop(dimension)))
    ]
    need = _needs(nests, dimension, READS_BEYOND | _GUARDED)
    return (nests, dimension, need) if need else None


def reads_anything(stage: Stage) -> bool:
    """Return whether a stage reads Funcs, images or results of C functions."""
    return any(call.kind != "intrinsic" for call in stage.calls)


@functools.lru_cache(maxsize=8)
def reach(algorithm: Algorithm) -> frozenset[tuple[int, int]]:
    """Return `overreaching` of an algorithm, from a cache."""
    return overreaching(algorithm)


def _ensured(func: int, nests: list[StageSchedule], dimension: int, is_output: bool) -> bool:
    """Return whether the conditions in `sizes` of each nest ensure the extents that it needs.

    For a Func that is not an output, any conditions are assumed to ensure them.
    """
    for nest in nests:
        need = _needs([nest], dimension, WRITES_BEYOND | READS_BEYOND)
        if not need or (nest.sizes and not is_output):
            continue
        if not any(
            isinstance(c, OutputExtent)
            and (c.func, c.dimension) == (func, dimension)
            and c.minimum >= need.minimum
            and c.multiple % need.multiple == 0
            for c in nest.sizes
        ):
            return False
    return True


def _needs(nests: list[StageSchedule], dimension: int, tails: frozenset[Tail]) -> Need:
    """Return the extents of one dimension that all nests of a Func need together."""
    found = [_needed(nest, f"v{dimension}", tails) for nest in nests]
    multiple = math.lcm(1, *(need.multiple for need in found))
    largest = max(found, key=lambda need: need.minimum, default=Need())
    minimum = -(-largest.minimum // multiple) * multiple
    reason = largest.reason or next((need.reason for need in found if need), "")
    return Need(minimum, multiple, all(need.certain for need in found), reason)


def _needed(nest: StageSchedule, loop: str, tails: frozenset[Tail]) -> Need:
    """Return the extents of `loop` at which no split with a tail in `tails` runs beyond it."""
    related = {loop}
    beyond: list[Split] = []
    for change in nest.splits:
        if isinstance(change, Split) and change.old in related:
            related |= {change.outer, change.inner}
            if change.tail in tails and change.factor > 1:
                beyond.append(change)
    if not beyond:
        return Need()
    period = _period(nest, loop)
    reason = _reason(max(beyond, key=lambda change: change.factor), nest)
    if all(change.tail in _SHIFTS for change in beyond):
        # If a loop is long enough for its splits, every longer loop is, too.
        low, high = 1, period
        while low < high:
            middle = (low + high) // 2
            if stays_inside(nest, loop, middle, tails):
                high = middle
            else:
                low = middle + 1
        return Need(low, 1, True, reason)
    if period > _LARGEST_PERIOD:
        return Need(period, period, False, reason)
    right = [False] + [stays_inside(nest, loop, n, tails) for n in range(1, 2 * period + 1)]
    for multiple in (d for d in range(1, period + 1) if period % d == 0):
        if all(right[n] for n in range(period + 1, 2 * period + 1) if n % multiple == 0):
            wrong = [n for n in range(1, period + 1) if n % multiple == 0 and not right[n]]
            return Need(max(wrong) + 1 if wrong else 1, multiple, True, reason)
    return Need(period, period, False, reason)


def _period(nest: StageSchedule, loop: str) -> int:
    """Return the period, in iterations of `loop`, with which the ends of its splits repeat.

    Splits of inner loops are ignored, because an inner loop has a constant extent.
    """
    period = 1
    for change in nest.splits:
        if isinstance(change, Split) and change.old == loop:
            period *= change.factor
            loop = change.outer
    return period


def _reason(change: Split, nest: StageSchedule) -> str:
    mapped = {loop.name: loop.mapping for loop in nest.loops}
    what = {"vectorized": "vectors", "unrolled": "unrolled blocks", "gpu_thread": "blocks"}
    return f"{what.get(mapped.get(change.inner, ''), 'tiles')} of {change.factor}"


def stays_inside(
    nest: StageSchedule, loop: str, extent: int, tails: frozenset[Tail], bound: bool = False
) -> bool:
    """Return whether the nest touches no coordinate outside ``[0, extent)`` along `loop`.

    Extents are computed from the first split to the last. The touched coordinates are then computed
    in the reverse order, as intervals whose ends are always touched.

    Args:
        nest: The stage's nest.
        loop: A loop of the definition.
        extent: Its number of iterations.
        tails: The tails whose splits may run beyond the loop; splits with others are guarded.
        bound: Whether Halide knows the extent at compile time.
    """
    extents = {loop: extent}
    # Halide neither guards nor shifts a split whose factor it knows to divide the extent. If an
    # outer loop overruns, such a split does not stop it.
    divisors = {loop: extent if bound else None}
    splits = []
    for change in nest.splits:
        if isinstance(change, Split) and change.old in extents:
            extents[change.outer] = -(-extents[change.old] // change.factor)
            extents[change.inner] = change.factor
            known = divisors[change.old]
            even = known is not None and known % change.factor == 0
            divisors[change.outer] = known // change.factor if known and even else None
            divisors[change.inner] = change.factor
            splits.append((change, even or change.factor == 1))
    reached = {name: (0, count - 1) for name, count in extents.items()}
    for split, even in reversed(splits):
        (outer_low, outer_high), (low, high) = reached[split.outer], reached[split.inner]
        old = extents[split.old]
        shifts = "shift" in split.tail and not even
        latest = old - split.factor if shifts else outer_high * split.factor
        low += min(outer_low * split.factor, latest)
        high += min(outer_high * split.factor, latest)
        if split.tail not in tails and not even:
            # Halide guards only the end of the range.
            high = min(high, old - 1)
        reached[split.old] = low, high
    low, high = reached[loop]
    return low >= 0 and high < extent
