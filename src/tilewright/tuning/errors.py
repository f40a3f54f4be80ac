"""Errors of the tuner that are shown to users."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class SpaceError(TilewrightError):
    """A search space that cannot be used: the message names the parameter or constraint."""


class ConstraintError(SpaceError):
    """A constraint that cannot be parsed, or that no configuration satisfies."""


class ConfigurationError(TilewrightError):
    """A configuration that is not one of the space: the message names the parameter."""
