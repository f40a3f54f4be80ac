"""Build and run a Halide pipeline with one schedule, in a measuring worker."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from tilewright.halide.emit.apply import apply, halide_target
from tilewright.halide.execution.binding import (
    bind,
    deserialize,
    fill_inputs,
    fill_output,
    output_array,
)
from tilewright.halide.execution.cuda_kernels import kernel_resources
from tilewright.halide.execution.inputs import Inputs
from tilewright.halide.execution.long_sums import (
    CLOSE_ANSWERS,
    has_long_sums,
    share_of_few_terms,
    split_long_sums,
)
from tilewright.halide.execution.lowering import is_atomic, require_atomic_additions
from tilewright.halide.execution.verification import Discrepancy, Tolerance, accepted, compare
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import live_funcs
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.json import from_json
from tilewright.machines import load_opencl, opencl_failure
from tilewright.measure import VerifyResult

# Seeds of outputs that are computed in place are those of inputs plus this offset.
_OUTPUT_SEED = 1 << 16
_RECHECKED_SHARE = 0.01  # a larger share of wrong values is not attributed to rounding


class Runner:
    """One compiled schedule with its inputs.

    The payload has the keys

    - ``serialized``: the pipeline's bytes, checked by `import_pipeline`
    - ``schedule``: JSON text, or None to run the pipeline unchanged
    - ``target``: the Halide target
    - ``inputs``: `Inputs.to_json`
    - ``reference``: paths of ``.npy`` files, one per value of each output, or None
    - ``tolerance``: the fields of `Tolerance`
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Apply the schedule, compile and bind. Raises `ScheduleError` and Halide's errors."""
        began = time.perf_counter()
        self._target = prepare_target(payload["target"])
        self._inputs = Inputs.from_json(payload["inputs"])
        self._live = deserialize(payload["serialized"], self._inputs)
        if payload["schedule"] is not None:
            algorithm = import_pipeline(payload["serialized"])
            schedule = from_json(payload["schedule"], algorithm)
            apply(schedule, algorithm, self._live.pipeline, same_bytes=True)
            if is_atomic(schedule):
                require_atomic_additions(self._live.pipeline, self._target)
        self._prepared = time.perf_counter() - began
        self._finish(payload)

    def _finish(self, payload: Mapping[str, Any]) -> None:
        began = time.perf_counter()
        self._payload = payload
        self._outputs = bind(self._live, self._inputs, self._target)
        self._compiled = time.perf_counter() - began
        self._device = self._target.has_gpu_feature()
        self._kinds = [kind for output in self._inputs.outputs for kind in output.types]
        self._names = [
            f"{output.name}[{i}]" if len(output.types) > 1 else output.name
            for output in self._inputs.outputs
            for i in range(len(output.types))
        ]
        self._reference = payload.get("reference")
        self._tolerance = Tolerance(**payload.get("tolerance", {}))

    def share_buffers(self, other: Runner) -> None:
        """Take the outputs of another schedule's runner, and those inputs that have the same box.

        Where many schedules of one pipeline stay compiled, this saves memory. Only one of the
        runners may run at a time.
        """
        self._outputs = other._outputs
        for i, buffer in enumerate(self._inputs.buffers):
            if self._live.boxes[buffer.name] == other._live.boxes[buffer.name]:
                self._live.images[buffer.name].set(other._live.images[buffer.name].get())
                self._live.arrays[i] = other._live.arrays[i]

    def run(self) -> None:
        """Compute the outputs; on a device, only start the computation."""
        self._live.pipeline.realize(self._outputs, self._target)

    def sync(self) -> None:
        """Wait until the device has finished."""
        if self._device:
            for output in self._outputs:
                if output.has_device_allocation():
                    output.device_sync()

    def answers(self) -> list[Any]:
        """Run once and return the values of all outputs; axis d is dimension d."""
        self._prepare_outputs()
        self.run()
        self.sync()
        for output in self._outputs:
            output.copy_to_host()
        return [
            output_array(output, kind)
            for output, kind in zip(self._outputs, self._kinds, strict=True)
        ]

    def _prepare_outputs(self) -> None:
        """Fill outputs with invalid values, or in-place outputs with fixed contents."""
        shapes = [shape for shape in self._inputs.outputs for _ in shape.types]
        for i, (output, kind) in enumerate(zip(self._outputs, self._kinds, strict=True)):
            if shapes[i].in_place:
                fill_output(output, shapes[i], kind, self._inputs.seed + _OUTPUT_SEED + i)
            elif kind.code != "bfloat":
                spoil(output_array(output, kind))

    def verify(self) -> VerifyResult:
        """Run and compare with the reference; return success if there is none."""
        answers = self.answers()
        if self._reference is None:
            return VerifyResult(True)
        self._shares = []
        worst, message = 0.0, ""
        for name, path, kind, answer in zip(
            self._names, self._reference, self._kinds, answers, strict=True
        ):
            expected = np.load(path, mmap_mode="r", allow_pickle=False)
            comparison = compare(answer, expected, kind, self._tolerance)
            worst = max(worst, comparison.max_error)
            self._shares.append(comparison.wrong / max(comparison.values, 1))
            if not accepted(comparison, self._tolerance):
                message = message or _difference(name, comparison, answer, expected)
        self._verdict = VerifyResult(not message, message, worst)
        return self._verdict

    def recheck(self) -> VerifyResult:
        """Return the verdict after testing whether wrong values are due to rounding.

        If the pipeline has long sums of floats, the reference's may be less accurate than the
        schedule's: it counts as right if it agrees with a reference of partial sums, or comes close
        to it and agrees with it where most inputs are zero (see `long_sums`).

        If comparisons of floats determine results, the pipeline may amplify rounding. The schedule
        is then compiled again with strict floating point and compared with its own answers, and
        the plain schedule likewise. If either changes at least a tenth as many values as differ
        from the reference, the schedule counts as right.
        """
        if self._agrees_with_partial_sums():
            return VerifyResult(True, self._verdict.message, self._verdict.max_error)
        sensitive = self._tolerance.outliers > 0 and max(self._shares) <= _RECHECKED_SHARE
        if not sensitive:
            return self._verdict
        ours = [np.array(answer) for answer in self.answers()]
        strict = type(self)(
            {
                **self._payload,
                "target": f"{self._target}-strict_float",
                "reference": None,
            }
        )
        plain, other = (
            Plain({**self._payload, "target": target, "reference": None})
            for target in ("host", "host-strict_float")
        )
        changed = zip(
            self._noise(strict.answers(), ours),
            self._noise(other.answers(), plain.answers()),
            strict=True,
        )
        for share, noise in zip(self._shares, changed, strict=True):
            if share > max(self._tolerance.outliers, 10 * max(noise)):
                return self._verdict
        return VerifyResult(True, self._verdict.message, self._verdict.max_error)

    def _agrees_with_partial_sums(self) -> bool:
        """Return whether the answers are those of the plain schedule with partial sums."""
        serialized = self._payload.get("serialized")
        algorithm = import_pipeline(serialized) if serialized is not None else None
        if algorithm is None or not has_long_sums(algorithm):
            return False
        settings = {"target": "host", "reference": None, "partial_sums": True}
        other = Plain({**self._payload, **settings})
        if self._agrees(other, self._tolerance):
            return True
        if not self._agrees(other, replace(self._tolerance, relative=CLOSE_ANSWERS)):
            return False
        share = share_of_few_terms(algorithm)
        fill_inputs(self._live, self._inputs, share)
        fill_inputs(other._live, other._inputs, share)
        same = self._agrees(other, self._tolerance)
        tested = all(np.any(answer) for answer in other.answers())
        fill_inputs(self._live, self._inputs)
        return same and tested

    def _agrees(self, other: Runner, allowed: Tolerance) -> bool:
        """Return whether the answers are those of `other`."""
        pairs = zip(self.answers(), other.answers(), self._kinds, strict=True)
        return all(accepted(compare(*p, allowed), allowed) for p in pairs)

    def _noise(self, found: list[Any], before: list[Any]) -> Iterator[float]:
        """Yield the share of values that differ, per output value."""
        for answer, other, kind in zip(found, before, self._kinds, strict=True):
            comparison = compare(answer, other, kind, self._tolerance)
            yield comparison.wrong / max(comparison.values, 1)

    def details(self) -> dict[str, Any]:
        """Return facts other than the times, as JSON data.

        - ``prepare_seconds``: time to read and schedule the pipeline
        - ``compile_seconds``: time to compile it and to fill its inputs
        - ``input_boxes``: allocated box by input, as pairs of first coordinate and extent
        - ``kernels``: on CUDA, the resources of its kernels (`KernelResources`)
        """
        boxes = {
            name: [[span.min, span.extent] for span in box]
            for name, box in self._live.boxes.items()
        }
        details: dict[str, Any] = {
            "prepare_seconds": self._prepared,
            "compile_seconds": self._compiled,
            "input_boxes": boxes,
        }
        if self._target.has_feature(hl.TargetFeature.CUDA):
            details["kernels"] = kernel_resources(self._live.pipeline, self._target)
        return details


class Plain(Runner):
    """The pipeline on the host with a plain schedule that never recomputes values.

    Funcs that a single call reads point by point are inlined, and all others computed at root;
    outermost pure loops are parallel. Funcs that the user scheduled do not change. With ``inline``
    in the payload, the pipeline stays unscheduled instead. With ``partial_sums``, long sums of
    floats are added in parts.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Schedule, compile and bind the pipeline."""
        began = time.perf_counter()
        self._target = prepare_target(payload.get("target", "host"))
        self._inputs = Inputs.from_json(payload["inputs"])
        self._live = deserialize(payload["serialized"], self._inputs)
        if not payload.get("inline"):
            schedule_plainly(
                import_pipeline(payload["serialized"]),
                self._live.pipeline,
                partial_sums=payload.get("partial_sums", False),
            )
        self._prepared = time.perf_counter() - began
        self._finish(payload)


class Reference(Plain):
    """A plain run that saves its answers as ``.npy`` files in the payload's ``directory``."""

    def run(self) -> None:
        """Compute the answers and save the i-th output value as ``i.npy``."""
        directory = Path(self._payload["directory"])
        self._prepare_outputs()
        super().run()
        for i, (output, kind) in enumerate(zip(self._outputs, self._kinds, strict=True)):
            np.save(directory / f"{i}.npy", output_array(output, kind), allow_pickle=False)

    def verify(self) -> VerifyResult:
        """Return success, because no reference exists to compare with."""
        return VerifyResult(True)


def schedule_plainly(algorithm: Algorithm, pipeline: Any, *, partial_sums: bool = False) -> None:
    """Compute all Funcs at root, except those that a single call reads point by point.

    With `partial_sums`, long sums of floats are added in parts (see `long_sums`).
    """
    funcs = live_funcs(algorithm, pipeline)
    for func, live in zip(algorithm.funcs, funcs, strict=True):
        if func.fixed or func.scheduled:
            continue
        if func.name not in algorithm.outputs:
            if func.pure and _read_pointwise(algorithm, func.name):
                continue
            live.compute_root()
        if partial_sums:
            split_long_sums(algorithm, func, live)
        for stage in func.stages:
            outer = stage.loops[-1] if stage.loops else None
            if outer is not None and outer.kind == "pure":
                handle = live if stage.index == 0 else live.update(stage.index - 1)
                handle.parallel(hl.Var(outer.name))


def _read_pointwise(algorithm: Algorithm, name: str) -> bool:
    """Return whether inlining a Func adds no work: a single call reads it point by point."""
    readers = algorithm.consumers[name]
    if len(readers) != 1:
        return False
    reader = algorithm.by_name[readers[0]]
    calls = [(s, c) for s in reader.stages for c in s.calls if c.name == name and c.kind == "func"]
    if len(calls) != 1 or reader.extern is not None:
        return False
    stage, call = calls[0]
    loops = {loop.name for loop in stage.loops}
    names = {getattr(arg, "name", None) for arg in call.args}
    return len(loops) == len(call.args) and names == loops


def prepare_target(text: str) -> Any:
    """Return the ``halide.Target``; for OpenCL, load a working platform first.

    Raises `OpenclError` if no OpenCL platform works.
    """
    target = halide_target(text)
    if target.has_feature(hl.TargetFeature.OpenCL):
        load_opencl()
    return target


def warm(text: str) -> None:
    """Compile a trivial pipeline, so that workers forked later have Halide's runtime.

    Compiling the runtime takes several times as long as a small pipeline. Devices are not used,
    because their state would not survive the fork. For OpenCL, the working platform is found once.
    """
    if "opencl" in text:
        opencl_failure()
    target = halide_target("host" if "opencl" in text else text)
    x = hl.Var("x")
    func = hl.Func("warm")
    func[x] = hl.cast(hl.Int(32), x)
    if target.has_gpu_feature():
        block, thread = hl.Var("block"), hl.Var("thread")
        func.gpu_tile(x, block, thread, 8)
    func.compile_jit(target)


def spoil(array: Any) -> None:
    """Fill an output with NaN or a fixed pattern, so that unwritten values are detected."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    else:
        array[...] = np.frombuffer(b"\xa5" * array.itemsize, array.dtype)[0]


def _difference(name: str, comparison: Discrepancy, found: Any, expected: Any) -> str:
    at = ", ".join(map(str, comparison.where))
    return (
        f"{comparison.wrong} of {comparison.values} values of {name} differ from the "
        f"reference's; the first, [{at}], is {found[comparison.where]!s} and should be "
        f"{expected[comparison.where]!s}"
    )
