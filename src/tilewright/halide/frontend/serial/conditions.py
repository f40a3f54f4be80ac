"""Read the conditions of specialisations, as far as a `Schedule` can express them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, cast

from tilewright.halide.frontend.serial.reader import Record
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.schedule import CallCondition, KnownValue, OutputExtent, OutputValue

_METADATA = re.compile(r"(.+?)(?:\.0)?\.(min|extent|stride)\.(\d+)")
_INTEGERS = ("IntImm", "UIntImm")


def conditions(
    condition: Record, algorithm: Algorithm, places: Mapping[str, int]
) -> tuple[CallCondition, ...] | None:
    """Return a condition's terms on parameters and output extents; None if it has other terms.

    `places` maps the name of a Func to its position.
    """
    found: list[CallCondition] = []
    stack = [condition]
    while stack:
        term = stack.pop()
        if term.table == "And":
            stack += [term.b, term.a]
            continue
        if term.table not in ("EQ", "GE") or term.b.table not in _INTEGERS:
            return None
        if not _add(found, term, algorithm, places):
            return None
    return tuple(found)


def _add(
    found: list[CallCondition], term: Record, algorithm: Algorithm, places: Mapping[str, int]
) -> bool:
    """Add a comparison with a literal to `found`; return false for other comparisons."""
    number, value = term.a, int(term.b.value)
    modulus = 0
    if number.table == "Mod" and number.b.table in _INTEGERS and not value:
        number, modulus = number.a, int(number.b.value)
    while number.table == "Cast":
        number = number.value
    if number.table != "Variable":
        return False
    least = term.table == "GE"
    metadata = _METADATA.fullmatch(number.name)
    outputs = set(algorithm.outputs) & set(places)
    if metadata and metadata[1] in outputs:
        axis = places[metadata[1]], int(metadata[3])
        return _add_extent(found, *axis, metadata[2], value, modulus, least)
    names = {parameter.name: i for i, parameter in enumerate(algorithm.parameters)}
    if modulus and least:
        return False
    value = modulus or value
    if metadata and metadata[1] in names:
        what = cast(Literal["min", "extent", "stride"], metadata[2])
        place = names[metadata[1]]
        found.append(KnownValue(place, what, int(metadata[3]), value, least, bool(modulus)))
        return True
    if number.name in names:
        found.append(KnownValue(names[number.name], "value", 0, value, least, bool(modulus)))
        return True
    return False


def _add_extent(
    found: list[CallCondition],
    func: int,
    dimension: int,
    what: str,
    value: int,
    modulus: int,
    least: bool,
) -> bool:
    """Add the condition on a bound of an output, or a divisor to its last condition."""
    if not least and not modulus:
        field = cast(Literal["min", "extent", "stride"], what)
        found.append(OutputValue(func, dimension=dimension, field=field, value=value))
        return True
    if what == "extent" and least and not modulus:
        found.append(OutputExtent(func, dimension, value))
        return True
    last = found[-1] if found else None
    same = isinstance(last, OutputExtent) and (last.func, last.dimension) == (func, dimension)
    if not modulus or least or not same or not isinstance(last, OutputExtent):
        return False
    if what == "stride":
        return False
    found[-1] = replace(last, start=modulus) if what == "min" else replace(last, multiple=modulus)
    return True
