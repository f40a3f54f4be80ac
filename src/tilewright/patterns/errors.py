"""Errors of pattern programs that are shown to users."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class PatternError(TilewrightError):
    """A pattern program that cannot be used: the message names the cause and the cure."""


class PatternTypeError(PatternError, TypeError):
    """A pattern applied to what it does not take: both types, and the place in the source."""


class SizeError(PatternError, ValueError):
    """Arrays or tiles whose sizes do not fit the program."""


class LoweringError(PatternError):
    """A program whose loops or memories cannot be made code for the target."""


MappingError = LoweringError  # its name in earlier versions


class CompileError(PatternError):
    """A compiler that is missing or refuses the generated code."""


class RewriteError(PatternError):
    """A rewrite that does not apply: the message says which condition fails, and where."""
