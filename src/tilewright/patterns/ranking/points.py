"""Measured kernels of programs, from which models learn, and their JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilewright.files import write_text
from tilewright.patterns.errors import PatternError
from tilewright.patterns.features import Features
from tilewright.shapes import damaged, read_json

Array: TypeAlias = np.ndarray[Any, Any]

FORMAT, VERSION = "tilewright-patterns-measured", 1
FEATURES = tuple(f.name for f in fields(Features))


@dataclass(frozen=True, eq=False)
class MeasuredProgram:
    """Kernels of one program at one set of sizes, with their run times.

    Args:
        program: its name; models that rank it learn from programs of other names only.
        sizes: the values of its sizes, by name.
        features: features of shape (points, features), with the columns ``names``.
        seconds: run times of shape (points,).
        names: the names of the features; by default those of GPU kernels.

    Raises:
        PatternError: shapes do not match, a number is not finite, a time is not above 0, or there
            are no points.
    """

    program: str
    sizes: Mapping[str, int]
    features: Array
    seconds: Array
    names: tuple[str, ...] = FEATURES

    def __post_init__(self) -> None:
        table = np.asarray(self.features, dtype=float)
        seconds = np.asarray(self.seconds, dtype=float)
        object.__setattr__(self, "features", table)
        object.__setattr__(self, "seconds", seconds)
        if seconds.ndim != 1 or not len(seconds) or table.shape != (len(seconds), len(self.names)):
            raise PatternError(
                f"{self.program}: features of shape {table.shape} and times of shape "
                f"{seconds.shape}; give {len(self.names)} features for each of at least one time"
            )
        if not np.isfinite(table).all() or not (np.isfinite(seconds) & (seconds > 0)).all():
            raise PatternError(
                f"{self.program}: a feature is not finite, or a time not above 0: leave failed "
                "points out"
            )

    @property
    def performance(self) -> Array:
        """Throughput over the best throughput, above 0 up to 1, of shape (points,)."""
        return np.asarray(self.seconds.min() / self.seconds)


def write_measured(
    path: str | Path, programs: Sequence[MeasuredProgram], about: Mapping[str, Any] | None = None
) -> None:
    """Write measured programs as JSON.

    Args:
        path: the file to write.
        programs: the programs, all with the same features.
        about: the origin of the measurements.

    Raises:
        PatternError: the programs have different features.
        TilewrightError: the file cannot be written.
    """
    names = {p.names for p in programs} or {FEATURES}
    if len(names) > 1:
        raise PatternError("the programs have different features: write one file for each kind")
    written = [
        {
            "program": p.program,
            "sizes": dict(p.sizes),
            "features": p.features.tolist(),
            "seconds": p.seconds.tolist(),
        }
        for p in programs
    ]
    data = {"format": FORMAT, "version": VERSION, "about": about or {}, "features": names.pop()}
    write_text(path, json.dumps(data | {"programs": written}, separators=(",", ":")) + "\n")


def read_measured(path: str | Path, names: tuple[str, ...] = FEATURES) -> list[MeasuredProgram]:
    """Return the programs in a file that `write_measured` wrote.

    Args:
        path: the file to read.
        names: the expected features; `CPU_FEATURES` for C kernels.

    Raises:
        PatternError: the file cannot be read, or its form, version or features differ.
    """
    data = read_json(Path(path), PatternError)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PatternError(f"{path} has no measured programs: it is not written by write_measured")
    if data.get("version") != VERSION or data.get("features") != list(names):
        raise PatternError(
            f"{path} is of version {data.get('version')} with other features: measure again"
        )
    with damaged(f"{path}: a program cannot be read", PatternError):
        return [
            MeasuredProgram(
                str(p["program"]), dict(p["sizes"]), np.array(p["features"]), p["seconds"], names
            )
            for p in data["programs"]
        ]
