"""Decide which stages can run on a GPU, and which reductions can use atomic additions."""

from __future__ import annotations

from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.execution.atomic_additions import is_atomic_addition
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Func,
    Stage,
    Type,
    walk,
)
from tilewright.machines import GpuMachine

# C functions that Halide supports on every GPU, without the type suffix.
DEVICE_FUNCTIONS = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh ceil cos cosh exp fast_exp fast_inverse "
    "fast_inverse_sqrt fast_log fast_pow floor is_finite is_inf is_nan fmod inf log maxval minval "
    "nan neg_inf pow round sin sinh sqrt tan tanh trunc fma erf".split()
)
# Functions that Halide 21 calls in OpenCL kernels but does not define there.
OPENCL_MISSING = frozenset(["popcount", "count_leading_zeros", "count_trailing_zeros"])
HOST_INTRINSICS = frozenset(["require", "print", "print_when", "debug_to_file", "memoize_expr"])


def read_by_externs(algorithm: Algorithm) -> frozenset[str]:
    """Return the Funcs and inputs that extern stages read.

    They must be computed on the host: Halide does not copy them back from a device.
    """
    stages = (func.extern for func in algorithm.funcs if func.extern is not None)
    return frozenset(name for stage in stages for name in stage.reads)


def host_only(
    stage: Stage,
    func: Func,
    machine: GpuMachine,
    memoized: frozenset[str] = frozenset(),
    for_externs: frozenset[str] = frozenset(),
) -> str | None:
    """Return why a stage must stay on the host, or None if the GPU can run it.

    Args:
        stage: The stage to check.
        func: The Func that the stage belongs to.
        machine: The GPU and its API.
        memoized: The memoized Funcs. Halide cannot compile a kernel that reads them.
        for_externs: The result of `read_by_externs`.
    """
    if func.name in for_externs:
        return "an extern stage reads it on the host"
    roots = [*stage.values, *stage.args, *stage.predicates]
    types = set(func.types)
    for node in walk(*roots):
        types.add(node.type)
        if isinstance(node, Call):
            if node.kind == "func" and node.name in memoized:
                return f"it reads {node.name}, which is memoised on the host"
            reason = _call(node, machine)
            if reason:
                return reason
    for t in types:
        reason = _type(t, machine)
        if reason:
            return reason
    return None


def _call(call: Call, machine: GpuMachine) -> str | None:
    if call.kind == "extern":
        base = call.name
        for suffix in ("_f16", "_f32", "_f64"):
            base = base.removesuffix(suffix)
        if base not in DEVICE_FUNCTIONS:
            return f"it calls the C function {call.name}"
    if call.kind == "intrinsic" and call.name in HOST_INTRINSICS:
        return f"{call.name} does not run on a GPU"
    if call.kind == "intrinsic" and machine.api == "opencl":
        if call.name in OPENCL_MISSING:
            return f"Halide has no {call.name} for OpenCL"
        if call.name == "bitwise_not" and call.type.bits == 1:
            # Halide emits ~, which is nonzero for both values of an OpenCL bool.
            return "Halide negates conditions wrongly for OpenCL"
    return None


def _type(t: Type, machine: GpuMachine) -> str | None:
    if t.code == "handle" and t.bits != 64:
        return f"it computes {t}"
    if t.code == "bfloat":
        return f"Halide does not compile {t} for GPUs"
    if machine.api == "opencl":
        needs = {("float", 64): "cl_doubles", ("float", 16): "cl_half"}.get((t.code, t.bits))
        if needs and needs not in machine.features:
            return f"{t} needs an OpenCL device with {needs}"
    return None


def can_be_atomic(analysis: Analysis, name: str, index: int, machine: GpuMachine) -> bool:
    """Return whether a reduction may run in parallel with the device's atomic additions.

    Only CUDA adds floats atomically. See `is_atomic_addition`.
    """
    return is_atomic_addition(analysis, name, index, floats=machine.api == "cuda")
