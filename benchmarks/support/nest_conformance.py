"""What `ScheduledNest` says of a schedule against what Halide's lowering makes of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lowered_nest
import numpy as np
from lowered_nest import BOUNDS, STORAGE

FRACTIONS = (0.0, 0.5, 1.0)


@dataclass
class Comparison:
    """How many loops and allocations were compared, and where the two differ.

    `categories` counts what is not compared, by reason.
    """

    loops: int = 0
    allocations: int = 0
    extent_mismatches: list[str] = field(default_factory=list)
    allocation_mismatches: list[str] = field(default_factory=list)
    categories: dict[str, int] = field(default_factory=dict)
    error: str = ""


def lower_applied(algorithm: Any, schedule: Any) -> None:
    """Apply a schedule to a fresh pipeline and lower it."""
    import halide as hl

    from tilewright.halide.emit.apply import apply, fresh_pipeline, halide_target

    pipeline = fresh_pipeline(algorithm, user_params(algorithm))
    apply(schedule, algorithm, pipeline, same_bytes=True)
    target = halide_target(schedule.target).with_feature(hl.TargetFeature.NoRuntime)
    form = hl.StmtOutputFormat.Text
    pipeline.compile_to_lowered_stmt("/dev/null", pipeline.infer_arguments(), form, target)


def user_params(algorithm: Any) -> dict[str, Any]:
    """Nothing: the pipeline's own parameters do."""
    return {}


def compare(
    algorithm: Any, schedule: Any, seconds: float = 60.0, text: dict[str, str] | None = None
) -> Comparison:
    """Lower `schedule` and compare loops and allocations at three iterations of each loop."""
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest, nest_analysis

    result = Comparison()
    found = text or lowered_nest.passes(
        lambda: lower_applied(algorithm, schedule), (BOUNDS, STORAGE), seconds
    )
    if "error" in found:
        result.error = found["error"]
        return result
    analysis = nest_analysis(algorithm, schedule)
    nest = ScheduledNest(analysis, schedule, at=np.array(FRACTIONS))
    symbols = {k: int(v) if isinstance(v, bool | int) else v for k, v in analysis.view.algorithm.symbols.items()}
    ours = _loops(nest, schedule, analysis.view.algorithm)
    for row, fraction in enumerate(FRACTIONS):
        loops, _, failed = lowered_nest.run(found[BOUNDS], symbols, fraction)
        _count(result, "unreadable", len(failed))
        result.extent_mismatches += [f"unreadable: {why}" for why in failed[:3]]
        theirs: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
        for loop in loops:
            path = tuple(_plain(name) for name in (*loop.path, loop.name))
            theirs[path].append(loop)
        for path, all_of in theirs.items():
            if path not in ours:
                if not path[-1].endswith(("one_block", "one_thread")):
                    result.extent_mismatches.append(f"not foretold: {path}")
                continue
            for loop, own in zip(all_of, ours[path], strict=False):
                result.loops += 1
                got = _at(own.lo, row), _at(own.extent, row)
                if got != (loop.lo, loop.extent):
                    result.extent_mismatches.append(
                        f"{path[-1]} at {fraction}: {got} foretold, {(loop.lo, loop.extent)} made"
                    )
        _, made, failed = lowered_nest.run(found[STORAGE], symbols, fraction)
        result.allocation_mismatches += [f"unreadable: {why}" for why in failed[:3]]
        _compare_allocations(result, nest, made, row, fraction)
    return result


def _compare_allocations(
    result: Comparison, nest: Any, made: Sequence[Any], row: int, fraction: float
) -> None:
    theirs: defaultdict[str, list[Any]] = defaultdict(list)
    for item in made:
        theirs[item.name].append(item)
    foretold: defaultdict[int, list[Any]] = defaultdict(list)
    for item in nest.allocations:
        foretold[item.func].append(item)
    for func, items in foretold.items():
        name = nest.structure.names[func]
        tuple_ = len(nest.analysis.view.algorithm.funcs[func].types) > 1
        for item, real in zip(items, theirs.get(f"{name}.0" if tuple_ else name, []), strict=False):
            if item.slides:
                _count(result, "sliding", 1)
                continue
            result.allocations += 1
            entry = nest.structure.entries[func]
            order = entry.storage_order or range(len(item.extents))
            sizes = {d: _at(extent, row) for d, extent in zip(order, item.extents, strict=True)}
            got = tuple(sizes[d] for d in range(len(sizes)))
            if got != tuple(real.extents):
                result.allocation_mismatches.append(
                    f"{name} at {fraction}: {got} foretold, {real.extents} made"
                )


def _loops(nest: Any, schedule: Any, algorithm: Any) -> dict[tuple[str, ...], list[Any]]:
    from tilewright.halide.ir.names import loop_names

    names = loop_names(schedule, algorithm)

    def spelled(key: tuple[int, int], loop: str) -> str:
        return f"{algorithm.funcs[key[0]].name}.s{key[1]}.{names(*key, loop)}"

    found: defaultdict[tuple[str, ...], list[Any]] = defaultdict(list)
    for loop in nest.loops:
        path = tuple(spelled(*outer) for outer in loop.path)
        found[*path, spelled(loop.stage, loop.name)].append(loop)
    return found


def _plain(name: str) -> str:
    """A loop's name without those of the loops that it was split from."""
    match = re.match(r"(.*?\.s\d+)\.(.*)$", name)
    return name if match is None else f"{match[1]}.{match[2].rpartition('.')[2]}"


def _at(value: Any, row: int) -> int:
    array = np.asarray(value, dtype=np.float64)
    number = float(array if array.ndim == 0 else array[row])
    return int(number) if np.isfinite(number) else -(2**62)


def _count(result: Comparison, reason: str, number: int) -> None:
    if number:
        result.categories[reason] = result.categories.get(reason, 0) + number


def support_path() -> Path:
    """Where this file is."""
    return Path(__file__).resolve().parent
