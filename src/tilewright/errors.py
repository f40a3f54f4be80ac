"""Errors that are shown to users."""

from __future__ import annotations


class TilewrightError(Exception):
    """Something the user can put right: the message names the cause and the cure."""
