"""Write schedules to JSON and read them, with a schema version and the algorithm's digest.

The form is ``{"schema": "tilewright.halide.schedule", "version": 1, "algorithm": …, "target": …,
"funcs": […]}``, with ``"factored": […]``, ``"clones": […]`` and ``"variants": […]`` unless empty:
``Schedule.clones`` has the entries of the first two. All other fields are named as in
`tilewright.halide.ir.schedule`. A level is ``"inline"``, ``"root"``, or
``{"func": …, "stage": …, "loop": …}``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Literal, get_args

from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    CallCondition,
    Clone,
    ComputeWith,
    DimensionBounds,
    Factored,
    FuncSchedule,
    Fuse,
    KnownValue,
    Level,
    LoopAlign,
    Mapping,
    MemoryType,
    OutputExtent,
    OutputValue,
    Partition,
    Prefetch,
    PrefetchStrategy,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    SizeVariant,
    Split,
    StageSchedule,
    StorageDim,
    Tail,
)

SCHEMA = "tilewright.halide.schedule"
VERSION = 1


def to_data(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as plain dictionaries, lists, strings and numbers."""
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "algorithm": schedule.algorithm,
        "target": schedule.target,
        "funcs": [_func_data(func) for func in schedule.funcs],
    }
    factored = [entry for entry in schedule.clones if isinstance(entry, Factored)]
    if factored:
        data["factored"] = [_factored_data(entry) for entry in factored]
    clones = [entry for entry in schedule.clones if isinstance(entry, Clone)]
    if clones:
        data["clones"] = [_clone_data(clone) for clone in clones]
    if schedule.variants:
        data["variants"] = [_variant_data(variant) for variant in schedule.variants]
    return data


def to_json(schedule: Schedule, indent: int | None = None) -> str:
    """Return the schedule as JSON text."""
    return json.dumps(to_data(schedule), indent=indent)


def from_data(data: Any, algorithm: Algorithm | None = None) -> Schedule:
    """Return the schedule that `to_data` wrote.

    Args:
        data: The output of `to_data`.
        algorithm: If given, the schedule must have been made for this algorithm.

    Raises:
        ScheduleError: The data is malformed (the message names the field), has another version, or
            was made for another algorithm.
    """
    top = _Object(data, "schedule")
    schema = top.take("schema", str)
    if schema != SCHEMA:
        raise ScheduleError(f"schema is {schema!r}; a schedule has {SCHEMA!r}")
    version = top.take("version", int)
    if version != VERSION:
        raise ScheduleError(
            f"the schedule has schema version {version}; this version of Tilewright reads "
            f"{VERSION}: schedule the pipeline again"
        )
    digest = top.take("algorithm", str)
    if algorithm is not None and digest != algorithm.digest:
        raise ScheduleError(
            f"the schedule was made for the algorithm {digest[:12]}, not for this one "
            f"({algorithm.digest[:12]}); schedule this one"
        )
    target = top.take("target", str)
    funcs = tuple(_func(item) for item in top.items("funcs"))
    split = "factored" in top.data
    factored = tuple(_factored(item) for item in top.items("factored")) if split else ()
    clones = tuple(_clone(item) for item in top.items("clones")) if "clones" in top.data else ()
    there = "variants" in top.data
    variants = tuple(_variant(item) for item in top.items("variants")) if there else ()
    top.done()
    return Schedule(digest, target, funcs, (*factored, *clones), variants)


def from_json(text: str | bytes, algorithm: Algorithm | None = None) -> Schedule:
    """Return the schedule that `to_json` wrote; arguments and errors are those of `from_data`."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"the schedule is not JSON: {error}") from None
    return from_data(data, algorithm)


def _clone_data(clone: Clone) -> dict[str, Any]:
    data: dict[str, Any] = {"func": clone.func, "readers": [*clone.readers]}
    return {**data, "wrapper": True} if clone.wrapper else data


def _factored_data(entry: Factored) -> dict[str, Any]:
    return {
        "func": entry.func,
        "stage": entry.stage,
        "rvars": [*entry.rvars],
        "splits": [_split_data(split) for split in entry.splits],
    }


def _variant_data(variant: SizeVariant) -> dict[str, Any]:
    return {
        "sizes": [_condition_data(condition) for condition in variant.sizes],
        "nests": [{"stages": [_stage_data(nest) for nest in nests]} for nests in variant.nests],
    }


def _func_data(func: FuncSchedule) -> dict[str, Any]:
    data = {
        "func": func.func,
        "compute": _level_data(func.compute),
        "store": _level_data(func.store),
        "memory": func.memory,
        "align_storage": func.align_storage,
        "storage_order": list(func.storage_order),
        "stages": [_stage_data(stage) for stage in func.stages],
    }
    # Rarely used fields are omitted when unused, so that older versions can read the others.
    if func.hoist is not None:
        data["hoist"] = _level_data(func.hoist)
    if func.storage:
        data["storage"] = [_plain(dim) for dim in func.storage]
    if func.bounds:
        data["bounds"] = [_plain(bounds) for bounds in func.bounds]
    if func.run_async:
        data["run_async"] = True
    if func.ring_buffer:
        data["ring_buffer"] = func.ring_buffer
    return data


def _plain(item: StorageDim | DimensionBounds | Prefetch) -> dict[str, Any]:
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _level_data(level: Level) -> str | dict[str, Any]:
    if level.kind != "at":
        return level.kind
    return {"func": level.func, "stage": level.stage, "loop": level.loop}


def _stage_data(stage: StageSchedule) -> dict[str, Any]:
    data: dict[str, Any] = {
        "splits": [_split_data(change) for change in stage.splits],
        "loops": [
            {"name": loop.name, "mapping": loop.mapping, "partition": loop.partition}
            for loop in stage.loops
        ],
        "atomic": stage.atomic,
        "single_thread": stage.single_thread,
        "specialize": [_condition_data(known) for known in stage.specialize],
    }
    if stage.prefetch:
        data["prefetch"] = [_plain(prefetch) for prefetch in stage.prefetch]
    if stage.compute_with is not None:
        shared = stage.compute_with
        align = [{"loop": loop, "strategy": strategy} for loop, strategy in shared.align]
        where = {"func": shared.func, "stage": shared.stage, "loop": shared.loop}
        data["compute_with"] = {**where, "align": align}
    if stage.allow_races:
        data["allow_races"] = True
    if stage.sizes:
        data["sizes"] = [_condition_data(condition) for condition in stage.sizes]
    return data


def _condition_data(condition: CallCondition) -> dict[str, Any]:
    if isinstance(condition, OutputValue):
        return {
            "output": condition.func,
            "field": condition.field,
            "dimension": condition.dimension,
            "value": condition.value,
        }
    if isinstance(condition, OutputExtent):
        return {
            "output": condition.func,
            "dimension": condition.dimension,
            "minimum": condition.minimum,
            "multiple": condition.multiple,
            **({"start": condition.start} if condition.start > 1 else {}),
        }
    data: dict[str, Any] = {
        "parameter": condition.parameter,
        "field": condition.field,
        "dimension": condition.dimension,
        "value": condition.value,
    }
    if condition.least:
        data["least"] = True
    if condition.multiple:
        data["multiple"] = True
    return data


def _split_data(change: Split | Fuse) -> dict[str, Any]:
    if isinstance(change, Fuse):
        return {"inner": change.inner, "outer": change.outer, "fused": change.fused}
    return {
        "old": change.old,
        "outer": change.outer,
        "inner": change.inner,
        "factor": change.factor,
        "tail": change.tail,
    }


class _Object:
    """A JSON object whose fields are read one by one; error messages name its `path`."""

    def __init__(self, data: Any, path: str) -> None:
        if not isinstance(data, dict):
            raise ScheduleError(f"{path} must be an object, not {_kind(data)}")
        self.data = dict(data)
        self.path = path

    def take(self, name: str, kind: type) -> Any:
        if name not in self.data:
            raise ScheduleError(f"{self.path}.{name} is missing")
        value = self.data.pop(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ScheduleError(f"{self.path}.{name} must be {_NAMES[kind]}, not {_kind(value)}")
        return value

    def one_of(self, name: str, literal: Any) -> Any:
        value = self.take(name, str)
        if value not in get_args(literal):
            allowed = ", ".join(get_args(literal))
            raise ScheduleError(f"{self.path}.{name} is {value!r}; it must be one of {allowed}")
        return value

    def natural(self, name: str, least: int) -> int:
        value: int = self.take(name, int)
        if not least <= value < 2**31:
            raise ScheduleError(f"{self.path}.{name} is {value}; it must be at least {least}")
        return value

    def naturals(self, name: str, what: str) -> tuple[int, ...]:
        values = self.take(name, list)
        if not all(type(value) is int and 0 <= value < 2**31 for value in values):
            raise ScheduleError(f"{self.path}.{name} must be a list of {what}")
        return tuple(values)

    def items(self, name: str) -> list[_Object]:
        values = self.take(name, list)
        return [_Object(value, f"{self.path}.{name}[{i}]") for i, value in enumerate(values)]

    def done(self) -> None:
        if self.data:
            raise ScheduleError(f"{self.path} has an unknown field {min(self.data)!r}")


_NAMES = {str: "a string", int: "a whole number", list: "a list", bool: "true or false"}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {dict: "an object", float: "a fraction", **_NAMES}.get(type(value), "something else")


def _func(item: _Object) -> FuncSchedule:
    order = item.naturals("storage_order", "dimensions")
    there = item.data
    result = FuncSchedule(
        func=item.natural("func", 0),
        compute=_level(item, "compute"),
        store=_level(item, "store"),
        memory=item.one_of("memory", MemoryType),
        stages=tuple(_stage(stage) for stage in item.items("stages")),
        align_storage=item.natural("align_storage", 1),
        storage_order=order,
        hoist=_level(item, "hoist") if "hoist" in there else None,
        storage=tuple(map(_storage, item.items("storage"))) if "storage" in there else (),
        bounds=tuple(map(_bounds, item.items("bounds"))) if "bounds" in there else (),
        run_async=item.take("run_async", bool) if "run_async" in there else False,
        ring_buffer=item.natural("ring_buffer", 0) if "ring_buffer" in there else 0,
    )
    item.done()
    return result


def _clone(item: _Object) -> Clone:
    wrapper = item.take("wrapper", bool) if "wrapper" in item.data else False
    result = Clone(item.natural("func", 0), item.naturals("readers", "Funcs"), wrapper)
    item.done()
    return result


def _factored(item: _Object) -> Factored:
    func, stage = item.natural("func", 0), item.natural("stage", 0)
    rvars = item.take("rvars", list)
    if not all(isinstance(name, str) for name in rvars):
        raise ScheduleError(f"{item.path}.rvars must be a list of loops")
    splits = tuple(_change(change) for change in item.items("splits"))
    if not all(isinstance(split, Split) for split in splits):
        raise ScheduleError(f"{item.path}.splits has a fusion; only splits are possible here")
    item.done()
    return Factored(func, stage, tuple(rvars), tuple(s for s in splits if isinstance(s, Split)))


def _variant(item: _Object) -> SizeVariant:
    nests = []
    for func in item.items("nests"):
        nests.append(tuple(_stage(stage) for stage in func.items("stages")))
        func.done()
    result = SizeVariant(tuple(_condition(c) for c in item.items("sizes")), tuple(nests))
    item.done()
    return result


def _storage(item: _Object) -> StorageDim:
    result = StorageDim(
        item.natural("dimension", 0),
        item.natural("align", 1),
        item.natural("bound", 0),
        item.natural("fold", 0),
        item.take("forward", bool),
    )
    item.done()
    return result


def _bounds(item: _Object) -> DimensionBounds:
    dimension, extent = item.natural("dimension", 0), item.natural("extent", 0)
    modulus = item.natural("modulus", 1)
    free = item.data.get("remainder", 0) is None
    remainder = item.data.pop("remainder") if free else item.natural("remainder", 0)
    item.done()
    return DimensionBounds(dimension, extent, modulus, remainder)


def _prefetch(item: _Object) -> Prefetch:
    result = Prefetch(
        item.natural("func", 0),
        item.take("at", str),
        item.take("along", str),
        item.take("distance", int),
        item.one_of("strategy", PrefetchStrategy),
    )
    item.done()
    return result


def _compute_with(item: _Object) -> ComputeWith:
    align = []
    for pair in item.items("align"):
        align.append((pair.take("loop", str), pair.one_of("strategy", LoopAlign)))
        pair.done()
    result = ComputeWith(
        item.natural("func", 0), item.natural("stage", 0), item.take("loop", str), tuple(align)
    )
    item.done()
    return result


def _known(item: _Object) -> KnownValue:
    result = KnownValue(
        item.natural("parameter", 0),
        item.one_of("field", Literal["value", "min", "extent", "stride"]),
        item.natural("dimension", 0),
        item.take("value", int),
        item.take("least", bool) if "least" in item.data else False,
        item.take("multiple", bool) if "multiple" in item.data else False,
    )
    if result.multiple and (result.value < 1 or result.least):
        raise ScheduleError(
            f"{item.path} is a condition on a multiple of {result.value}; give a value of at least "
            "1, and not least"
        )
    item.done()
    return result


def _condition(item: _Object) -> CallCondition:
    if "output" not in item.data:
        return _known(item)
    if "field" in item.data:
        value = OutputValue(
            item.natural("output", 0),
            item.one_of("field", Literal["min", "extent", "stride"]),
            item.natural("dimension", 0),
            item.take("value", int),
        )
        item.done()
        return value
    result = OutputExtent(
        item.natural("output", 0),
        item.natural("dimension", 0),
        item.natural("minimum", 1),
        item.natural("multiple", 1),
        item.natural("start", 1) if "start" in item.data else 1,
    )
    item.done()
    return result


def _level(item: _Object, name: str) -> Level:
    value = item.data.pop(name, None)
    if value == "inline":
        return INLINE
    if value == "root":
        return ROOT
    if not isinstance(value, dict):
        raise ScheduleError(
            f"{item.path}.{name} must be 'inline', 'root' or an object with func, stage and loop"
        )
    level = _Object(value, f"{item.path}.{name}")
    result = Level(
        "at", level.natural("func", 0), level.natural("stage", 0), level.take("loop", str)
    )
    level.done()
    return result


def _stage(item: _Object) -> StageSchedule:
    there = item.data
    shared = item.data.pop("compute_with", None)
    shared_path = f"{item.path}.compute_with"
    result = StageSchedule(
        splits=tuple(_change(change) for change in item.items("splits")),
        loops=tuple(_loop(loop) for loop in item.items("loops")),
        atomic=item.take("atomic", bool),
        single_thread=item.take("single_thread", bool),
        specialize=tuple(_condition(known) for known in item.items("specialize")),
        prefetch=tuple(map(_prefetch, item.items("prefetch"))) if "prefetch" in there else (),
        compute_with=None if shared is None else _compute_with(_Object(shared, shared_path)),
        allow_races=item.take("allow_races", bool) if "allow_races" in there else False,
        sizes=tuple(_condition(c) for c in item.items("sizes")) if "sizes" in there else (),
    )
    item.done()
    return result


def _change(item: _Object) -> Split | Fuse:
    result: Split | Fuse
    if "fused" in item.data:
        result = Fuse(item.take("inner", str), item.take("outer", str), item.take("fused", str))
    else:
        result = Split(
            item.take("old", str),
            item.take("outer", str),
            item.take("inner", str),
            item.natural("factor", 1),
            item.one_of("tail", Tail),
        )
    item.done()
    return result


def _loop(item: _Object) -> ScheduledLoop:
    result = ScheduledLoop(
        item.take("name", str),
        item.one_of("mapping", Mapping),
        item.one_of("partition", Partition),
    )
    item.done()
    return result
