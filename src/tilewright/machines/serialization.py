"""Machines to and from JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.machines.cpu import CpuMachine
from tilewright.machines.gpu_machine import GpuMachine
from tilewright.shapes import ShapeError, conform, parse_json

SCHEMA = 1

Machine = CpuMachine | GpuMachine


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """Return a machine as plain data: its fields, ``kind`` (``cpu`` or ``gpu``) and ``schema``."""
    kind = "cpu" if isinstance(machine, CpuMachine) else "gpu"
    return {"schema": SCHEMA, "kind": kind, **dataclasses.asdict(machine)}


def machine_to_json(machine: Machine) -> str:
    """Return a machine as one line of JSON."""
    return json.dumps(machine_to_dict(machine))


def machine_from_json(text: str) -> Machine:
    """Return the machine of `machine_to_json`; raises `TilewrightError` on anything else."""
    return machine_from_dict(parse_json(text, "a machine's description", TilewrightError))


def machine_from_dict(data: Any) -> Machine:
    """Return the machine of `machine_to_dict`; raises `TilewrightError` on anything else."""
    if not isinstance(data, dict) or data.get("kind") not in ("cpu", "gpu"):
        raise TilewrightError('a machine\'s description needs a "kind", "cpu" or "gpu"')
    if data.get("schema") != SCHEMA:
        raise TilewrightError(
            f"the machine's description has schema {data.get('schema')!r}, this version of "
            f"Tilewright reads schema {SCHEMA}: describe the machine again"
        )
    fields = {key: value for key, value in data.items() if key not in ("schema", "kind")}
    cls: type[Machine] = CpuMachine if data["kind"] == "cpu" else GpuMachine
    try:
        machine = conform(fields, cls)
        _check_sizes(machine)
    except ShapeError as error:
        raise TilewrightError(
            f"a machine's description is damaged: {error}; describe the machine again "
            "(tilewright machine --json)"
        ) from None
    return machine


# Fields that may be 0; every other number counts or measures something that is there.
_MAY_BE_ZERO = frozenset(
    "family model reserved_shared_per_block shared_per_block_optin l2_bytes compute_capability "
    "vector_bits".split()
)
_LARGEST = 2**60  # larger than any count or size of a machine


def _check_sizes(machine: Any, place: str = "") -> None:
    """Raise `ShapeError` for a size or count that no machine has."""
    for field in dataclasses.fields(machine):
        value, name = getattr(machine, field.name), f"{place}{field.name}"
        if field.name == "caches":
            for i, cache in enumerate(value):
                _check_sizes(cache, f"caches[{i}].")
        numbers = value if isinstance(value, tuple) else (value,)
        least = 0 if field.name in _MAY_BE_ZERO else 1
        for number in numbers:
            counted = isinstance(number, int | float) and not isinstance(number, bool)
            if counted and not least <= number <= _LARGEST:
                raise ShapeError(f"{name} is {number}; it has to be from {least} to {_LARGEST}")
