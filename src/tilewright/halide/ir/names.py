"""The names that loops get in Halide.

Loops that a stage was defined with keep their names. Loops that a schedule introduces are
named after the loop they come from (``x`` is split into ``x_o`` and ``x_i``). Such a name
has an underscore and no ``$``, unlike any that Halide makes up (``v7``, ``r4$x``), and it is
made different from every name in the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Fuse, Schedule, Split

# The loops of one iteration around a nest that a GPU runs as a single thread.
BLOCK, THREAD = "_block", "_thread"


@dataclass(frozen=True, slots=True)
class FuncNames:
    """The names of a Func, of its arguments, and of the reduction variables of each stage."""

    func: str
    args: tuple[str, ...]
    rvars: tuple[tuple[str, ...], ...]


def algorithm_names(algorithm: Algorithm) -> tuple[FuncNames, ...]:
    """Return the names the pipeline was serialised with, in realisation order."""
    return tuple(
        FuncNames(
            func.name,
            func.args,
            tuple(tuple(rvar.name for rvar in stage.rvars) for stage in func.stages),
        )
        for func in algorithm.funcs
    )


@dataclass(frozen=True, slots=True)
class LoopNames:
    """Halide's names of all loops of a scheduled pipeline.

    `introduced` has the names of loops that the schedule makes, by Func and canonical name: loops
    of one canonical name in two stages of a Func share a name, because levels of producers refer to
    loops by name.
    """

    funcs: tuple[FuncNames, ...]
    introduced: dict[tuple[int, str], str]

    def __call__(self, func: int, stage: int, loop: str) -> str:
        """Return the name of a loop in Halide."""
        name = self.introduced.get((func, loop))
        if name is not None:
            return name
        names = self.funcs[func]
        index = int(loop[1:])
        return names.args[index] if loop[0] == "v" else names.rvars[stage][index]


def loop_names(
    schedule: Schedule, algorithm: Algorithm, funcs: Sequence[FuncNames] | None = None
) -> LoopNames:
    """Name every loop; `funcs` are the names in the present pipeline, if it is another build.

    `algorithm` and `funcs` have the clones of the schedule.
    """
    own = algorithm_names(algorithm)
    funcs = own if funcs is None else tuple(funcs)
    taken = {parameter.name for parameter in algorithm.parameters}
    for names in (*own, *funcs):
        taken.update((names.func, *names.args, *(name for stage in names.rvars for name in stage)))
    introduced: dict[tuple[int, str], str] = {}
    for e, entry in enumerate(schedule.funcs):
        used = set(taken)

        def introduce(loop: str, wish: str, func: int = entry.func, used: set[str] = used) -> None:
            if (func, loop) not in introduced:
                introduced[func, loop] = distinct(wish, used)
                used.add(introduced[func, loop])

        everywhere = [entry.stages, *(variant.nests[e] for variant in schedule.variants)]
        if any(nest.single_thread for nests in everywhere for nest in nests):
            introduce(BLOCK, "one_block")
            introduce(THREAD, "one_thread")
        for stage, nest in ((s, nest) for nests in everywhere for s, nest in enumerate(nests)):
            for change in nest.splits:
                for loop, wish in _wishes(change, entry.func, stage, LoopNames(own, introduced)):
                    introduce(loop, wish)
    _share_names(schedule, introduced)
    return LoopNames(funcs, introduced)


def _share_names(schedule: Schedule, introduced: dict[tuple[int, str], str]) -> None:
    """Give loops that two stages share one name: Halide shares no others."""
    entries = {entry.func: entry for entry in schedule.funcs}
    for entry in schedule.funcs:
        for nest in entry.stages:
            shared = nest.compute_with
            other = entries.get(shared.func) if shared is not None else None
            if shared is None or other is None or shared.stage >= len(other.stages):
                continue
            for loop, theirs in zip(
                reversed(nest.loops), reversed(other.stages[shared.stage].loops), strict=False
            ):
                name = introduced.get((shared.func, theirs.name))
                if name is not None and (entry.func, loop.name) in introduced:
                    introduced[entry.func, loop.name] = name
                if theirs.name == shared.loop:
                    break


def _wishes(change: Split | Fuse, func: int, stage: int, names: LoopNames) -> list[tuple[str, str]]:
    """Return the loops that a split or fusion introduces, named after their origin."""
    if isinstance(change, Split):
        old = readable(names(func, stage, change.old))
        return [(change.outer, _derive(old, "o")), (change.inner, _derive(old, "i"))]
    inner, outer = (readable(names(func, stage, loop)) for loop in (change.inner, change.outer))
    return [(change.fused, f"{inner}_{outer}")]


def readable(name: str) -> str:
    """Return a name without what Halide adds to it: ``r13$x`` gives ``rx``, ``blur$2`` ``blur``."""
    automatic = re.fullmatch(r"([a-z])\d+\$([a-z])", name)
    if automatic:
        return automatic[1] + automatic[2]
    name = re.sub(r"\$\d+$|\W+$", "", name, flags=re.ASCII)
    name = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return name if name[:1].isalpha() else f"d{name}"


def titled(name: str) -> str:
    """Return a Func's `readable` name; that of a copy names its readers: ``blur (for out)``."""
    head, copy, readers = name.partition(" (for ")
    return f"{readable(head)}{copy}{readers}"


def distinct(wish: str, taken: set[str]) -> str:
    """Return `wish`, with a number added where it is taken."""
    name, number = wish, 2
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    return name


def _derive(base: str, role: str) -> str:
    """Return ``x`` gives ``x_o``, ``x_i`` gives ``x_io``."""
    return f"{base}{role}" if re.search(r"_[oi]+$", base) else f"{base}_{role}"
