"""Rewriting of programs into equivalent programs.

`rule` defines rules, and the sites where they are tried. The families of rules are `algorithmic`,
`fusion`, `motion`, `tiling`, `sliding`, `vectorisation`, `lowering` and `products`. `strategies`
combines rules; `exploration` enumerates derived programs.
"""

from tilewright.patterns.errors import RewriteError
from tilewright.patterns.rewriting.algorithmic import (
    interchange,
    partial_reduce,
    reorder_reduce,
    single_chunk,
    split_join,
    strided_reduce,
)
from tilewright.patterns.rewriting.exploration import ExplorationSettings, explore
from tilewright.patterns.rewriting.fusion import map_fission, map_fusion, reduce_map_fusion
from tilewright.patterns.rewriting.lowering import (
    coarsen,
    lower,
    lower_nest,
    lower_reduce,
    pack,
    stage_tile,
    store,
)
from tilewright.patterns.rewriting.products import (
    accumulate_locally,
    block_product,
    keep_operands,
    register_tiles,
    stage_operands,
)
from tilewright.patterns.rewriting.rule import Rule, apply, sites
from tilewright.patterns.rewriting.sliding import slide_sequentially
from tilewright.patterns.rewriting.strategies import (
    Derivation,
    at_site,
    attempt,
    bottom_up,
    derive,
    everywhere,
    one,
    repeat,
    sequence,
    top_down,
)
from tilewright.patterns.rewriting.tiling import (
    map2_fusion,
    map2_slide2,
    round_up,
    round_up2,
    round_up_chain2,
    slide2_slide2,
    slide_tiling,
    split2,
    tiling2,
    zipped_tiling2,
)
from tilewright.patterns.rewriting.vectorisation import vectorise

__all__ = [
    "Derivation",
    "ExplorationSettings",
    "RewriteError",
    "Rule",
    "accumulate_locally",
    "apply",
    "at_site",
    "attempt",
    "block_product",
    "bottom_up",
    "coarsen",
    "derive",
    "everywhere",
    "explore",
    "interchange",
    "keep_operands",
    "lower",
    "lower_nest",
    "lower_reduce",
    "map2_fusion",
    "map2_slide2",
    "map_fission",
    "map_fusion",
    "one",
    "pack",
    "partial_reduce",
    "reduce_map_fusion",
    "register_tiles",
    "reorder_reduce",
    "repeat",
    "round_up",
    "round_up2",
    "round_up_chain2",
    "sequence",
    "single_chunk",
    "sites",
    "slide2_slide2",
    "slide_sequentially",
    "slide_tiling",
    "split2",
    "split_join",
    "stage_operands",
    "stage_tile",
    "store",
    "strided_reduce",
    "tiling2",
    "top_down",
    "vectorise",
    "zipped_tiling2",
]
