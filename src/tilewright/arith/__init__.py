"""Integer arithmetic that the rooms share: sizes and indices as polynomials with a normal form.

Start at `polynomial`: the normal form, what is proved of it for all sizes, and division with the
ranges of loop variables in mind. `atoms` is what it is made of, `substitution` and `evaluation`
put polynomials and numbers in place of atoms, and `parsing` reads what ``str`` printed.
"""

from tilewright.arith.atoms import Atom, Boundary, Div, LoopVariable, Mod, Size
from tilewright.arith.evaluation import NotWhole, boundary_value, evaluate
from tilewright.arith.parsing import parse, sizes
from tilewright.arith.polynomial import (
    Poly,
    at_least_zero,
    below,
    bounds,
    divided,
    floor_divide,
    modulo,
    poly,
)
from tilewright.arith.substitution import boundary, substitute

__all__ = [
    "Atom",
    "Boundary",
    "Div",
    "LoopVariable",
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
    "evaluate",
    "floor_divide",
    "modulo",
    "parse",
    "poly",
    "sizes",
    "substitute",
]
