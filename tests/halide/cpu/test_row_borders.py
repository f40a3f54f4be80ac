"""Borders of what a tile computes: by its own rows, for the learned cost model."""

from __future__ import annotations

import halide as hl
import pytest
from cpu_machines import FOUR_CORES

from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nest_costs import part_times

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
    # 65 columns: one of nine blocks in every tile, instead of three of 129 in the whole row.
    assert seconds(1, rows=True) > 1.1 * seconds(1, rows=False)


def test_whole_blocks_and_unclamped_rows_cost_the_same():
    assert seconds(8, rows=True) == pytest.approx(seconds(8, rows=False))

    assert seconds(1, True, lambda data: data) == seconds(1, False, lambda data: data)
