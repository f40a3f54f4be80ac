"""What is known of a kernel that decides how many registers ``ptxas`` gives a thread.

The features are the terms of the linear estimate (`RegisterTerms`), numbers of the whole kernel,
and numbers of its stages: the sum and the maximum over stages of each. Numbers of instructions and
accesses are per iteration of a stage's loops.

| symbol | meaning | unit |
|---|---|---|
| `runs` | times that a thread runs the loops of a stage | count |
| `once` | iterations of its loops of all levels, per run | count |
| `unrolled` | copies of the body that the compilers make of a loop that Halide left | count |
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.stage_work import StageWork

Array: TypeAlias = npt.NDArray[np.float64]
# The number of registers grows more slowly than the loads: some are used before others are loaded.
LOAD_EXPONENT = 0.75
# Stands for infinity, as a feature.
LARGEST = 1e9


class RegisterTerms(NamedTuple):
    """The terms of the linear estimate, to be multiplied by the constants of the same names.

    Attributes:
        instructions: Root of the instructions in the unrolled bodies of all stages.
        words: Root of the words of Funcs that are kept in registers.
        values: Root of the independent values that the unrolled bodies of all stages compute.
        loads: Power `LOAD_EXPONENT` of the loads from memory in the unrolled body with most.
        dimensions: Dimensions of the block.
        patterns: Different access patterns of all stages.
    """

    instructions: float
    words: float
    values: float
    loads: float
    dimensions: float
    patterns: float


class KernelNumbers(NamedTuple):
    """Numbers of a whole kernel, from `KernelWork`.

    Attributes:
        x, y, z: Threads of a block by dimension.
        threads: Threads of a block.
        shared: Shared memory of a block, in bytes.
        words: Words per thread of Funcs kept in registers.
        stages: Stages that the kernel computes.
        dimensions: Dimensions of all Funcs and inputs that are read or written.
        fused: Fused loops.
        barriers: Barriers per block.
        atomic: Whether it adds to memory atomically.
        read: Funcs and inputs outside the kernel that it reads.
    """

    x: float
    y: float
    z: float
    threads: float
    shared: float
    words: float
    stages: float
    dimensions: float
    fused: float
    barriers: float
    atomic: float
    read: float


class StageNumbers(NamedTuple):
    """Numbers of a stage; those of `StageWork` have its names.

    Attributes:
        plain, special: Instructions.
        loads, stores: Accesses to global memory.
        shared_loads, shared_stores: Accesses to shared memory.
        own: Loads of the Func that the stage computes.
        patterns, shared_patterns: Access patterns in global and in shared memory.
        once: Iterations of its loops of all levels, per run.
        depth, innermost: Number of loops that Halide does not unroll, of more than one iteration,
            and the extent of the innermost.
        copies, steps, addresses, held, dimensions: As in `StageWork`.
        definition_loads, bases, coordinates, bent, indirect, fixed, moving: As in `Addressing`.
        values: Values and terms that one execution of the body computes: `copies` times `steps`.
        ahead: Loads in the body after unrolling by the compilers.
        ahead_few, ahead_many: Loads of `moving` in as many iterations of the innermost loop as the
            compilers unroll of a long and of a short one.
        member, looped: Whether it computes a member, and whether it has loops.
    """

    plain: float
    special: float
    loads: float
    stores: float
    shared_loads: float
    shared_stores: float
    own: float
    patterns: float
    shared_patterns: float
    once: float
    depth: float
    innermost: float
    copies: float
    steps: float
    addresses: float
    held: float
    dimensions: float
    definition_loads: float
    bases: float
    coordinates: float
    bent: float
    indirect: float
    fixed: float
    moving: float
    values: float
    ahead: float
    ahead_few: float
    ahead_many: float
    member: float
    looped: float


FEATURES = (
    *RegisterTerms._fields,
    *(f"kernel_{name}" for name in KernelNumbers._fields),
    *(f"sum_{name}" for name in StageNumbers._fields),
    *(f"most_{name}" for name in StageNumbers._fields),
)


def register_features(kernel: KernelWork, c: GpuConstants) -> Array:
    """Return the features of a kernel in the order of `FEATURES`."""
    stages = np.array([_stage_numbers(stage, c) for stage in kernel.stages])
    if not len(stages):
        stages = np.zeros((1, len(StageNumbers._fields)))
    terms, whole = register_terms(kernel, c), _kernel_numbers(kernel)
    found = np.concatenate([terms, whole, stages.sum(axis=0), stages.max(axis=0)])
    return np.asarray(np.nan_to_num(found, nan=0.0, posinf=LARGEST), dtype=np.float64)


def register_terms(kernel: KernelWork, c: GpuConstants) -> RegisterTerms:
    """Return the terms of the linear estimate."""
    instructions = values = loads = 0.0
    for stage in kernel.stages:
        unrolled = _unrolled(stage, c)
        each = _executions(stage)
        accesses = sum(access.count for access in stage.accesses)
        own = (a.count for a in stage.accesses if a.place == "memory" and not a.store)
        instructions += (stage.plain + stage.special + accesses) / each * unrolled
        values += stage.copies * min(unrolled, c.unrolled_partly)
        loads = max(loads, sum(own) / each * unrolled)
    return RegisterTerms(
        math.sqrt(instructions),
        math.sqrt(kernel.registers),
        math.sqrt(values),
        loads**LOAD_EXPONENT,
        float(sum(extent > 1 for extent in kernel.block)),
        float(sum(len(stage.accesses) for stage in kernel.stages)),
    )


def _executions(stage: StageWork) -> float:
    """Return how often a thread executes the body of a stage."""
    return max(stage.runs, stage.iterations, 1.0)


def _once(stage: StageWork) -> float:
    return max(stage.iterations / max(stage.runs, 1.0), 1.0)


def _unrolled(stage: StageWork, c: GpuConstants) -> float:
    """Return how many iterations of its loops the compilers unroll together."""
    once = _once(stage)
    return once if once <= c.unrolled_wholly else c.unrolled_partly


def _kernel_numbers(kernel: KernelWork) -> KernelNumbers:
    x, y, z = map(float, kernel.block)
    return KernelNumbers(
        x,
        y,
        z,
        x * y * z,
        kernel.shared,
        kernel.registers,
        float(len(kernel.stages)),
        float(kernel.dimensions),
        float(kernel.fused),
        kernel.barriers,
        float(kernel.atomics > 0),
        float(len(kernel.read)),
    )


def _stage_numbers(stage: StageWork, c: GpuConstants) -> StageNumbers:
    each = _executions(stage)
    counts = dict.fromkeys(itertools.product(("memory", "shared"), (False, True)), 0.0)
    for access in stage.accesses:
        counts[access.place, access.store] += access.count / each
    loads, shared_loads = counts["memory", False], counts["shared", False]
    serial = [extent for extent in stage.serial if extent > 1.0]
    innermost = serial[-1] if serial else 1.0
    moving = stage.addressing.moving
    in_memory = sum(access.place == "memory" for access in stage.accesses)
    return StageNumbers(
        stage.plain / each,
        stage.special / each,
        loads,
        counts["memory", True],
        shared_loads,
        counts["shared", True],
        sum(access.count for access in stage.accesses if access.own) / each,
        float(in_memory),
        float(len(stage.accesses) - in_memory),
        _once(stage),
        float(len(serial)),
        innermost,
        stage.copies,
        stage.steps,
        stage.addresses,
        stage.held,
        float(stage.dimensions),
        *stage.addressing,
        stage.copies * stage.steps,
        (loads + shared_loads) * _unrolled(stage, c),
        moving * min(innermost, c.unrolled_partly),
        moving * min(innermost, c.unrolled_wholly),
        float(stage.member),
        float(stage.iterations > 0),
    )
