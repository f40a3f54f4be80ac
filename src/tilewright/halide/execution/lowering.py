"""Check whether Halide lowers a schedule, without generating code for the host.

LLVM, which takes most of the compile time, does not run. Lowering runs in a forked process with
limits on time and memory. A schedule is also refused if lowering crashes or exceeds the limits, as
with unrolled loops that Halide would simplify for an hour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tilewright.halide.execution.inputs import InputError
from tilewright.halide.execution.lowered_launches import lowered_launches
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Schedule, ScheduleError
from tilewright.halide.ir.targets import is_gpu
from tilewright.measure import ForkedCallError, call_forked

if TYPE_CHECKING:
    import halide as hl

Answer = TypeVar("Answer")

LOSES_UPDATES = (
    "Halide does not use atomic additions for a reduction that several threads update, and its "
    "fallback loses updates; keep the reduction's loops serial"
)
TOO_MANY_THREADS = "Halide launches too many threads"
FAILED = "lowering failed"  # in time, or at all
# CPU seconds; lowering a network of 535 Funcs takes 4 s on a slow processor.
LOWERING_SECONDS = 30
LOWERING_BYTES = 8_000_000_000  # lowering that network takes 0.3 GB
# For OpenCL, kernels are emitted as text: LLVM does not run, which halves the time. These
# features enable types and operations that CUDA always has.
_OPENCL = ("OpenCL", "CLDoubles", "CLHalf", "CLAtomics64")


def refusal(schedule: Schedule, algorithm: Algorithm, threads: int | None = None) -> str:
    """Return why Halide refuses to lower a schedule for its target; empty if it lowers.

    A schedule for a GPU is also refused, with `TOO_MANY_THREADS` at the start of the reason, if
    Halide launches more than `threads` threads per block at the pipeline's estimates.
    If the pipeline's parameters cannot be rebuilt here (see `describe_inputs`), the schedule cannot
    be checked and counts as lowered. A schedule for CUDA is lowered for OpenCL, which differs only
    after the kernels' statements are complete. If that is refused, it is lowered for CUDA.
    """
    from tilewright.halide.emit.apply import halide_target

    target = halide_target(schedule.target)
    as_opencl = _as_opencl(target)
    for each in (target,) if as_opencl is None else (as_opencl, target):
        try:
            reason = limited(partial(_refusal, schedule, algorithm, each, threads))
        except ForkedCallError as error:
            return f"{FAILED}: {error}"  # as it would for CUDA
        if not reason or reason.startswith(TOO_MANY_THREADS):
            return reason
    return reason


def _as_opencl(target: hl.Target) -> hl.Target | None:
    """Return a CUDA target with OpenCL instead of CUDA; None for other targets."""
    import halide as hl

    if not target.has_feature(hl.TargetFeature.CUDA):
        return None
    for name, feature in hl.TargetFeature.__members__.items():
        if name.startswith("CUDA") and target.has_feature(feature):
            target = target.without_feature(feature)
    for name in _OPENCL:
        target = target.with_feature(hl.TargetFeature.__members__[name])
    return target


def _refusal(
    schedule: Schedule, algorithm: Algorithm, target: hl.Target, threads: int | None
) -> str:
    import halide as hl

    try:
        module = _lowered(schedule, algorithm, target)
        if is_atomic(schedule) and _loses_updates(module, floats="opencl" in schedule.target):
            return LOSES_UPDATES
        if threads is not None and is_gpu(schedule.target):
            return _too_many_threads(module, algorithm, threads)
    except InputError:
        return ""
    except (hl.HalideError, RuntimeError) as error:
        text = " ".join(str(error).split())
        return text.removeprefix("Error: ") or type(error).__name__
    return ""


def _too_many_threads(module: hl.Module, algorithm: Algorithm, most: int) -> str:
    """Return the first launch with more than `most` threads per block; empty if there is none."""
    inputs = make_inputs(algorithm)
    boxes = {buffer.name: buffer.dims for buffer in inputs.buffers}
    boxes |= {output.name: output.dims for output in inputs.outputs}
    spans = {name: [(span.min, span.extent) for span in box] for name, box in boxes.items()}
    for launch in lowered_launches(_statement(module), spans):
        if launch.per_block > most:
            shape = " x ".join(map(str, launch.threads))
            return (
                f"{TOO_MANY_THREADS}: {launch.kernel} has {shape} per block, "
                f"and the maximum is {most}"
            )
    return ""


def adds_atomically(schedule: Schedule, algorithm: Algorithm) -> bool:
    """Return whether an OpenCL schedule lowers with atomic additions for shared reductions."""
    import halide as hl

    from tilewright.halide.emit.apply import halide_target

    target = halide_target(schedule.target)
    try:
        return limited(
            lambda: not _loses_updates(_lowered(schedule, algorithm, target), floats=True)
        )
    except (InputError, hl.HalideError, RuntimeError):  # RuntimeError: also ForkedCallError
        return False


def limited(function: Callable[[], Answer]) -> Answer:
    """Return what `function` returns in a forked process with limits on CPU time and memory.

    Raises:
        ForkedCallError: It crashes or exceeds the limits.
    """
    return call_forked(function, cpu_seconds=LOWERING_SECONDS, memory_bytes=LOWERING_BYTES)


def is_atomic(schedule: Schedule) -> bool:
    """Return whether a schedule for a GPU has atomic reductions."""
    nests = (nest for entry in schedule.funcs for nest in entry.stages)
    return is_gpu(schedule.target) and any(nest.atomic for nest in nests)


def require_atomic_additions(pipeline: hl.Pipeline, target: hl.Target) -> None:
    """Raise `ScheduleError` if a scheduled pipeline loses updates of atomic reductions."""
    as_opencl = _as_opencl(target)
    module = _to_module(pipeline, as_opencl or target)
    if _loses_updates(module, floats=as_opencl is None):
        raise ScheduleError(LOSES_UPDATES)


def _lowered(schedule: Schedule, algorithm: Algorithm, target: hl.Target) -> hl.Module:
    """Return the lowered module. Raises Halide's errors, `InputError` as in `make_inputs`."""
    from tilewright.halide.emit.apply import apply
    from tilewright.halide.execution.binding import deserialize

    live = deserialize(algorithm.serialized, make_inputs(algorithm))
    apply(schedule, algorithm, live.pipeline, same_bytes=True)
    return _to_module(live.pipeline, target)


def _to_module(pipeline: hl.Pipeline, target: hl.Target) -> hl.Module:
    import halide as hl

    # Argument checks and bounds queries never cause a refusal. Simplifying them takes half the
    # time to lower a pipeline of 300 Funcs.
    for feature in (hl.TargetFeature.NoAsserts, hl.TargetFeature.NoBoundsQuery):
        target = target.with_feature(feature)
    return pipeline.compile_to_module(pipeline.infer_arguments(), "tilewright_check", target)


def _loses_updates(module: hl.Module, *, floats: bool) -> bool:
    """Return whether an OpenCL kernel writes back a sum instead of adding atomically.

    If `floats` is false, additions of floats are ignored.
    """
    text = _statement(module)
    return " old_val = " in text or (floats and " old_val.f = " in text)


def _statement(module: hl.Module) -> str:
    """Return the lowered statement as Halide prints it, with the kernels' code as bytes."""
    import halide as hl

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "module.stmt")
        module.compile({hl.OutputFileType.stmt: str(path)})
        return path.read_bytes().decode("latin-1")
