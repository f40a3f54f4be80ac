"""Run one compiled schedule at many sizes and compare its answers with a plain schedule's.

Inputs are exactly as large as the plain schedule requires. A schedule that reads more of them fails
Halide's bounds checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import halide as hl
import numpy as np

from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.binding import (
    LivePipeline,
    allocate,
    deserialize,
    halide_type,
    output_array,
)
from tilewright.halide.execution.contents import fill, thin
from tilewright.halide.execution.inputs import Inputs, describe_inputs
from tilewright.halide.execution.long_sums import (
    CLOSE_ANSWERS,
    has_long_sums,
    share_of_few_terms,
)
from tilewright.halide.execution.runner import prepare_target, schedule_plainly, spoil
from tilewright.halide.execution.verification import (
    Discrepancy,
    Tolerance,
    accepted,
    compare,
    tolerance,
)
from tilewright.halide.frontend.extents import resized as resized
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.algorithm import Algorithm, Span, Type
from tilewright.halide.ir.json import from_json
from tilewright.measure import VerifyResult


@dataclass(frozen=True)
class SizeOutcome:
    """The outcome at one size.

    `status` is ``ok``, ``failed`` (the schedule could not be run), ``wrong`` (its answers differ),
    or ``barred`` (the plain schedule fails as well); `message` has the reason.
    """

    extents: tuple[tuple[int, ...], ...]
    status: str
    message: str = ""


def payload(
    algorithm: Algorithm,
    schedule: str | None,
    target: str,
    sizes: Sequence[Mapping[str, Sequence[int]]],
) -> dict[str, Any]:
    """Return the payload of `AtSizes` for a worker; `schedule` is JSON text."""
    return {
        "serialized": algorithm.serialized,
        "schedule": schedule,
        "target": target,
        "tolerance": asdict(tolerance(algorithm)),
        "sizes": [describe_inputs(resized(algorithm, extents)).to_json() for extents in sizes],
    }


class AtSizes:
    """A schedule that is compiled once and run at the sizes in its payload (see `payload`)."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile the schedule and the plain one."""
        self._sizes = [Inputs.from_json(data) for data in payload["sizes"]]
        self._tolerance = Tolerance(**payload["tolerance"])
        self._target = prepare_target(payload["target"])
        self._host = prepare_target("host")
        algorithm = import_pipeline(payload["serialized"])
        self._payload = payload
        self._algorithm = algorithm
        self._plain = self._compiled_plainly(self._host)
        self._ours = self._compiled(self._target)
        self._parts: LivePipeline | None = None
        self._strict: tuple[LivePipeline, LivePipeline] | None = None
        self.outcomes: list[SizeOutcome] = []

    def _compiled_plainly(self, target: Any, *, partial_sums: bool = False) -> LivePipeline:
        live = deserialize(self._payload["serialized"], self._sizes[0])
        schedule_plainly(self._algorithm, live.pipeline, partial_sums=partial_sums)
        live.pipeline.compile_jit(target)
        return live

    def _compiled(self, target: Any) -> LivePipeline:
        live = deserialize(self._payload["serialized"], self._sizes[0])
        if self._payload["schedule"] is not None:
            schedule = from_json(self._payload["schedule"], self._algorithm)
            apply(schedule, self._algorithm, live.pipeline, same_bytes=True)
        live.pipeline.compile_jit(target)
        return live

    def run(self) -> None:
        """Run at all sizes and compare."""
        self.outcomes = [self.at(inputs) for inputs in self._sizes]

    def verify(self) -> VerifyResult:
        """Return success: the outcome of each size is in the details."""
        return VerifyResult(True)

    def details(self) -> dict[str, Any]:
        """Return the outcomes of all sizes as JSON data."""
        return {"sizes": [asdict(outcome) for outcome in self.outcomes]}

    def at(self, inputs: Inputs) -> SizeOutcome:
        """Run at one size and compare."""
        extents = tuple(tuple(span.extent for span in output.dims) for output in inputs.outputs)
        kinds = [kind for output in inputs.outputs for kind in output.types]
        expected = _outputs(inputs)
        try:
            _bind([self._plain, self._ours], inputs, expected, self._host)
            self._plain.pipeline.realize(expected, self._host)
        except hl.HalideError as error:
            return SizeOutcome(extents, "barred", _line(error))
        found = _outputs(inputs)
        try:
            self._ours.pipeline.realize(found, self._target)
            for output in found:
                output.copy_to_host()
        except hl.HalideError as error:
            return SizeOutcome(extents, "failed", _line(error))
        results = self._compared(found, expected, kinds)
        bad = [r for r in results if not accepted(r, self._tolerance)]
        if not bad or self._agree_in_parts(inputs, kinds) or self._agree_strictly(inputs, kinds):
            return SizeOutcome(extents, "ok")
        said = f"{bad[0].wrong} of {bad[0].values} values differ, first at {bad[0].where}"
        return SizeOutcome(extents, "wrong", said)

    def _compared(
        self, found: Sequence[Any], expected: Sequence[Any], kinds: Sequence[Type]
    ) -> list[Discrepancy]:
        return [
            compare(output_array(a, kind), output_array(b, kind), kind, self._tolerance)
            for a, b, kind in zip(found, expected, kinds, strict=True)
        ]

    def _agree_in_parts(self, inputs: Inputs, kinds: Sequence[Type]) -> bool:
        """Return whether the answers are those of partial sums, as in `Runner.recheck`."""
        if not has_long_sums(self._algorithm):
            return False
        if self._parts is None:
            self._parts = self._compiled_plainly(self._host, partial_sums=True)
        if self._agree(self._parts, inputs, kinds, self._tolerance):
            return True
        close = replace(self._tolerance, relative=CLOSE_ANSWERS)
        share = share_of_few_terms(self._algorithm)
        return self._agree(self._parts, inputs, kinds, close) and self._agree(
            self._parts, inputs, kinds, self._tolerance, share=share
        )

    def _agree(
        self,
        other: LivePipeline,
        inputs: Inputs,
        kinds: Sequence[Type],
        allowed: Tolerance,
        *,
        share: float = 1.0,
    ) -> bool:
        """Return whether both give the same answers; of a `share` below 1, most inputs are 0."""
        expected, found = _outputs(inputs), _outputs(inputs)
        _bind([other, self._ours], inputs, expected, self._host)
        if share < 1:
            for array in other.arrays:
                thin(array, (0,) * array.ndim, share)
        other.pipeline.realize(expected, self._host)
        self._ours.pipeline.realize(found, self._target)
        for output in found:
            output.copy_to_host()
        tested = share == 1 or all(np.any(np.asarray(output)) for output in expected)
        return tested and all(
            accepted(compare(output_array(a, kind), output_array(b, kind), kind, allowed), allowed)
            for a, b, kind in zip(found, expected, kinds, strict=True)
        )

    def _agree_strictly(self, inputs: Inputs, kinds: Sequence[Type]) -> bool:
        """Return whether both schedules give the same answers in strict floating point.

        If they do, the difference is due to rounding: the compiler fuses and reorders operations
        differently in the two schedules, and a later threshold amplifies small differences.
        """
        if self._tolerance.exact:
            return False
        targets = [prepare_target(f"{t}-strict_float") for t in (self._host, self._target)]
        if self._strict is None:
            self._strict = self._compiled_plainly(targets[0]), self._compiled(targets[1])
        plain, ours = self._strict
        expected, found = _outputs(inputs), _outputs(inputs)
        _bind([plain, ours], inputs, expected, self._host)
        plain.pipeline.realize(expected, targets[0])
        ours.pipeline.realize(found, targets[1])
        for output in found:
            output.copy_to_host()
        results = self._compared(found, expected, kinds)
        return all(accepted(r, self._tolerance) for r in results)


def _outputs(inputs: Inputs) -> list[Any]:
    result = []
    for output in inputs.outputs:
        for kind in output.types:
            buffer, array = allocate(kind, output.dims, output.strides, output.name)
            if kind.code != "bfloat":
                spoil(array)
            result.append(buffer)
    return result


def _bind(
    pipelines: Sequence[LivePipeline], inputs: Inputs, outputs: Sequence[Any], target: Any
) -> None:
    """Bind the same inputs to all pipelines, exactly as large as the first one requires."""
    plain = pipelines[0]
    for live in pipelines:
        live.arrays.clear()
    queries = {}
    for buffer in inputs.buffers:
        query = hl.Buffer.make_bounds_query(
            halide_type(buffer.type), [span.extent for span in buffer.dims]
        )
        if buffer.dims:
            query.set_min([span.min for span in buffer.dims])
        plain.images[buffer.name].set(query)
        queries[buffer.name] = query
    if not all(all(buffer.pinned) for buffer in inputs.buffers):
        plain.pipeline.realize(list(outputs), target)
    for index, buffer in enumerate(inputs.buffers):
        query = queries[buffer.name]
        box = tuple(
            span if pinned else Span(query.dim(d).min(), max(query.dim(d).extent(), 1))
            for d, (span, pinned) in enumerate(zip(buffer.dims, buffer.pinned, strict=True))
        )
        halide_buffer, array = allocate(buffer.type, box, buffer.strides, buffer.name)
        fill(array, buffer, box, inputs.seed + index)
        halide_buffer.set_host_dirty(True)
        for live in pipelines:
            live.arrays.append(array)
            live.images[buffer.name].set(halide_buffer)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
