"""At which sizes a schedule is right, and what it asks of the caller's buffers.

Splits with ``guard_with_if`` and ``predicate`` are right at every size. The other tails let a
split run past the end of its loop, or start before its beginning. On an output that needs a
minimum extent, or an extent that is a multiple; elsewhere it may read inputs, or outputs that
others are made of, further out than the unscheduled pipeline does (Halide's ``TailStrategy``
documents which tail does what).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.nest import stage_schedules
from tilewright.halide.ir.schedule import Schedule, Split, StageSchedule, Tail

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
_LARGEST_PERIOD = 1 << 14


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one dimension of one Func's region must be for the schedule to be right.

    `on` is ``"output"`` where an output of another extent is refused when the pipeline runs:
    its extent must be at least `minimum` and a multiple of `multiple`. It is ``"input"``
    where a region of another extent makes the Func read its inputs (or an output that it is
    made of) further out than the unscheduled pipeline does; inputs sized by
    ``Pipeline.infer_input_bounds`` of the scheduled pipeline are always large enough.
    """

    func: int
    name: str
    dimension: int
    minimum: int
    multiple: int
    on: Literal["output", "input"]

    def __str__(self) -> str:
        """The requirement as a sentence."""
        parts = []
        if self.minimum > self.multiple:
            parts.append(f"at least {self.minimum}")
        if self.multiple > 1:
            parts.append(f"a multiple of {self.multiple}")
        extent = " and ".join(parts)
        if self.on == "output":
            return (
                f"Output {self.name} must have an extent of {extent} in dimension {self.dimension}."
            )
        return (
            f"Where the region of {self.name} is not {extent} in dimension {self.dimension}, "
            "it may read its inputs further out than the unscheduled pipeline does."
        )


def requirements(schedule: Schedule, algorithm: Algorithm) -> tuple[Requirement, ...]:
    """Every size at which the schedule is not right by itself; none means right at all sizes."""
    algorithm = with_clones(algorithm, schedule.clones)
    result = []
    reading_outputs = _reach_outputs(algorithm)
    reading = _reach_inputs(algorithm) | reading_outputs
    for entry in schedule.funcs:
        if entry.compute.kind == "inline":
            continue
        func = algorithm.funcs[entry.func]
        nests = [nest for _, nest in stage_schedules(algorithm, entry)]
        for dimension in range(len(func.args)):
            if func.args[dimension] in func.bounds:
                continue
            written = _needs(nests, dimension, WRITES_BEYOND)
            read = _needs(nests, dimension, READS_BEYOND)
            is_output = func.name in algorithm.outputs
            if entry.func in reading_outputs:
                written = _needs(nests, dimension, WRITES_BEYOND | READS_BEYOND)
            if is_output and written != (1, 1):
                result.append(Requirement(entry.func, func.name, dimension, *written, "output"))
            elif entry.func in reading and read != (1, 1):
                result.append(Requirement(entry.func, func.name, dimension, *read, "input"))
    return tuple(result)


def _needs(nests: list[StageSchedule], dimension: int, tails: frozenset[Tail]) -> tuple[int, int]:
    """What one dimension needs in all stages: least extent and divisor."""
    needed = [_needed(nest, f"v{dimension}", tails) for nest in nests]
    multiple = math.lcm(1, *(divisor for _, divisor in needed))
    minimum = max([1, *(least for least, _ in needed)])
    return -(-minimum // multiple) * multiple, multiple


def _reach_inputs(algorithm: Algorithm) -> frozenset[int]:
    """The Funcs that read an input buffer, directly or through others."""
    result: set[int] = set()
    for i, func in enumerate(algorithm.funcs):
        calls = [call for stage in func.stages for call in stage.calls]
        reads_image = any(call.kind == "image" for call in calls) or func.extern is not None
        if reads_image or any(algorithm.order[p] in result for p in algorithm.producers[func.name]):
            result.add(i)
    return frozenset(result)


def _reach_outputs(algorithm: Algorithm) -> frozenset[int]:
    """The Funcs that read an output, directly or through others."""
    result: set[int] = set()
    for i, func in enumerate(algorithm.funcs):
        read = algorithm.producers[func.name]
        if any(p in algorithm.outputs or algorithm.order[p] in result for p in read):
            result.add(i)
    return frozenset(result)


def _needed(nest: StageSchedule, loop: str, tails: frozenset[Tail]) -> tuple[int, int]:
    """Least extent and divisor of the extents of `loop` that no split in `tails` runs beyond."""
    period = 1
    related = {loop}
    beyond = False
    for change in nest.splits:
        if isinstance(change, Split) and change.old in related:
            related |= {change.outer, change.inner}
            period *= change.factor
            beyond |= change.tail in tails
    if not beyond:
        return 1, 1
    if period > _LARGEST_PERIOD:
        return period, period
    right = [False] + [stays_inside(nest, loop, n, tails) for n in range(1, 2 * period + 1)]
    for multiple in (d for d in range(1, period + 1) if period % d == 0):
        if all(right[n] for n in range(period + 1, 2 * period + 1) if n % multiple == 0):
            wrong = [n for n in range(1, period + 1) if n % multiple == 0 and not right[n]]
            return (max(wrong) + 1 if wrong else 1), multiple
    return period, period


def stays_inside(
    nest: StageSchedule, loop: str, extent: int, tails: frozenset[Tail], bound: bool = False
) -> bool:
    """Whether the nest touches no coordinate outside of ``[0, extent)`` along `loop`.

    Extents follow from the outermost split to the innermost; the coordinates that are reached
    then follow backwards as intervals, whose ends are always reached. `bound` says that Halide
    knows the extent when it compiles.
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
