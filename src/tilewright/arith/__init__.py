"""Integer arithmetic for several packages: sizes and indices as polynomials in a normal form.

Start at `polynomial`: the normal form, proofs that hold for all sizes, and division with ranges of
loop variables. `atoms` has the atoms of polynomials. `substitution` and `evaluation` replace atoms
by polynomials and by numbers, and `parsing` reads the output of ``str``. `expressions` defines the
expressions that users may write.
"""

from tilewright.arith.atoms import Atom, Boundary, Div, LoopVariable, Mod, Size
from tilewright.arith.evaluation import NotWhole, boundary_value, evaluate
from tilewright.arith.expressions import (
    ARITHMETIC,
    FUNCTIONS,
    ExpressionError,
    Grammar,
    Mistake,
    parse_expression,
)
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
    "ARITHMETIC",
    "FUNCTIONS",
    "Atom",
    "Boundary",
    "Div",
    "ExpressionError",
    "Grammar",
    "LoopVariable",
    "Mistake",
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
    "parse_expression",
    "poly",
    "sizes",
    "substitute",
]
