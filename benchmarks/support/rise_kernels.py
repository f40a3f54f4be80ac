"""RISE's seven kernels of BaCO's evaluation as parametric derivations in C.

A configuration is turned into a derivation of the program by rules; where a rule refuses it, or the
generator, it fails: a hidden constraint. Parameters are ours: those of the paper's GPU kernels are
numbers of OpenCL's threads and groups and widths of its vectors, which C does not have;
`tilewright.patterns.rise` has the GPU kernels with the published spaces. Sizes are ours, too (the
paper states none), so that the fastest kernels run for some milliseconds. Budgets are those of the
paper. An expert's schedule is what a person would write first for two cores with vectors of 8
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.patterns import nodes as n
from tilewright.patterns import programs
from tilewright.patterns import rewriting as rw
from tilewright.patterns.rewriting.motion import map_split
from tilewright.tuning import Categorical, Ordinal, Space

Configuration = Mapping[str, Any]


@dataclass(frozen=True)
class RiseKernel:
    """A kernel of BaCO's evaluation.

    Args:
        program: with its sizes.
        space: of the configurations.
        steps: the rules of a configuration.
        budget: evaluations, BaCO's full one.
        expert: a configuration.
    """

    program: n.Pattern
    space: Space
    steps: Callable[[Configuration], list[Any]]
    budget: int
    expert: Configuration

    def derive(self, configuration: Configuration) -> n.Pattern:
        """The program of a configuration; raises as `rewriting.derive`."""
        return rw.derive(self.program, *self.steps(configuration)).program


def powers(name: str, low: int, high: int) -> Ordinal:
    """Powers of 2 from 2^low to 2^high."""
    return Ordinal(name, [2**e for e in range(low, high + 1)], scale="log")


THREADS = Ordinal("threads", [1, 2])
INNER = Categorical("inner", ["seq", "simd"])
STORE = Categorical("store", ["no", "yes"])
UNROLL = Categorical("reduce", ["loop", "unroll"])


def level(name: str) -> n.MapLevel:
    return n.MapLevel(name)


def reductions(c: Configuration) -> list[Any]:
    """Unrolled reductions, if the configuration says so."""
    return [rw.everywhere(rw.lower_reduce(n.UNROLL))] if c["reduce"] == "unroll" else []


def product_steps(c: Configuration) -> list[Any]:
    """Strips of the second matrix, packed or not, and sums in registers."""
    pack = [rw.pack("B", c["strip"])] if c["pack"] == "yes" else []
    return [
        *pack,
        rw.split2(c["rows"], c["strip"]),
        rw.lower_nest(n.PAR, n.SEQ),
        rw.bottom_up(rw.split2(c["y"], c["x"])),
        rw.bottom_up(rw.interchange),
        rw.bottom_up(rw.interchange),
    ]


def sum_steps(c: Configuration) -> list[Any]:
    """Chunks for the cores, and in each partial sums of neighbours or of lanes."""
    rule = rw.partial_reduce if c["way"] == "neighbours" else rw.strided_reduce
    # Site 0 is that of the chunks.
    swap = [rw.at_site(rw.interchange, 1)] if c["way"] == "lanes_inside" else []
    keep = [rw.at_site(rw.store("private"), 0), rw.at_site(rw.lower(n.SIMD), 0)]
    return [
        rw.partial_reduce(c["chunk"]),
        map_split,
        rw.map_fusion,
        rw.at_site(rule(c["lanes"]), 0),
        *swap,
        rw.store("global"),
        rw.lower_nest(n.PAR),
        *(keep if c["store"] == "yes" else []),
    ]


def scale_steps(c: Configuration) -> list[Any]:
    """Chunks for the cores, and chunks in them."""
    inner = level(c["inner"])
    if c["part"] == 1:
        return [rw.split_join(c["chunk"]), rw.lower_nest(n.PAR, inner)]
    split = rw.bottom_up(rw.split_join(c["part"]))
    return [rw.split_join(c["chunk"]), split, rw.lower_nest(n.PAR, n.SEQ, inner)]


def kmeans_steps(c: Configuration) -> list[Any]:
    """Chunks of points; distances fused into the search for the nearest, or stored first."""
    keep = [rw.at_site(rw.store("private"), 0), rw.at_site(rw.lower(n.SIMD), 0)]
    nest = rw.lower_nest(n.PAR, level(c["inner"]))
    unrolled = {"loop": [], "coordinates": [0], "centres": [1], "both": [0, 0]}[c["reduce"]]
    return [
        rw.split_join(c["chunk"]),
        nest,
        *(keep if c["store"] == "yes" else []),
        *(rw.at_site(rw.lower_reduce(n.UNROLL), number) for number in unrolled),
    ]


def tile_steps(c: Configuration) -> list[Any]:
    """Tiles of a stencil; intermediate grids are stored or computed again."""
    store = [rw.store("global")] if c.get("store") == "yes" else []
    nest = rw.lower_nest(n.PAR, n.SEQ, n.SEQ, level(c["inner"]))
    return [rw.tiling2(c["y"], c["x"]), *store, nest, *reductions(c)]


def product_of(program: n.Pattern, budget: int) -> RiseKernel:
    space = Space(
        [
            Categorical("pack", ["no", "yes"]),
            powers("strip", 3, 6),
            powers("rows", 5, 7),
            powers("y", 1, 3),
            powers("x", 2, 5),
            THREADS,
        ],
        ["strip % x == 0"],
    )
    expert = {"pack": "yes", "strip": 16, "rows": 64, "y": 4, "x": 16, "threads": 2}
    return RiseKernel(program, space, product_steps, budget, expert)


def stencil_of(program: n.Pattern, budget: int, stored: bool) -> RiseKernel:
    store = [STORE] if stored else []
    space = Space([powers("y", 0, 7), powers("x", 4, 10), *store, UNROLL, INNER, THREADS])
    expert = {"y": 32, "x": 256, "reduce": "unroll", "inner": "simd", "threads": 2}
    expert |= {"store": "no"} if stored else {}
    return RiseKernel(program, space, tile_steps, budget, expert)


def asum() -> RiseKernel:
    ways = Categorical("way", ["neighbours", "lanes", "lanes_inside"])
    space = Space([powers("chunk", 12, 21), powers("lanes", 2, 7), ways, STORE, THREADS])
    expert = {"chunk": 2**21, "lanes": 32, "way": "lanes_inside", "store": "no", "threads": 2}
    return RiseKernel(programs.LINEAR_ALGEBRA["asum"](2**22), space, sum_steps, 60, expert)


def scal() -> RiseKernel:
    space = Space(
        [powers("chunk", 4, 21), powers("part", 0, 7), INNER, THREADS], ["chunk % part == 0"]
    )
    expert = {"chunk": 2**21, "part": 1, "inner": "simd", "threads": 2}
    return RiseKernel(programs.LINEAR_ALGEBRA["scal"](2**22), space, scale_steps, 60, expert)


def kmeans() -> RiseKernel:
    reduce = Categorical("reduce", ["loop", "coordinates", "centres", "both"])
    space = Space([powers("chunk", 1, 15), STORE, reduce, INNER, THREADS])
    expert = {"chunk": 2**15, "store": "no", "reduce": "both", "inner": "simd", "threads": 2}
    program = programs.APPLICATIONS["kmeans"](2**16, 16, 8)
    return RiseKernel(program, space, kmeans_steps, 60, expert)


KERNELS: dict[str, Callable[[], RiseKernel]] = {
    "mm_cpu": lambda: product_of(programs.LINEAR_ALGEBRA["matmul"](512, 512, 512), 100),
    "mm_gpu": lambda: product_of(programs.APPLICATIONS["matmul_at"](512, 512, 512), 120),
    "asum": asum,
    "scal": scal,
    "kmeans": kmeans,
    "harris": partial(stencil_of, programs.APPLICATIONS["harris"](1024, 1024), 100, True),
    "stencil": partial(stencil_of, programs.APPLICATIONS["box"](2048, 2048), 60, False),
}
