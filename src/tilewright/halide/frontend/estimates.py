"""Add the sizes and scalar values that a pipeline is scheduled for, and find missing ones."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.ir.algorithm import Algorithm, Func, Parameter, Span

_INT32 = range(-(2**31), 2**31)


class MissingEstimatesError(TilewrightError):
    """Estimates of sizes or values are missing.

    `missing` maps the name of a Func or input to its dimensions without an estimate, and the name
    of a scalar to an empty tuple.
    """

    def __init__(self, missing: Mapping[str, tuple[str, ...]]) -> None:
        """See the class for `missing`."""
        self.missing = dict(missing)
        what = [
            f"{name} ({', '.join(dims)})" if dims else f"{name} (a value)"
            for name, dims in missing.items()
        ]
        example = {
            name: [(0, 1024)] * len(dims) if dims else 1 for name, dims in self.missing.items()
        }
        super().__init__(
            f"the pipeline has no estimates of {'; '.join(what)}. Set them in the pipeline "
            "(set_estimates, Param.set_estimate), or pass them, for example "
            f"estimates={example!r}"
        )


def with_estimates(algorithm: Algorithm, estimates: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm with estimates added, which take precedence over existing ones.

    Args:
        algorithm: The algorithm.
        estimates: Maps the name of an output (or any Func) or of an input buffer to a sequence of
            ``(min, extent)`` pairs, one per dimension (None keeps the existing estimate), and the
            name of a scalar parameter to a number.

    Raises:
        TilewrightError: A name is unknown, or an estimate has the wrong form or is out of range.
    """
    scalars = dict(algorithm.scalars)
    parameters = {p.name: p for p in algorithm.parameters}
    funcs = {f.name: f for f in algorithm.funcs}
    for written, given in estimates.items():
        name = full_name(written, algorithm)
        parameter = parameters.get(name)
        if parameter is not None and not parameter.is_buffer:
            scalars[name] = _scalar(name, given, parameter)
        elif parameter is not None:
            known = parameter.estimates or (None,) * parameter.dimensions
            spans = _spans(name, given, parameter.dimensions)
            merged = tuple(new or old for new, old in zip(spans, known, strict=True))
            parameters[name] = replace(parameter, estimates=merged)
        else:
            func = funcs[name]
            spans = _spans(name, given, len(func.args))
            new = {arg: span for arg, span in zip(func.args, spans, strict=True) if span}
            funcs[name] = replace(func, estimates={**func.estimates, **new})
    return replace(
        algorithm,
        funcs=tuple(funcs[f.name] for f in algorithm.funcs),
        parameters=tuple(parameters[p.name] for p in algorithm.parameters),
        scalars=scalars,
    )


def full_name(name: str, algorithm: Algorithm) -> str:
    """Return Halide's full name for the user's `name`: Halide may rename ``f`` to ``f$1``."""
    names = {f.name for f in algorithm.funcs} | {p.name for p in algorithm.parameters}
    if name in names:
        return name
    close = [full for full in algorithm.outputs if full.split("$")[0] == name]
    if len(close) != 1:
        places = sorted({*algorithm.outputs, *(p.name for p in algorithm.parameters)})
        raise TilewrightError(
            f"the pipeline has no output, input or parameter {name!r}; it has {', '.join(places)}"
        )
    return close[0]


def output_spans(func: Func) -> tuple[Span | None, ...]:
    """Return the range of each dimension of an output: its estimate, or the promised bound."""
    return tuple(func.estimates.get(arg, func.bounds.get(arg)) for arg in func.args)


def missing_estimates(algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Return the missing estimates, in the form of `MissingEstimatesError.missing`."""
    missing: dict[str, tuple[str, ...]] = {}
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        spans = zip(func.args, output_spans(func), strict=True)
        dims = tuple(arg for arg, span in spans if span is None)
        if dims:
            missing[name] = dims
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            ranges = parameter.estimates or (None,) * parameter.dimensions
            dims = tuple(str(d) for d, span in enumerate(ranges) if span is None)
            if dims:
                missing[parameter.name] = dims
        elif parameter.name not in algorithm.scalars:
            missing[parameter.name] = ()
    return missing


def _scalar(name: str, given: Any, parameter: Parameter) -> int | float:
    kind = parameter.type
    try:
        if kind.code in ("float", "bfloat"):
            return float(given)
        value = operator.index(given)
    except (TypeError, ValueError):
        raise TilewrightError(
            f"the value of {name} must be a number of type {kind}, not {given!r}"
        ) from None
    low = -(1 << (kind.bits - 1)) if kind.code == "int" else 0
    if not low <= value < low + (1 << kind.bits):
        raise TilewrightError(f"the value {value} of {name} does not fit into {kind}")
    return value


def _spans(name: str, given: Any, dimensions: int) -> tuple[Span | None, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != dimensions:
        raise TilewrightError(
            f"the estimate of {name} must be {dimensions} pairs (min, extent), not {given!r}"
        )
    return tuple(_span(name, pair) for pair in given)


def _span(name: str, pair: Any) -> Span | None:
    if pair is None or isinstance(pair, Span):
        return pair
    try:
        low, extent = (operator.index(number) for number in pair)
    except (TypeError, ValueError):
        raise TilewrightError(
            f"the estimate of {name} has {pair!r} in place of a pair (min, extent)"
        ) from None
    if extent < 1 or low not in _INT32 or low + extent - 1 not in _INT32:
        raise TilewrightError(
            f"the estimate of {name} has min {low} and extent {extent}; the extent must be "
            "positive, and every coordinate must fit into 32 bits"
        )
    return Span(low, extent)
