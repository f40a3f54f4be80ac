"""Errors of pattern programs that are shown to users."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class PatternError(TilewrightError):
    """A pattern program cannot be used; the message names the cause and the cure."""


class PatternTypeError(PatternError, TypeError):
    """A pattern is applied to the wrong type; the message has both types and the source line."""


class SizeError(PatternError, ValueError):
    """The sizes of arrays or tiles do not fit the program."""


class LoweringError(PatternError):
    """The loops or memories of a program cannot be compiled for the target."""


class CompileError(PatternError):
    """The compiler is missing or refuses the generated code."""


class RewriteError(PatternError):
    """A rewrite does not apply; the message says which condition fails, and where."""
