"""Loops around the blocks of a stage: those of a transposition, and those over tiles."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.halide.ir.algorithm import Func
from tilewright.halide.ir.loops import part_of, runs_over
from tilewright.halide.ir.schedule import Fuse, ScheduledLoop, Split, Tail
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.register_block import value_bytes


def transposing(
    costs: CpuCosts,
    func: Func,
    adjacent: int,
    size: int,
    loops: list[ScheduledLoop],
    splits: list[Split | Fuse],
    tail: Tail,
) -> list[ScheduledLoop]:
    """Return the loops within a tile, with the one over dimension `adjacent` around the vectors.

    A long loop is split, so that the cache lines that one part touches stay in cache.
    """
    name = next(loop.name for loop in loops if runs_over(loop.name, adjacent))
    rest = [loop for loop in loops if loop.name != name]
    part = int(costs.companion_bytes) // value_bytes(func.types)
    if size <= part:
        return [ScheduledLoop(name), *rest]
    place = [loop.name for loop in loops].index(name)
    splits.append(Split(name, part_of(name, "o"), part_of(name, "c"), part, tail))
    rest.insert(place, ScheduledLoop(part_of(name, "o")))
    return [ScheduledLoop(part_of(name, "c")), *rest]


def parallelised(
    outer: list[str],
    counts: Mapping[str, int],
    splits: list[Split | Fuse],
    cores: int,
    suffix: str,
) -> tuple[list[str], str | None]:
    """Fuse outer tile loops until there are enough tasks; return the loops and the parallel one."""
    if not outer:
        return outer, None
    loops = list(outer)
    tasks = counts[loops[-1]]
    n = 0
    while tasks < SEARCH.tasks_per_core * cores and len(loops) > 1:
        fused = f"p{n}{suffix}"
        splits.append(Fuse(loops[-2], loops[-1], fused))
        tasks *= counts[loops[-2]]
        loops[-2:] = [fused]
        counts = {**counts, fused: tasks}
        n += 1
    return loops, loops[-1] if tasks > 1 else None
