"""The one place where a `Schedule` becomes Halide's scheduling directives.

A directive is plain data: a method of ``Func`` or ``Stage`` and its arguments, with loops
still under their canonical names. `tilewright.halide.emit.apply` calls it, and
`tilewright.halide.emit.printing` writes it down, so that both always mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import BLOCK, THREAD
from tilewright.halide.ir.nest import (
    NestLoop,
    original_loops,
    scheduled_loops,
    split_loops,
    stage_schedules,
)
from tilewright.halide.ir.schedule import (
    FuncSchedule,
    KnownValue,
    Level,
    Mapping,
    MemoryType,
    Schedule,
    ScheduleError,
    Split,
    StageSchedule,
    Tail,
)


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop of stage `stage` of Func `func`, by its canonical name."""

    func: int
    stage: int
    name: str
    reduction: bool = False


@dataclass(frozen=True, slots=True)
class FuncRef:
    """A Func, by its place in realisation order."""

    func: int


@dataclass(frozen=True, slots=True)
class EnumRef:
    """A value of one of Halide's enumerations, e.g. ``TailStrategy.GuardWithIf``."""

    enumeration: str
    value: str


@dataclass(frozen=True, slots=True)
class Outermost:
    """The loop of one iteration that Halide has around every nest."""


@dataclass(frozen=True, slots=True)
class Condition:
    """All of these hold."""

    known: tuple[KnownValue, ...]


Argument = LoopRef | FuncRef | EnumRef | Outermost | Condition | int


@dataclass(frozen=True, slots=True)
class Directive:
    """Call `method` with `args` on stage `stage` of Func `func`; stage 0 is the Func itself."""

    func: int
    stage: int
    method: str
    args: tuple[Argument, ...] = ()


TAILS: dict[Tail, str] = {
    "round_up": "RoundUp",
    "guard_with_if": "GuardWithIf",
    "predicate": "Predicate",
    "predicate_loads": "PredicateLoads",
    "predicate_stores": "PredicateStores",
    "shift_inwards": "ShiftInwards",
    "shift_inwards_and_blend": "ShiftInwardsAndBlend",
    "round_up_and_blend": "RoundUpAndBlend",
}

MEMORY: dict[MemoryType, str] = {
    "auto": "Auto",
    "heap": "Heap",
    "stack": "Stack",
    "register": "Register",
    "gpu_shared": "GPUShared",
}

# Directives for one loop at a time; blocks and threads are listed together.
_SINGLE: dict[Mapping, str] = {
    "unrolled": "unroll",
    "vectorized": "vectorize",
    "parallel": "parallel",
}
_TOGETHER: dict[Mapping, str] = {"gpu_block": "gpu_blocks", "gpu_thread": "gpu_threads"}


def directives(schedule: Schedule, algorithm: Algorithm) -> tuple[Directive, ...]:
    """Every directive of a schedule, consumers before producers.

    The Funcs are those of the algorithm with the schedule's clones, which exist already.

    Raises `ScheduleError` where the schedule names a Func or a loop that is not there.
    """
    algorithm = with_clones(algorithm, schedule.clones)
    loops = _all_loops(schedule, algorithm)
    result: list[Directive] = []
    for entry in sorted(schedule.funcs, key=lambda entry: -entry.func):
        if entry.compute.kind != "inline":
            result += _where(entry, algorithm, loops)
            for stage, nest in stage_schedules(algorithm, entry):
                result += _nest(entry, stage.index, nest, algorithm)
                if nest.specialize:
                    condition = Condition(nest.specialize)
                    result.append(Directive(entry.func, stage.index, "specialize", (condition,)))
    return tuple(result)


Loops = dict[tuple[int, int], dict[str, NestLoop]]


def _all_loops(schedule: Schedule, algorithm: Algorithm) -> Loops:
    """For each scheduled stage, the loops of its final nest by name."""
    loops: Loops = {}
    for entry in schedule.funcs:
        if not 0 <= entry.func < len(algorithm.funcs):
            raise ScheduleError(
                f"the schedule speaks of Func {entry.func}; the pipeline has {len(algorithm.funcs)}"
            )
        func = algorithm.funcs[entry.func]
        for stage, nest in stage_schedules(algorithm, entry):
            try:
                final = scheduled_loops(func, stage, nest)
            except ScheduleError as error:
                raise ScheduleError(f"{func.name}, stage {stage.index}: {error}") from None
            loops[entry.func, stage.index] = {loop.name: loop for loop in final}
    return loops


def _where(entry: FuncSchedule, algorithm: Algorithm, loops: Loops) -> list[Directive]:
    """Compute and store level, memory, layout."""
    result = [_level(entry.func, "compute", entry.compute, algorithm, loops)]
    if entry.store != entry.compute:
        result.append(_level(entry.func, "store", entry.store, algorithm, loops))
    if entry.memory != "auto":
        memory = EnumRef("MemoryType", MEMORY[entry.memory])
        result.append(Directive(entry.func, 0, "store_in", (memory,)))
    if entry.storage_order != tuple(range(len(entry.storage_order))):
        dims = tuple(LoopRef(entry.func, 0, f"v{i}") for i in entry.storage_order)
        result.append(Directive(entry.func, 0, "reorder_storage", dims))
    if entry.align_storage > 1:
        innermost = entry.storage_order[0] if entry.storage_order else 0
        dim = LoopRef(entry.func, 0, f"v{innermost}")
        result.append(Directive(entry.func, 0, "align_storage", (dim, entry.align_storage)))
    return result


def _level(func: int, verb: str, level: Level, algorithm: Algorithm, loops: Loops) -> Directive:
    if level.kind == "root":
        return Directive(func, 0, f"{verb}_root")
    name = algorithm.funcs[func].name
    if level.kind == "inline":
        raise ScheduleError(f"{name} is computed at a loop but stored inline")
    loop = loops.get((level.func, level.stage), {}).get(level.loop)
    if loop is None:
        raise ScheduleError(
            f"{name} is to be {verb}d at loop {level.loop!r} of stage {level.stage} of Func "
            f"{level.func}, which is not there"
        )
    at = LoopRef(level.func, level.stage, level.loop, loop.reduction)
    return Directive(func, 0, f"{verb}_at", (FuncRef(level.func), at))


def _nest(
    entry: FuncSchedule, stage: int, nest: StageSchedule, algorithm: Algorithm
) -> list[Directive]:
    """Splits, fusions, loop order and mappings of one stage."""
    func = algorithm.funcs[entry.func]
    definition = func.stages[stage]
    result: list[Directive] = []
    reductions = {loop.name: loop.reduction for loop in original_loops(func, definition)}

    def ref(name: str) -> LoopRef:
        return LoopRef(entry.func, stage, name, reductions[name])

    def emit(method: str, *args: Argument) -> None:
        result.append(Directive(entry.func, stage, method, args))

    for change in nest.splits:
        if isinstance(change, Split):
            reductions[change.outer] = reductions[change.inner] = reductions[change.old]
            old, outer, inner = ref(change.old), ref(change.outer), ref(change.inner)
            tail = EnumRef("TailStrategy", TAILS[change.tail])
            emit("split", old, outer, inner, change.factor, tail)
        else:
            reductions[change.fused] = reductions[change.inner] or reductions[change.outer]
            emit("fuse", ref(change.inner), ref(change.outer), ref(change.fused))
    before = [loop.name for loop in split_loops(func, definition, nest)]
    after = [loop.name for loop in nest.loops]
    if before != after:
        emit("reorder", *(ref(name) for name in after))
    if nest.atomic:
        emit("atomic")
    if nest.single_thread:
        # As Halide's gpu_single_thread, whose automatic names may be taken in the pipeline.
        for name in (THREAD, BLOCK):
            tail = EnumRef("TailStrategy", "GuardWithIf")
            emit("split", Outermost(), Outermost(), LoopRef(entry.func, stage, name), 1, tail)
        emit("gpu_blocks", LoopRef(entry.func, stage, BLOCK))
        emit("gpu_threads", LoopRef(entry.func, stage, THREAD))
    for mapping, method in _TOGETHER.items():
        chosen = [ref(loop.name) for loop in nest.loops if loop.mapping == mapping]
        if chosen:
            emit(method, *chosen)
    for loop in nest.loops:
        if loop.mapping in _SINGLE:
            emit(_SINGLE[loop.mapping], ref(loop.name))
    for loop in nest.loops:
        if loop.partition != "auto":
            emit("partition", ref(loop.name), EnumRef("Partition", loop.partition.capitalize()))
    if not result and stage > 0:
        # Silences Halide's warning that only the pure definition has been scheduled. Where
        # rfactor has been, `unscheduled` would be refused; of loops with dots, any other.
        named = nest.loops and not any("." in loop.name for loop in definition.loops)
        if named:
            emit("serial", ref(nest.loops[0].name))
        else:
            emit("unscheduled")
    return result
