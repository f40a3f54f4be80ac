"""Constants of the cost models: each with its value, unit and source."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Sheet(NamedTuple):
    """A constant of a model; `source` is a paper's section, a measurement or a choice."""

    name: str
    value: Any
    unit: str
    source: str


def constant(value: Any, unit: str, source: str) -> Any:
    """Return a dataclass field with this default value, unit and source.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Rates:
    ...     l2: float = constant(32.0, "bytes per cycle", "chosen: half a line")
    >>> [(s.name, s.value, s.unit) for s in sheet(Rates())]
    [('l2', 32.0, 'bytes per cycle')]
    """
    return field(default=value, metadata={"unit": unit, "source": source})


@dataclass(frozen=True, slots=True)
class UnknownSizes:
    """The sizes that the CPU and GPU models assume for unbounded extents."""

    unknown_extent: int = constant(1024, "elements", "chosen: a side of a small image")
    unknown_iterations: float = constant(
        16.0, "iterations", "chosen: a short reduction, a window or a vector of taps"
    )


def sheet(constants: Any) -> Iterator[Sheet]:
    """Yield the constants of a dataclass of `constant` fields, in order."""
    for f in dataclasses.fields(constants):
        value = getattr(constants, f.name)
        yield Sheet(f.name, value, f.metadata.get("unit", ""), f.metadata.get("source", ""))
