"""Tilewright finds fast schedules for array programs: verified, measured, explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["schedule"]

if TYPE_CHECKING:
    from tilewright.halide.autoschedule import schedule

# What the package offers, by the module that has it: each is imported when first used.
_PUBLIC = {"schedule": "tilewright.halide.autoschedule"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
