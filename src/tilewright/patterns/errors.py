"""Errors of pattern programs that are shown to users."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class PatternError(TilewrightError):
    """A pattern program is invalid; the message names the cause and the cure."""


class PatternTypeError(PatternError, TypeError):
    """A pattern gets an input of the wrong type; the message has both types and the line."""


class SizeError(PatternError, ValueError):
    """The sizes of arrays or tiles do not fit the program."""


class LoweringError(PatternError):
    """The target cannot run the levels of loops, or the memories, of a program."""


class CompileError(PatternError):
    """The compiler or device is missing, or the compiler rejects the generated code."""


class RewriteError(PatternError):
    """A rewrite rule does not apply; the message says which condition fails, and where."""
