"""All constants of the search as published, each with its unit and its source.

Sections are those of arXiv 2012.07145. "released code" is Halide's
``src/autoschedulers/anderson2021`` as of 2026-08.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.halide.schedulers.analytic.constant import constant

BYTES, COUNT, RATIO = "bytes", "count", "1"
THREADS, ITERATIONS, POINTS = "threads", "iterations", "points"
CODE = "released code"


@dataclass(frozen=True, slots=True)
class SearchConstants:
    """The constants of tiles, limits, and the beam."""

    # --- serial iterations of a thread --------------------------------------------------------
    serial_sizes: tuple[int, ...] = constant((1, 2, 4, 8), ITERATIONS, "Section 6.1")
    odd_sizes: tuple[int, ...] = constant((3, 5, 7), ITERATIONS, "Section 6.1")
    warp: int = constant(32, THREADS, "CUDA: threads of a warp")
    most_unrolled: int = constant(16, ITERATIONS, CODE + " (Section 6.7: fewer than 16)")
    most_block_serial: int = constant(
        16, ITERATIONS, CODE + ": of a thread, along each dimension of a Func in a block"
    )

    # --- threads ------------------------------------------------------------------------------
    first_threads: tuple[int, ...] = constant((16, 32, 64), THREADS, "Section 6.2")
    line_threads: tuple[int, ...] = constant(
        (1, 2, 4, 8, 16, 32, 64), THREADS, CODE + ": of a Func at root with one dimension"
    )
    other_threads: tuple[int, ...] = constant((1, 2, 4, 8, 16), THREADS, "Section 6.2")
    whole_threads: int = constant(64, THREADS, CODE + ": extents below it may be all threads")
    most_waste: float = constant(
        8.0 / 7.0, RATIO, CODE + ": covered over wanted points along further dimensions"
    )
    most_threads: int = constant(1024, THREADS, "CUDA: of a block")
    most_thread_dimensions: int = constant(3, COUNT, "CUDA: of a block")

    # --- what is legal, and what is used only where nothing else is ---------------------------
    blocks_per_sm: int = constant(2, RATIO, "Section 6.3: least blocks over SMs")
    most_idle_cores: float = constant(
        1.2, RATIO, CODE + ": rounds of blocks over blocks per SM, unless nothing else is legal"
    )
    most_idle_lanes: float = constant(
        0.5, RATIO, CODE + ": idle lanes of active warps over 1024, unless nothing else is legal"
    )
    most_recompute: float = constant(
        10.0, RATIO, CODE + ": computed points over the fewest possible"
    )
    thread_bytes: float = constant(128.0, BYTES, CODE + ": of a Func in a thread")
    trivial_operations: int = constant(
        1, COUNT, CODE + ": a Func that costs no more than a call is always considered for inlining"
    )

    # --- the beam -----------------------------------------------------------------------------
    greedy_dropout: float = constant(
        1.0, "percent", CODE + ": chance that a greedy sample drops no state"
    )
    not_blessed: int = constant(10, RATIO, CODE + ": further penalty of a hash not blessed")
    blessing: float = constant(1.2, RATIO, CODE + ": cost over the best that is blessed")
    kept_kernels: int = constant(
        10_000, COUNT, "chosen: with its nest, a kernel takes some 50 KB of memory"
    )
    spilling: float = constant(
        1.5, RATIO, "Section 8.1: spilled bytes over the fewest, where all samples spill"
    )


CONSTANTS = SearchConstants()


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What can be varied; the defaults are those of the paper.

    Attributes:
        beam, passes: Of the beam search.
        greedy: Greedy samples in addition to it.
        buckets: Whether options are drawn from buckets; else all are evaluated.
        penalties: Whether states that look alike are penalised, and hashes blessed.
        freeze: Whether a pre-pass freezes the cheap Funcs.
        as_released: Whether the pre-pass reads the costs of the wrong stages, as the released
            code does.
        dropout: Whether greedy samples drop states at random.
        seed: Seed of all draws.
        seconds: Seconds after which no sample is begun and the present one is left, except
            the first; None for no limit. With a limit, results depend on the machine.
    """

    beam: int = constant(32, COUNT, "Section 8")
    passes: int = constant(5, COUNT, "Section 8")
    greedy: int = constant(79, COUNT, "Section 8")
    buckets: bool = constant(True, "", "Sections 3 and 6.4")
    penalties: bool = constant(True, "", "Section 6.5")
    freeze: bool = constant(True, "", "Section 4")
    as_released: bool = constant(False, "", "chosen: the text, not the defect")
    dropout: bool = constant(True, "", CODE)
    seed: int = constant(0, "", "chosen")
    seconds: float | None = constant(None, "s", "chosen")


PUBLISHED = SearchSettings()
# Chosen: a few seconds for a dozen Funcs.
QUICK = SearchSettings(beam=8, passes=3, greedy=8)
