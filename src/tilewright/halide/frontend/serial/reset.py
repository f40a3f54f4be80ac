"""Remove the schedule from a pipeline's bytes.

The result keeps the computation and the user's promises: estimates, bounds, constraints, traces and
memoisation. It drops levels, memory and layout, async, the nests of all stages, specialisations,
prefetches and ``align_bounds``. It also drops Funcs made by ``in_`` and ``clone_in``, whose readers
then read the original. It keeps the effect of ``rfactor``, which changed the algorithm.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.halide.frontend.serial.reader import MalformedError, Record, read
from tilewright.halide.frontend.serial.scheduled import defined
from tilewright.halide.frontend.serial.validate import validate
from tilewright.halide.frontend.serial.writer import write

OUTERMOST = "__outermost"
# The name of the Func that rfactor makes for partial results. Its loops have the order that the
# loops of the original Func had.
PARTIAL = re.compile(r"_intm(\$\d+)?$")
SPLIT, RENAME, FUSE = range(3)  # Split.split_type
PURE, PURE_RVAR, IMPURE_RVAR = range(3)  # Dim.dim_type
_EXTERN_LOOP = 4  # Dim.for_type
_FLAGS = ("touched", "allow_race_conditions", "atomic", "override_atomic_associativity_test")


def without_schedule(serialized: bytes) -> bytes:
    """Return a serialised pipeline without its schedule.

    Raises:
        MalformedError: The bytes are not a pipeline.
    """
    root = read(serialized, "Pipeline")
    validate(root)
    drop_schedule(root)
    return write(root)


def drop_schedule(root: Record, keep_extents: bool = True) -> None:
    """Remove the schedule of every Func of a `Pipeline` table, in place.

    Extents that the user has promised (``bound_extent``) are removed, too, unless `keep_extents`
    is set.
    """
    dropped = droppable_wrappers(root)
    for func in root.funcs:
        schedule = func.func_schedule
        schedule.__dict__["wrappers"] = tuple(
            link
            for link in schedule.wrappers
            if root.funcs[link.func_index].name not in dropped.get(func.name, ())
        )
        _reset_func(func, keep_extents)
        for index, definition in enumerate([func.init_def, *func.updates]):
            if definition is not None:
                definition.__dict__["specializations"] = ()
                _reset_stage(func, definition, index)
    _restore_outputs(root)


def _restore_outputs(root: Record) -> None:
    """Turn outputs whose sizes only specialisations use into ordinary parameters, in place.

    If a condition uses the size of an output, Halide lists the output among the external
    parameters, without its constraints. Without the specialisation it must not be there.
    """
    outputs = {buffer for f in root.funcs for buffer in f.output_buffers_names}
    outputs &= {p.name for p in root.external_parameters}
    if not outputs:
        return
    read: set[str] = set()
    stack: list[Any] = [*root.funcs, *root.requirements]
    while stack:
        value = stack.pop()
        if isinstance(value, Record):
            read.add(value.__dict__.get("param_name") or "")
            stack.extend(v for v in value.__dict__.values() if isinstance(v, Record | tuple))
        elif isinstance(value, tuple):
            stack.extend(value)
    moved = [p for p in root.external_parameters if p.name in outputs - read]
    kept = [p for p in root.external_parameters if p.name not in outputs - read]
    root.__dict__["external_parameters"] = tuple(kept)
    root.__dict__["parameters"] = (*root.parameters, *map(_output_parameter, moved))


def _output_parameter(external: Record) -> Record:
    """Return the parameter of an output, with Halide's default constraints."""
    constraints = []
    for dimension in range(external.dimensions):
        constraint = Record("BufferConstraint", -1)
        fields = ("min", "extent", "stride", "min_estimate", "extent_estimate")
        constraint.__dict__.update({field: _undefined() for field in fields})
        if dimension == 0:
            constraint.__dict__["stride"] = _int32(1)
        constraints.append(constraint)
    parameter = Record("Parameter", -1)
    parameter.__dict__.update(
        defined=1,
        is_buffer=1,
        type=external.type,
        dimensions=external.dimensions,
        name=external.name,
        host_alignment=(external.type.bits + 7) // 8,
        buffer_constraints=tuple(constraints),
        memory_type=0,
        scalar_data=0,
    )
    for field in ("scalar_default", "scalar_min", "scalar_max", "scalar_estimate"):
        parameter.__dict__[field] = None
    return parameter


def _reset_func(func: Record, keep_extents: bool) -> None:
    schedule = func.func_schedule
    # Halide inlines neither memoised nor extern Funcs, and no schedule sets their level later.
    root = bool(schedule.memoized or func.extern_function_name)
    for level in ("compute_level", "store_level", "hoist_storage_level"):
        at_root = root and level != "hoist_storage_level"
        schedule.__dict__[level].__dict__.update(
            func_name="", var_name="__root" if at_root else "", stage_index=-1, is_rvar=0, locked=0
        )
    by_name = {dim.var: dim for dim in schedule.storage_dims}
    if set(by_name) == set(func.args):
        schedule.__dict__["storage_dims"] = tuple(by_name[arg] for arg in func.args)
    for dim in schedule.storage_dims:
        dim.__dict__.update({name: _undefined() for name in ("alignment", "bound", "fold_factor")})
        dim.__dict__["fold_forward"] = 0
    schedule.__dict__["bounds"] = tuple(
        bound
        for bound in schedule.bounds
        if not defined(bound.modulus) and (keep_extents or defined(bound.min))
    )
    schedule.__dict__.update({"memory_type": 0, "async": 0, "ring_buffer": _undefined()})


def _reset_stage(func: Record, definition: Record, index: int) -> None:
    schedule = definition.stage_schedule
    loops = original_loops(schedule)
    rvars = [rvar.var for rvar in schedule.rvars]
    order = [*rvars, *(arg for arg in func.args if arg in loops)]
    if index > 0 and PARTIAL.search(func.name):
        order = list(loops)
    extern = any(dim.for_type == _EXTERN_LOOP for dim in schedule.dims)
    if not extern and sorted(order) == sorted(loops):
        dims = [_dim(name, loops[name] if name in rvars else PURE) for name in order]
        schedule.__dict__["dims"] = (*dims, _dim(OUTERMOST, PURE))
    level = schedule.fuse_level.fuse_level
    level.__dict__.update(func_name="", var_name="", stage_index=-1, is_rvar=0, locked=1)
    schedule.fuse_level.__dict__.update(align_dimension_names=(), align_strategies=b"")
    schedule.__dict__.update(splits=(), prefetches=(), fused_pairs=())
    for flag in (
        "touched",
        "allow_race_conditions",
        "atomic",
        "override_atomic_associativity_test",
    ):
        schedule.__dict__[flag] = 0


def original_loops(schedule: Record) -> dict[str, int]:
    """Return the loops that a stage had before any split or fusion, with the kind of each.

    They are in the order of the final loops, innermost first. If an impure reduction variable was
    fused with another one, both count as impure.
    """
    loops = [(dim.var, dim.dim_type) for dim in schedule.dims]
    for split in reversed(schedule.splits):
        names = [split.old_var]
        if split.split_type == SPLIT:
            names = [split.inner, split.outer]
        elif split.split_type == RENAME:
            names = [split.outer]
        found = [i for i, (name, _) in enumerate(loops) if name in names]
        if not found:
            raise MalformedError(f"a split makes the loop {names[0]}, which does not exist")
        kind = max(loops[i][1] for i in found)
        at = found[0]
        loops = [loop for i, loop in enumerate(loops) if i not in found]
        olds = [split.inner, split.outer] if split.split_type == FUSE else [split.old_var]
        loops[at:at] = [(old, kind) for old in olds]
    return {name: kind for name, kind in loops if name != OUTERMOST}


def droppable_wrappers(root: Record) -> dict[str, set[str]]:
    """Return, for each Func, its wrappers and clones that only a schedule needs, by name.

    A wrapper or clone whose definitions the user changed is part of the algorithm and omitted.
    """
    result: dict[str, set[str]] = {}
    for func in root.funcs:
        for link in func.func_schedule.wrappers:
            if not 0 <= link.func_index < len(root.funcs):
                raise MalformedError(f"a wrapper of {func.name} is not in the pipeline")
            wrapper = root.funcs[link.func_index]
            if is_wrapper_of(wrapper, func) or is_clone_of(wrapper, func):
                result.setdefault(func.name, set()).add(wrapper.name)
    return result


def is_wrapper_of(wrapper: Record, func: Record) -> bool:
    """Return whether the values of `wrapper` are those of `func`, as after ``in_``."""
    definition = wrapper.init_def
    if definition is None or wrapper.updates or len(definition.values) != len(func.output_types):
        return False
    return all(
        value.table == "Call"
        and (value.name, value.value_index) == (func.name, i)
        and [arg.table == "Variable" and arg.name for arg in value.args] == list(wrapper.args)
        for i, value in enumerate(definition.values)
    )


def is_clone_of(clone: Record, func: Record) -> bool:
    """Return whether `clone` has the same definitions as `func`, as after ``clone_in``."""
    if clone.extern_function_name or func.extern_function_name or clone.args != func.args:
        return False
    stages = [[f.init_def, *f.updates] for f in (clone, func)]
    if None in (*stages[0], *stages[1]) or len(stages[0]) != len(stages[1]):
        return False
    stack: list[tuple[Any, Any]] = []
    for one, other in zip(*stages, strict=True):
        stack += [(one.predicate, other.predicate)]
        stack += [(one.values, other.values), (one.args, other.args)]
        stack += [(one.stage_schedule.rvars, other.stage_schedule.rvars)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, Record) and isinstance(other, Record):
            if one.table != other.table:
                return False
            for field, value in one.__dict__.items():
                if one.table != "Call" or field != "func_index":
                    stack.append((value, other.__dict__[field]))
        elif isinstance(one, tuple) and isinstance(other, tuple):
            if len(one) != len(other):
                return False
            stack.extend(zip(one, other, strict=True))
        elif one != other and (one, other) != (clone.name, func.name):
            return False
    return True


def _dim(var: str, kind: int) -> Record:
    dim = Record("Dim", -1)
    dim.__dict__.update(var=var, for_type=0, device_api=0, dim_type=kind, partition_policy=0)
    return dim


def _int32(value: int) -> Record:
    kind, literal = Record("Type", -1), Record("IntImm", -1)
    kind.__dict__.update(code=0, bits=32, lanes=1)
    literal.__dict__.update(value=value, type=kind)
    return literal


def _undefined() -> Record:
    return Record("UndefinedExpr", -1)
