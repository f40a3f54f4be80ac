"""The blocks that a tile allocates: what lives at once, and pages that are fresh in every tile."""

from dataclasses import replace
from types import SimpleNamespace

import halide as hl
import numpy as np
import pytest

from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.cpu.constants import CpuConstants
from tilewright.halide.schedulers.analytic.cpu.page_faults import values_at_root
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.analytic.cpu.storage import (
    fresh_bytes,
    kept_bytes,
    tile_storage,
    trimmed_bytes,
)
from tilewright.machines import Cache, CpuMachine

MB = 2.0**20
CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 32 << 20, 64, 2))
MACHINE = CpuMachine("test", "x86-64", 2, ("avx2", "fma"), 256, CACHES)
CONSTANTS = CpuConstants()
# Each reads the one before.
CHAIN = {"a": ("b",), "b": ("c",), "c": ("d",), "d": ("out",)}


def fresh(sizes, readers, kept=2 * MB):
    blocks = {name: np.array([float(size)]) for name, size in sizes.items()}
    return float(trimmed_bytes(blocks, readers, kept, CONSTANTS)[0])


def test_blocks_that_fit_in_what_the_heap_keeps_have_no_fresh_pages():
    assert fresh(dict.fromkeys("abcd", MB / 2), dict.fromkeys("abcd", ("out",))) == 0


def test_what_exceeds_the_kept_heap_is_fresh_in_every_tile():
    assert fresh(dict.fromkeys("abcd", MB), dict.fromkeys("abcd", ("out",))) == 2 * MB


def test_a_block_lives_until_its_last_reader_is_computed():
    # Two blocks live at once in a chain, so that the third one has the place of the first.
    assert fresh(dict.fromkeys("abcd", MB), CHAIN) == 0
    assert fresh(dict.fromkeys("abcd", MB), {**CHAIN, "a": ("b", "d")}) == MB


def test_a_large_block_raises_what_is_kept():
    sizes = {"a": 3 * MB, "b": 2 * MB, "c": 2 * MB}
    assert fresh(sizes, dict.fromkeys("abc", ("out",))) == MB
    assert kept_bytes((1.0, 5 * MB, 40 * MB), CONSTANTS) == 10 * MB
    assert kept_bytes((), CONSTANTS) == CONSTANTS.kept_heap_bytes


def test_a_tuple_at_root_has_a_block_per_value():
    """Of 30 MB, the heap keeps twice the largest block: 40 MB, or 10."""
    assert fresh_bytes([20 * MB, 10 * MB], [1, 1], [1, 1], CONSTANTS) == 0
    assert fresh_bytes([20 * MB, 10 * MB], [1, 1], [4, 2], CONSTANTS) == 30 * MB
    # The two values of the first are mapped on their own, and the heap keeps the second.
    assert fresh_bytes([80 * MB, 10 * MB], [1, 1], [2, 1], CONSTANTS) == 80 * MB
    by_name = {"one": SimpleNamespace(types=("a",)), "two": SimpleNamespace(types=("a", "b"))}
    costs = SimpleNamespace(analysis=SimpleNamespace(view=SimpleNamespace(by_name=by_name)))
    groups = [SimpleNamespace(output="two"), SimpleNamespace(output="one")]
    assert values_at_root(costs, SimpleNamespace(groups=groups)) == [2, 1]


def test_blocks_on_the_stack_and_blocks_mapped_on_their_own_are_not_in_the_heap():
    readers = dict.fromkeys("abc", ("out",))
    small = CONSTANTS.stack_bytes
    assert fresh({"a": 2 * MB, "b": small, "c": small}, readers, kept=0.0) == 0
    assert fresh({"a": 2 * MB, "b": 33 * MB}, readers, kept=0.0) == 0


def test_fresh_pages_cost_cycles_only_where_the_limit_is_known():
    sizes = {name: np.array([MB, 4 * MB]) for name in "abcd"}
    readers, stages = dict.fromkeys("abcd", ("out",)), dict.fromkeys("abcd", 1)
    without = tile_storage(sizes, 2, stages, readers, np.inf, CONSTANTS)
    found = tile_storage(sizes, 2, stages, readers, 2 * MB, CONSTANTS)
    assert np.array_equal(found.held, without.held)
    assert np.array_equal(found.moved, without.moved)
    faults = np.array([2.0, 8.0]) * MB * CONSTANTS.fault_cycles_per_byte
    assert found.cycles - without.cycles == pytest.approx(faults)


def products(width=1530, height=2554):
    """Sums of the products of two derivatives, as in a corner detector."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    dx, dy, out = hl.Func("dx"), hl.Func("dy"), hl.Func("out")
    near = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    dx[x, y] = sum((i * (2 - j * j)) * image[x + 1 + i, y + 1 + j] for i, j in near if i)
    dy[x, y] = sum((j * (2 - i * i)) * image[x + 1 + i, y + 1 + j] for i, j in near if j)
    sums = []
    for name, one, other in (("xx", dx, dx), ("yy", dy, dy), ("xy", dx, dy)):
        product = hl.Func(name)
        product[x, y] = one[x, y] * other[x, y]
        sums.append(sum(product[x + i, y + j] for i, j in near))
    out[x, y] = sums[0] * sums[1] - sums[2] * sums[2]
    out.set_estimates([(1, width), (1, height)])
    image.set_estimates([(0, width + 4), (0, height + 4)])
    return hl.Pipeline(out)


def test_siblings_are_inlined_together_where_each_alone_would_cost_more():
    best = schedule_cpu(load(products()), MACHINE)[0]
    # Halide numbers names that other tests of the process used before.
    stored = {name.partition("$")[0] for group in best.groups for name in group.funcs}
    assert {"dx", "dy"} <= stored
    assert not {"xx", "yy", "xy"} & stored


def three_chains():
    """Three chains over the same image whose ends are read together: three blocks live at once."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    x, y = hl.vars("x y")
    out = hl.Func("out")
    total = 0.0
    for i in range(3):
        blur = hl.Func(f"blur{i}")
        blur[x, y] = sum(hl.sqrt(image[x + i + d, y + 2] + d) for d in range(5))
        total += sum(blur[x, y + d] * (d + i) for d in range(5))
    out[x, y] = total
    out.set_estimates([(0, 1536), (0, 2048)])
    image.set_estimates([(0, 1544), (0, 2056)])
    return hl.Pipeline(out)


def test_tiles_are_smaller_where_their_blocks_would_exceed_what_the_heap_keeps():
    algorithm = load(three_chains())
    endless = replace(CONSTANTS, kept_heap_bytes=np.inf)
    small, large = (
        schedule_cpu(algorithm, MACHINE, constants=c)[0].groups[-1] for c in (CONSTANTS, endless)
    )
    assert len(small.funcs) == len(large.funcs) == 4

    def held(group):
        return 3 * group.tile[0] * (group.tile[1] + 4) * 4

    assert held(small) <= CONSTANTS.kept_heap_bytes < held(large)
