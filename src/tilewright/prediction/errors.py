"""Errors of the prediction room."""

from __future__ import annotations

from tilewright.errors import TilewrightError


class PredictionError(TilewrightError, ValueError):
    """Data, an expression or a model file that cannot be used; says what and what to do."""
