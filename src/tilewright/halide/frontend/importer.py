"""Convert the bytes of Halide's serialisation to an `Algorithm`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from tilewright.halide.frontend.digest import digest
from tilewright.halide.frontend.serial.expressions import Expressions
from tilewright.halide.frontend.serial.reader import MalformedError, Record, VersionError, read
from tilewright.halide.frontend.serial.scheduled import defined, hosts, is_scheduled
from tilewright.halide.frontend.serial.schema import (
    DIM_TYPES,
    EXTERN_ARGUMENTS,
    SERIALIZATION_VERSION,
)
from tilewright.halide.frontend.serial.validate import validate
from tilewright.halide.frontend.serial.wrappers import redirections
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    EmbeddedBuffer,
    Expr,
    ExternStage,
    Func,
    Loop,
    Op,
    Parameter,
    ReductionVariable,
    Span,
    Stage,
    Variable,
    Wrapper,
    walk,
)


def import_pipeline(serialized: bytes) -> Algorithm:
    """Return the `Algorithm` of a serialised pipeline.

    The bytes come from ``halide.serialize_pipeline`` or a ``.hlpipe`` file, written by Halide
    21.0.0 from C++ or Python. They need not be trusted. They have the estimates that the user set
    on an ImageParam, but no estimates of scalars: `tilewright.halide.frontend.source.load` adds the
    data that serialisation loses. Funcs that the user has scheduled are marked ``scheduled``.

    Raises:
        MalformedError: The bytes are not a pipeline or are damaged.
        VersionError: Another version of Halide wrote them.
    """
    if not serialized:
        raise MalformedError("the file is empty")
    root = read(serialized, "Pipeline", _check_version)
    validate(root)
    expressions = Expressions()
    names = [record.name for record in root.funcs]
    redirected = redirections(root.funcs)
    funcs = {
        record.name: _func(record, names, redirected[record.name], expressions, root)
        for record in root.funcs
    }
    funcs = _hosts_kept(funcs, root)
    _check_calls(funcs)
    order = _realisation_order(funcs, root.output_names)
    expressions.start({}, frozenset())
    algorithm = Algorithm(
        funcs=tuple(funcs[name] for name in order),
        outputs=tuple(root.output_names),
        parameters=tuple(_parameter(p, funcs, expressions) for p in root.external_parameters),
        buffers=tuple(_buffer(b, expressions) for b in root.buffers),
        digest="",
        serialized=serialized,
        requirements=tuple(expressions.build(r.condition) for r in root.requirements),
        wrappers=tuple(
            Wrapper(func.name, link.func_name, names[link.func_index])
            for func in root.funcs
            for link in func.func_schedule.wrappers
        ),
    )
    kept = {record.name: record for record in root.funcs if funcs[record.name].scheduled}
    object.__setattr__(algorithm, "digest", digest(algorithm, kept))
    return algorithm


def _check_version(root: Record) -> None:
    version, halide = root.serialization_version, root.halide_version
    if not version or not halide or not all(c.isdigit() or c == "." for c in version):
        raise MalformedError("the version that wrote them is missing")
    if version != SERIALIZATION_VERSION:
        raise VersionError(
            f"the pipeline was serialised by Halide {halide}, in version {version} of its format; "
            f"Tilewright reads version {SERIALIZATION_VERSION}; serialise the pipeline again with "
            "Halide 21.0.0"
        )


def _func(
    record: Record,
    names: list[str],
    redirected: dict[str, str],
    expressions: Expressions,
    root: Record,
) -> Func:
    schedule = record.func_schedule
    extern = None
    stages: tuple[Stage, ...] = ()
    if record.extern_function_name:
        expressions.start(redirected, frozenset())
        extern = _extern(record, names, redirected, expressions)
    else:
        definitions = [record.init_def, *record.updates]
        stages = tuple(
            _stage(record, i, definition, redirected, expressions)
            for i, definition in enumerate(definitions)
        )
    memoized = bool(schedule.memoized)
    output = record.name in root.output_names
    return Func(
        name=record.name,
        args=tuple(record.args),
        types=tuple(expressions.type(t) for t in record.output_types),
        stages=stages,
        extern=extern,
        estimates=_spans(schedule.estimates, expressions),
        bounds=_spans(schedule.bounds, expressions),
        memoized=memoized,
        scheduled=extern is None and not memoized and is_scheduled(record, output),
        strides=_strides(record, expressions, root) if output else (),
    )


def _hosts_kept(funcs: dict[str, Func], root: Record) -> dict[str, Func]:
    """Mark Funcs as scheduled if the user computes or stores other Funcs in their loops."""
    named = {name for record in root.funcs for name in hosts(record)}
    return {
        name: replace(func, scheduled=func.scheduled or (name in named and not func.fixed))
        for name, func in funcs.items()
    }


def _strides(record: Record, expressions: Expressions, root: Record) -> tuple[int | None, ...]:
    """Return the strides that the buffers of an output must have; None where unconstrained."""
    names = record.output_buffers_names
    for parameter in root.parameters:
        if parameter.name in names and len(parameter.buffer_constraints) == len(record.args):
            strides = [constraint.stride for constraint in parameter.buffer_constraints]
            known = [expressions.build(s) if defined(s) else None for s in strides]
            return tuple(int(s.value) if isinstance(s, Const) else None for s in known)
    return (None,) * len(record.args)


def _stage(
    func: Record,
    index: int,
    record: Record,
    redirected: dict[str, str],
    expressions: Expressions,
) -> Stage:
    schedule = record.stage_schedule
    rvars = [rvar.var for rvar in schedule.rvars]
    expressions.start(redirected, frozenset(rvars))
    args = tuple(expressions.build(e) for e in record.args)
    if len(args) != len(func.args) or len(record.values) != len(func.output_types):
        raise MalformedError(
            f"a definition of {func.name} has a wrong number of dimensions or values"
        )
    if index == 0:
        plain = [isinstance(arg, Variable) and arg.name for arg in args]
        if plain != list(func.args) or len(set(plain)) != len(plain):
            raise MalformedError(f"the pure definition of {func.name} is not pure")
    return Stage(
        func=func.name,
        index=index,
        args=args,
        values=tuple(expressions.build(e) for e in record.values),
        predicates=_conjuncts(expressions.build(record.predicate)),
        loops=_loops(func, schedule, index, args),
        rvars=tuple(
            ReductionVariable(r.var, expressions.build(r.min), expressions.build(r.extent))
            for r in schedule.rvars
        ),
    )


def _loops(func: Record, schedule: Record, index: int, args: tuple[Expr, ...]) -> tuple[Loop, ...]:
    """Return the loops of the stage as defined, without the user's splits and reordering."""
    kinds: dict[str, Any] = {}
    for dim in schedule.dims:
        if dim.dim_type >= len(DIM_TYPES):
            raise MalformedError(f"{dim.dim_type} is not a kind of loop")
        if dim.var != "__outermost":
            kinds[dim.var] = DIM_TYPES[dim.dim_type]
    rvars = [rvar.var for rvar in schedule.rvars]
    pure = [a.name for a in args if isinstance(a, Variable) and a.name in func.args]
    if set(kinds) == {*rvars, *pure} and len(kinds) == len(rvars) + len(pure):
        return tuple(Loop(name, kind) for name, kind in kinds.items())
    if not schedule.splits:
        raise MalformedError(f"the loops of stage {index} of {func.name} are not its variables")
    loops = [Loop(name, kinds.get(name, "impure_rvar")) for name in rvars]
    return (*loops, *(Loop(name, "pure") for name in pure))


def _extern(
    record: Record, names: list[str], redirected: dict[str, str], expressions: Expressions
) -> ExternStage:
    reads: list[str] = []
    scalars: list[Expr] = []
    kinds: list[str] = []
    for argument in record.extern_arguments:
        if argument.arg_type >= len(EXTERN_ARGUMENTS):
            raise MalformedError(f"{argument.arg_type} is not a kind of argument")
        kind = EXTERN_ARGUMENTS[argument.arg_type]
        kinds.append(kind)
        if kind == "func":
            if not 0 <= argument.func_index < len(names):
                raise MalformedError(f"{record.name} reads a Func that is not in the pipeline")
            name = names[argument.func_index]
            reads.append(redirected.get(name, name))
        elif kind == "buffer":
            reads.append(argument.buffer_name or "")
        elif kind == "image":
            reads.append(argument.image_param_name or "")
        elif kind == "expression":
            scalars.append(expressions.build(argument.expr))
    called = (node for node in walk(*scalars) if isinstance(node, Call))
    reads += (call.name for call in called if call.kind == "func" and call.name not in reads)
    return ExternStage(record.extern_function_name, tuple(reads), tuple(scalars), tuple(kinds))


def _parameter(record: Record, funcs: dict[str, Func], expressions: Expressions) -> Parameter:
    estimates: tuple[Span | None, ...] = ()
    if record.is_buffer:
        # Halide also sets an ImageParam's estimates on the Func that it makes to read it.
        known: dict[str, Span] = {}
        for func in funcs.values():
            if func.estimates and _reads_plainly(func, record.name):
                known = func.estimates
        estimates = tuple(known.get(f"_{d}") for d in range(record.dimensions))
    return Parameter(
        record.name,
        expressions.type(record.type),
        record.dimensions,
        bool(record.is_buffer),
        estimates,
        (None,) * len(estimates),
    )


def _reads_plainly(func: Func, image: str) -> bool:
    """Return whether `func` is the Func that Halide makes to read an ImageParam."""
    if not func.pure or func.args != tuple(f"_{d}" for d in range(len(func.args))):
        return False
    stage = func.stages[0]
    value = stage.values[0]
    return isinstance(value, Call) and value.name == image and value.args == stage.args


def _buffer(record: Record, expressions: Expressions) -> EmbeddedBuffer:
    dims = tuple(Span(d.min, d.extent) for d in record.dims)
    content = hashlib.sha256(record.data).hexdigest()
    return EmbeddedBuffer(record.name, expressions.type(record.type), dims, content)


def _spans(bounds: tuple[Record, ...], expressions: Expressions) -> dict[str, Span]:
    """Return the ranges with literal ends; of several ranges of one variable, the last."""
    expressions.start({}, frozenset())
    spans = {}
    for bound in bounds:
        if defined(bound.min) and defined(bound.extent):
            low, extent = expressions.build(bound.min), expressions.build(bound.extent)
            if isinstance(low, Const) and isinstance(extent, Const):
                spans[bound.var] = Span(int(low.value), int(extent.value))
    return spans


def _conjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """Return the terms of a conjunction, without literal true."""
    terms = []
    stack = [predicate]
    while stack:
        term = stack.pop()
        if isinstance(term, Op) and term.name == "and":
            stack.extend(reversed(term.args))
        elif not isinstance(term, Const) or not term.value:
            terms.append(term)
    return tuple(dict.fromkeys(terms))


def _check_calls(funcs: dict[str, Func]) -> None:
    for func in funcs.values():
        for stage in func.stages:
            for call in stage.calls:
                if call.kind != "func":
                    continue
                callee = funcs.get(call.name)
                if callee is None:
                    raise MalformedError(f"{func.name} calls {call.name}, which does not exist")
                if len(call.args) != len(callee.args) or not (
                    0 <= call.value_index < len(callee.types)
                ):
                    raise MalformedError(
                        f"{func.name} calls {call.name} with a wrong number of arguments or value"
                    )


def _realisation_order(funcs: dict[str, Func], outputs: tuple[str, ...]) -> list[str]:
    """Sort producers before consumers, in an order that does not depend on names.

    Halide's order breaks ties by name, and automatic names differ between builds of a pipeline.
    Here, a Func's producers are in the order in which the Func calls them.
    """
    order: dict[str, None] = {}
    open_: set[str] = set()
    stack = [(name, False) for name in reversed(outputs)]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
            open_.discard(name)
        elif name in open_:
            raise MalformedError(f"the Funcs call each other in a cycle, {name} among them")
        elif name not in order:
            if name not in funcs:
                raise MalformedError(f"{name} is not defined in the pipeline")
            open_.add(name)
            stack.append((name, True))
            callees = _callees(funcs[name], funcs)
            stack.extend((callee, False) for callee in reversed(callees) if callee not in order)
    return list(order)


def _callees(func: Func, funcs: dict[str, Func]) -> list[str]:
    names = [call.name for stage in func.stages for call in stage.calls if call.kind == "func"]
    if func.extern is not None:
        names += [name for name in func.extern.reads if name in funcs]
    return [name for name in dict.fromkeys(names) if name != func.name]
