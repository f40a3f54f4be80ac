"""Read the scheduled stages of one Func in a file: splits, loops and other directives.

Halide names the loops of a split ``split(x, xo, xi, 8)`` ``x.xo`` and ``x.xi``. It finds a loop by
the end of its name, and a name may be reused (``split(x, x, xi, 8)``). This module gives every loop
a canonical name, derived from the loops that it comes from, because Halide's automatic names
differ between builds. Final loops that have one name in several stages of a Func get one canonical
name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import get_args

from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.frontend.serial.reset import FUSE, OUTERMOST, RENAME
from tilewright.halide.frontend.serial.scheduled import defined
from tilewright.halide.ir.schedule import (
    Fuse,
    Mapping,
    Partition,
    Prefetch,
    PrefetchStrategy,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
    Tail,
)

# In the order of Halide's enumerations: files have the position as a number.
_TAILS: tuple[Tail, ...] = get_args(Tail)
_FOR_TYPES: tuple[Mapping | None, ...] = (
    "serial",
    "parallel",
    "vectorized",
    "unrolled",
    None,  # the loops of extern stages
    "gpu_block",
    "gpu_thread",
)
_GPU_LANE = 7
_PARTITIONS: tuple[Partition, ...] = get_args(Partition)
_PREFETCHES: tuple[PrefetchStrategy, ...] = get_args(PrefetchStrategy)
_DEVICES = range(5)  # none, the host, a GPU as the target says, CUDA, OpenCL


class UnreadableScheduleError(ScheduleError):
    """A directive in a file that a `Schedule` cannot express."""

    def __init__(self, func: str, directive: str) -> None:
        """`func` is the Func's name; `directive` describes the directive as a noun phrase."""
        self.func = func
        self.directive = directive
        super().__init__(
            f"the schedule of {func} has {directive}, which Tilewright cannot read. Remove it, or "
            "discard the schedule (discard_schedule=True, --discard-schedule)"
        )


@dataclass
class StageLoops:
    """The final loops of one stage: maps Halide's full names to canonical names."""

    names: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str | None:
        """Return the canonical name of the loop that Halide finds by `name`; None if none."""
        for full, canonical in self.names.items():
            if full == name or full.endswith("." + name):
                return canonical
        return None


def constant(record: Record | None, func: str, what: str) -> int:
    """Return the value of a literal argument of the directive `what`."""
    if record is not None and record.table in ("IntImm", "UIntImm"):
        return int(record.value)
    raise UnreadableScheduleError(func, f"{what} by an expression that is not a literal")


class FuncLoops:
    """Read the nests of one Func's stages."""

    def __init__(self, func: Record) -> None:
        """`func` is its table."""
        self.func = func
        self.stages: list[StageLoops] = []
        self._canonical: dict[str, str] = {}

    def fail(self, directive: str) -> UnreadableScheduleError:
        """Return the error for a directive of this Func that cannot be read."""
        return UnreadableScheduleError(self.func.name, directive)

    def nest(self, definition: Record, func_place: Callable[[str], int | None]) -> StageSchedule:
        """Return one stage's nest, without ``compute_with``, which needs other Funcs' loops.

        `func_place` maps the name of a Func to its position, or None if there is no such Func.
        """
        schedule = definition.stage_schedule
        nest, loops = self._splits(schedule)
        self.stages.append(loops)
        if schedule.override_atomic_associativity_test:
            raise self.fail("atomic() with the associativity test overridden")
        fetches = tuple(self._prefetch(fetch, loops, func_place) for fetch in schedule.prefetches)
        return replace(
            nest,
            atomic=bool(schedule.atomic),
            allow_races=bool(schedule.allow_race_conditions),
            prefetch=fetches,
        )

    def _splits(self, schedule: Record) -> tuple[StageSchedule, StageLoops]:
        names = {rvar.var: f"r{i}" for i, rvar in enumerate(schedule.rvars)}
        names |= {arg: f"v{i}" for i, arg in enumerate(self.func.args)}
        final = {dim.var for dim in schedule.dims}
        changes: list[Split | Fuse] = []
        ones: list[str] = []  # loops with one iteration, around the nest
        for split in schedule.splits:
            if split.old_var.split(".")[-1] == OUTERMOST:
                if constant(split.factor, self.func.name, "a split") != 1:
                    raise self.fail("a split of the outermost loop")
                ones.append(split.inner)
            elif split.split_type == RENAME:
                names[split.outer] = names.pop(split.old_var)
            elif split.split_type == FUSE:
                inner, outer = names.pop(split.inner), names.pop(split.outer)
                names[split.old_var] = self._name(split.old_var, f"{inner}_{outer}", final)
                changes.append(Fuse(inner, outer, names[split.old_var]))
            else:
                old = names.pop(split.old_var)
                outer = self._name(split.outer, f"{old}o", final)
                inner = self._name(split.inner, f"{old}i", final)
                names[split.outer], names[split.inner] = outer, inner
                factor = constant(split.factor, self.func.name, "a split")
                if split.tail >= len(_TAILS):
                    raise self.fail("a split with the tail strategy Auto or an unknown one")
                changes.append(Split(old, outer, inner, factor, _TAILS[split.tail]))
        single = self._single_thread(schedule, ones)
        loops = tuple(
            ScheduledLoop(names[dim.var], self._mapping(dim), _PARTITIONS[dim.partition_policy])
            for dim in schedule.dims
            if dim.var in names
        )
        left = StageLoops({dim.var: names[dim.var] for dim in schedule.dims if dim.var in names})
        return StageSchedule(tuple(changes), loops, single_thread=single), left

    def _name(self, full: str, wish: str, final: set[str]) -> str:
        """Return the canonical name of a loop, new or already used for it in another stage.

        `wish` is the name derived from its origin, `full` Halide's name, and `final` has Halide's
        names of the stage's final loops.
        """
        short = full.split(".")[-1]
        # Halide may reuse a loop's name for one of its parts; only the final loop is found by it.
        key = short if full in final else full + "."
        if key not in self._canonical:
            name, number = wish, 2
            while name in self._canonical.values():
                name, number = f"{wish}_{number}", number + 1
            self._canonical[key] = name
        return self._canonical[key]

    def _mapping(self, dim: Record) -> Mapping:
        if dim.for_type == _GPU_LANE:
            raise self.fail(f"the loop {dim.var} on GPU lanes")
        if dim.device_api not in _DEVICES:
            raise self.fail(f"the loop {dim.var} on a device other than a CUDA or OpenCL GPU")
        mapping = dict(enumerate(_FOR_TYPES)).get(dim.for_type)
        if mapping is None:
            raise self.fail(f"the loop {dim.var} of an unknown kind")
        return mapping

    def _single_thread(self, schedule: Record, ones: list[str]) -> bool:
        """Return whether the loops `ones`, with one iteration, make the nest one GPU thread."""
        kinds = {dim.var: dim.for_type for dim in schedule.dims}
        for name, kind in kinds.items():
            if name.split(".")[-1] == OUTERMOST and kind:
                raise self.fail("a directive for the outermost loop")
        if not ones:
            return False
        expected = [_FOR_TYPES.index("gpu_block"), _FOR_TYPES.index("gpu_thread")]
        if sorted(kinds.get(name, 0) for name in ones) != expected:
            raise self.fail("a split of the outermost loop")
        return True

    def _prefetch(
        self, fetch: Record, loops: StageLoops, func_place: Callable[[str], int | None]
    ) -> Prefetch:
        place = None if fetch.param_name else func_place(fetch.name)
        if place is None:
            raise self.fail(f"a prefetch of the input {fetch.name}")
        at, along = loops.find(fetch.at), loops.find(getattr(fetch, "from"))
        if at is None or along is None:
            raise self.fail(f"a prefetch at the loop {fetch.at}, which does not exist")
        distance = constant(fetch.offset, self.func.name, "a prefetch")
        return Prefetch(place, at, along, distance, _PREFETCHES[fetch.strategy])


def is_set(level: Record) -> bool:
    """Return whether a level is set; a compute level that is not set means inlined."""
    return bool(level.var_name or level.func_name)


def literal(record: Record, func: str, what: str, absent: int) -> int:
    """Return the value of an optional literal; `absent` if it is missing."""
    return constant(record, func, what) if defined(record) else absent
