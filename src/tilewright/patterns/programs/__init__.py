"""Benchmark programs from papers: Lift's eight stencils, RISE's programs, and others."""

from tilewright.patterns.programs.applications import APPLICATIONS
from tilewright.patterns.programs.linear_algebra import LINEAR_ALGEBRA
from tilewright.patterns.programs.stencils import STENCILS, Stencil

__all__ = ["APPLICATIONS", "LINEAR_ALGEBRA", "STENCILS", "Stencil"]
