"""Check whether a Func in a file has a schedule.

Every part of the schedule is compared with its default. Halide's flag ``touched`` is not used,
because ``rfactor`` sets it, too, and the effect of ``rfactor`` is part of the algorithm.
"""

from __future__ import annotations

import re

from tilewright.halide.frontend.serial.reader import Record

# The name of the Func that rfactor makes for partial results. Its loops have the order that the
# loops of the original Func had.
_PARTIAL = re.compile(r"_intm(\$\d+)?$")
_SERIAL, _EXTERN = 0, 4


def is_scheduled(func: Record, output: bool) -> bool:
    """Return whether the user has scheduled `func`; the default level of an output is root."""
    if _level_is_scheduled(func.func_schedule, output) or _storage_is_scheduled(func):
        return True
    partial = bool(_PARTIAL.search(func.name))
    return any(
        _stage_is_scheduled(func, definition, index, partial)
        for index, definition in enumerate([func.init_def, *func.updates])
        if definition is not None
    )


def _level_is_scheduled(schedule: Record, output: bool) -> bool:
    """Return whether a compute, store or hoist level differs from the default."""
    compute, store, hoist = (
        _level(level)
        for level in (schedule.compute_level, schedule.store_level, schedule.hoist_storage_level)
    )
    root = {"__root"} if output else set()
    return bool({compute, store} - {"", *root}) or bool(hoist)


def _storage_is_scheduled(func: Record) -> bool:
    """Return whether memory type, layout, storage dimensions or bounds differ from the default."""
    schedule = func.func_schedule
    if schedule.memory_type or schedule.__dict__["async"] or defined(schedule.ring_buffer):
        return True
    if any(defined(bound.modulus) for bound in schedule.bounds):
        return True
    if tuple(dim.var for dim in schedule.storage_dims) != tuple(func.args):
        return True
    return any(
        defined(dim.alignment) or defined(dim.bound) or defined(dim.fold_factor)
        for dim in schedule.storage_dims
    )


def _stage_is_scheduled(func: Record, definition: Record, index: int, partial: bool) -> bool:
    schedule = definition.stage_schedule
    if definition.specializations or schedule.splits or schedule.prefetches:
        return True
    if schedule.fused_pairs or _level(schedule.fuse_level.fuse_level):
        return True
    if schedule.atomic or schedule.allow_race_conditions:
        return True
    for dim in schedule.dims:
        if dim.for_type not in (_SERIAL, _EXTERN) or dim.device_api or dim.partition_policy:
            return True
    order = [dim.var for dim in schedule.dims if dim.var != "__outermost"]
    default = [rvar.var for rvar in schedule.rvars]
    default += [arg for arg in func.args if arg in order]
    return order != default and not (partial and index > 0)


def hosts(func: Record) -> frozenset[str]:
    """Return the Funcs that have a loop at which `func` is computed, stored or fused."""
    schedule = func.func_schedule
    levels = [schedule.compute_level, schedule.store_level, schedule.hoist_storage_level]
    definitions = [each for each in (func.init_def, *func.updates) if each is not None]
    levels += [each.stage_schedule.fuse_level.fuse_level for each in definitions]
    names = {level.func_name for level in levels if level is not None}
    return frozenset(name for name in names if name)


def _level(level: Record | None) -> str:
    """Return the loop of a level: empty for inlined, ``__root`` for root."""
    return "" if level is None else level.var_name or level.func_name or ""


def defined(record: Record | None) -> bool:
    """Return whether an optional expression is present."""
    return record is not None and record.table != "UndefinedExpr"
