"""Estimate the registers that ``ptxas`` gives a thread of a kernel if nothing limits them.

LLVM and ``ptxas`` unroll loops that Halide left as loops: short ones completely, longer ones in
part. Then they move loads ahead, so that the loads of all copies need registers at once.

| symbol | meaning | unit |
|---|---|---|
| `runs` | times that a thread runs the loops of a stage | count |
| `once` | executions of the loops' innermost body, per run | count |
| `copies` | of the body after unrolling | count |
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.stage_work import StageWork

# The number of registers grows more slowly than the loads: some are used before others are loaded.
LOAD_EXPONENT = 0.75


class RegisterTerms(NamedTuple):
    """The terms of the estimate, to be multiplied by the constants of the same names.

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


def register_terms(kernel: KernelWork, c: GpuConstants) -> RegisterTerms:
    """Return the terms of the estimate."""
    instructions = values = loads = 0.0
    for stage in kernel.stages:
        copies = _copies(stage, c)
        each = max(stage.runs, stage.iterations, 1.0)
        accesses = sum(access.count for access in stage.accesses)
        own = (a.count for a in stage.accesses if a.place == "memory" and not a.store)
        instructions += (stage.plain + stage.special + accesses) / each * copies
        values += stage.copies * min(copies, c.unrolled_partly)
        loads = max(loads, sum(own) / each * copies)
    return RegisterTerms(
        math.sqrt(instructions),
        math.sqrt(kernel.registers),
        math.sqrt(values),
        loads**LOAD_EXPONENT,
        float(sum(extent > 1 for extent in kernel.block)),
        float(sum(len(stage.accesses) for stage in kernel.stages)),
    )


def _copies(stage: StageWork, c: GpuConstants) -> float:
    """Return how many iterations of its loops the compilers unroll together."""
    once = max(stage.iterations / max(stage.runs, 1.0), 1.0)
    return once if once <= c.unrolled_wholly else c.unrolled_partly


def estimated_registers(kernel: KernelWork, c: GpuConstants) -> float:
    """Return the estimated registers per thread if nothing limits them."""
    terms = register_terms(kernel, c)
    return (
        c.ptxas_base
        + c.ptxas_instructions * terms.instructions
        + c.ptxas_words * terms.words
        + c.ptxas_values * terms.values
        + c.ptxas_loads * terms.loads
        + c.ptxas_dimensions * terms.dimensions
        + c.ptxas_patterns * terms.patterns
    )
