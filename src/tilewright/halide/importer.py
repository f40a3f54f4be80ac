"""From the bytes of Halide's serialisation to an `Algorithm`."""

from __future__ import annotations

import hashlib
from typing import Any

from tilewright.halide.algorithm import (
    Algorithm,
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
)
from tilewright.halide.serial.expressions import Expressions
from tilewright.halide.serial.reader import MalformedError, Record, read
from tilewright.halide.serial.schema import DIM_TYPES


def import_pipeline(serialized: bytes) -> Algorithm:
    """Read a serialised pipeline.

    Raises `MalformedError` where the bytes are not one.
    """
    root = read(serialized, "Pipeline")
    version = root.serialization_version or ""
    if not version.startswith("18."):
        raise MalformedError(
            f"the pipeline was written with serialisation version {version!r} "
            f"(Halide {root.halide_version!r}); this version of Tilewright reads 18 (Halide 21)"
        )
    expressions = Expressions()
    records = {func.name: func for func in root.funcs}
    funcs = {name: _func(record, expressions) for name, record in records.items()}
    return Algorithm(
        funcs=tuple(funcs[name] for name in _realisation_order(funcs, root.output_names)),
        outputs=tuple(root.output_names),
        parameters=tuple(
            Parameter(p.name, expressions.type(p.type), p.dimensions, bool(p.is_buffer))
            for p in root.external_parameters
        ),
        buffers=tuple(
            EmbeddedBuffer(
                b.name, expressions.type(b.type), tuple(Span(d.min, d.extent) for d in b.dims)
            )
            for b in root.buffers
        ),
        digest=hashlib.sha256(serialized).hexdigest(),
        serialized=serialized,
    )


def _realisation_order(funcs: dict[str, Func], outputs: tuple[str, ...]) -> list[str]:
    """Producers before consumers, in an order that does not depend on names.

    Halide's own order breaks ties by name, and automatic names differ from one build of a
    pipeline to the next; here a Func's producers come in the order in which it calls them.
    """
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(name, False) for name in reversed(outputs)]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in entered:
            if name not in funcs:
                raise MalformedError(f"the pipeline calls {name!r} but does not define it")
            entered.add(name)
            stack.append((name, True))
            stack.extend((callee, False) for callee in reversed(_callees(funcs[name])))
    return list(order)


def _callees(func: Func) -> list[str]:
    names = [call.name for stage in func.stages for call in stage.calls if call.kind == "func"]
    if func.extern is not None:
        names += func.extern.reads
    return [name for name in dict.fromkeys(names) if name != func.name]


def _func(record: Record, expressions: Expressions) -> Func:
    definitions = [record.init_def, *record.updates]
    stages = tuple(
        _stage(record.name, i, definition, expressions)
        for i, definition in enumerate(definitions)
        if definition is not None
    )
    schedule = record.func_schedule
    extern = None
    if record.extern_function_name:
        extern = ExternStage(record.extern_function_name, ())
        stages = ()
    return Func(
        name=record.name,
        args=tuple(record.args),
        types=tuple(expressions.type(t) for t in record.output_types),
        stages=stages,
        extern=extern,
        estimates=_spans(schedule.estimates, expressions),
        bounds=_spans(schedule.bounds, expressions),
        memoized=bool(schedule.memoized),
    )


def _spans(bounds: tuple[Record, ...], expressions: Expressions) -> dict[str, Span]:
    spans = {}
    for bound in bounds:
        low, extent = (
            getattr(expressions.build(e), "value", None) if _defined(e) else None
            for e in (bound.min, bound.extent)
        )
        if isinstance(low, int) and isinstance(extent, int):
            spans[bound.var] = Span(low, extent)
    return spans


def _defined(record: Record | None) -> bool:
    return record is not None and record.table != "UndefinedExpr"


def _stage(func: str, index: int, record: Record, expressions: Expressions) -> Stage:
    schedule = record.stage_schedule
    expressions.rvars = frozenset(r.var for r in schedule.rvars)
    loops = tuple(
        Loop(dim.var, _loop_kind(dim.dim_type)) for dim in schedule.dims if dim.var != "__outermost"
    )
    return Stage(
        func=func,
        index=index,
        args=tuple(expressions.build(e) for e in record.args),
        values=tuple(expressions.build(e) for e in record.values),
        predicates=_conjuncts(expressions.build(record.predicate)),
        loops=loops,
        rvars=tuple(
            ReductionVariable(r.var, expressions.build(r.min), expressions.build(r.extent))
            for r in schedule.rvars
        ),
    )


def _loop_kind(code: int) -> Any:
    """The kind of loop that a dimension's type code stands for."""
    if code >= len(DIM_TYPES):
        raise MalformedError(f"{code} is not a kind of loop")
    return DIM_TYPES[code]


def _conjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """The terms of a conjunction, literal truths left out."""
    terms = []
    stack = [predicate]
    while stack:
        term = stack.pop()
        if isinstance(term, Op) and term.name == "and":
            stack.extend(reversed(term.args))
        elif getattr(term, "value", None) != 1:
            terms.append(term)
    return tuple(terms)
