"""Check that Halide finds a constant number of values that a thread keeps in registers."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.halide.analysis.inlining import TooLarge
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.analysis.thread_divisors import (
    clamped_differently,
    divided_differently,
    scattered_by_parameters,
)
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.loops import pure_loop
from tilewright.halide.ir.schedule import Level, Schedule
from tilewright.halide.legality.violations import Violation


def register_problems(
    schedule: Schedule, algorithm: Algorithm, analysis: Analysis
) -> Iterator[Violation]:
    """Yield Funcs in registers for which Halide finds no constant number of values per thread.

    Args:
        schedule: The schedule.
        algorithm: The algorithm with the schedule's clones.
        analysis: The same algorithm as the schedule inlines it.
    """
    levels: dict[Level, set[str]] = {}
    for entry in schedule.funcs:
        if entry.memory == "register" and entry.compute.kind == "at":
            levels.setdefault(entry.compute, set()).add(algorithm.funcs[entry.func].name)
    for level, members in levels.items():
        try:
            found = divided_differently(analysis, algorithm.funcs[level.func].name, members)
        except TooLarge:
            continue
        for name, divisors in found.items():
            reason = (
                f"a thread reads it at coordinates divided by {' and '.join(map(str, divisors))}, "
                "and Halide then finds no constant number of values; compute it per block instead"
            )
            yield Violation("registers", name, None, reason)
    for members in levels.values():
        for name in sorted(members):
            if scattered_by_parameters(analysis.view, name):
                reason = (
                    "an update writes at coordinates whose range depends on a parameter, and "
                    "Halide then finds no constant number of values; compute it per block instead"
                )
                yield Violation("registers", name, None, reason)
            yield from _unbounded_unrolling(schedule, algorithm, analysis, name)


def _unbounded_unrolling(
    schedule: Schedule, algorithm: Algorithm, analysis: Analysis, name: str
) -> Iterator[Violation]:
    (entry,) = (e for e in schedule.funcs if algorithm.funcs[e.func].name == name)
    unrolled = {
        loop.name for nest in entry.stages for loop in nest.loops if loop.mapping == "unrolled"
    }
    try:
        dimensions = clamped_differently(analysis, name)
    except TooLarge:
        return
    if any(pure_loop(d) in unrolled for d in dimensions):
        reason = (
            "a thread reads it at several clamped coordinates, and Halide then finds no constant "
            "number of values to unroll; keep its loops serial or compute it per block instead"
        )
        yield Violation("registers", name, None, reason)
