"""All constants of the GPU cost model, each with its unit and source.

`GpuConstants` has the values that measurements of a GPU may replace. `GpuSearch` has the limits of
the search and of launches, which are the same for all GPUs. The unit "operations" is the unit of
the cost (Sioutas 2020, Section 3): one arithmetic operation of one thread.

A source is a section of the paper, a measurement ("measured: …"), a fit to recorded kernels
("fitted: …") or a choice with its reason ("chosen: …"). The fitted values come from a simulated GPU
with the SMs of a V100 (``benchmarks/data/gpu_sim``). Their units are per SM and cycle, so that they
apply to other GPUs as well. No chosen value has been measured on a GPU yet.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

from tilewright.halide.schedulers.analytic.constant import UnknownSizes, constant

BYTES, CYCLES, COUNT, RATIO, OPERATIONS = "bytes", "cycles", "count", "1", "operations"
# A fit after sums in memory are counted once ranks the simulated schedules no better, and the times
# of `benchmarks/gpu` on an H100 are of schedules that were chosen with these.
FITTED_RATES = "fitted: benchmarks/gpu_time_model.py, while sums in memory were counted per step"
FITTED_REGISTERS = "fitted: benchmarks/gpu_registers.py, ptxas 13, capabilities 7.5 to 9.0"


@dataclass(frozen=True, slots=True)
class GpuConstants:
    """Constants of a kernel's cost and of its predicted time."""

    # --- cost of loads and stores (Sioutas 2020, Listing 1 and Table 1) -----------------------
    global_cost: float = constant(
        200.0, "operations per load", "chosen: latency of memory over that of an addition"
    )
    global_bytes: float = constant(
        64.0 * 1024.0, BYTES, "published code of Sioutas 2020: where the ramp of loads ends"
    )
    store_cost: float = constant(
        20.0, "operations per store", "chosen: a tenth of a load, for no thread waits for it"
    )
    transaction_bytes: float = constant(
        64.0, BYTES, "Sioutas 2020, Section 4.2 and code: the widest memory transaction"
    )
    least_hiding: float = constant(
        1e-9, RATIO, "chosen: keeps the cost finite where nothing is resident"
    )
    occupancy_threshold: float = constant(0.1, RATIO, "Sioutas 2020, Section 4.2")
    launch_cost: float = constant(
        3e6, "operations per kernel", "chosen: a gap of microseconds, in which megabytes move"
    )

    # --- registers of a thread ----------------------------------------------------------------
    register_words: float = constant(
        50.0, "words of 32 bits", "chosen: of Halide's 64 registers, less addresses"
    )
    reduction_words: float = constant(
        4.0, "words per reduction loop", "chosen: its counter, bound and two addresses"
    )
    word_bytes: int = constant(4, BYTES, "a register of every GPU")

    # --- stages that do not run in parallel ---------------------------------------------------
    alone_cost: float = constant(
        200.0, "operations per iteration", "chosen: one thread hides no latency"
    )
    host_cost: float = constant(
        20.0, "operations per iteration", "chosen: a core against a hundredth of a GPU"
    )
    most_alone: float = constant(
        65536.0, "iterations", "chosen: a longer stage is faster on the host, copies included"
    )
    idle_factor: float = constant(
        8.0, RATIO, "chosen: threads that a GPU lacks before atomic additions are tried"
    )
    atomic_gain: float = constant(
        3.0, RATIO, "chosen: additions to one address wait for one another"
    )

    # --- inlining (Sioutas 2020, Section 4.1; Mullapudi 2016, Section 4) ----------------------
    load_cost: float = constant(1.0, "operations per load", "Mullapudi 2016, Section 4")
    value_cost: float = constant(1.0, "operations per stored value", "chosen: as a load")
    trivial_operations: float = constant(
        3.0, OPERATIONS, "chosen: arithmetic up to which a Func with one load is trivial"
    )
    trivial_arithmetic: float = constant(
        12.0, OPERATIONS, "chosen: the same with casts and choices counted"
    )
    trivial_pair: float = constant(
        2.0, OPERATIONS, "chosen: arithmetic of a Func that joins two others point by point"
    )
    round_trip_cost: float = constant(
        16.0, "operations per value", "chosen: operations in the time of a value's way to memory"
    )
    shared_work: float = constant(
        0.5, RATIO, "chosen: half of the operations of neighbouring uses are the same"
    )
    pointwise_slack: float = constant(1.02, RATIO, "chosen: borders may be computed twice")
    narrowed_points: float = constant(
        0.5, RATIO, "chosen: a reader with fewer points than half narrows (a pyramid)"
    )
    most_narrowed: float = constant(
        100.0, OPERATIONS, "chosen: the most that a narrowing reader does per point"
    )
    most_operations: float = constant(
        3000.0, OPERATIONS, "chosen: a longer expression takes compilers minutes"
    )
    cautious_load: float = constant(
        0.25, RATIO, "chosen: weight of loads in the variation that inlines less"
    )

    # --- time of a kernel: counts (fitted to PTX and to ptxas, not to a GPU) ------------------
    thread_instructions: float = constant(
        6.0, "instructions per thread", "fitted: PTX of Halide 21, 1537 kernels; its indices"
    )
    dimension_instructions: float = constant(
        5.0, "instructions per dimension", "fitted: PTX of Halide 21; arguments of buffers"
    )
    fused_instructions: float = constant(
        11.0, "instructions per fused loop", "fitted: PTX of Halide 21; a quotient and a remainder"
    )
    stage_instructions: float = constant(
        3.0, "instructions per stage", "fitted: PTX of Halide 21; the guard of its threads"
    )
    member_instructions: float = constant(
        12.0, "instructions per stage of a member", "fitted: PTX of Halide 21; sizes of its storage"
    )
    loop_instructions: float = constant(
        2.0, "instructions per iteration", "PTX of Halide 21: a comparison and a branch"
    )
    register_base: float = constant(
        4.3, "registers", "fitted: ptxas 11.8 for compute capability 7.0, 1537 kernels"
    )
    register_body: float = constant(
        1.135, "registers per root of an instruction", "fitted: ptxas 11.8; values under way"
    )
    register_load: float = constant(0.6, "registers per load", "fitted: ptxas 11.8")
    register_dimension: float = constant(1.1, "registers per dimension", "fitted: ptxas 11.8")
    register_stage: float = constant(1.6, "registers per stage", "fitted: ptxas 11.8")
    register_word: float = constant(0.48, "registers per stored word", "fitted: ptxas 11.8")
    ahead_word: float = constant(
        0.5,
        "registers per stored word",
        "measured: with ptxas 13, 16 sums of a product in steps of 8 fit 64 registers, 32 do not",
    )
    register_address: float = constant(
        1.0,
        "registers per row accessed in a loop",
        "fitted: ptxas 13, capability 9.0, 96 kernels of programs of benchmarks/strangers",
    )
    least_registers: int = constant(10, "registers", "chosen: the smallest kernels of ptxas 11.8")
    # Registers that ptxas gives without a limit, by the names of `register_features.RegisterTerms`.
    ptxas_base: float = constant(2.61, "registers", FITTED_REGISTERS)
    ptxas_instructions: float = constant(
        0.629, "registers per root of an instruction", FITTED_REGISTERS
    )
    ptxas_words: float = constant(2.73, "registers per root of a word", FITTED_REGISTERS)
    ptxas_values: float = constant(0.764, "registers per root of a value", FITTED_REGISTERS)
    ptxas_loads: float = constant(0.0969, "registers per load to the power 3/4", FITTED_REGISTERS)
    ptxas_dimensions: float = constant(2.38, "registers per dimension", FITTED_REGISTERS)
    ptxas_patterns: float = constant(0.677, "registers per access pattern", FITTED_REGISTERS)
    learned_registers: float = constant(
        1.0, RATIO, "chosen: weight of the learned correction's logarithm; 0 leaves it out"
    )
    unrolled_wholly: float = constant(
        16.0,
        "iterations",
        "chosen: of 8, 16, 32 and 64 the best for the linear estimate of registers",
    )
    unrolled_partly: float = constant(4.0, "iterations", "ptxas 13: of a loop of unknown extent")
    ahead_registers: float = constant(
        10.0,
        "registers",
        "chosen with the linear estimate: what loops use without a limit beyond what they need",
    )

    # --- time of a kernel: rates and waits ----------------------------------------------------
    issue_rate: float = constant(5.225, "warp instructions per cycle and SM", FITTED_RATES)
    special_cost: float = constant(7.447, "instructions per special one", FITTED_RATES)
    sector_cycles: float = constant(0.5833, "cycles per sector and access of a warp", FITTED_RATES)
    store_sectors: float = constant(
        3.0,
        "sectors per stored sector",
        "chosen: ranks best with each program held out; a store evicts its line and goes on to L2",
    )
    bank_cycles: float = constant(0.2859, "cycles per pass through the banks", FITTED_RATES)
    l2_bytes_per_cycle: float = constant(52.49, "bytes per cycle and SM", FITTED_RATES)
    instruction_wait: float = constant(6.304, "cycles per instruction of a warp", FITTED_RATES)
    independent_share: float = constant(
        0.33, RATIO, "chosen: 2.5 cycles, of `instruction_wait`: a warp takes two to issue"
    )
    miss_wait: float = constant(166.0, "cycles per load past the first cache", FITTED_RATES)
    hit_wait: float = constant(5.599, "cycles per load from the first cache", FITTED_RATES)
    stored_wait: float = constant(
        300.0,
        "cycles per load of what the kernel has stored",
        "measured: 301 cycles per load that depends on another, on an H100; a store goes to L2",
    )
    shared_wait: float = constant(7.702, "cycles per load from shared memory", FITTED_RATES)
    kernel_cycles: float = constant(121.0, "cycles per kernel, of its start and end", FITTED_RATES)
    overlap: float = constant(
        3.0,
        "exponent",
        FITTED_RATES,
    )
    member_wait: float = constant(
        1.0, RATIO, "chosen: waits of kernels with members, which have barriers, over others"
    )
    barrier_wait: float = constant(30.0, "cycles per barrier", "chosen: as a load of shared memory")
    memory_share: float = constant(
        0.8, RATIO, "chosen: of the memory's bandwidth, what copies reach; too few records need it"
    )
    cache_beyond_shared: float = constant(
        32768.0, BYTES, "CUDA guide: first cache beyond the largest shared memory (28 to 32 KiB)"
    )
    least_cache: float = constant(16384.0, BYTES, "chosen: what shared memory leaves of the cache")

    # --- quick estimate of a kernel during the search (roofline) ------------------------------
    launch_seconds: float = constant(
        3e-6, "seconds per kernel", "chosen: from the end of one kernel to the start of the next"
    )
    host_rate: float = constant(
        1e9, "operations per second", "chosen: a scalar core with its cache misses"
    )
    arithmetic_latency: float = constant(
        2.0, "cycles per operation", "chosen: latency 4, every second one waits for another"
    )
    memory_latency: float = constant(
        400.0, "cycles per load", "chosen: a load that misses the first cache"
    )
    shared_latency: float = constant(30.0, "cycles per load", "chosen: shared memory")
    loads_in_flight: float = constant(
        4.0, "loads per thread", "chosen: unrolled loads that are under way at once"
    )
    atomics_per_cycle: float = constant(
        24.0, "atomic additions per cycle", "chosen: one for each slice of the second cache"
    )
    cache_bytes_per_cycle: float = constant(
        128.0, "bytes per cycle and SM", "CUDA guide: 32 banks of 4 bytes"
    )
    l2_factor: float = constant(
        3.0, RATIO, "chosen: bandwidth of the second cache over that of memory"
    )
    access_bytes: float = constant(4.0, BYTES, "CUDA guide: a bank serves a word of 4 bytes")


# Constants that affect predicted times only, neither plans nor counted work.
TIME_ONLY = frozenset(
    (
        "issue_rate",
        "special_cost",
        "sector_cycles",
        "bank_cycles",
        "l2_bytes_per_cycle",
        "instruction_wait",
        "miss_wait",
        "hit_wait",
        "stored_wait",
        "shared_wait",
        "kernel_cycles",
        "overlap",
        "member_wait",
    )
)


@lru_cache(maxsize=256)
def without_rates(c: GpuConstants) -> GpuConstants:
    """Return the constants with default values of those in `TIME_ONLY`."""
    default = GpuConstants()
    return replace(c, **{name: getattr(default, name) for name in TIME_ONLY})


def differing(one: GpuConstants, other: GpuConstants) -> set[str]:
    """Return the names of the constants whose values differ."""
    names = (field.name for field in fields(one))
    return {name for name in names if getattr(one, name) != getattr(other, name)}


@dataclass(frozen=True, slots=True)
class GpuSearch(UnknownSizes):
    """Limits of launches, of tiles and of the search."""

    # --- launches -----------------------------------------------------------------------------
    thread_dimensions: int = constant(3, COUNT, "CUDA and OpenCL: x, y and z")
    block_dimensions: int = constant(3, COUNT, "CUDA and OpenCL: x, y and z")
    most_blocks: int = constant(
        65_535, "blocks in y or z", "CUDA C++ Programming Guide, Technical Specifications"
    )
    most_z_threads: int = constant(64, "threads", "CUDA guide: largest z of a block")
    fewer_threads: int = constant(256, "threads", "chosen: of a variation, half of small_group")
    fewest_threads: int = constant(128, "threads", "chosen: of a variation, a quarter of it")
    small_group: int = constant(512, "threads", "Sioutas 2020, Section 4.2: tiles are halved")

    # --- unknown sizes ------------------------------------------------------------------------
    huge: float = constant(1e9, "elements", "stands for an extent without bound")

    # --- tiles (Sioutas 2020, Section 4.2) ----------------------------------------------------
    tiled_from: int = constant(64, "iterations", "Sioutas 2020, Section 4.2")
    large_from: int = constant(1024, "iterations", "Sioutas 2020, Section 4.2")
    large_alone: int = constant(128, RATIO, "Sioutas 2020, Section 4.2: T_max of one dimension")
    large_several: int = constant(32, RATIO, "Sioutas 2020, Section 4.2: T_max of several")
    small_divisor: int = constant(2, RATIO, "Sioutas 2020, Section 4.2: T_max of a short one")
    least_tile: int = constant(8, "iterations", "Sioutas 2020, Section 4.2: T_min")
    least_short_tile: int = constant(2, "iterations", "Sioutas 2020, Section 4.2: T_min below 64")
    least_alone: int = constant(64, "iterations", "chosen: two warps, where T_max is less")
    worth_threads: int = constant(4, "iterations", "chosen: a small dimension worth threads")
    most_tilings: int = constant(6000, COUNT, "chosen: 30 ms for each kernel of the final pass")
    least_sizes: int = constant(4, COUNT, "chosen: sizes that thinning leaves a dimension")
    probe_tile: int = constant(8, "iterations", "chosen: the tile that regions are tried with")

    # --- members inside threads ---------------------------------------------------------------
    neighbours: int = constant(8, "threads", "chosen: that must need as much as the first")
    shifts: int = constant(3, "blocks", "chosen: that must need as much as the first")
    far_shift: int = constant(
        1_000_000, "blocks", "chosen: farther than what the updates of a Func in registers write"
    )
    across: int = constant(4, "points", "chosen: a part of a member to compare with one point")
    register_tiles: tuple[int, ...] = constant(
        (1, 2, 4, 8), "iterations", "chosen: what a thread does of a reduction's tile"
    )
    most_register_tile: int = constant(32, "iterations", "chosen: half of the 64 registers")

    # --- loops --------------------------------------------------------------------------------
    most_unrolled: int = constant(4, "iterations", "chosen: every copy keeps values in registers")
    most_unrolled_reduction: int = constant(7, "iterations", "chosen: common widths of filters")
    most_unrolled_together: int = constant(32, "iterations", "chosen: of a nest of loops")
    most_body: float = constant(1200.0, OPERATIONS, "chosen: of a thread when unrolling stops")

    # --- choice by predicted time -------------------------------------------------------------
    most_timed: int = constant(
        330, "stages", "measured: about 2 ms of CPU time each, of the 3 s of a search"
    )
    cutting_effort: int = constant(
        300, "stages", "chosen: what groups may spend, so that points and tiles get the rest"
    )
    most_cuts: int = constant(4, COUNT, "chosen: a group of 42 Funcs ends as pairs and triples")
    tried_cuts: int = constant(3, COUNT, "chosen: of a group, those that promise most")
    most_points: tuple[int, ...] = constant(
        (4, 8, 8), "points per thread in x, y, z", "chosen: neighbours in x are apart in memory"
    )
    most_rows: int = constant(
        16,
        "points per thread in y and z together",
        "measured: smoothing of 27 points, clamped, spills 916 bytes with 8 x 4 and 40 with 4 x 4",
    )
    point_steps: int = constant(3, COUNT, "chosen: from 1 x 4 points to any within the limits")
    most_estimated_registers: float = constant(
        56.0,
        "registers",
        "fitted: as `register_address`; of these, kernels spill from 68 on, less a margin of 12",
    )
    spill_slack: float = constant(
        1.05, RATIO, "chosen: time of a schedule without spills over that of one with them"
    )
    most_funcs_split: int = constant(
        100,
        COUNT,
        "chosen: with 300 Funcs, a search with a split reduction takes 2 CPU seconds more",
    )
    wrapped_slack: float = constant(
        1.3,
        RATIO,
        "chosen: time of a schedule with wrapped Funcs over that without, both before points "
        "and tiles are refined, from which it is not refined",
    )
    scan_steps: int = constant(
        8,
        "iterations",
        "measured: of a scan that are unrolled; on an H100 a recursive blur takes 2.7 ms without, "
        "2.0 with 4, 1.2 with 8 and 1.8 with 16",
    )
    least_window: int = constant(
        9, "values per point", "chosen: 3 x 3, the smallest window that blocks share by wrappers"
    )
    unspilled_cuts: int = constant(
        6, COUNT, "chosen: of a group that would spill, twice as many as are tried for time"
    )
    unspilled_effort: int = constant(
        200, "stages", "chosen: what replacing plans that would spill may take beyond `most_timed`"
    )
    most_steps: tuple[int, ...] = constant(
        (2, 4, 8), "iterations", "chosen: of a reduction that are unrolled together"
    )
    reduced_points: tuple[tuple[int, int], ...] = constant(
        ((4, 4), (2, 8), (2, 4), (4, 2)),
        "points per thread in x and y",
        "chosen: sums that leave registers for the operands of several steps",
    )
    other_tiles: int = constant(2, COUNT, "chosen: as many as the search of one kernel is off")

    merging_effort: int = constant(
        100, "stages", "chosen: what merging groups by time may take beyond `cutting_effort`"
    )
    tile_steps: int = constant(
        3, COUNT, "chosen: from the tile of least cost to one eight times as large or small"
    )
    reshaping_effort: int = constant(
        120, "stages", "chosen: what scaling tiles may take beyond `most_timed`"
    )

    sliding_effort: int = constant(
        240, "stages", "chosen: what trying kernels that slide may take, where any can"
    )
    merged_sliding_gain: float = constant(
        1.05,
        RATIO,
        "measured: smoothing of 27 points with a gradient is predicted to gain 2% and loses 11%; "
        "three steps of 7 points are predicted to gain 41% and gain 42%",
    )
    least_walked: int = constant(8, "planes", "chosen: that a block walks; fewer fit a tile")
    most_walked: int = constant(64, "planes", "chosen: more leave few blocks")
    most_planes: int = constant(4, "planes", "chosen: per iteration; a thread computes all of them")

    # --- what may be fused --------------------------------------------------------------------
    largest_period: int = constant(
        4, "elements", "chosen: coordinates modulo more stay in a period or not, tile by tile"
    )
    most_opencl_stages: int = constant(
        48, "stages", "measured: a driver for CPUs compiled a hundred for over five minutes"
    )
    most_refusals: int = constant(30, "tilings", "chosen: refused before a kernel is given up")


SEARCH = GpuSearch()
