"""The choice of a stage's innermost block: the candidates, and the one with the least cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tilewright.halide.analysis.layouts import steps_in_memory
from tilewright.halide.analysis.reductions import accumulates
from tilewright.halide.analysis.summaries import Load, StageSummary
from tilewright.halide.schedulers.analytic.cpu.blocks import SCALAR, Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.machine_model import CpuModel
from tilewright.halide.schedulers.analytic.cpu.operation_cycles import (
    Innermost,
    across,
    separated_parts,
)
from tilewright.halide.schedulers.analytic.cpu.reduction_steps import run_of, step_counts, with_rest
from tilewright.halide.schedulers.analytic.cpu.register_block import (
    block_cycles,
    border_share,
    crossings,
    fitting_lanes,
    interleaves,
    natural_lanes,
    stored_lanes,
)
from tilewright.halide.schedulers.analytic.cpu.stage_facts import Ends


def _shared(summary: StageSummary, vector: str, row: str) -> bool:
    """Return whether rows share vector operations or vector loads."""
    return any(vector in op.loops and row not in op.loops for op in summary.vector_ops) or any(
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
    nested: bool = False,
    run: float = 0.0,
    most: tuple[tuple[int, int], ...] = (),
    streams: int = 0,
    ends: Ends = (),
) -> Block:
    """Return the block with the least cost per point.

    `loops` and `extents` give the stage's pure loop and the extent of each dimension. Reductions
    take the `rank`-th best block (0: the best), if it is close to the best. Dimension `whole`, if
    any, is unrolled completely. With `nested`, the reduction is computed in its reader's block.
    `run` is the extent of the innermost reduction loop. `most` holds (dimension, widest block)
    pairs where wider blocks cause cache conflicts (`cache_sets`), and `streams` is the number of
    loads that start a segment in each step (`streams`). `ends` are the clamped ends of rows.
    """
    widest: dict[int | None, int] = dict(most)
    blocks = [
        block
        for block in _candidates(summary, loops, extents, model, innermost, streams, nested)
        if _lines(block, summary, loops, innermost) <= widest.get(block.vector, math.inf)
    ]
    blocks += _in_steps(summary, loops, extents, model, innermost, run)
    if whole is not None:
        blocks = _unrolled(blocks, whole, int(extents[whole]))

    def per_point(block: Block) -> float:
        waste = 1.0
        if block.vector is not None:
            n = extents[block.vector]
            waste = math.ceil(n / block.width) * block.width / n
        if block.row is not None:
            n = extents[block.row]
            waste *= math.ceil(n / block.rows) * block.rows / n
        for d, size in block.unrolled:
            waste *= math.ceil(extents[d] / size) * size / extents[d]
        border = border_share(block, extents, model, ends)
        cycles = block_cycles(summary, loops, block, model, innermost, nested, border)
        # A sweep over a whole row starts a segment once, not in each of its blocks.
        sweep = (
            extents[block.vector] / block.width if block.swept and block.vector is not None else 1
        )
        cycles += streams * model.constants.jump_cycles / sweep
        if block.steps > 1:
            cycles = with_rest(cycles, len(summary.types), block.rows, block.steps, run, model)
        return cycles / block.points * waste

    if rank == 0 or not accumulates(summary):
        return min(blocks, key=per_point)
    ordered = sorted(blocks, key=per_point)
    close = [b for b in ordered if per_point(b) <= SEARCH.close_block * per_point(ordered[0])]
    return close[min(rank, len(close) - 1)]


def _unrolled(blocks: list[Block], whole: int, rows: int) -> list[Block]:
    """Return the blocks that can have all of dimension `whole` as their rows, with these."""
    return [Block(row=whole, rows=rows)] + [
        replace(b, row=whole, rows=rows)
        for b in blocks
        if b.vector not in (None, whole) and b.row is None
    ]


def _lines(
    block: Block, summary: StageSummary, loops: Mapping[int, str], innermost: Innermost
) -> int:
    """Return how many lines a block reads at a time if every lane lies in a line of its own.

    Rows count if a load lies in other lines for each of them and for each lane.
    """
    if block.vector is None or block.row is None:
        return block.width
    both = (loops.get(block.vector, ""), loops.get(block.row, ""))
    for load in summary.loads:
        steps = [load.strides.get(loop) for loop in both]
        if load.indirect or load.callee == summary.func:
            continue
        if all(each and across(load, each, innermost) for each in steps):
            return block.width * block.rows
    return block.width


def _widths(summary: StageSummary, vector: str, reducing: bool, model: CpuModel) -> Iterator[int]:
    """Yield the candidate lengths of vectors along loop `vector`, in lanes."""
    lanes = natural_lanes(summary, model)
    yield lanes
    yield lanes // 2
    divisor = summary.remainders.get(vector, 1)
    yield lanes * separated_parts(divisor, divisor * lanes, model)
    if 2 * lanes <= stored_lanes(summary, model) and (not reducing or _thin(summary, lanes, model)):
        yield 2 * lanes
    # Four times the lanes, measured: faster for some kernels, three times slower for one that needs
    # more than 16 registers.
    wide = SEARCH.wide_registers
    fits = wide * _values(summary, vector) <= model.registers
    if wide * lanes <= stored_lanes(summary, model) and not reducing and fits:
        yield wide * lanes


def _fitting(widths: Iterable[int], extent: float) -> Iterator[int]:
    """Yield the lengths of vectors that suit a row of `extent` points.

    A row fills at least half of each vector, and no vector is longer than the whole row needs:
    vectors that reach beyond a row are masked.
    """
    most, usual = fitting_lanes(extent), list(widths)
    yield from (min(width, most) for width in usual if extent >= max(2, width // 2))
    if SEARCH.least_lanes <= extent and most < min(usual):
        yield most


def _values(summary: StageSummary, vector: str) -> int:
    """Return the values that each lane of a vector along a loop loads and computes."""
    loads = sum(vector in load.strides for load in summary.loads)
    return loads + sum(op.count for op in summary.vector_ops if vector in op.loops)


def _thin(summary: StageSummary, lanes: int, model: CpuModel) -> bool:
    """Return whether vectors of the narrowest loaded type are shorter than the shortest register.

    LLVM broadcasts a byte to such a vector with an insertion per lane.
    """
    narrowest = min((load.type.bytes for load in summary.loads), default=0)
    return 0 < lanes * narrowest < model.constants.least_vector_bytes


def _candidates(
    summary: StageSummary,
    loops: Mapping[int, str],
    extents: Mapping[int, float],
    model: CpuModel,
    innermost: Innermost,
    streams: int,
    nested: bool,
) -> Iterator[Block]:
    """Yield the candidate blocks along pure dimensions."""
    accumulating = accumulates(summary)
    reducing = any(loop.kind != "pure" for loop in summary.loops)
    yield SCALAR
    if summary.scatter:
        yield from _scattering(loops, extents) if reducing else ()
        return
    for d in loops:
        # Several gathered vectors per block gain nothing and take LLVM minutes to compile.
        gathered = any(_gathers(load, loops[d], innermost) for load in summary.loads)
        counts = (1,) if gathered or not accumulating else SEARCH.block_vectors
        counts += SEARCH.stream_vectors if streams and not gathered else ()
        widths = _widths(summary, loops[d], reducing, model)
        for width in dict.fromkeys(_fitting(widths, extents[d])):
            if streams and not nested and d == innermost(summary.func):
                yield Block(d, width, swept=True)
            for vectors in (n for n in counts if n == 1 or width * n <= extents[d]):
                several = _with_rows(Block(d, width, vectors), summary, loops, extents,
                                     innermost, accumulating, reducing)  # fmt: skip
                if accumulating:
                    several = (b for b in several if _compiles(summary, loops, b, innermost))
                yield from (b for b in several if _shuffles_few(summary, loops, b))


def _gathers(load: Load, vector: str, innermost: Innermost) -> bool:
    """Return whether vectors along a loop gather: they lie at places that depend on data.

    The place of a whole row may depend on data; its values are then neighbours all the same.
    """
    if not load.indirect or vector not in load.strides:
        return False
    steps = load.strides[vector]
    return steps is None or across(load, steps, innermost)


def _compiles(
    summary: StageSummary, loops: Mapping[int, str], block: Block, innermost: Innermost
) -> bool:
    """Return whether LLVM compiles the block of a reduction in seconds."""
    small = block.vectors * block.rows == 1
    return small or gathered_elements(summary, loops, block, innermost) <= SEARCH.most_gathered


def _shuffles_few(summary: StageSummary, loops: Mapping[int, str], block: Block) -> bool:
    """Return whether LLVM compiles the shuffles of a block's interleaved values in seconds."""
    vector = None if block.vector is None else loops.get(block.vector)
    row = None if block.row is None else loops.get(block.row)
    lanes = 0
    for load in summary.loads:
        steps = load.strides.get(vector or "")
        if load.apart and steps and abs(steps_in_memory(load, steps)[load.apart.index(1)]) > 1:
            lanes += block.width * (block.rows if row in load.strides else 1)
    return lanes <= SEARCH.most_shuffled


def _scattering(loops: Mapping[int, str], extents: Mapping[int, float]) -> Iterator[Block]:
    """Yield rows whose independent chains of updates hide each other's latency."""
    for row in loops:
        fitting = (rows for rows in SEARCH.scatter_rows if rows <= extents[row])
        yield from (Block(row=row, rows=rows) for rows in fitting)


def _in_steps(
    summary: StageSummary,
    loops: Mapping[int, str],
    extents: Mapping[int, float],
    model: CpuModel,
    innermost: Innermost,
    run: float,
) -> Iterator[Block]:
    """Yield the candidate blocks that vectorise the innermost reduction loop."""
    if run_of(summary, innermost) is None:
        return
    for steps in step_counts(natural_lanes(summary, model), run, len(summary.types)):
        yield Block(steps=steps)
        if len(summary.types) > 1:
            continue  # LLVM does not vectorise several rows of a Tuple
        for row in loops:
            fitting = (rows for rows in SEARCH.step_rows if rows <= extents[row])
            yield from (Block(row=row, rows=rows, steps=steps) for rows in fitting)


def _with_rows(
    block: Block,
    summary: StageSummary,
    loops: Mapping[int, str],
    extents: Mapping[int, float],
    innermost: Innermost,
    accumulating: bool,
    reducing: bool,
) -> Iterator[Block]:
    """Yield the block without rows, with its phases, then with rows of each other dimension."""
    yield block
    if summary.phases is not None and not block.unrolled:
        periods = summary.phases.periods
        unrolled = tuple(
            (d, periods[loop])
            for d, loop in loops.items()
            if loop in periods and d != block.vector and extents[d] >= periods[loop]
        )
        if unrolled:
            yield from _with_rows(
                replace(block, unrolled=unrolled), summary, loops, extents, innermost,
                accumulating, reducing,
            )  # fmt: skip
    d = block.vector
    assert d is not None
    others = [row for row in loops if row != d and row not in dict(block.unrolled)]
    if not reducing:
        yield from _short_rows(block, d, others, summary, loops, extents, innermost)
    if accumulating:
        for row in others:
            fitting = (rows for rows in SEARCH.block_rows if rows <= extents[row])
            yield from (replace(block, row=row, rows=rows) for rows in fitting)


def _short_rows(
    block: Block,
    vector: int,
    others: Iterable[int],
    summary: StageSummary,
    loops: Mapping[int, str],
    extents: Mapping[int, float],
    innermost: Innermost,
) -> Iterator[Block]:
    """Yield the block with all rows of each short dimension for which that is worthwhile.

    Unrolling a short dimension shares values that do not depend on it and resolves selects on it.
    With vectors across rows, it would only touch more cache lines at a time, unless it interleaves
    them.
    """
    along = vector == innermost(summary.func) and not crossings(summary, loops[vector], innermost)
    for row in others:
        if 1 < extents[row] <= SEARCH.short:
            rows = replace(block, row=row, rows=int(extents[row]))
            shares = _shared(summary, loops[vector], loops[row])
            if along or shares or interleaves(rows, summary):
                yield rows


def gathered_elements(
    summary: StageSummary, loops: Mapping[int, str], block: Block, innermost: Innermost
) -> int:
    """Return the elements that a block loads one by one, at least at the image's borders."""
    if block.vector is None:
        return 0
    vector = loops.get(block.vector, "")
    row = None if block.row is None else loops.get(block.row)
    total = 0
    for load in summary.loads:
        if vector in load.clamped or _gathers(load, vector, innermost):
            copies = block.vectors * (block.rows if row in load.strides else 1)
            total += block.lanes * copies
    return total
