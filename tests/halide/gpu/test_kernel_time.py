"""The time of a kernel from its work, by hand: 2 SMs of compute capability 7.0 at 1 GHz."""

import dataclasses
import math

import pytest

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.kernel_time import (
    KernelCounts,
    _limits,
    _registers,
    kernel_counts,
    kernel_cycles,
    kernel_terms,
    needed_registers,
    occupancy,
    resident_blocks,
    thread_instructions,
)
from tilewright.halide.schedulers.analytic.gpu.nest_work import KernelWork
from tilewright.halide.schedulers.analytic.gpu.stage_work import StageWork, Waits, WarpAccess
from tilewright.halide.schedulers.analytic.gpu.warps import TouchedLines
from tilewright.machines import cuda_gpu

MACHINE = cuda_gpu("by hand", (7, 0), sms=2, l2_bytes=1 << 20, memory_bandwidth=20e9, clock_hz=1e9)
C = GpuConstants(
    thread_instructions=6.0,
    dimension_instructions=5.0,
    fused_instructions=11.0,
    stage_instructions=3.0,
    member_instructions=12.0,
    loop_instructions=2.0,
    register_base=20.0,
    register_body=0.0,
    register_load=0.0,
    register_dimension=0.0,
    register_stage=0.0,
    register_word=0.0,
    ptxas_base=20.0,
    ptxas_instructions=0.0,
    ptxas_words=0.0,
    ptxas_values=0.0,
    ptxas_loads=0.0,
    ptxas_dimensions=0.0,
    ptxas_patterns=0.0,
    learned_registers=0.0,
    cache_beyond_shared=32768.0,
    least_cache=16384.0,
)
LOAD = WarpAccess("memory", False, 5.0, TouchedLines(2.0, 4.0, 1.0, 1.0))
STORE = WarpAccess("memory", True, 1.0, TouchedLines(1.5, 3.0, 1.0, 1.0))
SHARED = WarpAccess("shared", False, 4.0, TouchedLines(1.0, 1.0, 3.0, 1.0))
STAGE = StageWork(
    False,
    64.0,
    2.0,
    1.0,
    30.0,
    1.0,
    8.0,
    1.0,
    1.0,
    0.0,
    0.0,
    (LOAD, STORE),
    Waits(8.0, 0.0, 2.0, 8.0),
)  # fmt: skip
MEMBER = StageWork(
    True, 32.0, 1.0, 2.0, 10.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, (SHARED,), Waits(0.0, 4.0, 0.0, 0.0)
)
KERNEL = KernelWork(
    "f", 0, 1.0, 7.0, (64, 1, 1), 1024.0, 0.0, (STAGE, MEMBER), {"g": (640.0, 4000.0)}, 2048.0,
    5.0, 3, 1,
)  # fmt: skip
# Instructions of a thread: in the stage 30 + 1, six accesses, the loop and the start; in the member
# 10, four accesses and two starts; before both 6, three dimensions and a fused loop.
STAGE_PATH = 31 + 6 + 2 * 8 + 3
MEMBER_PATH = 10 + 4 + 2 * 15
START = 6 + 3 * 5 + 11


def test_counts_of_a_launch():
    found = kernel_counts(KERNEL, 99.0, MACHINE, C)
    blocks = 4  # of 7, on the SM that has more
    assert found.instructions == blocks * (2 * STAGE_PATH + MEMBER_PATH + 2 * START)
    assert found.special == blocks * 2
    assert found.sectors == blocks * 2 * (5 * 4.0 + 3 * 3.0)  # a stored sector counts as three
    assert found.passes == blocks * 12
    assert found.l2_bytes == blocks * (640 + 32 * 2 * 3)
    assert found.path == STAGE_PATH + MEMBER_PATH + START  # all four blocks are resident
    assert found.misses == 2 + 1
    assert found.hits == 8 - 2
    assert found.shared_waits == 4
    assert found.barriers == 2
    assert found.memory_bytes == 99.0
    assert found.atomics == 5.0


def test_waves_lengthen_what_a_thread_waits_for():
    # 20 registers: 32 blocks of two warps are resident; 200 blocks on the busier SM.
    many = dataclasses.replace(KERNEL, blocks=399.0)
    found = kernel_counts(many, 0.0, MACHINE, C)
    assert resident_blocks(many, MACHINE, C) == 32
    assert found.path == 200 / 32 * (STAGE_PATH + MEMBER_PATH + START)
    assert found.barriers == 200 / 32 * 2
    assert found.instructions == 200 * (2 * STAGE_PATH + MEMBER_PATH + 2 * START)


def test_a_cache_that_cannot_hold_the_blocks_misses_whenever_data_is_returned_to():
    # 96 + 32 KiB, less 4 x 1 KiB of shared memory: 124 KiB.
    kept = 124 * 1024
    for touched, first in ((kept, 1.0), (kept / 0.75, 0.5), (2 * kept, 0.0), (9 * kept, 0.0)):
        kernel = dataclasses.replace(KERNEL, read={"g": (touched / 4, 1e9)})
        found = kernel_counts(kernel, 0.0, MACHINE, C)
        assert found.misses - 1 == pytest.approx(first * 2 + (1 - first) * 8)
        assert found.hits == pytest.approx(8 - (found.misses - 1))


def test_neighbouring_blocks_read_much_of_the_same():
    # Four blocks touch 4 x 100 KiB, but there are only 20 KiB.
    kernel = dataclasses.replace(KERNEL, read={"g": (102400.0, 20480.0)})
    assert kernel_counts(kernel, 0.0, MACHINE, C).misses == 3


def test_registers():
    c = dataclasses.replace(
        C,
        register_base=4.0,
        register_body=2.0,
        register_load=0.5,
        register_dimension=1.0,
        register_stage=1.5,
        register_word=0.25,
    )
    kernel = dataclasses.replace(KERNEL, registers=8.0)
    # The longest iteration: 10 + 4 instructions twice; the most loads: 5 in 8 iterations.
    body = math.sqrt(max((30 + 6) / 8, (10 + 4) / 2))
    assert registers_of(kernel, c) == pytest.approx(4 + 2 * body + 0.5 * 5 / 8 + 3 + 3 + 2)


def test_straight_code_is_not_expected_to_spill():
    c = dataclasses.replace(C, register_load=4.0)
    straight = dataclasses.replace(STAGE, iterations=0.0)
    unrolled = dataclasses.replace(KERNEL, stages=(straight, MEMBER))
    assert registers_of(unrolled, c) > registers_of(KERNEL, c) > C.register_base
    assert needed_registers(unrolled, c) == C.register_base
    assert needed_registers(KERNEL, c) == registers_of(KERNEL, c)  # its loop keeps values
    in_threads = dataclasses.replace(unrolled, registers=8.0)
    assert needed_registers(in_threads, c) == registers_of(in_threads, c)


def test_a_loop_keeps_the_addresses_of_its_rows():
    rows = dataclasses.replace(STAGE, addresses=12.0)
    kernel = dataclasses.replace(KERNEL, stages=(rows, MEMBER))
    more = needed_registers(kernel, C) - needed_registers(KERNEL, C)
    assert more == 12 * C.register_address > 0
    # What is expected of occupancy stays.
    assert registers_of(kernel, C) == registers_of(KERNEL, C)


def registers_of(kernel, c):
    """The estimate without what a loop needs."""
    return _registers(kernel, [max(s.runs, s.iterations, 1.0) for s in kernel.stages], c)


def test_registers_limit_what_is_resident():
    # 32 words for 16 warps: four blocks; 64 at most under Halide: two.
    wide = dataclasses.replace(KERNEL, block=(512, 1, 1))
    for words, blocks in ((20.0, 4), (32.0, 4), (32.5, 3), (60.0, 2), (500.0, 2)):
        c = dataclasses.replace(C, ptxas_base=words)
        assert resident_blocks(wide, MACHINE, c) == blocks


def test_a_block_that_is_never_resident_counts_as_one():
    for size in (1e6, math.inf):  # infinite where a Func has no bounds
        too_large = dataclasses.replace(KERNEL, shared=size)
        assert resident_blocks(too_large, MACHINE, C) == 1.0


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"blocks": 3.0}, "blocks"),  # two blocks for an SM that would hold more
        ({"block": (32, 1, 1), "shared": 0.0}, "blocks per SM"),  # 32 of one warp
        ({"shared": 24.0 * 1024}, "shared memory"),  # four blocks in 96 KiB
        ({"registers": 60.0, "block": (512, 1, 1), "shared": 0.0}, "registers"),
        ({"block": (768, 1, 1), "shared": 0.0}, "threads"),  # two blocks of 24 warps, a gap of 16
        ({"block": (1024, 1, 1), "shared": 0.0}, ""),
        ({"shared": 1e6}, "shared memory"),  # none fits: one runs all the same
    ],
)
def test_what_limits_the_occupancy(changes, limit):
    c = dataclasses.replace(C, ptxas_words=6.0, ptxas_base=8.0)
    kernel = dataclasses.replace(KERNEL, **{"blocks": 1e4, **changes})
    share, found = occupancy(kernel, MACHINE, c)
    assert found == limit
    warps = math.prod(kernel.block) / 32
    resident = min(resident_blocks(kernel, MACHINE, c), math.ceil(kernel.blocks / MACHINE.sms))
    assert share == pytest.approx(resident * warps / 64)
    assert (share == 1.0) == (limit == "")


def test_instructions_of_all_threads():
    found = thread_instructions(KERNEL, C)
    assert found == 7 * (64 * STAGE_PATH + 32 * MEMBER_PATH + 64 * START)


COUNTS = KernelCounts(
    instructions=600.0,
    special=10.0,
    sectors=60.0,
    passes=40.0,
    l2_bytes=640.0,
    path=100.0,
    misses=3.0,
    hits=5.0,
    stored=4.0,
    shared_waits=7.0,
    barriers=2.0,
    memory_bytes=3200.0,
    atomics=48.0,
)
RATES = GpuConstants(
    issue_rate=2.0,
    special_cost=8.0,
    sector_cycles=0.25,
    bank_cycles=0.25,
    l2_bytes_per_cycle=64.0,
    memory_share=0.8,
    instruction_wait=5.0,
    miss_wait=200.0,
    hit_wait=30.0,
    stored_wait=250.0,
    shared_wait=20.0,
    barrier_wait=10.0,
    atomics_per_cycle=24.0,
    kernel_cycles=100.0,
    overlap=2.0,
)


def test_terms():
    assert kernel_terms(COUNTS, MACHINE, RATES) == {
        "issue": (600 + 80) / 2,
        "l1": 15.0,
        "shared": 10.0,
        "l2": 10.0,
        "memory": 3200 / 16,
        "latency": 500 + 600 + 150 + 1000 + 140 + 20,
        "atomics": 2.0,
    }


@pytest.mark.parametrize("unknown", ["clock_hz", "memory_bandwidth"])
def test_without_rates_there_are_no_terms(unknown):
    assert kernel_terms(COUNTS, dataclasses.replace(MACHINE, **{unknown: None}), RATES) is None


def test_warps_issue_and_access_in_turn_and_the_rest_overlaps():
    terms = {"issue": 300.0, "l1": 80.0, "shared": 20.0, "l2": 0.0, "latency": 300.0}
    assert kernel_cycles(terms, RATES) == pytest.approx(100 + 500)
    sharp = dataclasses.replace(RATES, overlap=200.0)
    assert kernel_cycles(terms, sharp) == pytest.approx(100 + 400, rel=1e-3)


def test_a_kernel_without_work_takes_its_start_and_end():
    nothing = {"issue": 0.0, "l1": 0.0, "shared": 0.0, "latency": 0.0}
    assert kernel_cycles(nothing, RATES) == 100.0


# --- with the constants as they are ---------------------------------------------------------------

FITTED = GpuConstants()
NO_COUNTS = KernelCounts(*[0.0] * len(dataclasses.fields(KernelCounts)))


@pytest.mark.parametrize(
    ("count", "term", "cycles"),
    [
        ("instructions", "issue", 191.388),  # 5.225 per cycle
        ("special", "issue", 1425.263),  # each as 7.447 others
        ("sectors", "l1", 583.3),
        ("passes", "shared", 285.9),
        ("l2_bytes", "l2", 19.0512),  # 52.49 per cycle
        ("path", "latency", 6304.0),
        ("misses", "latency", 166_000.0),
        ("hits", "latency", 5599.0),
        ("shared_waits", "latency", 7702.0),
        ("barriers", "latency", 30_000.0),
        ("memory_bytes", "memory", 62.5),  # 80% of 20 per cycle
        ("atomics", "atomics", 41.667),  # 24 per cycle
    ],
)
def test_cycles_of_a_thousand(count, term, cycles):
    counts = dataclasses.replace(NO_COUNTS, **{count: 1000.0})
    found = kernel_terms(counts, MACHINE, FITTED)
    assert found is not None
    assert found.pop(term) == pytest.approx(cycles, rel=1e-4)
    assert set(found.values()) == {0.0}


def test_how_terms_overlap_by_default():
    # Alone 121 cycles are added; of two equal ones the second adds a quarter: 2 ** (1 / 3).
    terms = {"issue": 1000.0, "l1": 0.0, "shared": 0.0, "latency": 0.0}
    assert kernel_cycles(terms, FITTED) == pytest.approx(1121.0)
    assert kernel_cycles({**terms, "latency": 1000.0}, FITTED) == pytest.approx(1380.9210, rel=1e-4)


def test_instructions_that_ptx_has():
    # The constants above are those fitted.
    assert thread_instructions(KERNEL, FITTED) == thread_instructions(KERNEL, C)
    for stage in (STAGE, MEMBER):
        kernel = dataclasses.replace(KERNEL, stages=(stage,))
        assert thread_instructions(kernel, FITTED) == thread_instructions(kernel, C)


def test_registers_that_ptxas_uses():
    kernel = dataclasses.replace(KERNEL, registers=8.0)
    # 4.3; 1.135 times the root of 7 instructions; 0.6 for 5/8 of a load; 1.1 for each of three
    # dimensions, 1.6 for two stages, 0.48 for eight words.
    assert registers_of(kernel, FITTED) == pytest.approx(18.0179, abs=1e-4)
    # Two terms are added to each value: half as many loads for each; half a register for each of
    # eight words, and one for each of twelve rows.
    stage = dataclasses.replace(STAGE, steps=2.0, addresses=12.0)
    looped = dataclasses.replace(kernel, stages=(stage, MEMBER))
    assert needed_registers(looped, FITTED) == pytest.approx(
        18.0179 - 0.6 * 5 / 16 + 8 / 2 + 12, abs=1e-4
    )


def test_no_kernel_uses_less_than_ten_registers():
    # They are handed out in eights: 16 x 32 for each of two warps, of 65,536.
    assert _limits(KERNEL, MACHINE, dataclasses.replace(C, ptxas_base=1.0)).registers == 64


@pytest.mark.parametrize(("copies", "share"), [(1.0, 1.0), (2.0, 0.5), (4.0, 0.33), (64.0, 0.33)])
def test_independent_values_wait_less_where_nothing_is_loaded(copies, share):
    stage = dataclasses.replace(STAGE, accesses=(STORE,), copies=copies)
    kernel = dataclasses.replace(KERNEL, stages=(stage,))
    instructions = 31 + 1 + 2 * 8 + 3
    found = kernel_counts(kernel, 0.0, MACHINE, FITTED).path
    assert found == pytest.approx(START + share * instructions)
    loads = dataclasses.replace(kernel, stages=(dataclasses.replace(STAGE, copies=copies),))
    assert kernel_counts(loads, 0.0, MACHINE, FITTED).path == START + STAGE_PATH


@pytest.mark.parametrize(
    ("shared", "blocks", "kept"),
    [
        (1024.0, 4, 96 + 32 - 4),
        (24576.0, 4, 32),  # shared memory takes all that it can get
        (120 * 1024.0, 1, 16),  # never resident: the least
    ],
)
def test_what_shared_memory_leaves_of_the_cache(shared, blocks, kept):
    # Of 4/3 of what is kept, half misses whenever it is returned to: 2 + 6 / 2.
    read = {"g": (kept * 1024 / 0.75 / blocks, 1e9)}
    kernel = dataclasses.replace(KERNEL, shared=shared, read=read)
    assert resident_blocks(kernel, MACHINE, FITTED) >= blocks
    found = kernel_counts(kernel, 0.0, MACHINE, FITTED)
    waves = 4 / blocks
    assert found.misses == pytest.approx(waves * (1 + 5))
    assert found.hits == pytest.approx(waves * 3)
