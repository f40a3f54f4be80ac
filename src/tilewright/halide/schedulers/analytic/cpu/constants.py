"""All constants of the CPU cost model, each with its unit and its source.

`CpuConstants` holds the values that differ between machines. A calibration
(`tilewright.machines.calibration`) replaces some of them with measured values. `CpuSearch` holds
the limits of the search, which do not depend on the machine.

The source of a constant is one of:

- "measured: …": a measurement, by default on the development machine (AVX-512 Xeon, two cores)
- a section of a paper or a manual
- "chosen: …": an engineering choice and its reason
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.schedulers.analytic.constant import UnknownSizes, constant

CYCLES, BYTES, RATIO, COUNT = "cycles", "bytes", "1", "count"
REGISTER_CYCLES = "cycles per vector register"
LANE_CYCLES = "cycles per lane"
_TWO_PER_CYCLE = "chosen: two vector operations per cycle, and a tenth for moves"
_LOGIC = "chosen: three to four bit operations per cycle"
_DIVIDER = "chosen: the divider's throughput on current x86-64 cores, 8 to 16 cycles"


@dataclass(frozen=True, slots=True)
class CpuConstants:
    """The machine-dependent constants; times in cycles of one core, sizes in bytes."""

    # --- the machine, where the system does not describe it -----------------------------------
    clock_hz: float = constant(3.0e9, "Hz", "chosen: a current core's sustained clock")
    l1_bytes: float = constant(32 * 1024, BYTES, "chosen: the smallest in use since 2008")
    l2_bytes: float = constant(256 * 1024, BYTES, "chosen: the smallest in use since 2008")
    l3_bytes: float = constant(8 * 2**20, BYTES, "chosen: that of a desktop with four cores")
    way_bytes: float = constant(4096.0, BYTES, "a way of the first cache of x86-64: a page")
    l2_ways: float = constant(
        8.0, COUNT, "the second cache of Zen 1 to 4; 16 or 20 in later cores and servers of Intel"
    )
    line_bytes: float = constant(64.0, BYTES, "a cache line of x86-64 and most Arm cores")
    least_vector_bytes: int = constant(16, BYTES, "SSE2 and NEON, part of every 64-bit machine")
    registers: int = constant(16, COUNT, "vector registers of AVX2 (Intel SDM, volume 1, 14)")
    many_registers: int = constant(32, COUNT, "vector registers of AVX-512 and of NEON")
    many_registers_bits: int = constant(512, "bits", "vectors that come with 32 registers")

    # --- bytes between levels of memory -------------------------------------------------------
    l2_rate: float = constant(
        32.0, "bytes per cycle and core", "chosen: half of the 64 that the bus carries"
    )
    l3_rate: float = constant(
        8.0,
        "bytes per cycle and core",
        "measured: with 16, the demosaicing network took 90 ms in place of 49",
    )
    memory_bandwidth: float = constant(
        2.0e10, "bytes per second, all cores", "chosen: two channels of DDR4 at 80%"
    )
    core_memory_bandwidth: float = constant(
        float("inf"), "bytes per second and core", "chosen: one core can saturate the memory"
    )
    overlap: float = constant(
        0.3, RATIO, "chosen: unhidden share of the smaller terms of compute and traffic"
    )
    write_factor: float = constant(
        2.0, RATIO, "write allocation: a store first fetches its cache line"
    )

    # --- what fits: shares of a cache that data can use ---------------------------------------
    sweep_l1_share: float = constant(0.8, RATIO, "chosen: the rest holds the stack and outputs")
    sweep_l2_share: float = constant(0.8, RATIO, "chosen: as for the first level")
    sweep_l3_share: float = constant(0.6, RATIO, "chosen: hashed sets fill unevenly")
    held_l1_share: float = constant(1.0, RATIO, "chosen: a small overflow costs little")
    held_l2_share: float = constant(0.4, RATIO, "chosen: code, inputs and outputs also use it")
    held_l3_share: float = constant(0.7, RATIO, "chosen: share of the third level per core")
    cold_l3_share: float = constant(
        0.5, RATIO, "chosen: a larger buffer is evicted from the third level before it is read"
    )

    # --- fresh pages --------------------------------------------------------------------------
    fault_cycles_per_byte: float = constant(
        1.5, "cycles per byte", "measured: 1.7 to 2 microseconds per page of 4 KiB"
    )
    fault_threshold: float = constant(
        32.0 * 2**20, BYTES, "M_MMAP_THRESHOLD_MAX of glibc: larger blocks are unmapped when freed"
    )
    heap_pad_bytes: float = constant(
        128.0 * 2**10, BYTES, "glibc: M_TOP_PAD, by which a heap grows beyond what is needed"
    )
    kept_heap_bytes: float = constant(
        2.0 * 2**20,
        BYTES,
        "measured: glibc 2.36 keeps 2.4 to 3 MB per thread in a process that has compiled",
    )
    kept_heap_blocks: float = constant(
        2.0, COUNT, "glibc: M_TRIM_THRESHOLD is twice the largest block that was unmapped"
    )

    # --- overheads ----------------------------------------------------------------------------
    row_cycles: float = constant(8.0, "cycles per inner loop", "chosen: set-up and branch miss")
    single_block_cycles: float = constant(
        2.7,
        "cycles per iteration of a loop around a single block",
        "measured: a third of `row_cycles`: 15 schedules that change take 0.94 of the time (0.44 "
        "to 1.18); with 0, a sum took 1.55 times as long",
    )
    tile_cycles: float = constant(
        60.0, "cycles per tile and Func", "chosen: computing the loop bounds"
    )
    segment_cycles: float = constant(
        60.0, "cycles per contiguous segment", "chosen: the prefetcher restarts, about three lines"
    )
    jump_cycles: float = constant(
        16.0,
        "cycles per contiguous segment",
        "measured: sums of columns in blocks of 64 to 1024 bytes, Zen 5: 4 to 27",
    )
    followed_bytes: float = constant(
        2048.0, BYTES, "measured, as `jump_cycles`: rows of 1024 bytes gain 10%, of 2048 18%"
    )
    pass_cycles: float = constant(
        180.0, "cycles per row and member", "measured: 150 to 600 per pass of a sliding window"
    )
    block_cycles: float = constant(
        3.7, "cycles per block and member", "measured: on a blur; lower on a pyramid"
    )
    heap_cycles: float = constant(250.0, "cycles per allocation", "chosen: malloc and free")
    stack_bytes: float = constant(16384.0, BYTES, "Halide 21: larger allocations are on the heap")
    task_cycles: float = constant(
        4000.0, "cycles per task", "chosen: about a microsecond of Halide's thread pool"
    )
    task_limit: float = constant(
        256.0, "tasks per loop", "chosen: further tasks go to threads that are already awake"
    )
    region_cycles: float = constant(
        20000.0,
        "cycles per parallel loop",
        "chosen: waking the thread pool takes several microseconds",
    )
    disturbance: float = constant(
        0.08, RATIO, "chosen: delay of the last core, as a share of a task"
    )

    # --- vectors whose lanes lie in different rows ------------------------------------------------
    transposed_bytes: float = constant(
        256.0, BYTES, "chosen: four cache lines per row before the next row"
    )
    transposed_rows: float = constant(
        64.0, COUNT, "chosen: rows whose lines fit in the first level together"
    )
    crossing_l1_share: float = constant(0.5, RATIO, "chosen: the lines of a long row evict others")
    crossing_l1_cycles: float = constant(
        3.0, "cycles per point", "chosen: lines from the second level, four in flight"
    )
    crossing_l2_share: float = constant(0.1, RATIO, "chosen: each line lies in another page")
    crossing_l2_cycles: float = constant(
        8.0, "cycles per point", "chosen: a line from the third level and a page walk"
    )

    # --- operations ---------------------------------------------------------------------------
    simple_cycles: float = constant(0.6, REGISTER_CYCLES, _TWO_PER_CYCLE)
    logic_cycles: float = constant(0.3, REGISTER_CYCLES, _LOGIC)
    scalar_share: float = constant(
        0.4,
        RATIO,
        "Fog, Instruction tables (2022): four scalar operations per cycle, two of vectors",
    )
    select_cycles: float = constant(0.8, REGISTER_CYCLES, "chosen: a blend and its mask")
    cast_cycles: float = constant(1.0, REGISTER_CYCLES, "chosen: one shuffle per cycle")
    absd_cycles: float = constant(1.2, REGISTER_CYCLES, "chosen: two simple operations")
    halving_cycles: float = constant(
        1.8, REGISTER_CYCLES, "Halide 21: a sum, a shift, and two bit operations, for an average"
    )
    lerp_cycles: float = constant(4.0, REGISTER_CYCLES, "chosen: widen, two products, sum, shift")
    multiply_cycles: float = constant(0.6, REGISTER_CYCLES, _TWO_PER_CYCLE)
    multiply32_cycles: float = constant(
        1.2, REGISTER_CYCLES, "vpmulld is two micro-operations (Intel optimisation manual)"
    )
    multiply64_cycles: float = constant(
        2.5, REGISTER_CYCLES, "vpmullq is three micro-operations, emulated without AVX-512"
    )
    narrow_bits: int = constant(16, "bits", "widest integers multiplied in one micro-operation")
    middle_bits: int = constant(32, "bits", "widest integers multiplied in two micro-operations")
    divide_cycles: float = constant(10.0, REGISTER_CYCLES, _DIVIDER)
    divide_constant_cycles: float = constant(
        0.6, REGISTER_CYCLES, "floats are multiplied by the reciprocal"
    )
    divide_narrow_cycles: float = constant(
        2.0, REGISTER_CYCLES, "chosen: high product and shift, for up to 16 bits"
    )
    divide_wide_cycles: float = constant(
        4.0, REGISTER_CYCLES, "chosen: two widening products, shuffles, shift"
    )
    divide_integer_cycles: float = constant(
        12.0, LANE_CYCLES, "chosen: integers are divided lane by lane"
    )
    sqrt_cycles: float = constant(10.0, REGISTER_CYCLES, _DIVIDER)
    transcendental_cycles: float = constant(
        16.0, REGISTER_CYCLES, "Halide 21: exp and log are polynomials of degree 7 to 9"
    )
    pow_cycles: float = constant(40.0, REGISTER_CYCLES, "chosen: log, exp and special cases")
    library_cycles: float = constant(
        20.0, LANE_CYCLES, "chosen: a call of the C library for each lane"
    )
    uniform_cycles: float = constant(
        0.02, "cycles per operation", "chosen: hoisted out of the loops, nearly free"
    )
    hoisted_share: float = constant(
        0.1, RATIO, "chosen: hoisted out of reduction loops of ten iterations or more"
    )
    broadcast_share: float = constant(
        0.2, RATIO, "chosen: a load hoisted out of an inner loop of five iterations or more"
    )

    # --- loads and stores ---------------------------------------------------------------------
    scalar_load_cycles: float = constant(0.6, "cycles per load", "chosen: two loads per cycle")
    load_cycles: float = constant(
        1.2, REGISTER_CYCLES, "chosen: half of the loads cross a cache line and count twice"
    )
    reversed_load_cycles: float = constant(2.2, REGISTER_CYCLES, "chosen: a load and a shuffle")
    doubled_load_cycles: float = constant(
        1.0, REGISTER_CYCLES, "chosen: half a register is loaded, each lane is used twice"
    )
    doubled_shuffle_cycles: float = constant(1.0, "cycles per load", "chosen: one shuffle")
    shuffle_cycles: float = constant(
        1.5, REGISTER_CYCLES, "chosen: per element of stride beyond 1, to pack strided lanes"
    )
    longest_stride: float = constant(
        4.0, "elements", "Halide 21 loads dense vectors and shuffles up to this stride"
    )
    most_separated: int = constant(
        4, "elements", "Halide 21 (Deinterleave.cpp): the largest divisor whose lanes it separates"
    )
    fraction_cycles: float = constant(
        2.5, REGISTER_CYCLES, "chosen: a load and a shuffle with a computed mask"
    )
    gather_cycles: float = constant(
        1.5, LANE_CYCLES, "chosen: a scalar load and an insert per lane"
    )
    border_cycles: float = constant(
        2.0, LANE_CYCLES, "measured: 1.75 in a dilation of bytes with 17 to 33% of border blocks"
    )
    border_blocks: float = constant(
        1.0, "blocks per end", "chosen: one block at each clamped end of a row"
    )
    scatter_cycles: float = constant(
        1.5, LANE_CYCLES, "chosen: an extract and a scalar store per lane"
    )

    # --- register blocks ----------------------------------------------------------------------
    main_type_share: float = constant(
        0.2, RATIO, "chosen: least share of operations for a type to set the vector length"
    )
    operand_registers: float = constant(
        2.0, "registers per vector", "chosen: an operand and a product per vector"
    )
    reserved_registers: int = constant(4, "registers", "chosen: broadcasts and addresses")
    spill_cycles: float = constant(2.0, "cycles per register", "one store and one load")
    chain_cycles: float = constant(
        4.0, "cycles per step", "latency of a fused multiply-add on current cores"
    )
    integer_chain_cycles: float = constant(
        1.0,
        "cycles per step",
        "Fog, Instruction tables (2022): latency of an integer addition, Skylake and Zen 1 to 4",
    )
    load_latency_cycles: float = constant(
        5.0, "cycles", "Fog, The microarchitecture (2022): a load from the first cache, Ice Lake"
    )
    masked_lane_cycles: float = constant(
        16.0, "cycles per lane", "measured: masked sums of interleaved bytes, half masked, Zen 5"
    )
    doubtful_cycles: float = constant(
        8.0, "cycles per step", "chosen: half of the mispredicted branches, of 16 cycles each"
    )
    forward_cycles: float = constant(
        8.0, "cycles per step", "chosen: store-to-load forwarding, 5 cycles, and an addition"
    )
    fold_cycles: float = constant(
        1.0,
        "cycles per halving, value and step",
        "measured: 384 x 384 sums of 384 floats, steps of 16 to 384",
    )
    atomic_cycles: float = constant(
        18.0,
        "cycles per value and step",
        "Fog, Instruction tables (2022): latency of lock cmpxchg on Skylake and Zen 2 to 4",
    )
    neighbour_cycles: float = constant(
        2.0, "cycles per value and step", "measured on the same sums: rows adjacent in memory"
    )
    rest_cycles: float = constant(
        6.0, "cycles per iteration and value", "measured: sums of 1000 floats, steps of 16 to 256"
    )
    reduction_loop_cycles: float = constant(
        1.5, "cycles per step", "chosen: a counter, a branch and two address updates"
    )
    scalar_loop_cycles: float = constant(
        0.75, "cycles per iteration", "a counter and a branch, of four operations per cycle"
    )
    loop_cycles: float = constant(0.4, "cycles per block", "chosen: unrolled by LLVM")

    # --- panels -------------------------------------------------------------------------------
    far_line_cycles: float = constant(
        8.0,
        "cycles per line",
        "measured: a product of 1536 x 1536 x 2560 floats with and without panels, Zen 3, AVX2",
    )
    copied_line_cycles: float = constant(
        4.0, "cycles per line", "chosen: two loads and two stores of 32 bytes"
    )
    panel_l2_share: float = constant(0.5, RATIO, "chosen: the other operand streams through it")

    # --- inlining -----------------------------------------------------------------------------
    round_trips: float = constant(
        2.0, "transfers per value", "chosen: a value computed at root is written and read"
    )


@dataclass(frozen=True, slots=True)
class CpuSearch(UnknownSizes):
    """Limits of the search: counts instead of times, so that schedules are reproducible."""

    # --- unknown sizes ------------------------------------------------------------------------
    unknown_bytes: int = constant(4, "bytes per element", "chosen: a float")

    # --- register blocks ----------------------------------------------------------------------
    least_lanes: int = constant(4, "lanes", "chosen: shorter vectors gain nothing")
    short: int = constant(4, "elements", "chosen: longest dimension that is unrolled completely")
    scatter_rows: tuple[int, ...] = constant(
        (2, 4), COUNT, "chosen: independent chains hide each other's latency"
    )
    step_vectors: tuple[int, ...] = constant(
        (1, 2, 4, 8), "vectors per step", "measured: sums of 1024 floats; 16 gain no more"
    )
    tuple_vectors: tuple[int, ...] = constant(
        (2, 4), "vectors per step", "measured: LLVM may not vectorise longer unrolled loops"
    )
    unrolled_iterations: int = constant(
        8, "iterations", "chosen: LLVM unrolls short loops of constant length completely"
    )
    partial_vectors: tuple[int, ...] = constant(
        (4, 1),
        "vectors of partial results, the first that fit",
        "latency of an addition (4 cycles), to add one vector per cycle; one vector if it is short",
    )
    step_rows: tuple[int, ...] = constant(
        (2, 4, 8), COUNT, "measured: 8 gain 8% over 4 where 384 x 384 sums share an operand"
    )
    wide_registers: int = constant(
        4, "registers per value", "a register of bytes for values of 32 bits"
    )
    least_steps: int = constant(
        2, "steps", "chosen: Halide itself unrolls a complete loop of constant length"
    )
    least_rows: int = constant(
        8,
        "rows",
        "measured: reductions of 16 x 5 and 7 x 5 values take 2.8 and 1.6 times as long with a "
        "partial result per lane, and 0.40 of the time with 31 x 10",
    )
    least_modulus: int = constant(
        5, "elements", "Halide 21 deinterleaves smaller divisors itself (Deinterleave.cpp)"
    )
    largest_modulus: int = constant(
        64, "elements", "chosen: the bounds grow by at most 128 elements"
    )
    work_of_phases: float = constant(
        0.9, "1", "chosen: largest share of the work that phases have, or bounds stay as they are"
    )
    largest_denominator: int = constant(
        64, "rows", "chosen: six successive halvings; other rates are rounded"
    )
    block_vectors: tuple[int, ...] = constant(
        (1, 2, 3, 4), COUNT, "chosen: with two rows, up to half of 16 registers"
    )
    stream_vectors: tuple[int, ...] = constant(
        (8, 16), COUNT, "measured, as `jump_cycles`: 16 take 0.5 to 0.8 of the time of 4"
    )
    block_rows: tuple[int, ...] = constant(
        (2, 3, 4, 6, 8), COUNT, "chosen: with one vector, up to half of 16 registers"
    )
    most_shuffled: int = constant(
        600, "lanes", "measured: LLVM compiles 576 lanes per block in 8 s, 1700 in a minute"
    )
    most_gathered: int = constant(
        600, "elements", "measured: LLVM takes 5 s for 300, four times as long for 600"
    )
    close_block: float = constant(
        1.25, RATIO, "chosen: alternatives cost at most a quarter more than the best"
    )
    panel_tasks: int = constant(
        2, "tasks per core", "measured: as `far_line_cycles`; 8 take 15% longer, 1 the same or 10%"
    )
    least_panel_share: float = constant(0.1, RATIO, "chosen: time saved of that of the group")

    # --- tiles --------------------------------------------------------------------------------
    untiled_extent: int = constant(8, "elements", "chosen: tiling shorter loops gains nothing")
    tiled_dimensions: int = constant(
        3, COUNT, "chosen: the longest ones; each multiplies the number of tilings"
    )
    tile_vectors: int = constant(2, COUNT, "chosen: narrower tiles are mostly border")
    most_tilings: int = constant(512, COUNT, "chosen: 1 ms per group during the search")
    most_fine_tilings: int = constant(4096, COUNT, "chosen: 10 ms per group of the final grouping")
    largest_step: int = constant(4, "rows", "chosen: two successive halvings")
    most_windows: int = constant(2, COUNT, "chosen: the two longest dimensions")
    tasks_per_core: int = constant(8, COUNT, "chosen: a late core then costs an eighth of its work")
    kept_rows: float = constant(
        1.99, RATIO, "chosen: two rows need twice the values of one if they share none"
    )

    # --- inlining and revisions ---------------------------------------------------------------
    largest_expression: int = constant(1500, "operations", "chosen: LLVM compiles it in seconds")
    hopeless_operations: int = constant(16, "operations", "chosen: more than a small stencil")
    hopeless_reads: int = constant(8, "reads", "chosen: as many as a small stencil")
    effort: int = constant(2000, "members costed", "chosen: about a second of search")
    transposed_effort: int = constant(
        300, "members costed", "chosen: a short search with the other storage order"
    )
    least_gain: float = constant(
        0.995, RATIO, "chosen: smaller gains are within the error of the model"
    )
    rival_funcs: int = constant(40, "Funcs", "chosen: a second search takes below a second")
    doubtful: float = constant(
        1.1, RATIO, "chosen: the two predictions of a schedule usually agree within 5%"
    )
    clear_gain: float = constant(0.97, RATIO, "chosen: smaller gains are within the model's error")
    large_gain: float = constant(
        0.6,
        RATIO,
        "measured: with 0.85, two programs more change, and take 1.03 and 1.93 of the time",
    )
    most_moved: int = constant(4, "moves", "chosen: of 209 programs, none gains from a third")
    partial_gain: float = constant(
        0.95,
        RATIO,
        "chosen: partial results of a 7 x 7 convolution, predicted to take 0.956, take 1.02",
    )
    shared_gain: float = constant(
        0.9, RATIO, "measured: shared loops predicted to take 0.89 and 0.99 take 1.9 and 1.3"
    )
    joint_plans: int = constant(
        3, COUNT, "measured: the best by more terms; of 12 of 60 pipelines, 1.04 faster than with 1"
    )
    varying_extents: float = constant(
        1.15, RATIO, "measured: Funcs with and without constant extents in shared loops, Zen 5"
    )
    most_siblings: int = constant(6, COUNT, "chosen: the products of three derivatives")
    least_share: float = constant(0.02, RATIO, "chosen: cheaper groups are not revised")
    member_worth: float = constant(4.0, RATIO, "chosen: members gain less than outputs")
    producer_worth: float = constant(
        2.0, RATIO, "chosen: a producer may cause half of its reader's cost"
    )
    dear_memory: float = constant(3.0, RATIO, "chosen: the policy for a machine with busy memory")
    dearer_memory: float = constant(
        6.0, RATIO, "measured: a chain of 32 stencils, Zen 5; 10 and 20 give the same, 3 does not"
    )
    more_inlined: float = constant(2.0, RATIO, "chosen: the policy that inlines more")
    less_inlined: float = constant(0.5, RATIO, "chosen: the policy that inlines less")


SEARCH = CpuSearch()
