"""Read the existing schedule of a serialised pipeline into a `Schedule`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from tilewright.halide.analysis.paths import find_paths
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.serial.conditions import conditions
from tilewright.halide.frontend.serial.copies import find_copies
from tilewright.halide.frontend.serial.nests import (
    FuncLoops,
    UnreadableScheduleError,
    constant,
    is_set,
    literal,
)
from tilewright.halide.frontend.serial.reader import MalformedError, Record, read
from tilewright.halide.frontend.serial.reset import drop_schedule
from tilewright.halide.frontend.serial.scheduled import defined
from tilewright.halide.frontend.serial.validate import validate
from tilewright.halide.frontend.serial.writer import write
from tilewright.halide.ir.algorithm import Algorithm, Func
from tilewright.halide.ir.clones import clone_problems, with_clones
from tilewright.halide.ir.nest import default_stage, guarded
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    ComputeWith,
    DimensionBounds,
    FuncSchedule,
    Level,
    LoopAlign,
    MemoryType,
    Schedule,
    StageSchedule,
    StorageDim,
)

_ROOT = "__root"
# In the order of Halide's enumerations: files have the position as a number.
_MEMORIES: tuple[MemoryType, ...] = get_args(MemoryType)
_ALIGNS: tuple[LoopAlign, ...] = get_args(LoopAlign)


@dataclass(frozen=True)
class Given:
    """A pipeline without a schedule, and the schedule that it had."""

    algorithm: Algorithm
    schedule: Schedule


def read_schedule(serialized: bytes, target: str = "host") -> Given:
    """Return a serialised pipeline's algorithm and its schedule, with target `target`.

    The effect of ``rfactor`` is part of the algorithm.

    Raises:
        UnreadableScheduleError: A `Schedule` cannot express a directive; the error names it.
        MalformedError: The bytes are not a pipeline.
    """
    try:
        return _read(serialized, target)
    except (LookupError, ValueError) as error:
        # A name or position refers to nothing; Halide does not write files like this.
        raise MalformedError(f"its schedules are inconsistent ({error})") from error


def _read(serialized: bytes, target: str) -> Given:
    root = read(serialized, "Pipeline")
    validate(root)
    reset = read(serialized, "Pipeline")
    drop_schedule(reset, keep_extents=False)  # they are read into the schedule
    algorithm = import_pipeline(write(reset))
    copies = find_copies(root.funcs, root, algorithm)
    clones = tuple(copies.clones)
    problems = list(clone_problems(algorithm, clones))
    if problems:
        name, reason = problems[0]
        raise UnreadableScheduleError(name, f"an unsupported wrapper or clone ({reason})")
    extended = with_clones(algorithm, clones)
    by_name = {func.name: func for func in root.funcs}
    places = {
        func.name: extended.order[func.name] for func in algorithm.funcs if func.name in by_name
    }
    places |= {
        name: extended.order[copy.name]
        for name, copy in zip(copies.names, extended.copies, strict=True)
    }
    reader = _Reader({places[n]: by_name[n] for n in places}, places, extended)
    funcs = tuple(reader.entry(place) for place in sorted(places.values()))
    schedule = Schedule(algorithm.digest, target, funcs, clones)
    return Given(algorithm, _innermost(_placed(schedule, extended, reader), extended))


class _Reader:
    """Read Funcs by their positions in the algorithm with its copies."""

    def __init__(
        self, records: Mapping[int, Record], places: Mapping[str, int], algorithm: Algorithm
    ) -> None:
        self.records = records
        self.places = places
        self.algorithm = algorithm
        self.loops = {place: FuncLoops(record) for place, record in records.items()}
        self.nests: dict[int, list[StageSchedule]] = {}
        for place, record in records.items():
            definitions = [record.init_def, *record.updates]
            if algorithm.funcs[place].extern is None:
                self.nests[place] = [self._nest(place, d) for d in definitions]

    def _nest(self, place: int, definition: Record) -> StageSchedule:
        loops = self.loops[place]
        nest = loops.nest(definition, self.places.get)
        if not definition.specializations:
            return nest
        name = self.records[place].name
        first, *others = definition.specializations
        if first.failure_message or others:
            raise UnreadableScheduleError(name, "several specialisations, or one that fails")
        inner = self._nest(place, first.definition)
        loops.stages.pop()
        said = conditions(first.condition, self.algorithm, self.places)
        if said is not None and inner == nest:
            return replace(nest, specialize=said)
        if said and guarded(inner) == nest:
            return replace(inner, sizes=said)
        raise UnreadableScheduleError(
            name, "a specialisation with a different schedule, or on an unsupported condition"
        )

    def entry(self, place: int) -> FuncSchedule:
        """Return one Func's schedule."""
        record, func = self.records[place], self.algorithm.funcs[place]
        said = record.func_schedule
        compute = self.level(said.compute_level, record.name)[0]
        if (func.fixed or func.name in self.algorithm.outputs) and compute == INLINE:
            compute = ROOT
        store = compute
        if is_set(said.store_level):
            store = self.level(said.store_level, record.name)[0]
        hoist = None
        if is_set(said.hoist_storage_level):
            hoist = self.level(said.hoist_storage_level, record.name)[0]
        stages: tuple[StageSchedule, ...] = ()
        if func.extern is None:
            stages = self._stages(place, func)
        entry = FuncSchedule(place, compute, store, stages=stages, hoist=hoist)
        return self._storage(entry, record)

    def _stages(self, place: int, func: Func) -> tuple[StageSchedule, ...]:
        nests = tuple(
            replace(nest, compute_with=self._shared(place, index))
            for index, nest in enumerate(self.nests[place])
        )
        default = tuple(default_stage(func, stage) for stage in func.stages)
        return () if nests == default else nests

    def _shared(self, place: int, index: int) -> ComputeWith | None:
        record = self.records[place]
        definition = [record.init_def, *record.updates][index]
        shared = definition.stage_schedule.fuse_level
        if not is_set(shared.fuse_level):
            return None
        level = self.level(shared.fuse_level, record.name)[0]
        align = []
        own = self.loops[place].stages[index]
        for name, strategy in zip(
            shared.align_dimension_names, shared.align_strategies, strict=True
        ):
            loop = own.find(name)
            if loop is None or strategy >= len(_ALIGNS):
                raise UnreadableScheduleError(record.name, f"an alignment of the loop {name}")
            if _ALIGNS[strategy] != "auto":
                align.append((loop, _ALIGNS[strategy]))
        return ComputeWith(level.func, level.stage, level.loop, tuple(align))

    def level(self, level: Record, name: str) -> list[Level]:
        """Return all possible meanings of a level: two stages may have loops of the same name."""
        if not is_set(level):
            return [INLINE]
        if level.var_name == _ROOT:
            return [ROOT]
        place = self.places.get(level.func_name)
        if place is None:
            raise UnreadableScheduleError(name, f"a level in {level.func_name}, which is not used")
        found: dict[str, Level] = {}
        for stage, loops in enumerate(self.loops[place].stages):
            loop = loops.find(level.var_name)
            if loop is not None and level.stage_index in (-1, stage):
                found.setdefault(loop, Level("at", place, stage, loop))
        if not found:
            where = f"the loop {level.var_name} of {level.func_name}"
            raise UnreadableScheduleError(name, f"a level at {where}, which does not exist")
        return list(found.values())

    def _storage(self, entry: FuncSchedule, record: Record) -> FuncSchedule:
        """Return the entry with memory, layout and bounds added."""
        said, name = record.func_schedule, record.name
        if said.memory_type >= len(_MEMORIES):
            raise UnreadableScheduleError(name, "store_in() with an unsupported kind of memory")
        args = list(record.args)
        order = tuple(args.index(dim.var) for dim in said.storage_dims)
        align, dims = 1, []
        for i, dim in enumerate(said.storage_dims):
            stored = StorageDim(
                order[i],
                literal(dim.alignment, name, "align_storage", 1),
                literal(dim.bound, name, "bound_storage", 0),
                literal(dim.fold_factor, name, "fold_storage", 0),
                bool(dim.fold_forward) or not defined(dim.fold_factor),
            )
            if i == 0:
                align, stored = stored.align, replace(stored, align=1)
            if stored != StorageDim(order[i]):
                dims.append(stored)
        return replace(
            entry,
            memory=_MEMORIES[said.memory_type],
            storage_order=() if order == tuple(range(len(args))) else order,
            align_storage=align,
            storage=tuple(dims),
            bounds=self._bounds(record),
            run_async=bool(said.__dict__["async"]),
            ring_buffer=literal(said.ring_buffer, name, "ring_buffer", 0),
        )

    def _bounds(self, record: Record) -> tuple[DimensionBounds, ...]:
        """Return the directives that widen or promise regions.

        Promised ranges with a minimum are part of the algorithm and omitted here.
        """
        found: dict[int, DimensionBounds] = {}
        for bound in record.func_schedule.bounds:
            dimension = list(record.args).index(bound.var)
            one = found.get(dimension, DimensionBounds(dimension))
            if defined(bound.modulus):
                modulus = constant(bound.modulus, record.name, "align_bounds")
                one = replace(one, modulus=modulus, remainder=_remainder(bound, record.name))
            elif defined(bound.extent) and not defined(bound.min):
                one = replace(one, extent=constant(bound.extent, record.name, "bound_extent"))
            else:
                continue
            found[dimension] = one
        return tuple(found.values())


def _remainder(bound: Record, name: str) -> int | None:
    """Return the remainder of ``align_bounds`` (written ``r % m``), None for ``align_extent``."""
    remainder = bound.remainder
    if not defined(remainder):
        return None
    if remainder.table == "Mod":
        low, modulus = (constant(x, name, "align_bounds") for x in (remainder.a, remainder.b))
        return low % modulus
    return constant(remainder, name, "align_bounds")


def _placed(schedule: Schedule, extended: Algorithm, reader: _Reader) -> Schedule:
    """Return the schedule with each ambiguous level resolved to the one that encloses the readers.

    Raises:
        UnreadableScheduleError: A level refers to loops of two stages at once, and these loops have
            different canonical names.
    """
    for i, entry in enumerate(schedule.funcs):
        record = reader.records[entry.func]
        said = record.func_schedule
        for level, place in (
            (said.compute_level, _computed if is_set(said.store_level) else _computed_and_stored),
            (said.store_level, _stored),
            (said.hoist_storage_level, _hoisted),
        ):
            choices = reader.level(level, record.name) if is_set(level) else []
            for choice in choices if len(choices) > 1 else ():
                entry = place(entry, choice)
                funcs = (*schedule.funcs[:i], entry, *schedule.funcs[i + 1 :])
                schedule = replace(schedule, funcs=funcs)
                if entry.func not in find_paths(schedule, extended).misplaced:
                    break
            else:
                if len(choices) > 1:
                    where = f"the loops {level.var_name} of two stages, split differently"
                    raise UnreadableScheduleError(record.name, f"a level at {where}")
    return schedule


def _innermost(schedule: Schedule, extended: Algorithm) -> Schedule:
    """Return the schedule with a compute level for each Func with updates that has none.

    Halide computes such a Func in the innermost loop of its reader.

    Raises:
        UnreadableScheduleError: The readers have several innermost loops.
    """
    for i in range(len(schedule.funcs) - 1, -1, -1):
        entry = schedule.funcs[i]
        func = extended.funcs[entry.func]
        if entry.compute.kind != "inline" or func.pure or func.extern is not None:
            continue
        entry = replace(entry, compute=ROOT, store=ROOT)
        funcs = (*schedule.funcs[:i], entry, *schedule.funcs[i + 1 :])
        paths = find_paths(replace(schedule, funcs=funcs), extended)
        places = {path[-1:] for use in paths.uses[entry.func] for path in paths.stages.get(use, ())}
        if len(places) > 1:
            raise UnreadableScheduleError(func.name, "updates and several readers, but no level")
        for node in next(iter(places), ()):
            stage = min(s for f, s in paths.uses[entry.func] if f == node.func)
            level = Level("at", node.func, stage, node.loop)
            entry = replace(entry, compute=level, store=level)
        funcs = (*schedule.funcs[:i], entry, *schedule.funcs[i + 1 :])
        schedule = replace(schedule, funcs=funcs)
    return schedule


def _computed(entry: FuncSchedule, level: Level) -> FuncSchedule:
    return replace(entry, compute=level)


def _stored(entry: FuncSchedule, level: Level) -> FuncSchedule:
    return replace(entry, store=level)


def _computed_and_stored(entry: FuncSchedule, level: Level) -> FuncSchedule:
    return replace(entry, compute=level, store=level)


def _hoisted(entry: FuncSchedule, level: Level) -> FuncSchedule:
    return replace(entry, hoist=level)
