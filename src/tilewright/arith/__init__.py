"""Integer arithmetic that the rooms share: sizes and indices as polynomials with a normal form.

Start at `polynomial` (the normal form); `index` divides with the ranges of loop variables in
mind; `bounds` proves inequalities that hold for all sizes.
"""

from tilewright.arith.bounds import at_least_zero, below, bounds
from tilewright.arith.index import boundary, divided, floor_divide, modulo
from tilewright.arith.polynomial import (
    Atom,
    Boundary,
    Div,
    Loop,
    Mod,
    NotWhole,
    Poly,
    Size,
    boundary_value,
    parse,
    poly,
    sizes,
)

__all__ = [
    "Atom",
    "Boundary",
    "Div",
    "Loop",
    "Mod",
    "NotWhole",
    "Poly",
    "Size",
    "at_least_zero",
    "below",
    "boundary",
    "boundary_value",
    "bounds",
    "divided",
    "floor_divide",
    "modulo",
    "parse",
    "poly",
    "sizes",
]
