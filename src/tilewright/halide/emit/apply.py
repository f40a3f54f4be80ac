"""Apply a schedule to a live Halide pipeline."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

from tilewright.halide.emit.directives import (
    Argument,
    Condition,
    EnumRef,
    FuncRef,
    LoopRef,
    Outermost,
    Pairs,
    StageRef,
    directives,
)
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import LiveFuncs, known_condition, live_parameters
from tilewright.halide.frontend.serial.reset import without_schedule
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import clone_calls, factor_calls, with_clones
from tilewright.halide.ir.factored import FactorCall
from tilewright.halide.ir.loops import origin
from tilewright.halide.ir.names import FuncNames, LoopNames, algorithm_names, loop_names
from tilewright.halide.ir.schedule import (
    KnownValue,
    OutputExtent,
    OutputValue,
    Schedule,
    ScheduleError,
)


def apply(
    schedule: Schedule, algorithm: Algorithm, pipeline: Any, *, same_bytes: bool = False
) -> None:
    """Apply `schedule` to the ``halide.Pipeline`` `pipeline`.

    Halide cannot undo a schedule, so apply each schedule to a new pipeline. The pipeline may be
    another build of the same algorithm, with other automatic names: it is serialised, and Funcs are
    matched by their position in realisation order.

    Args:
        schedule: The schedule.
        algorithm: The algorithm that it was made for.
        pipeline: The ``halide.Pipeline``.
        same_bytes: Whether `pipeline` was just deserialised from ``algorithm.serialized``, so that
            it need not be serialised to compare the two.

    Raises:
        ScheduleError: The schedule was not made for this algorithm or pipeline, or the pipeline
            already has a schedule.
        halide.HalideError: Halide refuses a directive.
    """
    check_digest(schedule, algorithm)
    algorithm = with_clones(algorithm, ())
    live = algorithm if same_bytes else _imported(pipeline)
    if live.digest != algorithm.digest:
        if _scheduled_already(live, algorithm):
            raise ScheduleError(
                "this pipeline already has a schedule, and Halide cannot undo it; build the "
                "pipeline again and apply one schedule to it"
            )
        raise ScheduleError(
            "the schedule was made for a pipeline with another computation (its digest is "
            f"{algorithm.digest[:12]}, this pipeline's {live.digest[:12]}); schedule this pipeline"
        )
    funcs: Sequence[Any] = LiveFuncs(live, pipeline)
    known = algorithm_names(live)
    if schedule.clones:
        funcs = _extended(schedule, algorithm, live, funcs)
        known = tuple(_names(func) for func in funcs)
    algorithm = with_clones(algorithm, schedule.clones)
    names = loop_names(schedule, algorithm, known)
    wanted = directives(schedule, algorithm)
    params = []
    if any(directive.method == "specialize" for directive in wanted):
        by_name = live_parameters(pipeline)
        params = [by_name.get(parameter.name) for parameter in live.parameters]
    made: dict[tuple[int, int, int], Any] = {}
    for directive in wanted:
        place = directive.func, directive.stage
        target = funcs[directive.func]
        if directive.branch:
            target = made[*place, directive.branch]
        elif directive.stage > 0:
            target = target.update(directive.stage - 1)
        args = [_argument(arg, funcs, names, params) for arg in directive.args]
        result = getattr(target, directive.method)(*args)
        if directive.makes:
            made[*place, directive.makes] = result


def halide_target(target: str) -> Any:
    """Return the ``halide.Target`` of a schedule's target string.

    ``host`` is this machine, and ``cuda`` and ``opencl`` are this machine with that device. Any
    other string is a Halide target string.

    Raises:
        ScheduleError: Halide does not know the target.
    """
    import halide as hl

    if target in ("cuda", "opencl"):
        target = f"host-{target}"
    try:
        return hl.Target(target)
    except hl.HalideError:  # its message lists every feature that Halide has
        raise ScheduleError(
            f"Halide does not know the target {target!r}; use host, cuda, opencl, or a target "
            "string such as host-cuda or x86-64-linux-avx2"
        ) from None


def check_digest(schedule: Schedule, algorithm: Algorithm) -> None:
    """Raise `ScheduleError` unless `schedule` was made for `algorithm`."""
    if schedule.algorithm != algorithm.digest:
        raise ScheduleError(
            f"the schedule was made for the algorithm {schedule.algorithm[:12]}, not for this one "
            f"({algorithm.digest[:12]}); schedule this one"
        )


def _scheduled_already(live: Algorithm, algorithm: Algorithm) -> bool:
    """Return whether `live` is `algorithm` with a schedule."""
    return import_pipeline(without_schedule(live.serialized)).digest == algorithm.digest


def _imported(pipeline: Any) -> Algorithm:
    import halide as hl

    return import_pipeline(bytes(hl.serialize_pipeline(pipeline)))


def _extended(
    schedule: Schedule, algorithm: Algorithm, live: Algorithm, funcs: Sequence[Any]
) -> list[Any]:
    """Add the schedule's Funcs; return all live Funcs in the order of the extended algorithm.

    `live` is the algorithm with the names in the live pipeline.
    """
    extended = with_clones(algorithm, schedule.clones)
    given = iter(funcs)
    added = {*extended.partials, *(copy.name for copy in extended.copies)}
    result: list[Any] = [None if func.name in added else next(given) for func in extended.funcs]
    for call in factor_calls(live, schedule.clones):
        result[call.result] = _split_reduction(result[call.func], call)
    for copied in clone_calls(algorithm, schedule.clones):
        readers = [result[reader] for reader in copied.readers]
        of = result[copied.func]
        copy = of.in_ if copied.wrapper else of.clone_in
        result[copied.result] = copy(readers if len(readers) > 1 else readers[0])
    return result


def _split_reduction(func: Any, call: FactorCall) -> Any:
    """Call ``split`` and ``rfactor`` on an update; return the Func of partial results."""
    import halide as hl

    def loop(name: str) -> Any:
        if name in call.names:
            return hl.RVar(call.names[name])
        place = origin(name)
        assert place is not None
        return func.rvars(call.stage - 1)[place[1]]

    update = func.update(call.stage - 1)
    pairs = [loop(name) for name in call.rvars]
    for split in call.splits:
        names = (loop(split.old), loop(split.outer), loop(split.inner))
        update.split(*names, split.factor, hl.TailStrategy.GuardWithIf)
    variables = [hl.Var(name) for name in call.vars]
    return update.rfactor(list(zip(pairs, variables, strict=True)))


def _names(func: Any) -> FuncNames:
    updates = range(func.num_update_definitions())
    return FuncNames(
        func.name(),
        tuple(arg.name() for arg in func.args()),
        ((), *(tuple(rvar.name() for rvar in func.rvars(i)) for i in updates)),
    )


def _condition(func: Any, extent: OutputExtent | OutputValue) -> Any:
    """Return the condition on an output's dimension as a ``halide.Expr``."""
    dimension = func.output_buffers()[0].dim(extent.dimension)
    if isinstance(extent, OutputValue):
        return getattr(dimension, extent.field)() == extent.value
    condition = dimension.extent() >= extent.minimum
    if extent.multiple > 1:
        condition = condition & (dimension.extent() % extent.multiple == 0)
    return condition & (dimension.min() % extent.start == 0) if extent.start > 1 else condition


def _argument(arg: Argument, funcs: Sequence[Any], names: LoopNames, params: Sequence[Any]) -> Any:
    import halide as hl

    if isinstance(arg, LoopRef):
        name = names(arg.func, arg.stage, arg.name)
        return hl.RVar(name) if arg.reduction else hl.Var(name)
    if isinstance(arg, FuncRef):
        return funcs[arg.func]
    if isinstance(arg, StageRef):
        func = funcs[arg.func]
        return func.update(arg.stage - 1) if arg.stage else func
    if isinstance(arg, Pairs):
        return [tuple(_argument(a, funcs, names, params) for a in pair) for pair in arg.items]
    if isinstance(arg, Condition):
        conditions = [
            known_condition(params[known.parameter], known)
            if isinstance(known, KnownValue)
            else _condition(funcs[known.func], known)
            for known in arg.known
        ]
        return functools.reduce(operator.and_, conditions)
    if isinstance(arg, Outermost):
        return hl.Var.outermost()
    if isinstance(arg, EnumRef):
        return getattr(getattr(hl, arg.enumeration), arg.value)
    return arg
