"""The measured rates, latencies and overheads of a processor, and the file that stores them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import write_text
from tilewright.machines.cpu import CpuMachine

SCHEMA = 1
_AGAIN = "measure again (`tilewright machine --calibrate`), or ignore it (--no-calibration)"


@dataclass(frozen=True, slots=True)
class Quantity:
    """One measured quantity.

    `value` is the best of `samples` in `unit`; `spread` is the relative distance of the next best
    samples from it. The quantity has `settled` if they are near.
    """

    value: float
    unit: str
    spread: float
    samples: int
    settled: bool


@dataclass(frozen=True)
class Calibration:
    """The quantities measured of one processor, by name; `date` in ISO format."""

    processor: Mapping[str, Any]
    date: str
    seconds: float
    quantities: Mapping[str, Quantity] = field(default_factory=dict)

    def value(self, *names: str) -> float | None:
        """Return the first of these quantities that has settled, None if none has."""
        found = (self.quantities.get(name) for name in names)
        return next((q.value for q in found if q is not None and q.settled), None)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Names of the quantities that did not settle."""
        return tuple(name for name, q in self.quantities.items() if not q.settled)


def processor_of(machine: CpuMachine) -> dict[str, Any]:
    """Return the facts that identify a processor and the part of it that this process may use."""
    return {
        "name": machine.name,
        "architecture": machine.architecture,
        "vendor": machine.vendor,
        "family": machine.family,
        "model": machine.model,
        "cores": machine.cores,
        "vector_bits": machine.vector_bits,
        "cache_bytes": [cache.bytes for cache in machine.caches],
    }


def processor_key(machine: CpuMachine) -> str:
    """Return a short name for `processor_of`, fit for a file.

    >>> from tilewright.machines import CpuMachine
    >>> processor_key(CpuMachine("Some CPU @ 3 GHz", "x86-64", 2, (), 128, ()))[:-8]
    'some-cpu-3-ghz-2-'
    """
    words = re.sub(r"[^a-z0-9]+", "-", machine.name.lower()).strip("-")[:40]
    text = json.dumps(processor_of(machine), sort_keys=True)
    return f"{words}-{machine.cores}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def calibration_to_json(calibration: Calibration) -> str:
    """Return a calibration as indented JSON."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(calibration)}, indent=1) + "\n"


def calibration_from_json(text: str, source: str = "a calibration") -> Calibration:
    """Return the calibration of `calibration_to_json`; `TilewrightError` on anything else."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(f"schema {SCHEMA} is wanted")
        quantities = {str(k): _quantity(q) for k, q in data["quantities"].items()}
        return Calibration(
            dict(data["processor"]), str(data["date"]), float(data["seconds"]), quantities
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".removeprefix("ValueError: ")
        raise TilewrightError(f"{source} cannot be read ({reason}): {_AGAIN}") from error


def _quantity(data: Mapping[str, Any]) -> Quantity:
    found = Quantity(
        float(data["value"]),
        str(data["unit"]),
        float(data["spread"]),
        int(data["samples"]),
        bool(data["settled"]),
    )
    if found.settled and not (math.isfinite(found.value) and found.value >= 0):
        raise ValueError(f"a value of {found.value}")
    return found


def read_calibration(path: Path, machine: CpuMachine) -> Calibration | None:
    """Return the calibration in a file, None if there is no such file.

    Raises `TilewrightError` if it cannot be read or is of another processor.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TilewrightError(f"{path} cannot be read ({error}): {_AGAIN}") from error
    found = calibration_from_json(text, str(path))
    if dict(found.processor) != processor_of(machine):
        other = found.processor.get("name", "another processor")
        raise TilewrightError(
            f"{path} was measured on {other} with {found.processor.get('cores')} cores, not on "
            f"{machine.name} with {machine.cores}: {_AGAIN}"
        )
    return found


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration completely or not at all; raises `TilewrightError` if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, calibration_to_json(calibration))
    except (OSError, TilewrightError) as error:
        raise TilewrightError(
            f"the calibration cannot be written to {path} ({error}): set XDG_CACHE_HOME to a "
            "folder that can be written to"
        ) from error
