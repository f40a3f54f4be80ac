"""Parsers of the values that options take, by the placeholder that stands for them in the help."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMG])?i?B?", re.IGNORECASE)
_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LONGEST = (2**31 - 1) / 1000  # seconds; poll takes milliseconds as a signed number of 32 bits
_LARGEST = 2**63 - 1  # bytes; setrlimit takes a signed number of 64 bits
# The random forests of scikit-learn take seeds of 32 bits.
_LARGEST_SEED = 2**32 - 1
_SPAN = re.compile(r"(?:(-?\d+):)?(\d+)")


def duration(text: str) -> float:
    """Parse a duration such as ``90``, ``90s``, ``1.5m``, ``2h`` or ``300ms`` into seconds.

    >>> duration("1.5m")
    90.0
    """
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _SECONDS[match.group(2) or "s"] if match else 0.0
    if not 0 < seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m or 2h")
    return seconds


def memory(text: str) -> int:
    """Parse a size such as ``8G``, ``512M`` or ``2GiB`` into bytes.

    >>> memory("2K")
    2048
    """
    match = _SIZE.fullmatch(text.strip())
    size = float(match.group(1)) * _SIZES[(match.group(2) or "").upper()] if match else 0.0
    if not 0 < size <= _LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 8G")
    return int(size)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def seed(text: str) -> int:
    """Parse the seed of random numbers, a whole number from 0 of at most 32 bits."""
    if not text.isdecimal() or int(text) > _LARGEST_SEED:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a seed, a whole number from 0 to {_LARGEST_SEED}"
        )
    return int(text)


def estimate(text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Parse an estimate such as ``out=1536x2560x3`` or ``out=-1:10,0:20``.

    Returns the name and the (min, extent) of each dimension.

    >>> estimate("out=1536x3"), estimate("in=-1:10,5")
    (('out', ((0, 1536), (0, 3))), ('in', ((-1, 10), (0, 5))))
    """
    name, equals, spans = text.partition("=")
    found = [_SPAN.fullmatch(part.strip()) for part in re.split("[x,]", spans)]
    if not name or not equals or not all(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an estimate such as out=1536x2560x3 or out=0:1536,0:2560"
        )
    return name.strip(), tuple((int(m.group(1) or 0), int(m.group(2))) for m in found if m)


def assignment(text: str) -> tuple[str, int | float | bool | str]:
    """Parse a name and its value: a whole number, a number, true/false, or text.

    >>> assignment("sigma=1.5"), assignment("on=true")
    (('sigma', 1.5), ('on', True))
    """
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), _value(value.strip())


def _value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(text: str) -> list[str]:
    """Split names at commas.

    >>> names("m, n,k")
    ['m', 'n', 'k']
    """
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names such as m,n,k")
    return found


def numbers(text: str) -> tuple[int, ...]:
    """Parse whole numbers of at least 1, separated by commas.

    >>> numbers("4,8, 16")
    (4, 8, 16)
    """
    return tuple(positive(part.strip()) for part in text.split(","))


def query(text: str) -> dict[str, Any]:
    """Parse values by name; words stay text.

    >>> query("m=512, d=0.25")
    {'m': 512, 'd': 0.25}
    """
    return dict(assignment(part) for part in text.split(","))


def parameter(text: str) -> tuple[str, Any]:
    """Parse a parameter and its values: ``n=1:1000`` is a range, ``n=1,2,4`` a list.

    >>> parameter("n=1:1000"), parameter("n=1,2")
    (('n', (1.0, 1000.0)), ('n', [1.0, 2.0]))
    """
    name, _, values = text.partition("=")
    low, colon, high = values.partition(":")
    try:
        if not name.strip():
            raise ValueError
        found = (float(low), float(high)) if colon else [*map(float, values.split(","))]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a range such as n=1:1000 or n=1,2,4"
        ) from None
    return name.strip(), found


def setting(text: str) -> tuple[str, tuple[float, ...]]:
    """Parse a setting and the values that it may take.

    >>> setting("threads=1,2")
    ('threads', (1.0, 2.0))
    """
    name, _, values = text.partition("=")
    try:
        return name.strip(), tuple(map(float, values.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a setting with its values such as threads=1,2,4"
        ) from None


def share(text: str) -> float:
    """Parse a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, such as 0.9")
    return value


# How a value is parsed, by its placeholder; other values are text.
KINDS: Mapping[str, Callable[[str], Any]] = {
    "N": positive,
    "SEED": seed,
    "SHARE": share,
    "SIZE": memory,
    "TIME": duration,
    "A,B": names,
    "4,8,16": numbers,
    "NAME=VALUE": assignment,
    "NAME=SIZES": estimate,
    "M=512,N=64": query,
    "N=1:1000": parameter,
    "THREADS=1,2,4": setting,
}
