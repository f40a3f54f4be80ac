"""Rewriting of programs into equivalent programs.

`rule` defines rules, and the sites where they are tried. The families of rules are `algorithmic`,
`fusion`, `motion`, `tiling`, `sliding`, `vectorisation` and `lowering`. `strategies` combines
rules; `exploration` enumerates derived programs.
"""

from tilewright.patterns.errors import RewriteError
from tilewright.patterns.rewriting.algorithmic import (
    interchange,
    partial_reduce,
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
    round_up,
    round_up2,
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
    "apply",
    "at_site",
    "attempt",
    "bottom_up",
    "coarsen",
    "derive",
    "everywhere",
    "explore",
    "interchange",
    "lower",
    "lower_nest",
    "lower_reduce",
    "map_fission",
    "map_fusion",
    "one",
    "pack",
    "partial_reduce",
    "reduce_map_fusion",
    "repeat",
    "round_up",
    "round_up2",
    "sequence",
    "sites",
    "slide_sequentially",
    "slide_tiling",
    "split2",
    "split_join",
    "stage_tile",
    "store",
    "strided_reduce",
    "tiling2",
    "top_down",
    "vectorise",
    "zipped_tiling2",
]
