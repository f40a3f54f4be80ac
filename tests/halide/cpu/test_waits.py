"""Chains from step to step, conditions, rows of tables, and inputs with interleaved colours."""

from dataclasses import replace
from types import SimpleNamespace

import halide as hl
import pytest
from answers import assert_right
from cpu_machines import FOUR_CORES

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.layouts import steps_in_memory
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.analysis.waits import NO_WAITS, Chain, StageWaits
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.names import readable
from tilewright.halide.schedulers.analytic.cpu import register_block
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block
from tilewright.halide.schedulers.analytic.cpu.blocks import SCALAR, Block
from tilewright.halide.schedulers.analytic.cpu.cost import CpuCosts
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.register_block import block_cycles, natural_lanes
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 48 << 10, 64, 1), Cache(2, 1 << 20, 64, 1), Cache(3, 32 << 20, 64, 2))
LARGE_CACHES = replace(FOUR_CORES, cores=2, caches=CACHES)
MODEL = model_of(FOUR_CORES)
C = MODEL.constants
x, y, c = hl.vars("x y c")


def image(name, dtype, *extents):
    param = hl.ImageParam(dtype, len(extents), name)
    param.set_estimates([(0, extent) for extent in extents])
    return param


def loaded(func, *extents):
    func.set_estimates([(0, extent) for extent in extents])
    return load(hl.Pipeline(func))


def analysed(algorithm):
    inlined = frozenset(func.name for func in algorithm.funcs if "_im" in func.name)
    view = View(algorithm, inlined)
    return Analysis(view, estimated_boxes(view), algorithm.symbols, specialize=True)


def update_of(algorithm, name="f", stage=1):
    (func,) = [f.name for f in algorithm.funcs if readable(f.name) == name]
    return analysed(algorithm).summaries(func)[stage]


def checksum(length=64, rows=48):
    """A table, and rows that step through it: each step needs the value of the one before."""
    data, table, f = image("data", hl.UInt(8), length, rows), hl.Func("table"), hl.Func("f")
    r = hl.RDom([(0, length)], "r")
    table[x] = hl.u32(x) * hl.u32(2654435761)
    f[y] = hl.u32(0)
    f[y] = table[hl.cast(hl.UInt(8), f[y]) ^ data[r, y]] ^ (f[y] >> 8)
    return loaded(f, rows)


def summed(value, condition=None, *, reductions=(50,)):
    f, r = hl.Func("f"), hl.RDom([(0, n) for n in reductions], "r")
    if condition is not None:
        r.where(condition(r))
    f[x] = hl.f32(0.0)
    f[x] = value(f, r)
    return loaded(f, 512)


DATA = image("data", hl.Float(32), 512, 50)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda f, r: f[x] + DATA[x, r], Chain(floats=1)),
        (lambda f, r: f[x] * 0.5 + DATA[x, r], Chain(floats=1)),  # fused
        (lambda f, r: (f[x] + DATA[x, r]) * 0.5, Chain(floats=2)),
        (lambda f, r: hl.max(f[x], DATA[x, r]), Chain(others=1)),
        (lambda f, r: f[x] + hl.max(f[x], DATA[x, r]), Chain(floats=1, others=1)),
        (lambda f, r: DATA[hl.clamp(hl.i32(f[x]), 0, 9), r], Chain(others=2, loads=1)),
        (lambda f, r: DATA[x, r], None),
    ],
)
def test_chains(value, expected):
    assert update_of(summed(value)).waits == StageWaits(expected)


def test_the_first_stage_waits_for_nothing():
    assert update_of(checksum(), stage=0).waits == NO_WAITS


@pytest.mark.parametrize(
    ("condition", "masked", "doubtful"),
    [
        (lambda r: r.x < x, {"x", "r$x"}, False),
        (lambda r: r.x * r.x < 900, {"r$x"}, False),
        (lambda r: DATA[x, r.x] > 0.5, {"x", "r$x"}, True),
        (lambda r: DATA[0, r.x] > 0.5, {"r$x"}, True),
    ],
)
def test_conditions(condition, masked, doubtful):
    waits = update_of(summed(lambda f, r: f[x] + DATA[x, r], condition)).waits
    assert (waits.masked, waits.doubtful) == (masked, doubtful)


def test_chains_through_tables_run_in_vectors():
    summary = update_of(checksum())
    loops, block = {0: "y"}, Block(0, 8)
    scalar, vector = (
        block_cycles(summary, loops, each, MODEL, lambda _: 0) for each in (SCALAR, block)
    )
    # Two operations and a load from one step to the next.
    assert scalar >= 2 * C.integer_chain_cycles + C.load_latency_cycles
    assert vector / 8 < scalar
    algorithm = checksum()
    planned = schedule_cpu(algorithm, FOUR_CORES)[0]
    (entry,) = [e for e in planned.schedule.funcs if algorithm.funcs[e.func].name.startswith("f")]
    assert any(loop.mapping == "vectorized" for loop in entry.stages[1].loops)
    assert_right(algorithm, planned.schedule, guarded=False)


def test_a_vector_of_chained_loads_takes_as_long_as_its_gather():
    waits = StageWaits(Chain(floats=1, others=2, loads=3))

    def cycles(lanes, vector="y"):
        kernel = SimpleNamespace(
            summary=SimpleNamespace(waits=waits), vector=vector, block=Block(0, lanes)
        )
        return register_block._chain(kernel, MODEL)

    before = C.chain_cycles + 2 * C.integer_chain_cycles
    assert cycles(16, None) == before + 3 * C.load_latency_cycles
    for lanes in (4, 16):
        load = max(C.load_latency_cycles, C.gather_cycles * lanes)
        assert cycles(lanes) == before + 3 * load
    assert cycles(16) > cycles(16, None)


def test_lanes_are_for_what_differs_between_them():
    """A condition on reduction loops is computed once per step, whatever its type."""
    f, r, data = hl.Func("f"), hl.RDom([(-4, 9), (-4, 9)], "r"), image("data", hl.UInt(8), 600, 64)
    r.where(r.x * r.x + r.y * r.y <= 18)
    f[x, y] = hl.u8(0)
    f[x, y] = hl.max(f[x, y], data[x + r.x + 4, y + r.y + 4])
    assert natural_lanes(update_of(loaded(f, 512, 32)), MODEL) == 32


def test_rows_of_a_table_are_read_in_several_vectors():
    """Which row depends on data; the values in it are neighbours."""
    table, rows = image("table", hl.Float(32), 64, 100), image("rows", hl.Int(32), 20, 300)
    f, r = hl.Func("f"), hl.RDom([(0, 20)], "r")
    f[x, y] = hl.f32(0.0)
    f[x, y] += table[x, hl.clamp(rows[r, y], 0, 99)]
    summary = update_of(loaded(f, 64, 300))
    found = best_block(summary, {0: "x", 1: "y"}, {0: 64.0, 1: 300.0}, MODEL, lambda _: 0)
    assert found.vector == 0
    assert found.vectors > 1


def masked(interleaved, width=400, height=96):
    """Sums of the colours of the pixels that a mask selects."""
    data, mask = (
        image("data", hl.UInt(8), width, height, 3),
        image("mask", hl.UInt(8), width, height),
    )
    if interleaved:
        data.dim(0).set_stride(3)
        data.dim(2).set_stride(1)
    f, r = hl.Func("f"), hl.RDom([(0, width), (0, height)], "r")
    r.where(mask[r.x, r.y] > 127)
    f[c] = hl.u32(0)
    f[c] += hl.u32(data[r.x, r.y, c])
    return loaded(f, 3)


def load_of_data(summary):
    (found,) = [each for each in summary.loads if readable(each.callee) == "data"]
    return found


def test_steps_between_interleaved_pixels_are_steps_in_memory():
    analysis = analysed(masked(True))
    (name,) = [f.name for f in analysis.view.algorithm.funcs if f.name.startswith("f")]
    data = load_of_data(analysis.summaries(name)[1])
    assert analysis.contiguous == {data.callee: 2}
    moved = {loop: steps_in_memory(data, steps) for loop, steps in data.strides.items()}
    assert moved == {"r$x": (0.0, 0.0, 3.0), "r$y": (0.0, 1.0, 0.0), "c": (0.0, 0.0, 1.0)}
    assert analysed(masked(False)).contiguous == {}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.few(1)
def test_masked_vectors_are_for_neighbours(interleaved):
    """Halide loads masked lanes that are apart one by one, each after a branch."""
    algorithm = masked(interleaved)
    data = load_of_data(update_of(algorithm))
    inner = CpuCosts(analysed(algorithm), MODEL, {}).innermost(data.callee)
    assert steps_in_memory(data, data.strides["r$x"])[inner] == (3.0 if interleaved else 1.0)
    planned = schedule_cpu(algorithm, FOUR_CORES)[0]
    assert_right(algorithm, planned.schedule, guarded=False)


def test_masked_lanes_that_are_apart_are_costed_one_by_one():
    f, r, data = hl.Func("f"), hl.RDom([(0, 50)], "r"), image("data", hl.Float(32), 2048, 50)
    limits = image("limits", hl.Int(32), 512)
    r.where(r < limits[x])
    f[x] = hl.f32(0.0)
    f[x] += data[4 * x, r]
    summary = update_of(loaded(f, 512))
    cycles = block_cycles(summary, {0: "x"}, Block(0, 8), MODEL, lambda _: 0)
    assert cycles >= 8 * C.masked_lane_cycles


def spread(steps=3, width=320, height=200):
    """The least of the neighbours, several times, with zero outside."""
    current, data = hl.Func("start"), image("data", hl.UInt(32), width, height)
    current[x, y] = data[x, y] % 1000
    for step in range(steps):
        bounds = [(0, width), (0, height)]
        near = hl.BoundaryConditions.constant_exterior(current, hl.u32(0), bounds)
        r, least = hl.RDom([(-1, 3), (-1, 3)], f"r{step}"), hl.Func(f"least{step}")
        least[x, y] = hl.u32(0xFFFFFFFF)
        least[x, y] = hl.min(least[x, y], near[x + r.x, y + r.y])
        current = hl.Func(f"after{step}")
        current[x, y] = hl.select(near[x, y] == 0, hl.u32(0), least[x, y])
    return loaded(current, width, height)


def test_readers_that_keep_a_reduction_in_registers_are_not_inlined():
    algorithm = spread()
    planned = schedule_cpu(algorithm, FOUR_CORES)[0]
    names = {readable(algorithm.funcs[entry.func].name): entry for entry in planned.schedule.funcs}
    for step in range(3):
        level = names[f"least{step}"].compute
        assert level.kind == "at"
        assert readable(algorithm.funcs[level.func].name) == f"after{step}"
    assert_right(algorithm, planned.schedule, guarded=False)


@pytest.mark.parametrize(("operations", "lanes"), [(0, 32), (12, 16)])
def test_stages_of_few_values_fill_registers_of_their_narrowest_type(operations, lanes):
    """With more values, four registers for each of them are more than there are."""
    data, curve = image("data", hl.UInt(8), 640, 400), image("curve", hl.UInt(8), 1024)
    f, index = hl.Func("f"), hl.i32(data[x, y])
    for i in range(operations):
        index = hl.select(index > 100 * i, index, index + i)
    f[x, y] = curve[index]
    summary = update_of(loaded(f, 640, 400), stage=0)
    extents = {0: 640.0, 1: 400.0}
    found = best_block(summary, {0: "x", 1: "y"}, extents, MODEL, lambda _: 0)
    assert (found.vector, found.lanes) == (0, lanes)


@pytest.mark.parametrize(("fault", "buffers"), [(0.0, 3), (1.5, 0)])
@pytest.mark.few(1)
def test_merges_that_save_a_buffer_at_root_save_its_page_faults(fault, buffers):
    """Two buffers at a time are more than the C library keeps of a free heap."""
    algorithm = spread(steps=4, width=1280, height=960)
    constants = replace(C, fault_cycles_per_byte=fault)
    (planned,) = schedule_cpu(algorithm, LARGE_CACHES, constants=constants)
    roots = {e.func for e in planned.schedule.funcs if e.compute.kind == "root"}
    outputs = {algorithm.order[name] for name in algorithm.outputs}
    assert len(roots - outputs) == buffers
