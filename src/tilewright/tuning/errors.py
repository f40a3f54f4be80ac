"""Errors of the tuner that are shown to users."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tilewright.errors import TilewrightError


class SpaceError(TilewrightError):
    """A search space that cannot be used: the message names the parameter or constraint."""


class ConstraintError(SpaceError):
    """A constraint that cannot be parsed, or that no configuration satisfies."""


class ConfigurationError(TilewrightError):
    """A configuration that is not one of the space: the message names the parameter."""


class SettingsError(TilewrightError, ValueError):
    """A seed, budget, setting or prior that cannot be used: the message names it."""


def whole(name: str, value: object, least: int) -> int:
    """Return ``value`` if it is a whole number of at least ``least``.

    Raises:
        SettingsError: it is not.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise SettingsError(f"{name} is {value!r}; give a whole number from {least}")
    return int(value.__index__())


def nearest(name: object, known: Iterable[object]) -> str:
    """Return a suggestion for an unknown name, or nothing: `` (did you mean 'tile'?)``."""
    found = get_close_matches(str(name), map(str, known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""
