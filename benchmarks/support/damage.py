"""Damaged files: what a disk, an editor or an attacker makes of a good one, by seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable
from typing import Any

# What a value is replaced by: other types, extremes, and texts that a reader might evaluate.
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, -0.0, 1e308, -1e308, 1e-320, 10**9, 2**31, 2**63, 10**30,
    float("nan"), float("inf"), "", "x", "0", "-1", "nan", "\x00", "é" * 50, "a" * 5000, "../x",
    "9**9**9**9", "'x'*10**9", "x > 3", "tile > 3", "(" * 300, "1/0", "[0]*10**9", "m**m**m",
    "2**(2**40)", "log2(0)", "__import__('os')", "lambda: 0", "tile[10**9]", "{tile}",
    [], [[]], [None], [1, "a", None], [0] * 2000, list(range(50)), {}, {"a": 1}, {"name": {}},
    {"low": 5, "high": 1}, [{"name": "x"}], [[1, 2], [3]],
)  # fmt: skip
_BYTES = (b"\x00", b"\xff", b"\xf0\x9f", b'"', b"{", b"}", b"[", b"]", b",", b":", b"-", b"e9999")
_DEEP = 3000  # levels of nesting: more than Python's stack has


def damaged_json(text: str, choose: random.Random) -> bytes:
    """JSON with one to three faults, mostly in its values and keys, some in its bytes."""
    if choose.random() < 0.2:
        return damaged_bytes(text.encode(), choose)
    data = copy.deepcopy(json.loads(text))
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        data = _changed(data, choose)
    return json.dumps(data).encode()


def damaged_bytes(data: bytes, choose: random.Random) -> bytes:
    """A file cut off, with bytes changed, put in, left out or repeated, or nested too deep."""
    kind = choose.randrange(6)
    if kind == 0:
        return data[: choose.randrange(len(data) + 1)]
    if kind == 1:
        place = choose.randrange(len(data) + 1)
        return data[:place] + b"[" * _DEEP + data[place:]
    changed = bytearray(data)
    for _ in range(choose.randrange(1, 5)):
        place = choose.randrange(len(changed) + 1)
        if kind == 2 and place < len(changed):
            changed[place] ^= 1 << choose.randrange(8)
        elif kind == 3:
            changed[place:place] = choose.choice(_BYTES)
        elif kind == 4:
            del changed[place : place + choose.randrange(1, 20)]
        else:
            changed[place:place] = changed[place : place + choose.randrange(1, 60)]
    return bytes(changed)


def damaged_text(text: str, choose: random.Random) -> bytes:
    """Lines of words (TOML, CSV): a word replaced, a line repeated or left out, or its bytes."""
    kind = choose.randrange(4)
    lines = text.splitlines()
    place = choose.randrange(len(lines))
    if kind == 0:
        return damaged_bytes(text.encode(), choose)
    if kind == 1:
        lines[place : place + 1] = [lines[place]] * choose.choice((0, 2))
    else:
        mark = " = " if " = " in lines[place] else ","
        words = lines[place].split(mark)
        value = json.dumps(choose.choice(ODD_VALUES)).replace("null", '"none"')
        words[choose.randrange(len(words)) if mark == "," else -1] = value
        lines[place] = mark.join(words)
    return ("\n".join(lines) + "\n").encode()


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside `data`, the first of long lists alone."""
    found = [path] if path else []
    items: Iterable[tuple[Any, Any]] = data.items() if isinstance(data, dict) else ()
    if isinstance(data, list):
        items = list(enumerate(data))[:30]
    for key, value in items:
        found += _places(value, (*path, key))
    return found


def _changed(data: Any, choose: random.Random) -> Any:
    places = _places(data)
    if not places or choose.random() < 0.02:
        return choose.choice(ODD_VALUES)
    *way, last = choose.choice(places)
    home = data
    for key in way:
        home = home[key]
    kind = choose.random()
    if kind < 0.65:
        home[last] = copy.deepcopy(choose.choice(ODD_VALUES))
    elif kind < 0.8:
        del home[last]
    elif kind < 0.9 and isinstance(home, dict):
        home[choose.choice(("name", "type", "x", "", "kind", f"{last}2"))] = home.pop(last)
    else:
        other = data
        for key in choose.choice(places):
            other = other[key]
        home[last] = copy.deepcopy(other)
    return data
