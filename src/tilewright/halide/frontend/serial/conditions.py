"""The conditions of specialisations, as far as a `Schedule` has them."""

from __future__ import annotations

import re
from typing import Literal, cast

from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import KnownValue

_METADATA = re.compile(r"(.+)\.(min|extent|stride)\.(\d+)")


def known_values(condition: Record, algorithm: Algorithm) -> tuple[KnownValue, ...] | None:
    """The values that parameters have where `condition` holds; None if it says more."""
    found: list[KnownValue] = []
    stack = [condition]
    while stack:
        term = stack.pop()
        if term.table == "And":
            stack += [term.b, term.a]
            continue
        known = _known(term, algorithm) if term.table == "EQ" else None
        if known is None:
            return None
        found.append(known)
    return tuple(found)


def _known(term: Record, algorithm: Algorithm) -> KnownValue | None:
    variable, value = term.a, term.b
    while variable.table == "Cast":
        variable = variable.value
    if variable.table != "Variable" or value.table not in ("IntImm", "UIntImm"):
        return None
    names = {parameter.name: i for i, parameter in enumerate(algorithm.parameters)}
    metadata = _METADATA.fullmatch(variable.name)
    if metadata and metadata[1] in names:
        what = cast(Literal["min", "extent", "stride"], metadata[2])
        return KnownValue(names[metadata[1]], what, int(metadata[3]), int(value.value))
    if variable.name in names:
        return KnownValue(names[variable.name], "value", 0, int(value.value))
    return None
