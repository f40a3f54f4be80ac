"""Loops over dimension 10 are not taken for loops over dimension 1."""

from __future__ import annotations

from types import SimpleNamespace

from tilewright.halide.ir.algorithm import Type
from tilewright.halide.ir.schedule import ScheduledLoop, Split
from tilewright.halide.schedulers.analytic.cpu.assemble import _Loops
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.tile_loops import transposing


def test_only_loops_over_vectors_and_guarded_ones_are_cut():
    loops = _Loops.__new__(_Loops)
    loops.block = Block(1, 8)
    loops.block_loops = [ScheduledLoop("v1w", "vectorized")]
    loops.splits = [
        Split("v1", "v1t", "v1n", 64, "shift_inwards"),
        Split("v1n", "v1b", "v1w", 8, "shift_inwards"),
        Split("v10", "v10t", "v10n", 4, "shift_inwards"),
        Split("v2", "v2t", "v2n", 4, "guard_with_if"),
    ]
    loops.tile_loops = {1: "v1t", 2: "v2t", 10: "v10t"}
    loops.inner = {2: "v2n", 10: "v10n"}
    assert loops.cut([], False) == {"v1w", "v1t", "v1b", "v2t"}
    # Where tiles have loops over vectors, these are cut, and not whole tiles.
    loops.inner[1] = "v1b"
    assert loops.cut([], False) == {"v1w", "v1b", "v2t"}


def test_the_loop_next_to_the_vectors_is_that_of_its_own_dimension():
    costs = SimpleNamespace(companion_bytes=256.0)
    func = SimpleNamespace(types=(Type("float", 32),))
    loops = [ScheduledLoop("v10n"), ScheduledLoop("v0"), ScheduledLoop("v1n")]
    moved = transposing(costs, func, 1, 8, loops, [], "shift_inwards")
    assert [loop.name for loop in moved] == ["v1n", "v10n", "v0"]
