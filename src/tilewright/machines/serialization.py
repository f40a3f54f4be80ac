"""Machines to and from JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.machines.cpu import Cache, CpuMachine
from tilewright.machines.gpu_machine import GpuMachine

SCHEMA = 1

Machine = CpuMachine | GpuMachine


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """A machine as plain data: its fields, ``kind`` (``cpu`` or ``gpu``) and ``schema``."""
    kind = "cpu" if isinstance(machine, CpuMachine) else "gpu"
    return {"schema": SCHEMA, "kind": kind, **dataclasses.asdict(machine)}


def machine_to_json(machine: Machine) -> str:
    """A machine as one line of JSON."""
    return json.dumps(machine_to_dict(machine))


def machine_from_json(text: str) -> Machine:
    """The machine of `machine_to_json`; raises `TilewrightError` on anything else."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TilewrightError(f"a machine's description is not JSON: {error}") from error
    return machine_from_dict(data)


def machine_from_dict(data: Any) -> Machine:
    """The machine of `machine_to_dict`; raises `TilewrightError` on anything else."""
    if not isinstance(data, dict) or data.get("kind") not in ("cpu", "gpu"):
        raise TilewrightError('a machine\'s description needs a "kind", "cpu" or "gpu"')
    if data.get("schema") != SCHEMA:
        raise TilewrightError(
            f"the machine's description has schema {data.get('schema')!r}, this version of "
            f"Tilewright reads schema {SCHEMA}: describe the machine again"
        )
    fields = {key: value for key, value in data.items() if key not in ("schema", "kind")}
    cls: type[Machine] = CpuMachine if data["kind"] == "cpu" else GpuMachine
    names = {field.name for field in dataclasses.fields(cls)}
    if unknown := sorted(set(fields) - names):
        raise TilewrightError(f"a machine's description has unknown fields: {', '.join(unknown)}")
    try:
        if "caches" in fields:
            fields["caches"] = tuple(Cache(**cache) for cache in fields["caches"])
        for name in ("isa", "assumed", "features", "compute_capability"):
            if isinstance(fields.get(name), list):
                fields[name] = tuple(fields[name])
        return cls(**fields)
    except TypeError as error:
        raise TilewrightError(f"a machine's description is incomplete: {error}") from error
