"""The rules that a configuration of a published space stands for, kernel by kernel.

What each parameter means was read from RISE's programs (`programs`); where ours differ, the
function says so. A configuration maps the names of parameters to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any, TypeAlias

from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.check import type_of
from tilewright.patterns.rewriting.rule import Rule
from tilewright.patterns.rewriting.strategies import Strategy
from tilewright.patterns.types import dimensions

Steps: TypeAlias = list[Rule | Strategy]
Numbers: TypeAlias = Mapping[str, Any]

GLB1, GLB0, WRG1, WRG0, LCL1, LCL0 = (
    n.MapLevel(kind, dim) for kind in ("glb", "wrg", "lcl") for dim in (1, 0)
)
COPIED = 4  # elements that a thread copies at once: asVector(4) in RISE's product
HARRIS_STAGES = 3  # grey values, derivatives, response


def lengths(program: n.Pattern) -> list[int]:
    """Return the lengths of a program's result."""
    return [int(length.value or 0) for length in dimensions(type_of(program))[0]]


def elements(program: n.Pattern) -> int:
    """Return the length of a program's first input, a vector."""
    return int(dimensions(n.inputs(program)[0].type)[0][0].value or 0)


def product_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's matrix product for NVIDIA GPUs.

    A work-group computes v5 x v7 results, whose sums are in local memory. In each step, it copies
    v8 rows of v5 and of v7 elements to local memory, the first matrix as rows of v6 elements. A
    thread computes tiles of v4 x v3 results in registers.
    """
    threads = (LCL1, LCL0)
    return [
        rw.block_product(c["v5"], c["v7"], c["v8"]),
        rw.lower_nest(WRG1, WRG0),
        rw.register_tiles(c["v4"], c["v3"]),
        rw.accumulate_locally(*threads, n.SEQ, n.SEQ),
        rw.stage_operands(c["v6"], COPIED),
        rw.keep_operands,
        rw.bottom_up(rw.split2(c["v4"], c["v3"])),
        rw.bottom_up(rw.vectorise(COPIED, keep_one=True)),
        rw.lower_nest(*threads, n.SEQ, n.SEQ),
    ]


def sum_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's sum of absolute values.

    A work-group takes sp0 elements, reordered so that elements ``stride`` apart are neighbours, and
    each of its threads adds sp1 of them. RISE's kernel ends there, with one number for each thread;
    here, all threads add these numbers, then one thread adds what is left.
    """
    size, group, part = elements(program), c["sp0"], c["sp1"]
    if part == size:  # a single thread has work
        return [rw.lower_reduce(n.SEQ)]
    partial = size // part
    reorder: Steps = [rw.reorder_reduce(group, c["stride"])] if c["stride"] > 1 else []
    chunks = rw.single_chunk if group == size else rw.split_join(group // part)
    # The maps from the front: absolute values, then those of groups.
    keep = rw.at_site(rw.store("global"), 1)
    steps: Steps = [
        *reorder,
        rw.partial_reduce(part),
        rw.bottom_up(chunks),
        keep,
        rw.lower_nest(WRG0, LCL0),
    ]
    threads = gcd(partial, c["gs0"])
    if 1 < threads < partial:
        last = rw.at_site(rw.store("global"), 1)
        steps += [rw.bottom_up(rw.strided_reduce(threads)), last, rw.lower(GLB0)]
    return steps


def scale_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's scaling of a vector.

    A work-group takes s0 elements as vectors of ``vec``, a thread s1 of these vectors. RISE's
    threads of dimension 1 repeat the work of dimension 0; ours have none, because several threads
    that store the same element are a race.
    """
    size, group, part = elements(program), c["s0"], c["s1"]
    chunks = rw.single_chunk if group == size else rw.split_join(group)
    parts = rw.single_chunk if part * c["vec"] == group else rw.split_join(part)
    return [
        chunks,
        rw.bottom_up(rw.vectorise(c["vec"], keep_one=True)),
        rw.bottom_up(parts),
        rw.at_site(rw.single_chunk, 1),  # threads of dimension 1: inside the map of groups
        rw.single_chunk,  # groups of dimension 1
        rw.lower_nest(WRG1, WRG0, LCL1, LCL0, n.SEQ),
    ]


def centres_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's K-means: the threads of dimension 0 take points.

    Those of dimension 1 have no work (`scale_steps`).
    """
    return [rw.single_chunk, rw.lower_nest(GLB1, GLB0)]


def box_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's stencil: threads of dimension 1 take rows, of 0 columns."""
    return [rw.lower_nest(GLB1, GLB0)]


def harris_steps(program: n.Pattern, c: Numbers) -> Steps:
    """Return the steps of RISE's Harris corner detection.

    A work-group computes tile_y x tile_x points. Grey values and derivatives of a tile are in local
    memory. Threads of dimension 1 take rows, of dimension 0 vectors of ``vec`` points. Where tiles
    do not divide the image, RISE shifts the last ones inwards; ours reach over the border, and drop
    what is beyond, because two groups that store the same element are a race.
    """
    tile, vec = (c["tile_y"], c["tile_x"]), c["vec"]
    divided = all(length % t == 0 for length, t in zip(lengths(program), tile, strict=True))
    derivatives = c["tile_x"] + 2
    return [
        *([] if divided else [rw.round_up_chain2(*tile)]),
        rw.bottom_up(rw.tiling2(*tile)),
        rw.at_site(rw.map2_slide2, 1),  # derivatives into tiles, then their windows, then grey
        rw.slide2_slide2,
        rw.map2_slide2,
        rw.repeat(rw.map2_fusion),
        *([] if derivatives % vec == 0 else [rw.round_up2(1, vec)]),
        rw.store("local"),
        rw.store("local"),
        rw.everywhere(rw.lower_reduce(n.UNROLL)),
        rw.everywhere(rw.vectorise(vec, keep_one=True)),
        rw.lower_nest(WRG1, WRG0, LCL1, LCL0),
        *([rw.lower_nest(LCL1, LCL0)] * (HARRIS_STAGES - 1)),
    ]
