"""Command templates such as ``--tile={tile}``, used wherever a command is given.

``{name}`` stands for a value, ``{name:03d}`` for one in Python's format, ``{{name}}`` for the text
``{name}``. Other braces, such as those of JSON, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_PLACE = re.compile(
    rf"\{{\{{(?P<text>{_NAME})\}}\}}"  # {{name}}
    rf"|\{{(?P<name>{_NAME})(:(?P<format>[^{{}}]*))?\}}"  # {name}, {name:03d}
)


def names_in(words: Sequence[str]) -> list[str]:
    """Return the names that stand for values, in the order of their first appearance."""
    found = [match["name"] for word in words for match in _PLACE.finditer(word)]
    return list(dict.fromkeys(name for name in found if name))


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return the words with values in their places.

    A tuple is written with commas; a name without a value stands for an empty text.

    >>> filled(["run", "--tile={tile}", "{order}", '{"a": 1}'], {"tile": 8, "order": ("i", "j")})
    ['run', '--tile=8', 'i,j', '{"a": 1}']

    Raises:
        ValueError: a format does not suit its value.
    """

    def text(match: re.Match[str]) -> str:
        if match["text"]:
            return f"{{{match['text']}}}"
        value = values.get(match["name"], "")
        if match["format"] and value != "":
            return format(value, match["format"])
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)

    return [_PLACE.sub(text, word) for word in words]
