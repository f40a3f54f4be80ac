"""The innermost loops of a stage: the cost of a block of vectors, and the best block.

The innermost loops of a stage, its kernel, compute one block of pure points per step: several
vectors along one dimension times several rows of another. The accumulators of a reduction stay in
registers while the reduction loops run around the block.

Notation (constants are in `constants`, the machine in `machine_model`):

| symbol | meaning | unit |
|---|---|---|
| `lanes` L | elements of one vector | elements |
| `vectors` V, `rows` R | vectors and rows of a block; it has L V R points | count |
| `registers` | registers that one vector of a type takes, ceil(L x bytes / vector_bytes) | count |
| copies | instances of an operation per block: V if it depends on the vector loop, times R if it \
depends on the row loop | count |
| border | share of blocks that cross an end of the vector dimension | 1 |
| spilled | accumulators and operands in excess of the free registers | registers |

Cycles per block and step: the sum of (cycles x copies) over operations and loads, for a reduction
at least the latency of one accumulation, plus stores, spills and loop overhead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tilewright.halide.analysis.layouts import steps_in_memory
from tilewright.halide.analysis.reductions import accumulates
from tilewright.halide.analysis.summaries import Load, StageSummary
from tilewright.halide.ir.algorithm import Type
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    Innermost,
    across,
    load_cycles,
    op_cycles,
    separated,
    separated_parts,
)
from tilewright.halide.schedulers.analytic.cpu.reduction_steps import (
    run_of,
    step_cycles,
)


def natural_lanes(summary: StageSummary, model: CpuModel) -> int:
    """Return the lanes that fill a register with the type of most of the work.

    Work that depends on reduction loops only is the same for all lanes, and does not count.
    """
    c = model.constants
    pure = {loop.name for loop in summary.loops if loop.kind == "pure"}
    weight: dict[int, float] = {}
    for op in summary.vector_ops:
        if pure and op.loops and not op.loops & pure:
            continue
        if op.type.code == "handle" or op.name in ("cast", "reinterpret") or op.type.bits == 1:
            continue
        weight[op.type.bytes] = weight.get(op.type.bytes, 0.0) + op.count
    total = sum(weight.values())
    widest = max((t.bytes for t in summary.types), default=SEARCH.unknown_bytes)
    if total > 0:
        widest = max(size for size, w in weight.items() if w >= c.main_type_share * total)
        widest = max(widest, min(t.bytes for t in summary.types))
    return max(SEARCH.least_lanes, model.vector_bytes // widest)


def fitting_lanes(extent: float) -> int:
    """Return the lanes of the shortest vector that holds a row of `extent` points.

    >>> [fitting_lanes(extent) for extent in (3, 7, 8, 31)]
    [4, 8, 8, 32]
    """
    return max(SEARCH.least_lanes, 1 << (int(extent) - 1).bit_length())


def stored_lanes(summary: StageSummary, model: CpuModel) -> int:
    """Return the lanes that fill a register with the narrowest type loaded or stored.

    With these lanes, a stage that computes bytes in floats loads and stores whole registers of
    bytes and computes in several independent registers of floats.
    """
    sizes = [t.bytes for t in summary.types] + [load.type.bytes for load in summary.loads]
    narrowest = min((size for size in sizes if size), default=SEARCH.unknown_bytes)
    return max(SEARCH.least_lanes, model.vector_bytes // narrowest)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A block of one stage: names of its reduction, vector and row loops, and its border share."""

    summary: StageSummary
    block: Block
    reductions: frozenset[str]
    vector: str | None
    row: str | None
    border: float

    @property
    def width(self) -> int:
        """Lanes of the stage's vectors; 1 if it has no loop along the vector dimension."""
        return self.block.lanes if self.vector is not None else 1

    def parts(self, model: CpuModel) -> int:
        """Return the number of vectors into which the lanes are separated."""
        return separated_parts(self.summary.remainders.get(self.vector or "", 1), self.width, model)

    @property
    def inner(self) -> frozenset[str | None]:
        """The reduction loops and the loops within the block."""
        return self.reductions | {self.vector, self.row}

    def copies(self, depends: AbstractSet[str]) -> int:
        """Return the instances per block of a value that depends on the given loops."""
        spread = {self.vector: self.block.vectors, self.row: self.block.rows}
        return math.prod(n for loop, n in spread.items() if loop in depends)


def block_cycles(
    summary: StageSummary,
    loops: Mapping[int, str],
    block: Block,
    model: CpuModel,
    innermost: Innermost,
    nested: bool = False,
    border: float = 0.0,
) -> float:
    """Return cycles per block of a stage and iteration of its reduction loops.

    `loops` maps dimensions of the Func to the stage's pure loops. With `nested`, the reduction is
    computed within the block of its reader. `border` is the block's `border_share`.
    """
    phases = phases_of(summary, loops, block) or (summary,)
    one = replace(block, unrolled=())
    parts = [_cycles(each, loops, one, model, innermost, nested, border) for each in phases]
    return block.phases * sum(parts) / len(parts)


def _cycles(
    summary: StageSummary,
    loops: Mapping[int, str],
    block: Block,
    model: CpuModel,
    innermost: Innermost,
    nested: bool,
    border: float,
) -> float:
    """Return `block_cycles` of a block without unrolled phases, for one phase."""
    c = model.constants
    run = run_of(summary, innermost) if block.steps > 1 and block.vector is None else None
    if run is not None:
        return step_cycles(
            summary,
            run,
            None if block.row is None else loops.get(block.row),
            block.rows,
            block.steps,
            min(natural_lanes(summary, model), block.steps),
            model,
            innermost,
            nested or block.rows == 1,
            block.row == innermost(summary.func),
            not nested,
        )
    kernel = _Kernel(
        summary,
        block,
        frozenset(loop.name for loop in summary.loops if loop.kind != "pure"),
        None if block.vector is None else loops.get(block.vector),
        None if block.row is None else loops.get(block.row),
        border,
    )
    # Reduction loops around the block, not outside a sweep of blocks.
    around = accumulates(summary) and not block.swept
    # If the distance between rows is only known at run time, the compiler must assume that they
    # may alias: their accumulators go through memory.
    registers = around and (nested or block.rows == 1)
    cycles = _operations(kernel, model)
    for load in summary.loads:
        hoisted = registers if load.callee == summary.func else around
        cycles += _load(kernel, load, hoisted, model, innermost)
    held, stores = _results(kernel, model, innermost)
    if registers:
        stores *= c.hoisted_share
    if around:
        cycles = _accumulated(cycles, held, kernel, model)
    elif summary.scatter and any(load.callee == summary.func for load in summary.loads):
        # The next load may depend on the value just stored.
        cycles = max(cycles, c.forward_cycles)
    return cycles + stores + _conditions(kernel, model) + _loop(kernel, model)


def _loop(kernel: _Kernel, model: CpuModel) -> float:
    """Return cycles of the loop around a block, per step."""
    if not kernel.reductions:
        return model.constants.loop_cycles
    if kernel.vector is None and accumulates(kernel.summary):
        return model.constants.scalar_loop_cycles
    return model.constants.reduction_loop_cycles


def _accumulated(cycles: float, held: float, kernel: _Kernel, model: CpuModel) -> float:
    """Return cycles of a step of reduction loops around a block, with waits and spills.

    `cycles` are those of its operations and loads, and `held` the registers of its values.
    """
    c, block = model.constants, kernel.block
    # Operands that rows share stay in registers, others only for one vector at a time.
    needed = held + c.operand_registers * (block.vectors if block.rows > 1 else 1)
    spilled = max(0.0, needed - (model.registers - c.reserved_registers))
    # Each step depends on the previous one: short blocks wait for its latency.
    integers = all(t.code != "float" for t in kernel.summary.types)
    chain = c.integer_chain_cycles if integers else c.chain_cycles
    return max(cycles, chain, _chain(kernel, model)) + c.spill_cycles * spilled


def _chain(kernel: _Kernel, model: CpuModel) -> float:
    """Return the cycles of the longest chain of operations and loads from one step to the next."""
    c, chain = model.constants, kernel.summary.waits.chain
    if chain is None:
        return 0.0
    load = c.load_latency_cycles
    if kernel.vector is not None:
        load = max(load, c.gather_cycles * kernel.block.lanes)
    return (
        chain.floats * c.chain_cycles + chain.others * c.integer_chain_cycles + chain.loads * load
    )


def _conditions(kernel: _Kernel, model: CpuModel) -> float:
    """Return the cycles of branches whose outcome depends on data, per step."""
    waits = kernel.summary.waits
    if not waits.doubtful or kernel.vector in waits.masked:
        return 0.0
    return model.constants.doubtful_cycles * kernel.copies(waits.masked)


def phases_of(
    summary: StageSummary, loops: Mapping[int, str], block: Block
) -> tuple[StageSummary, ...]:
    """Return the summaries of a stage at the residues that the loops of a block have, if any.

    Vectors have all residues of their loop if its period divides their lanes, and the unrolled
    dimensions of the block if it divides their points.
    """
    if summary.phases is None:
        return ()
    periods = summary.phases.periods
    sizes = [*block.unrolled, (block.vector, block.lanes)]
    named = [(loops[d], size) for d, size in sizes if d is not None and d in loops]
    return summary.phases.along([loop for loop, n in named if n % periods.get(loop, 1) == 0])


def _operations(kernel: _Kernel, model: CpuModel) -> float:
    """Return cycles of a block's operations; those hoisted out of reduction loops count less."""
    c = model.constants
    vector, reductions, inner = kernel.vector, kernel.reductions, kernel.inner
    parts = kernel.parts(model)
    cycles = 0.0
    for op in kernel.summary.vector_ops:
        if vector is not None and vector in op.loops:
            cost = parts * op_cycles(op, kernel.width // parts, model) * kernel.copies(op.loops)
        elif op.loops & inner or vector is None:
            cost = op_cycles(op, 1, model) * kernel.copies(op.loops)
            if vector is None and accumulates(kernel.summary):
                cost *= c.scalar_share
        else:
            cost = c.uniform_cycles
        if reductions and not kernel.block.swept and not op.loops & reductions:
            cost *= c.hoisted_share
        cycles += op.count * cost
    return cycles


def _load(
    kernel: _Kernel, load: Load, accumulating: bool, model: CpuModel, innermost: Innermost
) -> float:
    """Return cycles of a load per block; with `accumulating`, accumulators are not reloaded."""
    c = model.constants
    depends = frozenset(load.strides)
    parts = kernel.parts(model)
    if parts > 1 and kernel.vector is not None:
        load = separated(load, kernel.vector, parts)
    cost = parts * load_cycles(load, kernel.vector, kernel.width // parts, model, innermost)
    dense = is_dense(load, kernel.vector, innermost)
    if kernel.vector in kernel.summary.waits.masked and not dense:
        cost = c.masked_lane_cycles * kernel.width * len(kernel.summary.types)
    if kernel.vector in load.clamped and not load.indirect:
        cost += kernel.border * c.border_cycles * kernel.width
    cost *= kernel.copies(depends)
    if accumulating and (load.callee == kernel.summary.func or not depends & kernel.reductions):
        cost *= c.hoisted_share
    elif kernel.vector is not None and not depends & kernel.inner:
        cost *= c.broadcast_share
    return cost


def is_dense(load: Load, vector: str | None, innermost: Innermost) -> bool:
    """Return whether lanes along the `vector` loop load neighbours, or the same value."""
    steps = load.strides.get(vector, ()) if vector is not None else ()
    if steps is None or vector in load.divisors:
        return False
    inner, steps = innermost(load.callee), steps_in_memory(load, steps)
    return not steps or all(abs(s) == (1.0 if d == inner else 0.0) for d, s in enumerate(steps))


def _results(kernel: _Kernel, model: CpuModel, innermost: Innermost) -> tuple[float, float]:
    """Return the registers of a block's values, and cycles to store them once."""
    block, width = kernel.block, kernel.width
    held = stores = 0.0
    for t in kernel.summary.types:
        registers = math.ceil(width * t.bytes / model.vector_bytes) if width > 1 else 1
        held += registers * block.vectors * block.rows
        side_by_side = block.vector == innermost(kernel.summary.func) or width == 1
        if side_by_side:
            each = float(registers)
        elif interleaves(block, kernel.summary):
            each = registers * (1 + model.constants.shuffle_cycles)
        else:
            each = model.constants.scatter_cycles * width
        if kernel.parts(model) > 1:
            each += model.constants.shuffle_cycles * registers
        stores += each * block.vectors * block.rows
    return held, stores


def interleaves(block: Block, summary: StageSummary) -> bool:
    """Return whether the vectors of a block's rows are interleaved to dense vectors.

    The rows are all planes of an output that interleaves them.
    """
    apart = summary.apart
    return bool(apart) and block.vector == 1 and block.row == 0 and block.rows == apart[1]


def border_share(
    block: Block,
    extents: Mapping[int, float],
    model: CpuModel,
    ends: Iterable[tuple[int, int]],
    row: float | None = None,
) -> float:
    """Return the share of a Func's blocks that cross a clamped end of the vector dimension.

    Halide computes these blocks in separate loops, with clamped loads lane by lane. The last block
    of a row is among them if it is not whole: its shift inwards is a condition, too.

    Args:
        block: the register block.
        extents: the extent of each dimension of the Func in elements.
        model: the model of the CPU.
        ends: by dimension, the number of its ends at which coordinates are clamped (`stage_facts`).
        row: the elements along the vector dimension that are computed at a time; None: all.
    """
    if block.vector is None:
        return 0.0
    whole = max(extents[block.vector], 1.0)  # regions may be empty
    row = whole if row is None else min(max(row, 1.0), whole)
    clamped = dict(ends).get(block.vector, 2) * model.constants.border_blocks
    # The share row / whole of the rows ends where all of the Func does.
    crossed = clamped * row / whole
    if row % block.width != 0.0:
        crossed += 1.0 - min(clamped, 1.0) * row / whole
    return min(1.0, crossed * block.width / row)


def crossings(summary: StageSummary, vector: str | None, innermost: Innermost) -> tuple[str, ...]:
    """Return the callees of loads whose lanes along the `vector` loop lie in different rows."""
    if vector is None:
        return ()
    found = []
    for load in summary.loads:
        steps = load.strides.get(vector, ())
        if not load.indirect and (steps is None or across(load, steps, innermost)):
            found.append(load.callee)
    return tuple(found)


def companion(
    summary: StageSummary, loops: Mapping[int, str], vector: int, innermost: Innermost
) -> int | None:
    """Return the dimension along which the rows crossed by vectors are contiguous.

    If the loop around the vectors runs along it, the vectors use all elements of their cache lines
    before they move on (a transposition in small tiles). None if vectors do not cross rows.
    """
    crossed = crossings(summary, loops.get(vector), innermost)
    for d, loop in loops.items():
        if d == vector:
            continue
        for load in summary.loads:
            steps = load.strides.get(loop)
            if load.callee in crossed and steps and abs(steps[innermost(load.callee)]) == 1:
                return d
    return None


def value_bytes(types: tuple[Type, ...]) -> int:
    """Return bytes of one element of a Func."""
    return sum(t.bytes for t in types)
