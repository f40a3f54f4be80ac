"""The sizes at which a schedule is correct, and its requirements on the caller's buffers.

Splits with ``guard_with_if`` and ``predicate`` are correct at every size. The other tails let a
split run past the end of its loop, or start before its beginning. On an output this requires a
minimum extent, or an extent that is a multiple. Elsewhere inputs, or outputs that other Funcs read,
may be read further out than by the unscheduled pipeline (see Halide's ``TailStrategy``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.schedule import OutputExtent, Schedule, Split, StageSchedule, Tail
from tilewright.halide.ir.variants import Conditions, merged, variant_schedules
from tilewright.halide.legality.least_extents import least_extents
from tilewright.halide.legality.limits import Limit, limited
from tilewright.halide.legality.overreach import aligned_reads_further, overreaching

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
_SHIFTS: frozenset[Tail] = frozenset({"shift_inwards", "shift_inwards_and_blend"})
# Maximum number of extents tried one by one (two periods of the splits) for a rounded-up loop.
_LARGEST_PERIOD = 1 << 14


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on one dimension of a Func's region for the schedule to be correct.

    `on` is ``"output"`` where an output of another extent is refused when the pipeline runs:
    its extent must be at least `minimum` and a multiple of `multiple`. It is ``"input"``
    where a region of another extent makes the Func read its inputs (or an output that it is
    made of) further out than the unscheduled pipeline does; inputs sized by
    ``Pipeline.infer_input_bounds`` of the scheduled pipeline are always large enough.

    It is ``"storage"`` if the schedule limits the part of the Func that is stored or computed at a
    time: a call that needs more than `maximum` is refused when the pipeline runs. An output with a
    `maximum` must not be larger; 0 sets no limit.

    `axis` is the dimension's name and `reason` the cause. If not `certain`, other extents may be
    correct, too. `cure` says how an output may be of any size.
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
        """Return the requirement as a sentence, with its reason and its cure."""
        extent = self._extent()
        axis = self.axis or f"dimension {self.dimension}"
        reason = f" ({self.reason})" if self.reason else ""
        if self.on == "storage":
            return (
                f"A call may want at most {self.maximum} of {readable(self.name)} in {axis} at a "
                f"time{reason}; leave that out of the schedule, and it may be of any size."
            )
        if self.on == "output" and self.maximum:
            return (
                f"Output {readable(self.name)} must be {extent} in {axis}{reason}; leave that out "
                "of the schedule, and it may be of any size."
            )
        if self.on == "output":
            must = "must be" if self.certain else "is sure to be right only where it is"
            return f"Output {readable(self.name)} {must} {extent} in {axis}{reason}; {self.cure}."
        return (
            f"Where the region of {readable(self.name)} is not {extent} in {axis}{reason}, "
            "it may read its inputs further out than the unscheduled pipeline does."
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
    """The extents of a loop at which no split runs beyond it, and the split that asks for it."""

    minimum: int = 1
    multiple: int = 1
    certain: bool = True
    reason: str = ""

    def __bool__(self) -> bool:
        """Return whether anything is needed at all."""
        return (self.minimum, self.multiple) != (1, 1)


def requirements(schedule: Schedule, algorithm: Algorithm) -> tuple[Requirement, ...]:
    """Return the schedule's requirements on sizes; none if it is correct at all sizes."""
    found = []
    for conditions, plain in variant_schedules(schedule):
        found += _requirements(under(plain, conditions), algorithm)
        found += limits(plain, algorithm)
    return tuple(dict.fromkeys(found))


def limits(schedule: Schedule, algorithm: Algorithm) -> Iterator[Requirement]:
    """Yield requirements from promised bounds, aligned bounds and limited storage."""
    extended = with_clones(algorithm, schedule.clones)
    roots = {entry.func: entry.compute.kind == "root" for entry in schedule.funcs}
    for limit in limited(schedule, extended):
        func = extended.funcs[limit.func]
        output = func.name in extended.outputs
        further = not output and (limit.func, limit.dimension) in reach(extended)
        if further and limit.kind == "aligned" and roots.get(limit.func):
            place = limit.func, limit.dimension, limit.number
            further = aligned_reads_further(extended, *place)
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
    """Return the schedule with nests that are for calls alone in which the conditions hold."""
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
    """Yield the needs of unguarded nests: the Func, its nests, the dimension and the extents.

    Outputs, and Funcs that would otherwise read inputs or outputs further out, of an algorithm that
    has the schedule's clones. `StageSchedule.sizes` is ignored. An inner Func needs nothing if it
    always computes enough, nor for stages that read nothing.
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
            read = _needs(nests, dimension, READS_BEYOND)
            written = _needs(nests, dimension, WRITES_BEYOND)
            if not read and not written:
                continue
            if is_output:
                if read and (entry.func, dimension) in (beyond := beyond or reach(algorithm)):
                    written = _needs(nests, dimension, WRITES_BEYOND | READS_BEYOND)
                if written:
                    yield entry.func, nests, dimension, written
            elif read and (entry.func, dimension) in (beyond := beyond or reach(algorithm)):
                if least is None:
                    # Looked up once, because the look-up hashes the complete schedule.
                    least = least_extents(schedule, algorithm)
                if read.multiple > 1 or read.minimum > least.get((entry.func, dimension), 0.0):
                    yield entry.func, nests, dimension, read


def reads_anything(stage: Stage) -> bool:
    """Return whether a stage reads Funcs, images or results of C functions."""
    return any(call.kind != "intrinsic" for call in stage.calls)


@functools.lru_cache(maxsize=8)
def reach(algorithm: Algorithm) -> frozenset[tuple[int, int]]:
    """Return `overreaching`, remembered for the algorithms asked for last."""
    return overreaching(algorithm)


def _ensured(func: int, nests: list[StageSchedule], dimension: int, is_output: bool) -> bool:
    """Return whether unguarded nests only run at extents that fit them.

    For a Func that is not an output, `sizes` is trusted.
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
    """Return the requirement of one dimension over all stages."""
    found = [_needed(nest, f"v{dimension}", tails) for nest in nests]
    multiple = math.lcm(1, *(need.multiple for need in found))
    largest = max(found, key=lambda need: need.minimum, default=Need())
    minimum = -(-largest.minimum // multiple) * multiple
    reason = largest.reason or next((need.reason for need in found if need), "")
    return Need(minimum, multiple, all(need.certain for need in found), reason)


def _needed(nest: StageSchedule, loop: str, tails: frozenset[Tail]) -> Need:
    """Return the least extent of `loop`, and its divisor, that splits in `tails` never exceed."""
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
        # A loop that is long enough for its splits stays so when it is longer.
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
    """Return the extent of `loop` after which the places where its splits end repeat.

    Splits of inner loops do not count: an inner loop has the same extent at every extent of `loop`.
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
    """Return whether the nest touches no coordinate outside of ``[0, extent)`` along `loop`.

    Extents follow from the outermost split to the innermost; the coordinates reached then follow
    backwards as intervals, whose ends are always reached. `bound` says that Halide knows the extent
    at compile time.
    """
    extents = {loop: extent}
    # Halide neither guards nor shifts a split that it knows to be even, so where an outer loop
    # overruns, such a split does not stop it.
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
            # Halide guards the end alone.
            high = min(high, old - 1)
        reached[split.old] = low, high
    low, high = reached[loop]
    return low >= 0 and high < extent
