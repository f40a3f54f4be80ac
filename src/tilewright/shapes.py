"""Checks of external data at the border: JSON text and the types of its values.

A reader gets data of the requested shape; otherwise the user gets an error that names the place and
the cure.
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
# Exceptions that a value of unexpected type, size or depth causes.
_STUMBLES = (
    ArithmeticError, AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError,
)  # fmt: skip
_SHOWN = 60  # characters of a wrong value
_NUMBERS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class ShapeError(ValueError):
    """A value has the wrong type; the message names its place."""


def parse_json(text: str | bytes, source: str, error: type[TilewrightError]) -> Any:
    """Parse JSON text.

    Args:
        text: the text.
        source: the name of the text in errors.
        error: the class of the error.

    Raises:
        TilewrightError: of the class `error`; the text is not JSON, or is nested too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise error(f"{source} is not JSON that can be read: it is nested too deep") from None
    except ValueError as reason:
        raise error(f"{source} is not JSON: {reason}") from None


def read_json(path: str | os.PathLike[str], error: type[TilewrightError]) -> Any:
    """Read a JSON file.

    Raises:
        TilewrightError: of the class `error`; the file cannot be read or is not JSON.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as reason:
        raise error(f"cannot read {path}: {reason.strerror or reason}") from None
    return parse_json(text, f"cannot read {path}: it", error)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the path of a file before the message of a `TilewrightError` from the block."""
    try:
        yield
    except TilewrightError as error:
        raise type(error)(f"{path}: {error}") from None


@contextlib.contextmanager
def damaged(what: str, error: type[TilewrightError]) -> Iterator[None]:
    """Turn exceptions that damaged data cause in the block into an error with a message.

    Args:
        what: the beginning of the message, such as "the model's data are damaged".
        error: the class of the error.

    Raises:
        TilewrightError: of the class `error`; other errors of Tilewright pass unchanged.
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
    """Convert plain JSON data to a dataclass, and check its fields against their annotations.

    Lists become tuples and objects become dataclasses if the annotations say so. Whole numbers are
    accepted as ``float``; there is no other conversion (``true`` is not a number). NaN and
    infinities are refused.

    Args:
        data: a JSON object.
        wanted: the dataclass.
        place: the position of the data in the file, for errors.

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
    """Convert a value to the type of its annotation."""
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
    """Check a number, text, or true or false."""
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
    """Convert a list to ``tuple[X, ...]`` or to a tuple of given length."""
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
