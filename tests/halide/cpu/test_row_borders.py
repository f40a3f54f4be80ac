"""Borders of clamped rows: which loops they split, and what they cost in tiles and empty rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import halide as hl
import pytest
from cpu_machines import FOUR_CORES

from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.ir.schedule import ScheduledLoop, Split
from tilewright.halide.schedulers.analytic.cpu.assemble import _Loops
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nest_costs import part_times
from tilewright.halide.schedulers.analytic.cpu.register_block import border_share
from tilewright.halide.schedulers.registry import MODEL_FAILED, plan
from tilewright.halide.schedulers.task import make_task

TILE = 64


def seconds(reach, rows, clamp=hl.BoundaryConditions.repeat_edge):
    """The predicted time where each tile of 64 columns computes 64 + `reach` columns of a sum."""
    x, y, u, v = hl.vars("x y u v")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, 1024), (0, 512)])
    edge, wide, out = clamp(data), hl.Func("wide"), hl.Func("out")
    wide[x, y] = edge[x - 1, y] + edge[x, y] + edge[x + 1, y]
    out[x, y] = wide[x, y] + wide[x + reach, y]
    out.set_estimates([(0, 1024), (0, 512)])
    out.compute_root().tile(x, y, u, v, x, y, TILE, 32).vectorize(x, 8).parallel(v)
    wide.compute_at(out, u).vectorize(x, 8)
    given = read_schedule(bytes(hl.serialize_pipeline(hl.Pipeline(out))))
    nest = sized_nest(given.algorithm, given.schedule)
    parts = part_times(nest, model_of(FOUR_CORES), rows=rows)
    return sum(part.seconds for part in parts)


def test_the_last_block_of_a_tile_is_border_if_it_is_not_whole():
    # 65 columns: one of nine blocks in every tile, instead of two of 129 in the whole row.
    assert seconds(1, rows=True) > 1.1 * seconds(1, rows=False)


def test_whole_blocks_and_unclamped_rows_cost_the_same():
    assert seconds(8, rows=True) == pytest.approx(seconds(8, rows=False))
    assert seconds(1, True, lambda data: data) == seconds(1, False, lambda data: data)


def test_tiles_are_not_cut_for_the_borders_of_others():
    def cut(vector_ends, borders):
        loops: Any = _Loops.__new__(_Loops)
        facts = SimpleNamespace(ends=lambda name, index: ((0, 2), (1, vector_ends)))
        loops.costs = SimpleNamespace(facts=facts)
        loops.func, loops.index = SimpleNamespace(name="out"), 0
        loops.block = Block(1, 8)
        loops.block_loops = [ScheduledLoop("v1n", "vectorized")]
        loops.splits = [Split("v1", "v1t", "v1n", 8, "shift_inwards")]
        loops.tile_loops, loops.inner = {1: "v1t"}, {}
        return loops.cut([], borders)

    assert cut(0, borders=False) == {"v1n", "v1t"}
    assert cut(0, borders=True) == {"v1n"}
    # The stage has borders of its own, and no other loop over vectors.
    assert cut(1, borders=True) == {"v1n", "v1t"}


@pytest.mark.parametrize("size", [(0, 0), (64, 0), (0, 64)])
def test_the_model_schedules_what_has_no_elements(size):
    x, y = hl.vars("x y")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, 64), (0, 64)])
    edge, wide, out = hl.BoundaryConditions.repeat_edge(data), hl.Func("wide"), hl.Func("out")
    wide[x, y] = hl.exp(edge[x - 1, y] + edge[x + 1, y])
    out[x, y] = wide[x, y - 1] + wide[x + 1, y + 1]
    out.set_estimates([(0, n) for n in size])
    (found,) = plan(make_task(out, target="host", machine=FOUR_CORES))
    assert not any(MODEL_FAILED in note for note in found.notes)


def test_an_empty_row_is_costed_as_one_of_one_element():
    for extents, row in (({0: 0.0}, None), ({0: 64.0}, 0.0)):
        assert border_share(Block(0, 8), extents, model_of(FOUR_CORES), (), row) == 1.0
