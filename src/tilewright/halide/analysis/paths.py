"""Find the loops around each stage of a scheduled pipeline, including those of other Funcs."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Algorithm, Func, Stage
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.nest import default_stage, scheduled_loops, stage_schedules
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    Level,
    Mapping,
    Schedule,
    ScheduleError,
    Split,
)

# Maximum number of paths to a Func. A producer at a loop that two stages of its consumer have runs
# in both, so the number of paths grows exponentially along a chain of such Funcs.
_MOST_PLACES = 256


@dataclass(frozen=True, slots=True)
class Node:
    """One loop around a stage: its Func, name, mapping and extent (None if not constant).

    `guarded` is whether a condition may skip some of its iterations. `stages` are the stages of the
    Func in which the name means the same loop, None for all of them: reduction variables of
    different domains have one canonical name, but several names in Halide.
    """

    func: int
    loop: str
    mapping: Mapping
    extent: int | None
    guarded: bool = False
    stages: tuple[int, ...] | None = None


Path = tuple[Node, ...]


@dataclass(frozen=True)
class Paths:
    """The loops around every Func and stage, as paths with the outermost loop first.

    Attributes:
        prefixes: The loops around a Func as a whole; one path per consumer stage it runs in.
        stages: The loops around each stage, including its own; one path per prefix.
        uses: The stages that read a Func, directly or through inlined Funcs.
        misplaced: For every Func whose compute level does not enclose its uses, a reason.
    """

    prefixes: dict[int, tuple[Path, ...]]
    stages: dict[tuple[int, int], tuple[Path, ...]]
    uses: dict[int, tuple[tuple[int, int], ...]]
    misplaced: dict[int, str]


def position(path: Path, level: Level) -> int | None:
    """Return the number of loops of `path` up to and including `level`; None if it is missing."""
    if level.kind == "root":
        return 0
    for i, node in enumerate(path):
        if (node.func, node.loop) == (level.func, level.loop):
            shared = node.stages is None or level.stage in node.stages
            return i + 1 if shared else None
    return None


def inlined(schedule: Schedule, algorithm: Algorithm) -> frozenset[int]:
    """Return the positions of the Funcs that a schedule inlines."""
    algorithm = with_clones(algorithm, schedule.clones)
    entries = {entry.func: entry for entry in schedule.funcs}
    return frozenset(
        i
        for i, func in enumerate(algorithm.funcs)
        if (entries[i].compute.kind == "inline" if i in entries else _inline_by_default(func))
        and func.name not in algorithm.outputs
    )


def _inline_by_default(func: Func) -> bool:
    return func.pure and not func.fixed and not func.scheduled


def find_paths(schedule: Schedule, algorithm: Algorithm) -> Paths:
    """Return the loops around every stage, found by following compute levels from the outputs."""
    algorithm = with_clones(algorithm, schedule.clones)
    entries = {entry.func: entry for entry in schedule.funcs}
    uses = _uses(algorithm, inlined(schedule, algorithm))
    result = Paths({}, {}, uses, {})
    for func in sorted(uses, reverse=True):
        entry = entries.get(func)
        level = entry.compute if entry else Level("root")
        result.prefixes[func] = _prefixes(func, level, algorithm, result)
        for stage, nodes in enumerate(_own_loops(func, entry, algorithm)):
            result.stages[func, stage] = tuple(path + nodes for path in result.prefixes[func])
    return result


def _uses(algorithm: Algorithm, inline: frozenset[int]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the readers of each Func that is not inlined: stages of other such Funcs."""
    reads: dict[tuple[int, int], set[int]] = {}
    through: dict[int, set[int]] = {}
    for i, func in enumerate(algorithm.funcs):
        for stage in func.stages:
            called = {algorithm.order[c.name] for c in stage.calls if c.kind == "func"} - {i}
            reads[i, stage.index] = _expand(called, through)
        if func.extern is not None:
            names = [name for name in func.extern.reads if name in algorithm.order]
            reads[i, 0] = _expand({algorithm.order[name] for name in names}, through)
        if i in inline:
            through[i] = reads.pop((i, 0))
    uses: dict[int, list[tuple[int, int]]] = {
        i: [] for i in range(len(algorithm.funcs)) if i not in inline
    }
    for use, read in reads.items():
        for producer in read:
            uses[producer].append(use)
    return {func: tuple(found) for func, found in uses.items()}


def _expand(called: set[int], through: dict[int, set[int]]) -> set[int]:
    result: set[int] = set()
    for func in called:
        result |= through.get(func, {func})
    return result


def _prefixes(func: int, level: Level, algorithm: Algorithm, paths: Paths) -> tuple[Path, ...]:
    if level.kind != "at":
        return ((),)
    found: dict[Path, None] = {}
    for use in paths.uses[func]:
        for path in paths.stages.get(use, paths.prefixes.get(use[0], ())):
            at = position(path, level)
            if at is None:
                consumer = algorithm.funcs[use[0]].name
                where = _describe(level, algorithm)
                paths.misplaced[func] = (
                    f"it is computed at {where}, which does not enclose stage {use[1]} of "
                    f"{consumer}, where it is read"
                )
            else:
                found[path[:at]] = None
    if len(found) > _MOST_PLACES:
        raise ScheduleError(
            f"{algorithm.funcs[func].name} is computed in too many places (more than "
            f"{_MOST_PLACES}); compute Funcs of this chain at root"
        )
    return tuple(found) or ((),)


def _describe(level: Level, algorithm: Algorithm) -> str:
    known = 0 <= level.func < len(algorithm.funcs)
    consumer = algorithm.funcs[level.func].name if known else f"Func {level.func}"
    return f"loop {level.loop!r} of {consumer}"


def _own_loops(func: int, entry: FuncSchedule | None, algorithm: Algorithm) -> tuple[Path, ...]:
    definition = algorithm.funcs[func]
    if entry is not None:
        nests = stage_schedules(algorithm, entry)
    elif definition.scheduled:
        # The user's schedule has loops that are unknown here, so nothing can be computed at them.
        return ((),) * len(definition.stages)
    else:
        nests = tuple((stage, default_stage(definition, stage)) for stage in definition.stages)
    result = []
    for stage, nest in nests:
        loops = scheduled_loops(definition, stage, nest)
        # A predicate makes every load or store of the stage conditional, whichever loop it splits.
        masked = bool(stage.predicates) or any(
            isinstance(change, Split) and change.tail.startswith("predicate")
            for change in nest.splits
        )
        nodes = [
            Node(
                func,
                loop.name,
                mapped.mapping,
                loop.extent,
                loop.guarded or masked,
                _sharing(definition, stage, loop.name),
            )
            for loop, mapped in zip(loops, nest.loops, strict=True)
        ]
        result.append(tuple(reversed(nodes)))
    return tuple(result)


def _sharing(func: Func, stage: Stage, loop: str) -> tuple[int, ...] | None:
    """Return `Node.stages` of one of a stage's loops."""
    if loop[0] != "r" or not loop[1:].isdigit():
        return None
    at = int(loop[1:])
    name = stage.rvars[at].name
    return tuple(
        each.index for each in func.stages if len(each.rvars) > at and each.rvars[at].name == name
    )
