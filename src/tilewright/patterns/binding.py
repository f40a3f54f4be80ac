"""Inference of a program's sizes from the shapes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arith import NotWhole, Poly, Size, evaluate
from tilewright.patterns.check import type_of
from tilewright.patterns.errors import PatternError, SizeError
from tilewright.patterns.nodes import Input, Pattern, inputs
from tilewright.patterns.places import about, located
from tilewright.patterns.types import ScalarType, dimensions

Array = np.ndarray[Any, Any]


def check_names(inputs: Sequence[Input]) -> None:
    """Check that inputs have distinct names.

    Raises:
        PatternError: two inputs have the same name; the message has the line of the second.
    """
    names = [p.name for p in inputs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        same = [p for p in inputs if p.name == twice]
        types = " and ".join(str(p.type) for p in same)
        said = f"two inputs are called {twice}, of types {types}; rename one"
        raise PatternError(located(said, same[1]))


def check_pattern(program: Pattern) -> None:
    """Check the types of a program and the names of its inputs.

    Raises:
        PatternError: they are wrong; the message has the line of the user's file.
    """
    type_of(program)
    with about(program):
        check_names(inputs(program))


def conforming(inputs: Sequence[Input], arrays: Sequence[Any]) -> dict[str, Array]:
    """Convert arguments to contiguous arrays of the inputs' types.

    Args:
        inputs: the inputs of the program.
        arrays: one array, or a value that NumPy converts to one, per input.

    Returns:
        The arrays by input name.

    Raises:
        SizeError: the number of arrays, or the number of dimensions of one, is wrong.
        PatternError: an array has the wrong type, or two inputs have the same name.
    """
    check_names(inputs)
    names = [p.name for p in inputs]
    if len(arrays) != len(inputs):
        raise SizeError(f"{len(arrays)} arrays for the inputs {', '.join(names) or '(none)'}")
    found = {}
    for p, given in zip(inputs, arrays, strict=True):
        lengths, item = dimensions(p.type)
        if not isinstance(item, ScalarType):
            raise PatternError(f"input {p.name} is an array of {item}; pass arrays and zip them")
        try:
            array = np.asarray(given)
        except ValueError as error:
            raise PatternError(
                f"{p.name} is {p.type}, but its argument is not an array: {error}"
            ) from None
        if array.ndim != len(lengths):
            raise SizeError(f"{p.name} is {p.type}, but the array has shape {array.shape}")
        if array.dtype != item.dtype and not np.can_cast(array.dtype, item.dtype, "same_kind"):
            raise PatternError(f"{p.name} is {p.type}, but the array holds {array.dtype}")
        found[p.name] = np.ascontiguousarray(array, item.dtype).reshape(array.shape)
    return found


def bind(
    inputs: Sequence[Input], arrays: Mapping[str, Array], given: Mapping[str, int]
) -> dict[str, int]:
    """Return the value of every size, inferred from the shapes of the arrays.

    Args:
        inputs: the inputs of the program.
        arrays: the arrays by input name, as `conforming` returns them.
        given: values of sizes that no shape determines, by name.

    Raises:
        SizeError: shapes contradict each other or the program's types.
    """
    known = dict(given)
    found = [
        (length, actual, p)
        for p in inputs
        for length, actual in zip(dimensions(p.type)[0], arrays[p.name].shape, strict=True)
    ]
    waiting = found
    while waiting:
        later = []
        for length, actual, p in waiting:
            if not _solved(length, actual, known):
                later.append((length, actual, p))
        if len(later) == len(waiting):
            break
        waiting = later
    for length, actual, p in found:
        _agree(length, actual, p, known, arrays[p.name].shape)
    return known


def _unknown(length: Poly, known: Mapping[str, int]) -> set[str]:
    return {a.name for a in length.all_atoms() if isinstance(a, Size) and a.name not in known}


def _solved(length: Poly, actual: int, known: dict[str, int]) -> bool:
    """Return whether all sizes in a length are known, after solving for a single linear unknown."""
    names = _unknown(length, known)
    if len(names) != 1:
        return not names
    (name,) = names
    top, bottom = length.fraction
    at_zero, at_one = (evaluate(top - bottom * actual, {**known, name: value}) for value in (0, 1))
    slope = at_one - at_zero
    if slope and at_zero % slope == 0 and -at_zero // slope >= 1:
        known[name] = -at_zero // slope
    return name in known


def _agree(
    length: Poly, actual: int, p: Input, known: Mapping[str, int], shape: tuple[int, ...]
) -> None:
    names = _unknown(length, known)
    if names:
        raise SizeError(
            f"{p.name} is {p.type}, but the array has shape {shape}: no size "
            f"{', '.join(sorted(names))} makes {length} equal to {actual}"
        )
    try:
        expected = evaluate(length, known)
    except NotWhole as error:
        expected = str(error)
    if expected != actual:
        bound = ", ".join(f"{name} = {value}" for name, value in sorted(known.items()))
        raise SizeError(
            f"{p.name} is {p.type}, but the array has shape {shape}: "
            f"{length} should be {expected} ({bound})"
        )
