"""The innermost loops of one stage: what a block of vectors costs to compute.

A kernel computes, per step, a block of the stage's pure dimensions: so many vectors along
one dimension and so many rows of another. For a reduction the block's accumulators live in
registers while the reduction loops run around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from tilewright.halide.analysis.summaries import TRANSCENDENTAL, Load, OpCount, StageSummary
from tilewright.halide.ir.algorithm import Type, Variable, walk
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel

_CHEAP = 0.6
# The longest dimension that is unrolled whole.
SHORT = 4
# Elements gathered by an unrolled block, near borders at least. LLVM takes 5 s for 300.
MOST_GATHERED = 600
_LIBRARY = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf")
# Cycles a register of 32-bit lanes takes; narrower lanes do more work for the same cycles.
_COSTS = {
    "add": 0.6, "sub": 0.6, "min": 0.6, "max": 0.6, "eq": 0.6, "ne": 0.6, "lt": 0.6, "le": 0.6,
    "gt": 0.6, "ge": 0.6, "and": 0.3, "or": 0.3, "not": 0.3, "select": 0.8, "cast": 1.0,
    "reinterpret": 0.0, "abs": 0.6, "absd": 1.2, "lerp": 4.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """The points that one step of a kernel computes, by dimension of the Func.

    `vectors` vectors of `lanes` elements along dimension `vector` (None: scalar code), times
    `rows` steps of dimension `row`.
    """

    vector: int | None = None
    lanes: int = 1
    vectors: int = 1
    row: int | None = None
    rows: int = 1

    @property
    def width(self) -> int:
        """Elements along the vector dimension."""
        return self.lanes * self.vectors

    @property
    def points(self) -> int:
        """Points of the Func in one block."""
        return self.lanes * self.vectors * self.rows


SCALAR = Block()


def natural_lanes(summary: StageSummary, model: CpuModel) -> int:
    """Lanes that fill a register with the type most of the work is done in."""
    weight: dict[int, float] = {}
    for op in summary.ops:
        if op.type.code == "handle" or op.name in ("cast", "reinterpret") or op.type.bits == 1:
            continue
        weight[op.type.bytes] = weight.get(op.type.bytes, 0.0) + op.count
    total = sum(weight.values())
    widest = max((t.bytes for t in summary.types), default=4)
    if total > 0:
        widest = max(size for size, w in weight.items() if w >= 0.2 * total)
        widest = max(widest, min(t.bytes for t in summary.types))
    return max(4, model.vector_bytes // widest)


def op_cycles(op: OpCount, lanes: int, model: CpuModel) -> float:
    """Cycles of one operation on a vector of `lanes` elements (1 lane: a scalar)."""
    registers = 1.0 if lanes == 1 else math.ceil(lanes * op.type.bytes / model.vector_bytes)
    if op.name.startswith(_LIBRARY):
        return 20.0 * lanes
    if op.name.startswith("pow"):
        return 40.0 * registers
    if op.name.startswith(TRANSCENDENTAL):
        return 16.0 * registers
    if op.name.startswith("sqrt"):
        return 10.0 * registers
    if op.name in ("div", "mod"):
        return _division(op, lanes, registers)
    if op.name == "mul":
        if op.type.code == "float" or op.type.bits <= 16:
            return 0.6 * registers
        return (1.2 if op.type.bits == 32 else 2.5) * registers
    return _COSTS.get(op.name, _CHEAP) * registers


def _division(op: OpCount, lanes: int, registers: float) -> float:
    if op.type.code == "float":
        return (0.6 if op.constant_operand else 10.0) * registers
    if op.constant_operand:
        return (2.0 if op.type.bits <= 16 else 4.0) * registers
    return 12.0 * lanes


Innermost = Callable[[str], int]


def load_cycles(
    load: Load, vector: str | None, lanes: int, model: CpuModel, innermost: Innermost
) -> float:
    """Cycles of one load for a vector along `vector` (None: one scalar).

    `innermost` tells the dimension of a Func or input that is contiguous in memory.
    """
    if vector is None or lanes == 1 or vector not in load.strides:
        return 0.6
    registers = math.ceil(lanes * load.type.bytes / model.vector_bytes)
    steps = load.strides[vector]
    if steps is None or _across(load, steps, innermost):
        return 1.5 * lanes
    step = steps[innermost(load.callee)] if steps else 0.0
    stride = abs(step)
    if stride == 1:
        return 1.2 * registers if step > 0 else 2.2 * registers
    if stride == 0.5:
        return 1.0 * registers + 1.0
    if 1 < stride <= 4:
        return (1.2 * stride + 1.5 * (stride - 1)) * registers
    if 0 < stride < 1:
        return 2.5 * registers
    return 1.5 * lanes


def _across(load: Load, steps: tuple[float, ...], innermost: Innermost) -> bool:
    """Whether a step leaves the row of memory."""
    inner = innermost(load.callee)
    return any(step for d, step in enumerate(steps) if d != inner)


def block_cycles(
    summary: StageSummary,
    loops: Mapping[int, str],
    block: Block,
    model: CpuModel,
    innermost: Innermost,
) -> float:
    """Cycles of one block of a stage, per iteration of its reduction loops.

    `loops` names the stage's pure loop of each dimension of the Func that has one.
    """
    reductions = {loop.name for loop in summary.loops if loop.kind != "pure"}
    vector = None if block.vector is None else loops.get(block.vector)
    row_loop = None if block.row is None else loops.get(block.row)
    spread = {vector: block.vectors, row_loop: block.rows}
    width = block.lanes if vector is not None else 1
    if block.vector is not None and vector is None:
        # The stage does not run along the block's vector dimension at all.
        spread[None] = 1

    def copies(depends: AbstractSet[str]) -> int:
        return math.prod(n for loop, n in spread.items() if loop in depends)

    cycles = 0.0
    inner = reductions | {vector, row_loop}
    for op in summary.ops:
        if vector is not None and vector in op.loops:
            cost = op_cycles(op, width, model) * copies(op.loops)
        elif op.loops & inner or vector is None:
            cost = op_cycles(op, 1, model) * copies(op.loops)
        else:
            cost = 0.02
        if reductions and not op.loops & reductions:
            cost *= 0.1
        cycles += op.count * cost
    accumulating = accumulates(summary)
    for load in summary.loads:
        depends = frozenset(load.strides)
        cost = load_cycles(load, vector, width, model, innermost) * copies(depends)
        if accumulating and (load.callee == summary.func or not depends & reductions):
            cost *= 0.1
        elif vector is not None and not depends & inner:
            cost *= 0.2
        cycles += cost
    held = 0.0
    stores = 0.0
    for t in summary.types:
        registers = math.ceil(width * t.bytes / model.vector_bytes) if width > 1 else 1
        held += registers * block.vectors * block.rows
        each = (
            float(registers)
            if block.vector == innermost(summary.func) or width == 1
            else 1.5 * width
        )
        stores += each * block.vectors * block.rows
    if accumulating:
        stores *= 0.1
        spilled = max(0.0, held + 2.0 * block.vectors - (model.registers - 4))
        # One dependent operation a step: short blocks wait for the one before.
        cycles = max(cycles, 4.0) + 2.0 * spilled
    elif summary.scatter and any(load.callee == summary.func for load in summary.loads):
        # What was just stored may be what is loaded next.
        cycles = max(cycles, 8.0)
    return cycles + stores + (1.5 if reductions else 0.4)


def scans(summary: StageSummary) -> bool:
    """Whether the stage writes along a reduction variable (a scan), rather than reduces."""
    reductions = {loop.name for loop in summary.loops if loop.kind != "pure"}
    return any(
        isinstance(node, Variable) and node.name in reductions for node in walk(*summary.args)
    )


def accumulates(summary: StageSummary) -> bool:
    """Whether the stage folds many values into each point of its pure dimensions."""
    return (
        any(loop.kind != "pure" for loop in summary.loops)
        and not summary.scatter
        and not scans(summary)
    )


def _shared(summary: StageSummary, vector: str, row: str) -> bool:
    """Whether rows have work or data of the vector loop in common."""
    return any(vector in op.loops and row not in op.loops for op in summary.ops) or any(
        vector in load.strides and row not in load.strides for load in summary.loads
    )


def best_block(
    summary: StageSummary,
    loops: Mapping[int, str],
    extents: Mapping[int, float],
    model: CpuModel,
    innermost: Innermost,
    rank: int = 0,
    whole: int | None = None,
) -> Block:
    """The block of least cost a point; `extents` gives each dimension's extent.

    Dimension `whole`, if given, is unrolled whole.

    With a `rank` the next best in line for a reduction, as far as it is within a quarter.
    """
    lanes = natural_lanes(summary, model)
    accumulating = accumulates(summary)
    reducing = any(loop.kind != "pure" for loop in summary.loops)
    # Several vectors gathered at a time gain nothing, and take compilers minutes.
    gathered = any(load.indirect for load in summary.loads)
    blocks = [SCALAR]
    if summary.scatter and reducing:
        # Points of several rows in turn: each row's chain of updates hides the others'.
        blocks += [
            Block(row=row, rows=rows) for row in loops for rows in (2, 4) if rows <= extents[row]
        ]
    for d in () if summary.scatter else loops:
        for width in (lanes, lanes // 2):
            if extents[d] < max(2, width // 2):
                continue
            for vectors in (1, 2, 3, 4) if accumulating and not gathered else (1,):
                if vectors > 1 and width * vectors > extents[d]:
                    continue
                blocks.append(Block(d, width, vectors))
                if not reducing:
                    # Unrolling a short dimension shares what does not depend on it, and settles
                    # choices by it; vectors across rows would only touch more lines at a time.
                    blocks += [
                        Block(d, width, vectors, row, int(extents[row]))
                        for row in loops
                        if row != d
                        and 1 < extents[row] <= SHORT
                        and (
                            _shared(summary, loops[d], loops[row])
                            or (
                                d == innermost(summary.func)
                                and not crossings(summary, loops[d], innermost)
                            )
                        )
                    ]
                if accumulating:
                    blocks += [
                        Block(d, width, vectors, row, rows)
                        for row in loops
                        for rows in (2, 3, 4, 6, 8)
                        if row != d and rows <= extents[row]
                    ]

    if accumulating:
        blocks = [
            b
            for b in blocks
            if b.vectors * b.rows == 1 or gathered_elements(summary, loops, b) <= MOST_GATHERED
        ]
    if whole is not None:
        rows = int(extents[whole])
        blocks = [Block(row=whole, rows=rows)] + [
            replace(b, row=whole, rows=rows)
            for b in blocks
            if b.vector not in (None, whole) and b.row is None
        ]

    def per_point(block: Block) -> float:
        waste = 1.0
        if block.vector is not None:
            n = extents[block.vector]
            waste = math.ceil(n / block.width) * block.width / n
        if block.row is not None:
            n = extents[block.row]
            waste *= math.ceil(n / block.rows) * block.rows / n
        return block_cycles(summary, loops, block, model, innermost) / block.points * waste

    if rank == 0 or not accumulating:
        return min(blocks, key=per_point)
    ordered = sorted(blocks, key=per_point)
    close = [b for b in ordered if per_point(b) <= 1.25 * per_point(ordered[0])]
    return close[min(rank, len(close) - 1)]


def gathered_elements(summary: StageSummary, loops: Mapping[int, str], block: Block) -> int:
    """Elements that a block loads one by one, at the borders of the image at least."""
    if block.vector is None:
        return 0
    vector = loops.get(block.vector)
    row = None if block.row is None else loops.get(block.row)
    total = 0
    for load in summary.loads:
        if vector in load.strides and (load.indirect or load.clamped):
            copies = block.vectors * (block.rows if row in load.strides else 1)
            total += block.lanes * copies
    return total


def crossings(summary: StageSummary, vector: str | None, innermost: Innermost) -> tuple[str, ...]:
    """The callees of loads whose neighbours along the vector loop lie in different rows."""
    if vector is None:
        return ()
    found = []
    for load in summary.loads:
        steps = load.strides.get(vector, ())
        if not load.indirect and (steps is None or _across(load, steps, innermost)):
            found.append(load.callee)
    return tuple(found)


def companion(
    summary: StageSummary, loops: Mapping[int, str], vector: int, innermost: Innermost
) -> int | None:
    """The dimension along which the rows that vectors cross are contiguous in memory.

    Running along it next to the vector loop reads the lines of one vector whole before they
    are left (a transposition in small tiles). None where nothing is crossed.
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
    """Bytes of one element of a Func."""
    return sum(t.bytes for t in types)
