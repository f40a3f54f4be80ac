"""Data from outside, checked where it comes in: JSON text, and the types of what it holds.

Whatever a file holds, its reader gets data of the shape that it asked for, or its user an error
that names the place and the cure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from tilewright.errors import TilewrightError

T = TypeVar("T")
# What code raises that meets a value of a type, size or depth that it was not written for.
_STUMBLES = (
    ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_SHOWN = 60  # characters of a wrong value
_NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class ShapeError(ValueError):
    """A value is not of the type that is wanted there; the message names its place."""


def parse_json(text: str | bytes, source: str, error: type[TilewrightError]) -> Any:
    """The data of JSON text.

    Args:
        text: the text.
        source: what it is called in the error.
        error: the class of the error.

    Raises:
        TilewrightError: of the class `error`, where the text is not JSON, or nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise error(f"{source} is not JSON that can be read: it is nested too deep") from None
    except ValueError as reason:
        raise error(f"{source} is not JSON: {reason}") from None


def read_json(path: str | os.PathLike[str], error: type[TilewrightError]) -> Any:
    """The data of a JSON file.

    Raises:
        TilewrightError: of the class `error`, where the file cannot be read or is not JSON.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as reason:
        raise error(f"cannot read {path}: {reason.strerror or reason}") from None
    return parse_json(text, f"cannot read {path}: it", error)


@contextlib.contextmanager
def damaged(what: str, error: type[TilewrightError]) -> Iterator[None]:
    """Turn whatever reading data of another shape raises into an error that says what is wrong.

    Args:
        what: what is wrong, as the beginning of a sentence: "the model's data are damaged".
        error: the class of the error.

    Raises:
        TilewrightError: of the class `error`; errors of Tilewright's own pass as they are.
    """
    try:
        yield
    except TilewrightError:
        raise
    except KeyError as missing:
        raise error(f"{what}: {missing} is missing") from None
    except RecursionError:
        raise error(f"{what}: it is nested too deep") from None
    except _STUMBLES as reason:
        raise error(f"{what}: {str(reason)[:200]}") from None


def conform(data: Any, wanted: type[T], place: str = "") -> T:
    """Plain data of JSON as a dataclass, its fields checked against their annotations.

    Lists become tuples and objects dataclasses where the annotations have such; whole numbers
    pass as ``float``, and nothing else as what it is not (``true`` is not a number). NaN and
    infinities are refused.

    Args:
        data: an object of JSON.
        wanted: the dataclass.
        place: where the data stand in the file, for errors.

    Raises:
        ShapeError: a field is unknown, missing or of another type.
    """
    if not isinstance(data, Mapping):
        raise _wrong(data, "an object", place)
    fields = {field.name: field for field in dataclasses.fields(wanted)}  # type: ignore[arg-type]
    unknown = sorted(str(key) for key in data if key not in fields)
    if unknown:
        raise ShapeError(f"{_at(place, unknown[0])} is unknown; there are {', '.join(fields)}")
    hints = typing.get_type_hints(wanted)
    given: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            given[name] = _value(data[name], hints[name], _at(place, name))
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ShapeError(f"{_at(place, name)} is missing")
    return wanted(**given)


def _value(data: Any, wanted: Any, place: str) -> Any:
    """A value as the annotation has it."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return data
    if origin in (Union, types.UnionType):
        return _one_of(data, parts, place)
    if origin is Literal:
        if data not in parts or isinstance(data, bool):
            raise _wrong(data, " or ".join(map(repr, parts)), place)
        return data
    if origin is tuple:
        return _items(data, parts, place)
    if dataclasses.is_dataclass(wanted):
        return conform(data, wanted, place)  # type: ignore[arg-type]
    return _plain(data, wanted, place)


def _plain(data: Any, wanted: Any, place: str) -> Any:
    """A number, text, or true or false."""
    kinds: tuple[type, ...] = (int, float) if wanted is float else (wanted,)
    if not isinstance(data, kinds) or (isinstance(data, bool) and wanted is not bool):
        raise _wrong(data, _NUMBERS.get(wanted, str(wanted)), place)
    if isinstance(data, float) and not math.isfinite(data):
        raise _wrong(data, "a finite number", place)
    return data


def _one_of(data: Any, parts: tuple[Any, ...], place: str) -> Any:
    if data is None and type(None) in parts:
        return None
    failures = []
    for part in parts:
        if part is not type(None):
            try:
                return _value(data, part, place)
            except ShapeError as error:
                failures.append(error)
    raise failures[0]


def _items(data: Any, parts: tuple[Any, ...], place: str) -> tuple[Any, ...]:
    """A list as ``tuple[X, ...]`` or as a tuple of given length."""
    if not isinstance(data, list | tuple):
        raise _wrong(data, "a list", place)
    if len(parts) == 2 and parts[1] is ...:
        return tuple(_value(item, parts[0], f"{place}[{i}]") for i, item in enumerate(data))
    if len(data) != len(parts):
        raise _wrong(data, f"a list of {len(parts)}", place)
    pairs = enumerate(zip(data, parts, strict=True))
    return tuple(_value(item, part, f"{place}[{i}]") for i, (item, part) in pairs)


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _wrong(data: Any, wanted: str, place: str) -> ShapeError:
    shown = repr(data)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return ShapeError(f"{place or 'it'} is {shown}; it has to be {wanted}")
