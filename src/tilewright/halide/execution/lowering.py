"""Checks whether Halide lowers a schedule, without generating code for the host.

This takes a fraction of the time of compiling, most of which is LLVM's (for CUDA the kernels become
PTX).
"""

from __future__ import annotations

from tilewright.halide.execution.inputs import InputError
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import Schedule


def refusal(schedule: Schedule, algorithm: Algorithm) -> str:
    """Return why Halide refuses to lower a schedule for its target; empty if it lowers.

    A pipeline whose parameters cannot be rebuilt here (see `describe_inputs`) counts as lowered,
    because it cannot be checked.
    """
    import halide as hl

    from tilewright.halide.emit.apply import apply, halide_target
    from tilewright.halide.execution.binding import deserialize

    try:
        live = deserialize(algorithm.serialized, make_inputs(algorithm))
    except InputError:
        return ""
    try:
        apply(schedule, algorithm, live.pipeline, same_bytes=True)
        # What checks arguments and answers bounds queries at run time is never refused, and
        # simplifying it takes half the time of lowering a pipeline of 300 Funcs.
        target = halide_target(schedule.target)
        for feature in (hl.TargetFeature.NoAsserts, hl.TargetFeature.NoBoundsQuery):
            target = target.with_feature(feature)
        arguments = live.pipeline.infer_arguments()
        live.pipeline.compile_to_module(arguments, "tilewright_check", target)
    except (hl.HalideError, RuntimeError) as error:
        text = " ".join(str(error).split())
        return text.removeprefix("Error: ") or type(error).__name__
    return ""
