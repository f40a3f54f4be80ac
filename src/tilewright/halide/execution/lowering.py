"""Checks whether Halide lowers a schedule, without generating code for the host.

LLVM, which takes most of the time of compiling, does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.halide.execution.inputs import InputError
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Schedule

if TYPE_CHECKING:
    import halide as hl


# Lowered for OpenCL, kernels end as text: no LLVM, half the time. It supports these by request.
_OPENCL = ("OpenCL", "CLDoubles", "CLHalf", "CLAtomics64")


def refusal(schedule: Schedule, algorithm: Algorithm) -> str:
    """Return why Halide refuses to lower a schedule for its target; empty if it lowers.

    A pipeline whose parameters cannot be rebuilt here (see `describe_inputs`) counts as lowered,
    because it cannot be checked. A schedule for CUDA is lowered as if for OpenCL, which differs
    only once the kernels' statements are complete; what is refused there is lowered for CUDA.
    """
    from tilewright.halide.emit.apply import halide_target

    target = halide_target(schedule.target)
    as_opencl = _as_opencl(target)
    if as_opencl is not None and not _refusal(schedule, algorithm, as_opencl):
        return ""
    return _refusal(schedule, algorithm, target)


def _as_opencl(target: hl.Target) -> hl.Target | None:
    """Return a target for CUDA with OpenCL in place of it; None for other targets."""
    import halide as hl

    if not target.has_feature(hl.TargetFeature.CUDA):
        return None
    for name, feature in hl.TargetFeature.__members__.items():
        if name.startswith("CUDA") and target.has_feature(feature):
            target = target.without_feature(feature)
    for name in _OPENCL:
        target = target.with_feature(hl.TargetFeature.__members__[name])
    return target


def _refusal(schedule: Schedule, algorithm: Algorithm, target: hl.Target) -> str:
    import halide as hl

    from tilewright.halide.emit.apply import apply
    from tilewright.halide.execution.binding import deserialize

    try:
        live = deserialize(algorithm.serialized, make_inputs(algorithm))
    except InputError:
        return ""
    try:
        apply(schedule, algorithm, live.pipeline, same_bytes=True)
        # What checks arguments and answers bounds queries at run time is never refused, and
        # simplifying it takes half the time of lowering a pipeline of 300 Funcs.
        for feature in (hl.TargetFeature.NoAsserts, hl.TargetFeature.NoBoundsQuery):
            target = target.with_feature(feature)
        arguments = live.pipeline.infer_arguments()
        live.pipeline.compile_to_module(arguments, "tilewright_check", target)
    except (hl.HalideError, RuntimeError) as error:
        text = " ".join(str(error).split())
        return text.removeprefix("Error: ") or type(error).__name__
    return ""
