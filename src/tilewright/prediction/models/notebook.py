"""HTML of models for notebooks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tilewright.report.pages import fragment

if TYPE_CHECKING:
    from tilewright.prediction.models.estimator import Estimator


def model_html(model: Estimator) -> str:
    """Return the features, with ranges once fitted, and settings that are not the defaults."""
    name = type(model).__name__
    changed = [
        f"{field.name} = {getattr(model, field.name)!r}"
        for field in dataclasses.fields(model)
        if field.default is not dataclasses.MISSING
        and getattr(model, field.name) != field.default
        and field.name not in ("features", "units", "levels")
    ]
    if not model.__sklearn_is_fitted__():
        return fragment(f"{name}, not fitted", "", [], changed)
    units = model.units or {}
    rows = [
        (feature, units.get(feature, "1"), f"{low:g}", f"{high:g}")
        for feature, low, high in zip(model.names_, *model.ranges_, strict=True)
    ]
    least, most = model.target_range_
    fitted = (
        f"fitted to times from {least:.3g} s to {most:.3g} s; numbers: {model.parameter_count_}"
    )
    return fragment(name, "feature | unit | >least | >most", rows, [fitted, *changed])
