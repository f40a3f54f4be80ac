"""Choose the names of loops in Halide.

Loops of a stage's definition keep their names. Loops that a schedule introduces are named after the
loop that they come from: ``x`` is split into ``x_o`` and ``x_i``. These names have an underscore
and no ``$``, so they cannot equal a name that Halide generates (``v7``, ``r4$x``). A number is
added if the pipeline already uses a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Fuse, Schedule, Split

# Loops with one iteration each, around a nest that a GPU runs as a single thread.
BLOCK, THREAD = "_block", "_thread"


@dataclass(frozen=True, slots=True)
class FuncNames:
    """The names of a Func, of its arguments, and of the reduction variables of each stage."""

    func: str
    args: tuple[str, ...]
    rvars: tuple[tuple[str, ...], ...]


def algorithm_names(algorithm: Algorithm) -> tuple[FuncNames, ...]:
    """Return the names in the serialised pipeline, per Func in realisation order."""
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

    `introduced` maps a Func and a canonical name to the name of a loop that the schedule makes. It
    does not depend on the stage: producers' levels refer to loops by name, so loops with one
    canonical name in two stages of a Func get one name.
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
    """Name every loop of a scheduled pipeline.

    Args:
        schedule: The schedule.
        algorithm: The algorithm with the schedule's clones.
        funcs: The names in another build of the same pipeline, with the clones, if the schedule is
            applied to that build; None for the names in `algorithm`.
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
    """Give both of two loops that ``compute_with`` shares the same name, as Halide requires."""
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
    """Return each loop that a split or fusion introduces, with a name derived from its origin."""
    if isinstance(change, Split):
        old = readable(names(func, stage, change.old))
        return [(change.outer, _derive(old, "o")), (change.inner, _derive(old, "i"))]
    inner, outer = (readable(names(func, stage, loop)) for loop in (change.inner, change.outer))
    return [(change.fused, f"{inner}_{outer}")]


def readable(name: str) -> str:
    """Return a name without Halide's suffixes: ``rx`` for ``r13$x``, ``blur`` for ``blur$2``."""
    automatic = re.fullmatch(r"([a-z])\d+\$([a-z])", name)
    if automatic:
        return automatic[1] + automatic[2]
    name = re.sub(r"\$\d+$|\W+$", "", name, flags=re.ASCII)
    name = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return name if name[:1].isalpha() else f"d{name}"


def titled(name: str) -> str:
    """Return a Func's `readable` name, with the readers if it is a copy: ``blur (for out)``."""
    head, copy, readers = name.partition(" (for ")
    return f"{readable(head)}{copy}{readers}"


def distinct(wish: str, taken: set[str]) -> str:
    """Return `wish`, with a number added if it is taken."""
    name, number = wish, 2
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    return name


def _derive(base: str, role: str) -> str:
    """Return a name with a role added: ``o`` makes ``x`` ``x_o``, and ``x_i`` ``x_io``."""
    return f"{base}{role}" if re.search(r"_[oi]+$", base) else f"{base}_{role}"
