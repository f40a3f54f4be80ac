"""Errors that are shown to users."""

from __future__ import annotations


class TilewrightError(Exception):
    """An error that the user can correct: the message names the cause and the cure."""
