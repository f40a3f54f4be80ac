"""Suggestions for unknown words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for the nearest known word; empty if none is near.

    >>> meant("shedule", ["schedule", "compare"])
    "; did you mean 'schedule'?"
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
