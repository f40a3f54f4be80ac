"""The measured rates, latencies and overheads of a processor, and the file that stores them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.machines import calibration_file
from tilewright.machines.cpu import CpuMachine

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
    return calibration_file.short_name(machine.name, processor_of(machine), f"-{machine.cores}")


def calibration_to_json(calibration: Calibration) -> str:
    """Return a calibration as indented JSON."""
    return calibration_file.to_json(calibration)


def calibration_from_json(text: str, source: str = "a calibration") -> Calibration:
    """Return the calibration of `calibration_to_json`; `TilewrightError` on anything else."""
    return calibration_file.parse(text, _calibration, source, _AGAIN)


def _calibration(data: dict[str, Any]) -> Calibration:
    quantities = {str(k): _quantity(q) for k, q in data["quantities"].items()}
    return Calibration(
        dict(data["processor"]), str(data["date"]), float(data["seconds"]), quantities
    )


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
    """Return the calibration in a file, None if the file does not exist.

    Raises `TilewrightError` if it cannot be read or is of another processor.
    """
    text = calibration_file.text_of(path, _AGAIN)
    if text is None:
        return None
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
    calibration_file.write(path, calibration_to_json(calibration))
