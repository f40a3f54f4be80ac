"""The file of a calibration: its name, and how it is read and written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tilewright.errors import TilewrightError
from tilewright.files import write_text

SCHEMA = 1
T = TypeVar("T")


def short_name(name: str, facts: Mapping[str, Any], suffix: str = "") -> str:
    """Return a name for a file: the words of a machine's name, `suffix`, a hash of its facts."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    text = json.dumps(facts, sort_keys=True)
    return f"{words}{suffix}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def to_json(calibration: Any) -> str:
    """Return a calibration, a dataclass, as indented JSON."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(calibration)}, indent=1) + "\n"


def parse(text: str, made: Callable[[dict[str, Any]], T], source: str, cure: str) -> T:
    """Return `made` of the data of `to_json`; raise `TilewrightError` on anything else."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"schema {SCHEMA} is wanted")
        return made(data)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".removeprefix("ValueError: ")
        raise TilewrightError(f"{source} cannot be read ({reason}): {cure}") from error


def text_of(path: Path, cure: str) -> str | None:
    """Return the text of a file, None if it does not exist.

    Raises `TilewrightError` if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TilewrightError(f"{path} cannot be read ({error}): {cure}") from error


def write(path: Path, text: str) -> None:
    """Write a calibration completely or not at all; raises `TilewrightError` if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except (OSError, TilewrightError) as error:
        raise TilewrightError(
            f"the calibration cannot be written to {path} ({error}): set XDG_CACHE_HOME to a "
            "folder that can be written to"
        ) from error
