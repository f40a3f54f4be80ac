"""Writes trials as T4 results files and Kernel Tuner caches, also gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import write_bytes
from tilewright.measure import machine_id
from tilewright.tuning.errors import SpaceError
from tilewright.tuning.space.parameters import Integer, Permutation, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Trial, plain

_INVALIDITY = {
    "ok": "correct",
    "build_failed": "compile",
    "timeout": "timeout",
    "wrong_answer": "correctness",
}
_CACHE_ERRORS = {"build_failed": "CompilationFailedConfig", "wrong_answer": "RuntimeFailedConfig"}
_MOST_VALUES = 1 << 16


def export_t4(path: str | Path, trials: Sequence[Trial], space: Space, name: str) -> None:
    """Write a Kernel Tuner cache (``.cache.json``), else a T4 results file; ``.gz`` compresses.

    Raises:
        TilewrightError: the file cannot be written, or the space has no such form.
    """
    check_t4_name(path)
    if Path(path).name.removesuffix(".gz").endswith(".cache.json"):
        write_cache(path, trials, space, name=name)
    else:
        write_t4(path, trials)


def check_t4_name(path: str | Path) -> None:
    """Reject a name that indicates neither format.

    Raises:
        TilewrightError: it does not end in .json or .json.gz.
    """
    if not str(path).endswith((".json", ".json.gz")):
        raise TilewrightError(
            f"cannot export to {path}: give a name that ends in .cache.json (Kernel Tuner) or "
            "in .json or .json.gz (T4)"
        )


def write_t4(path: str | Path, trials: Sequence[Trial], objective: str = "time") -> None:
    """Write trials as a T4 results file, gzip'd where the name ends in ``.gz``.

    An evaluation that was cut short is written as a time-out, as its time is unknown.
    """
    results = []
    for trial in trials:
        good = trial.ok and not trial.lower_bound
        invalidity = "correct" if good else _INVALIDITY.get(trial.status, "runtime")
        if trial.ok and trial.lower_bound:
            invalidity = "timeout"
        results.append(
            {
                "configuration": plain(trial.configuration),
                "times": {"runtimes": list(trial.details.get("times", []))},
                "invalidity": invalidity,
                "correctness": 1 if trial.ok else 0,
                "measurements": [
                    {"name": objective, "value": trial.value if good else invalidity, "unit": ""}
                ],
                "objectives": [objective],
            }
        )
    _write(path, {"metadata": {}, "schema_version": "1.0.0", "results": results})


def write_cache(
    path: str | Path,
    trials: Sequence[Trial],
    space: Space,
    *,
    name: str = "tilewright",
    objective: str = "time",
    device: str | None = None,
    problem_size: Any = 1,
) -> None:
    """Write trials as a Kernel Tuner cache, which its simulation mode replays.

    If a configuration was measured several times, the last one counts; one that was cut short is
    written as failed.

    Raises:
        SpaceError: a real or a conditional parameter, which Kernel Tuner does not have.
    """
    cache: dict[str, Any] = {}
    for trial in trials:
        values = plain(trial.configuration)
        values = {p.name: _scalar(values[p.name]) for p in space.parameters if p.name in values}
        entry: dict[str, Any] = dict(values)
        if trial.ok and not trial.lower_bound:
            entry[objective] = trial.value
            entry["times"] = list(trial.details.get("times", [trial.value]))
        else:
            error = _CACHE_ERRORS.get(trial.status, "RuntimeFailedConfig")
            entry |= {objective: error, "__error__": error}
        spent = {f"{part}_time": 0.0 for part in ("compile", "verification", "strategy")}
        entry |= {**spent, "framework_time": 0.0, "timestamp": ""}
        entry["benchmark_time"] = 1000.0 * (trial.seconds or 0.0)  # in ms there
        cache[",".join(map(str, values.values()))] = entry
    _write(
        path,
        {
            "device_name": device or machine_id(),
            "kernel_name": name,
            "problem_size": problem_size,
            "tune_params_keys": [p.name for p in space.parameters],
            "tune_params": {p.name: _values(p) for p in space.parameters},
            "objective": objective,
            "cache": cache,
        },
    )


def _values(p: Any) -> list[Any]:
    if isinstance(p, Real) or p.when is not None:
        kind = "a real" if isinstance(p, Real) else "a conditional"
        raise SpaceError(
            f"parameter {p.name}: a Kernel Tuner cache cannot hold {kind} parameter; "
            "write a T4 file"
        )
    if isinstance(p, Permutation):
        from itertools import permutations

        if len(p) > 8:
            raise SpaceError(f"parameter {p.name}: too many orders to list; write a T4 file")
        return [_scalar(list(order)) for order in permutations(p.item_names)]
    if isinstance(p, Integer):
        if len(p) > _MOST_VALUES:
            raise SpaceError(f"parameter {p.name}: too many values to list; write a T4 file")
        return list(range(p.low, p.high + 1))
    return list(p.values)


def _scalar(value: Any) -> Any:
    """Return a permutation as text, as Kernel Tuner's parameters are numbers or text."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _write(path: str | Path, data: Any) -> None:
    raw = json.dumps(data, indent=1).encode()
    write_bytes(path, gzip.compress(raw) if str(path).endswith(".gz") else raw)
