"""Infer the extents of inputs from the estimates of outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.halide.analysis.bounds import (
    Bounder,
    Box,
    Interval,
    Linearizer,
    accesses_of,
    span_box,
    stage_env,
    touched,
    union_boxes,
)
from tilewright.halide.frontend.estimates import output_spans
from tilewright.halide.ir.algorithm import Algorithm, Parameter, Span, parameters_used
from tilewright.halide.ir.names import readable

_INT32_MAX = 2**31 - 1


def derive_input_extents(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm with a range for every dimension of its inputs that has none.

    The range is the region that the outputs' estimates, which must be known, require. If a boundary
    condition restricts reads to the input's own bounds, any size is possible. The input then starts
    at zero and covers the requested coordinates if they are bounded, and the range of the outputs
    otherwise. A dimension with an unbounded data-dependent index gets no range.
    """
    symbols: dict[str, float] = dict(algorithm.symbols)
    for parameter in algorithm.parameters:
        for d, span in enumerate(parameter.estimates):
            if span is None:
                symbols[f"{parameter.name}.min.{d}"] = 0.0
                symbols[f"{parameter.name}.extent.{d}"] = math.inf
    with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN: no bound is known
        boxes = input_boxes(algorithm, symbols)
    parameters = []
    for parameter in algorithm.parameters:
        spans = list(parameter.estimates)
        box = boxes.get(parameter.name)
        for d, span in enumerate(spans):
            if span is None:
                interval = None if box is None else box[d]
                spans[d] = _span(interval) or _like_outputs(algorithm, parameter.name, d)
        parameters.append(replace(parameter, estimates=tuple(spans)))
    return replace(algorithm, parameters=tuple(parameters))


def _span(interval: Interval | None) -> Span | None:
    if interval is None:
        return None
    low, high = float(interval.lo), float(interval.hi)
    if not (math.isfinite(low) and math.isfinite(high)) or not 0 <= high - low < _INT32_MAX:
        return None
    return Span(math.floor(low), math.floor(high) - math.floor(low) + 1)


def _like_outputs(algorithm: Algorithm, name: str, d: int) -> Span | None:
    """Return the outputs' largest range in a dimension, if the pipeline uses the input's extent."""
    if f"{name}.extent.{d}" not in metadata_used(algorithm):
        return None
    spans = []
    for output in algorithm.outputs:
        func = algorithm.by_name[output]
        if d < len(func.args) and func.args[d] in func.estimates:
            spans.append(func.estimates[func.args[d]])
    if not spans:
        return None
    low = min([0, *(span.min for span in spans)])
    return Span(low, max(span.max for span in spans) - low + 1)


def resized(algorithm: Algorithm, extents: Mapping[str, Sequence[int]]) -> Algorithm:
    """Return the algorithm with other estimated extents of outputs, and inputs resized to fit.

    An input gets the size of the region that is then read. If it is read within its own bounds, its
    extent changes with that of the first output in each dimension in which the two were equal, and
    is kept in other dimensions.
    """
    funcs = []
    for func in algorithm.funcs:
        if func.name in extents:
            spans = {
                arg: Span(func.estimates[arg].min, int(extent))
                for arg, extent in zip(func.args, extents[func.name], strict=True)
            }
            func = replace(func, estimates={**func.estimates, **spans})
        funcs.append(func)
    return refitted(algorithm, replace(algorithm, funcs=tuple(funcs)))


def refitted(before: Algorithm, after: Algorithm, kept: frozenset[str] = frozenset()) -> Algorithm:
    """Return `after`, an algorithm with other output extents, with inputs resized to fit.

    The rules are those of `resized`. The inputs named in `kept` remain as they are in `after`.
    """
    used = metadata_used(before)
    parameters = tuple(
        new if new.name in kept else _resized(old, before, after, used)
        for old, new in zip(before.parameters, after.parameters, strict=True)
    )
    return derive_input_extents(replace(after, parameters=parameters))


def _resized(
    parameter: Parameter, before: Algorithm, after: Algorithm, used: frozenset[str]
) -> Parameter:
    """Return the input with new ranges in dimensions whose bounds the pipeline uses, else None."""
    if not parameter.is_buffer:
        return parameter
    output = before.outputs[0]
    old, new = before.by_name[output], after.by_name[output]
    spans: list[Span | None] = []
    for d, span in enumerate(parameter.estimates):
        pinned = {f"{parameter.name}.min.{d}", f"{parameter.name}.extent.{d}"} & used
        if not pinned:
            spans.append(None)
        elif span is not None and d < len(old.args):
            arg = old.args[d]
            same = old.estimates[arg].extent == span.extent
            spans.append(Span(span.min, new.estimates[arg].extent) if same else span)
        else:
            spans.append(span)
    return replace(parameter, estimates=tuple(spans))


def extents_of(algorithm: Algorithm) -> tuple[tuple[int, ...], ...]:
    """Return the estimated extents of the outputs, omitting dimensions without an estimate."""
    spans = (output_spans(algorithm.by_name[name]) for name in algorithm.outputs)
    return tuple(tuple(span.extent for span in box if span is not None) for box in spans)


def extents_text(algorithm: Algorithm) -> str:
    """Return the extents of the outputs in words: ``1920x1080``, by name if there are several."""
    boxes = ["x".join(map(str, box)) for box in extents_of(algorithm)]
    if len(boxes) == 1:
        return boxes[0]
    pairs = zip(algorithm.outputs, boxes, strict=True)
    return ", ".join(f"{readable(name)} {box}".strip() for name, box in pairs)


def descending(sizes: Sequence[Algorithm]) -> list[Algorithm]:
    """Return the sizes of one algorithm in descending order, without duplicates.

    They are sorted by the number of points of the outputs, then of the inputs.
    """

    def boxes(algorithm: Algorithm) -> tuple[tuple[int, ...], ...]:
        spans = (p.estimates for p in algorithm.parameters if p.is_buffer)
        return tuple(tuple(span.extent for span in box if span is not None) for box in spans)

    def points(algorithm: Algorithm) -> tuple[int, int]:
        outputs = sum(math.prod(box) for box in extents_of(algorithm))
        return outputs, sum(math.prod(box) for box in boxes(algorithm))

    different: dict[object, Algorithm] = {}
    for each in sizes:
        different.setdefault((extents_of(each), boxes(each)), each)
    return sorted(different.values(), key=points, reverse=True)


def metadata_used(algorithm: Algorithm) -> frozenset[str]:
    """Return the names of input bounds (``im.extent.0``) that the computation uses."""
    return parameters_used(algorithm) - {p.name for p in algorithm.parameters}


def input_boxes(algorithm: Algorithm, symbols: Mapping[str, float]) -> dict[str, Box]:
    """Return the box of every image that is read to compute the outputs at their estimates.

    `symbols` has the known values of scalars and of the images' bounds.
    """
    bounder = Bounder(Linearizer(symbols))
    boxes: dict[str, Box] = {}
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        boxes[name] = span_box(func.estimates[arg] for arg in func.args)
    images: dict[str, Box] = {}
    everything = Interval(-math.inf, math.inf)
    dimensions = {p.name: p.dimensions for p in algorithm.parameters if p.is_buffer}
    for func in reversed(algorithm.funcs):
        box = boxes.get(func.name)
        if box is None:
            continue
        if func.extern is not None:
            # The reads of an extern stage are unknown; assume the box that it writes.
            for name in func.extern.reads:
                if name in algorithm.by_name:
                    rank = len(algorithm.by_name[name].args)
                else:
                    rank = dimensions.get(name, 0)
                region = box if rank == len(box) else (everything,) * rank
                target = boxes if name in algorithm.by_name else images
                target[name] = union_boxes(target.get(name), region)
            continue
        for stage in reversed(func.stages):
            env = stage_env(func, stage, boxes[func.name], bounder)
            memo: dict[int, Interval] = {}
            for access in accesses_of(stage.calls, bounder.linear):
                region = touched(access, env, bounder, memo)
                target = boxes if access.kind == "func" else images
                target[access.callee] = union_boxes(target.get(access.callee), region)
    return images
