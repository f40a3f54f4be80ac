"""Along which dimension, and by how many rows, the members of a group can slide."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.constants import SEARCH
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.regions import Window
from tilewright.halide.schedulers.analytic.cpu.sliding import advance, blockwise, windows
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, (Cache(1, 32 << 10, 64, 1),))


def of(
    reads: Any, block: Block | None = None, largest: int = SEARCH.largest_step
) -> tuple[Window, ...]:
    """The windows of a producer inside an output, with a block, that reads it so."""
    x, y = hl.vars("x y")
    producer, output = hl.Func("producer"), hl.Func("output")
    producer[x, y] = hl.f32(x) * hl.f32(y)
    output[x, y] = reads(producer, x, y)
    output.set_estimates([(0, 64), (0, 64)])
    return of_group(output, block, largest)


def of_group(
    output: hl.Func, block: Block | None = None, largest: int = SEARCH.largest_step
) -> tuple[Window, ...]:
    """The windows of all Funcs of a pipeline inside its output, with a block."""
    return windows(*grouped(output, block), largest)


def grouped(output: hl.Func, block: Block | None) -> tuple[CpuCosts, Group]:
    """The costs of a pipeline, with a block of its output, and the group of all its Funcs."""
    algorithm = load(output)
    # Wrappers of inputs are inlined.
    view = View(algorithm, frozenset(f.name for f in algorithm.funcs if "_im" in f.name))
    costs = CpuCosts(Analysis(view, estimated_boxes(view), {}), model_of(MACHINE), {})
    names = tuple(f.name for f in algorithm.funcs if f.name not in view.inlined)
    if block is not None:
        costs.set_block(names[-1], 0, block)
    return costs, Group(names)


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        (lambda f, x, y: f[x, y - 1] + f[x, y + 1], (Window(1, 1),)),
        (lambda f, x, y: f[x, 2 * y] + f[x, 2 * y + 1], (Window(1, 1),)),
        (lambda f, x, y: f[x // 2, y // 2] + f[x // 2, (y + 1) // 2], (Window(1, 2),)),
        (lambda f, x, y: f[x, y // 2 - 1 + 2 * (y % 2)], (Window(1, 2),)),
        (lambda f, x, y: f[x, 3 * y // 4], (Window(1, 4),)),
        (lambda f, x, y: f[x, y] + f[x, 2 * y], ()),
        (lambda f, x, y: f[x, -y], ()),
        (lambda f, x, y: f[x, x + y * y], ()),
        (lambda f, x, y: f[x, y // 8], ()),
        (lambda f, x, y: f[y, x], (Window(1, 1),)),
        (lambda f, x, y: f[x, y] + f[y, x], ()),
    ],
)
def test_a_window_steps_as_the_reader_does(reads: Any, expected: tuple[Window, ...]) -> None:
    assert of(reads) == expected


@pytest.mark.parametrize(
    ("row", "rows", "expected"),
    [(1, 3, (Window(1, 3),)), (1, 16, ()), (0, 4, (Window(1, 1),))],
)
def test_a_step_has_the_rows_of_whole_blocks(
    row: int, rows: int, expected: tuple[Window, ...]
) -> None:
    block = Block(1 - row, 8, 1, row, rows)
    assert of(lambda f, x, y: f[x, y - 1] + f[x, y + 1], block) == expected
    assert not [w for w in of(lambda f, x, y: f[x, y], block, largest=1) if row == 1]


@pytest.mark.parametrize(("levels", "step"), [(1, 2), (2, 4), (3, 8)])
def test_steps_grow_along_a_chain_that_doubles_its_rows(levels: int, step: int) -> None:
    x, y = hl.vars("x y")
    last = hl.Func("coarsest")
    last[x, y] = hl.f32(x) * hl.f32(y)
    for level in range(levels):
        finer = hl.Func(f"level{level}")
        finer[x, y] = last[x, y // 2] + last[x, (y + 1) // 2]
        last = finer
    last.set_estimates([(0, 64), (0, 64)])
    assert of_group(last, largest=8) == (Window(1, step),)


def test_an_access_that_does_not_move_has_no_advance() -> None:
    assert advance(((),), "y") is None


def test_rates_multiply_with_coefficients() -> None:
    x, y = hl.vars("x y")
    producer, output = hl.Func("producer"), hl.Func("output")
    producer[x, y] = hl.f32(x + y)
    output[x, y] = producer[x, 3 * y + 5]
    output.set_estimates([(0, 8), (0, 8)])
    algorithm = load(output)
    view = View(algorithm)
    (summary,) = Analysis(view, estimated_boxes(view), {}).summaries(algorithm.outputs[0])
    (access,) = [a for a in summary.accesses if a.callee.startswith("producer")]
    found = advance(access.forms, view.by_name[algorithm.outputs[0]].args[1])
    assert found is not None
    assert (found.dimension, found.rate, found.period) == (1, Fraction(3), 1)


OF_EIGHT = Block(0, 8, 1, None, 1)


@pytest.mark.parametrize(
    ("reads", "block", "expected"),
    [
        (lambda f, x, y: f[x, y], OF_EIGHT, True),
        (lambda f, x, y: f[x, y - 1] + f[x, y + 1], OF_EIGHT, True),
        (lambda f, x, y: f[x, y - 1] + f[x, y + 1], Block(0, 8, 2, None, 1), True),
        (lambda f, x, y: f[x + 3, y], OF_EIGHT, True),
        # Nine values for a block of eight.
        (lambda f, x, y: f[x, y] + f[x + 1, y], OF_EIGHT, False),
        (lambda f, x, y: f[2 * x, y], OF_EIGHT, False),
        # As many rows as a vector has lanes: along which the block lies is not clear.
        (lambda f, x, y: f[x, y] + f[x, y + 7], OF_EIGHT, False),
        (lambda f, x, y: f[x, y] + f[x, y + 6], OF_EIGHT, True),
        (lambda f, x, y: f[y, x], OF_EIGHT, False),
        # No vectors, along a column, or several rows at a time.
        (lambda f, x, y: f[x, y], Block(), False),
        (lambda f, x, y: f[x, y], Block(1, 8, 1, None, 1), False),
        (lambda f, x, y: f[x, y], Block(0, 8, 1, 1, 2), False),
    ],
)
def test_blocks_of_members_as_wide_as_those_of_the_output(
    reads: Any, block: Block, expected: bool
) -> None:
    x, y = hl.vars("x y")
    producer, output = hl.Func("producer"), hl.Func("output")
    producer[x, y] = hl.f32(x) * hl.f32(y)
    output[x, y] = reads(producer, x, y)
    output.set_estimates([(0, 64), (0, 64)])
    assert blockwise(*grouped(output, block)) is expected


@pytest.mark.parametrize("clamped", [False, True])
def test_members_that_read_clamped_indices_are_not_computed_by_blocks(clamped: bool) -> None:
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    producer, output = hl.Func("producer"), hl.Func("output")
    producer[x, y] = image[hl.clamp(x, 0, 63) if clamped else x, y]
    output[x, y] = producer[x, y] * 2.0
    output.set_estimates([(0, 64), (0, 64)])
    assert blockwise(*grouped(output, OF_EIGHT)) is not clamped
