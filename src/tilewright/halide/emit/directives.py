"""Convert a `Schedule` to Halide's scheduling directives.

A directive is plain data: a method of ``Func`` or ``Stage`` and its arguments, with canonical loop
names. `tilewright.halide.emit.apply` calls directives and `tilewright.halide.emit.printing` prints
them, so the two always agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import with_clones
from tilewright.halide.ir.names import BLOCK, THREAD
from tilewright.halide.ir.nest import (
    NestLoop,
    guarded,
    original_loops,
    scheduled_loops,
    split_loops,
    stage_schedules,
)
from tilewright.halide.ir.schedule import (
    CallCondition,
    ComputeWith,
    FuncSchedule,
    Fuse,
    Level,
    LoopAlign,
    Mapping,
    MemoryType,
    Prefetch,
    PrefetchStrategy,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
    Tail,
)
from tilewright.halide.ir.variants import Conditions, branches


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A loop of stage `stage` of Func `func`, by its canonical name."""

    func: int
    stage: int
    name: str
    reduction: bool = False


@dataclass(frozen=True, slots=True)
class FuncRef:
    """A Func, by its position in realisation order."""

    func: int


@dataclass(frozen=True, slots=True)
class EnumRef:
    """A value of one of Halide's enumerations, e.g. ``TailStrategy.GuardWithIf``."""

    enumeration: str
    value: str


@dataclass(frozen=True, slots=True)
class Outermost:
    """``Var.outermost()``: Halide's loop with one iteration around every nest."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The conjunction of several conditions."""

    known: tuple[CallCondition, ...]


@dataclass(frozen=True, slots=True)
class StageRef:
    """A stage of a Func, an argument of ``compute_with``."""

    func: int
    stage: int


@dataclass(frozen=True, slots=True)
class Pairs:
    """A list of loops with the ``LoopAlignStrategy`` of each."""

    items: tuple[tuple[LoopRef, EnumRef], ...]


Argument = LoopRef | FuncRef | StageRef | EnumRef | Outermost | Condition | Pairs | int


@dataclass(frozen=True, slots=True)
class Directive:
    """A call of `method` with `args` on stage `stage` of Func `func`; stage 0 is the Func itself.

    A call of ``specialize`` whose result later directives use has `makes` = n, for the n-th
    specialisation of the stage (from 1). If `branch` is n, `method` is called on that result.
    """

    func: int
    stage: int
    method: str
    args: tuple[Argument, ...] = ()
    branch: int = 0
    makes: int = 0


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

ALIGN: dict[LoopAlign, str] = {
    "start": "AlignStart",
    "end": "AlignEnd",
    "none": "NoAlign",
    "auto": "Auto",
}

PREFETCHES: dict[PrefetchStrategy, str] = {
    "clamp": "Clamp",
    "guard_with_if": "GuardWithIf",
    "non_faulting": "NonFaulting",
}

# Directives that take one loop, and those that take all loops with the mapping.
_SINGLE: dict[Mapping, str] = {
    "unrolled": "unroll",
    "vectorized": "vectorize",
    "parallel": "parallel",
}
_TOGETHER: dict[Mapping, str] = {"gpu_block": "gpu_blocks", "gpu_thread": "gpu_threads"}


def directives(schedule: Schedule, algorithm: Algorithm) -> tuple[Directive, ...]:
    """Return every directive of a schedule, consumers before producers.

    Positions of Funcs refer to the algorithm with the schedule's clones. The directives that make
    the clones are not included (see `clones.clone_calls`).

    Raises:
        ScheduleError: The schedule names a Func or a loop that does not exist.
    """
    algorithm = with_clones(algorithm, schedule.clones)
    loops = _all_loops(schedule, algorithm)
    result: list[Directive] = []
    for entry in sorted(schedule.funcs, key=lambda entry: -entry.func):
        inline = entry.compute.kind == "inline"
        if not inline:
            result += _where(entry, algorithm, loops)
        # A Func with updates that is left inline is computed at its uses, with its own nests.
        if not inline or entry.stages:
            for stage, nest in stage_schedules(algorithm, entry):
                cases = branches(schedule, entry, stage.index) if schedule.variants else []
                result += _stage(entry, stage.index, nest, cases, algorithm, loops)
    return tuple(result)


def _stage(
    entry: FuncSchedule,
    stage: int,
    nest: StageSchedule,
    cases: Sequence[tuple[Conditions, StageSchedule]],
    algorithm: Algorithm,
    loops: Loops,
) -> list[Directive]:
    """Return the directives of one stage and of its specialisations.

    There is one specialisation per item of `cases` (conditions and nest), and one for large outputs
    if `nest` has sizes. Halide copies a stage's schedule into a specialisation when it is made, so
    specialisations come before all other directives. A call runs the first one whose conditions
    hold.
    """
    if nest.sizes:
        cases = [*cases, (nest.sizes, nest)]
        nest = guarded(nest)
    result: list[Directive] = []
    for number, (conditions, inner) in enumerate(cases, start=1):
        condition = (Condition(conditions),)
        result.append(Directive(entry.func, stage, "specialize", condition, makes=number))
        made = _specialised(entry, stage, inner, algorithm, loops)
        result += [replace(directive, branch=number) for directive in made]
    return [*result, *_specialised(entry, stage, nest, algorithm, loops)]


def _specialised(
    entry: FuncSchedule, stage: int, nest: StageSchedule, algorithm: Algorithm, loops: Loops
) -> list[Directive]:
    """Return the directives of one nest, and of its specialisation on known values."""
    result = _nest(entry, stage, nest, algorithm, loops)
    if nest.specialize:
        known = (Condition(nest.specialize),)
        result.append(Directive(entry.func, stage, "specialize", known))
    return result


Loops = dict[tuple[int, int], dict[str, NestLoop]]


def _all_loops(schedule: Schedule, algorithm: Algorithm) -> Loops:
    """Return, for each scheduled stage, the loops of its final nest by name."""
    loops: Loops = {}
    for entry in schedule.funcs:
        if not 0 <= entry.func < len(algorithm.funcs):
            raise ScheduleError(
                f"the schedule has an entry for Func {entry.func}, but the pipeline has only "
                f"{len(algorithm.funcs)} Funcs"
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
    """Return the directives for compute and store level, memory and layout."""
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
    if entry.hoist is not None:
        hoist = _level(entry.func, "hoist", entry.hoist, algorithm, loops)
        verb = "hoist_storage_root" if entry.hoist.kind == "root" else "hoist_storage"
        result.append(Directive(entry.func, 0, verb, hoist.args))
    return [*result, *storage_directives(entry)]


def storage_directives(entry: FuncSchedule) -> list[Directive]:
    """Return the directives for single storage dimensions, bounds and asynchronous Funcs."""
    result: list[Directive] = []

    def emit(method: str, dimension: int, *args: Argument) -> None:
        dim = LoopRef(entry.func, 0, f"v{dimension}")
        result.append(Directive(entry.func, 0, method, (dim, *args)))

    for dim in entry.storage:
        if dim.align > 1:
            emit("align_storage", dim.dimension, dim.align)
        if dim.bound:
            emit("bound_storage", dim.dimension, dim.bound)
        if dim.fold:
            emit("fold_storage", dim.dimension, dim.fold, dim.forward)
    for bounds in entry.bounds:
        if bounds.extent:
            emit("bound_extent", bounds.dimension, bounds.extent)
        if bounds.remainder is not None:
            emit("align_bounds", bounds.dimension, bounds.modulus, bounds.remainder)
        elif bounds.modulus > 1:
            emit("align_extent", bounds.dimension, bounds.modulus)
    if entry.run_async:
        result.append(Directive(entry.func, 0, "async_"))
    if entry.ring_buffer:
        result.append(Directive(entry.func, 0, "ring_buffer", (entry.ring_buffer,)))
    return result


def is_reduction(shared: ComputeWith, loops: Loops) -> bool:
    """Return whether the shared loop runs over a reduction.

    Raises:
        ScheduleError: The stage does not have the loop.
    """
    loop = loops.get((shared.func, shared.stage), {}).get(shared.loop)
    if loop is None:
        raise ScheduleError(
            f"compute_with names loop {shared.loop!r} of stage {shared.stage} of Func "
            f"{shared.func}, which does not exist"
        )
    return loop.reduction


def _level(func: int, verb: str, level: Level, algorithm: Algorithm, loops: Loops) -> Directive:
    if level.kind == "root":
        return Directive(func, 0, f"{verb}_root")
    name = algorithm.funcs[func].name
    if level.kind == "inline":
        raise ScheduleError(f"{name} is computed at a loop but stored inline")
    loop = loops.get((level.func, level.stage), {}).get(level.loop)
    if loop is None:
        raise ScheduleError(
            f"the {verb} level of {name} is loop {level.loop!r} of stage {level.stage} of Func "
            f"{level.func}, which does not exist"
        )
    at = LoopRef(level.func, level.stage, level.loop, loop.reduction)
    return Directive(func, 0, f"{verb}_at", (FuncRef(level.func), at))


def _nest(
    entry: FuncSchedule, stage: int, nest: StageSchedule, algorithm: Algorithm, loops: Loops
) -> list[Directive]:
    """Return the directives for splits, fusions, loop order and mappings of one stage."""
    func = algorithm.funcs[entry.func]
    definition = func.stages[stage]
    made = _StageDirectives(
        entry.func, stage, {loop.name: loop.reduction for loop in original_loops(func, definition)}
    )
    made.change_loops(nest.splits)
    if [loop.name for loop in split_loops(func, definition, nest)] != [
        loop.name for loop in nest.loops
    ]:
        made.emit("reorder", *(made.loop(loop.name) for loop in nest.loops))
    if nest.allow_races:
        made.emit("allow_race_conditions")
    if nest.atomic:
        made.emit("atomic")
    if nest.single_thread:
        made.run_in_one_thread()
    made.map_loops(nest.loops)
    made.prefetch(nest.prefetch)
    if nest.compute_with is not None:
        made.compute_with(nest.compute_with, loops)
    if not made.found and stage > 0:
        # Avoid Halide's warning that only the pure definition is scheduled. Halide refuses
        # `unscheduled` after rfactor, and any other directive for a loop with a dot in its name.
        if nest.loops and not any("." in loop.name for loop in definition.loops):
            made.emit("serial", made.loop(nest.loops[0].name))
        else:
            made.emit("unscheduled")
    return made.found


@dataclass
class _StageDirectives:
    """Collect the directives of one stage in the order that Halide requires.

    `reductions` maps each loop to whether it runs over a reduction; splits and fusions add the
    loops that they make.
    """

    func: int
    stage: int
    reductions: dict[str, bool]
    found: list[Directive] = field(default_factory=list)

    def loop(self, name: str) -> LoopRef:
        return LoopRef(self.func, self.stage, name, self.reductions[name])

    def emit(self, method: str, *args: Argument) -> None:
        self.found.append(Directive(self.func, self.stage, method, args))

    def change_loops(self, changes: Sequence[Split | Fuse]) -> None:
        reductions = self.reductions
        for change in changes:
            if isinstance(change, Split):
                reductions[change.outer] = reductions[change.inner] = reductions[change.old]
                names = (change.old, change.outer, change.inner)
                tail = EnumRef("TailStrategy", TAILS[change.tail])
                self.emit("split", *map(self.loop, names), change.factor, tail)
            else:
                reductions[change.fused] = reductions[change.inner] or reductions[change.outer]
                self.emit("fuse", *map(self.loop, (change.inner, change.outer, change.fused)))

    def run_in_one_thread(self) -> None:
        """Emit what gpu_single_thread does, with loop names that the pipeline does not use."""
        for name in (THREAD, BLOCK):
            tail = EnumRef("TailStrategy", "GuardWithIf")
            made = LoopRef(self.func, self.stage, name)
            self.emit("split", Outermost(), Outermost(), made, 1, tail)
        self.emit("gpu_blocks", LoopRef(self.func, self.stage, BLOCK))
        self.emit("gpu_threads", LoopRef(self.func, self.stage, THREAD))

    def map_loops(self, loops: Sequence[ScheduledLoop]) -> None:
        for mapping, method in _TOGETHER.items():
            chosen = [self.loop(loop.name) for loop in loops if loop.mapping == mapping]
            if chosen:
                self.emit(method, *chosen)
        for loop in loops:
            if loop.mapping in _SINGLE:
                self.emit(_SINGLE[loop.mapping], self.loop(loop.name))
        if len(loops) > 1 and all(loop.partition == "never" for loop in loops):
            self.emit("never_partition_all")
            return
        for loop in loops:
            if loop.partition != "auto":
                how = EnumRef("Partition", loop.partition.capitalize())
                self.emit("partition", self.loop(loop.name), how)

    def prefetch(self, fetches: Sequence[Prefetch]) -> None:
        for fetch in fetches:
            strategy = EnumRef("PrefetchBoundStrategy", PREFETCHES[fetch.strategy])
            at, along = self.loop(fetch.at), self.loop(fetch.along)
            self.emit("prefetch", FuncRef(fetch.func), at, along, fetch.distance, strategy)

    def compute_with(self, shared: ComputeWith, loops: Loops) -> None:
        at = LoopRef(shared.func, shared.stage, shared.loop, is_reduction(shared, loops))
        pairs = [
            (self.loop(loop), EnumRef("LoopAlignStrategy", ALIGN[how]))
            for loop, how in shared.align
        ]
        self.emit("compute_with", StageRef(shared.func, shared.stage), at, Pairs(tuple(pairs)))
