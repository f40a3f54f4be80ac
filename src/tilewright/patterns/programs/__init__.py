"""Benchmark programs of papers: Lift's eight stencils, and linear algebra as in RISE."""

from tilewright.patterns.programs.linear_algebra import LINEAR_ALGEBRA
from tilewright.patterns.programs.stencils import STENCILS, Stencil

__all__ = ["LINEAR_ALGEBRA", "STENCILS", "Stencil"]
