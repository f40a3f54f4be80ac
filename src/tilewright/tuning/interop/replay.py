"""Recorded search spaces: exhaustive measurements as problems that cost nothing.

Supported are Kernel Tuner's cache files and the Auto-Tuning Association's T4 results (JSON, also
gzip'd) with their T1 problem descriptions. `tilewright.tuning.interop.t4` writes them.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.shapes import damaged
from tilewright.tuning.errors import ConfigurationError, SpaceError
from tilewright.tuning.interop.value_lists import listed
from tilewright.tuning.space.parameters import Categorical, Ordinal, Parameter
from tilewright.tuning.space.space import Configuration, Space
from tilewright.tuning.tune import FailedError

_FAILURES = {
    "compile": "build_failed",
    "runtime": "run_failed",
    "timeout": "timeout",
    "constraints": "run_failed",
    "correctness": "wrong_answer",
}
_CACHE_FAILURES = {
    "CompilationFailedConfig": "build_failed",
    "RuntimeFailedConfig": "run_failed",
    "InvalidConfig": "run_failed",
}

# The objectives of Kernel Tuner 1.5 that it maximises.
_LARGER_IS_BETTER = frozenset(
    "fitness GFLOP/s TFLOP/s GB/s TB/s GFLOPS/W TFLOPS/W GFLOP/J TFLOP/J".split()
)
Outcome = float | tuple[float, ...] | str


@dataclass(frozen=True)
class Replay:
    """A recorded problem: its space, and the objective or the failure of each configuration.

    It can be called as an objective of `tilewright.tuning.tune`. With several `objectives` (their
    names), a value is a tuple.
    """

    name: str
    space: Space
    values: Mapping[bytes, Outcome] = field(repr=False)
    objectives: tuple[str, ...] = ("time",)

    @property
    def optimum(self) -> float:
        """The best objective recorded.

        Raises:
            SpaceError: several objectives were read, and each has an optimum of its own.
        """
        if len(self.objectives) > 1:
            raise SpaceError(f"{self.name} has {len(self.objectives)} objectives: read one of them")
        return min(v for v in self.values.values() if isinstance(v, float))

    def __call__(self, configuration: Mapping[str, Any]) -> float | tuple[float, ...]:
        """Return the recorded objective, or a tuple of several.

        Raises:
            FailedError: it failed when it was recorded, or it was not recorded.
        """
        found = self.values.get(self.space.key(self.space.encode(configuration)))
        if isinstance(found, float | tuple):
            return found
        raise FailedError(found or "run_failed", "" if found else "not among the recorded ones")


def read_t1(path: str | Path) -> Space:
    """Return the space of a T1 problem description.

    Numbers are ordinal; on a log scale where all are positive and the largest is at least
    four times the least. Anything else is categorical.

    Raises:
        SpaceError: the file is not a T1 description, or names what it cannot describe.
    """
    data = _load(Path(path))
    with damaged(f"{path} is not a T1 problem description", SpaceError):
        described = data["ConfigurationSpace"]
        parameters = []
        for entry in described["TuningParameters"]:
            values = entry["Values"]
            parameters.append(
                numbers(entry["Name"], listed(values) if isinstance(values, str) else values)
            )
        conditions = [c["Expression"] for c in described.get("Conditions", [])]
        for condition in conditions:
            if not isinstance(condition, str):
                raise SpaceError(f"{path}: the condition {condition!r} is not an expression")
        return Space(parameters, conditions)


def read_t4(path: str | Path, space: Space | None = None) -> Replay:
    """Return a recorded problem of a T4 results file.

    Args:
        path: the file, JSON or gzip'd JSON.
        space: its space; by default that of the T1 file in the same folder whose name begins alike,
            or else a space of the values that occur, without known constraints.

    Raises:
        SpaceError: the file is not a T4 results file.
    """
    path = Path(path)
    data = _load(path)
    with damaged(f"{path} is not a T4 results file", SpaceError):
        results = data["results"]
        rows = [(r["configuration"], _t4_outcome(r)) for r in results]
        if space is None:
            description = _description(path)
            space = read_t1(description) if description else _observed([c for c, _ in rows])
        return _replay(_stem(path), space, rows, path)


def read_cache(
    path: str | Path, constraints: Sequence[str] = (), objective: str | Sequence[str] | None = None
) -> Replay:
    """Return a recorded problem from a Kernel Tuner cache file, also of an unfinished run.

    Args:
        path: the file, JSON or gzip'd JSON.
        constraints: known constraints of the space, which a cache does not contain.
        objective: the objective to minimise, or several; by default the one that the file was tuned
            for. Objectives that Kernel Tuner maximises (GFLOP/s) are negated.

    Raises:
        SpaceError: it is not a cache file, has no such objective, or a constraint is wrong.
    """
    path = Path(path)
    data = _load(path, ends="}\n}")
    with damaged(f"{path} is not a Kernel Tuner cache file", SpaceError):
        names = data["tune_params_keys"]
        parameters = [numbers(name, data["tune_params"][name]) for name in names]
        wanted = objective or data.get("objective") or "time"
        objectives = (wanted,) if isinstance(wanted, str) else tuple(map(str, wanted))
        entries = data["cache"].values()
        rows = [({n: e[n] for n in names}, _cached_outcome(e, objectives)) for e in entries]
        missing = [o for o in objectives if not any(o in entry for entry in entries)]
        if missing and entries:
            raise SpaceError(f"{path} has no objective {missing[0]!r}; name one that it records")
        return _replay(_stem(path), Space(parameters, constraints), rows, path, objectives)


def _cached_outcome(entry: Mapping[str, Any], objectives: Sequence[str]) -> Outcome:
    values = [entry.get(name) for name in objectives]
    good = [v for v in values if isinstance(v, int | float) and math.isfinite(v) and abs(v) < 1e15]
    if len(good) < len(values):
        error = entry.get("__error__", values[0])
        return _CACHE_FAILURES.get(str(error), "run_failed")
    costs = tuple(
        -float(value) if name in _LARGER_IS_BETTER else float(value)
        for name, value in zip(objectives, good, strict=True)
    )
    return costs if len(costs) > 1 else costs[0]


def numbers(name: str, values: Sequence[Any]) -> Parameter:
    """Return an ordinal parameter of numbers (see `read_t1`), or a categorical one."""
    plain = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(plain) < len(values):
        return Categorical(name, tuple(values))
    log = min(plain) > 0 and max(plain) >= 4 * min(plain)
    return Ordinal(name, tuple(plain), scale="log" if log else "linear")


def _t4_outcome(result: Mapping[str, Any]) -> float | str:
    value = result["measurements"][0]["value"] if result.get("measurements") else None
    if result["invalidity"] == "correct" and isinstance(value, int | float):
        return float(value)
    return _FAILURES.get(result["invalidity"], "run_failed")


def _replay(
    name: str,
    space: Space,
    rows: Sequence[tuple[Configuration, Outcome]],
    path: Path,
    objectives: tuple[str, ...] = ("time",),
) -> Replay:
    values: dict[bytes, Outcome] = {}
    for configuration, outcome in rows:
        try:
            values[space.key(space.encode(configuration))] = outcome
        except ConfigurationError as error:
            raise SpaceError(f"{path}: {error}; is it the right problem description?") from None
    if all(isinstance(v, str) for v in values.values()):
        raise SpaceError(f"{path} has no successful measurement")
    return Replay(name, space, values, objectives)


def _observed(configurations: Sequence[Mapping[str, Any]]) -> Space:
    columns: dict[str, dict[Any, None]] = {}
    for configuration in configurations:
        for name, value in configuration.items():
            columns.setdefault(name, {})[value] = None
    ordered: Callable[[Any], Any] = lambda v: (isinstance(v, str), v)  # noqa: E731
    return Space([numbers(name, sorted(column, key=ordered)) for name, column in columns.items()])


def _description(path: Path) -> Path | None:
    found = [
        p for p in path.parent.glob("*.T1.json") if path.name.startswith(p.name[: -len(".T1.json")])
    ]
    return max(found, key=lambda p: len(p.name), default=None)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix("_T4")


def _load(path: Path, ends: str = "") -> Any:
    """Return the JSON object of a file, plain or gzip'd; ``ends`` may be missing at its end."""
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        try:
            data = json.loads(text)
        except ValueError:
            if not ends:
                raise
            data = _closed(text.decode(), ends)
    except OSError as error:
        raise SpaceError(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise SpaceError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise SpaceError(f"{path} is not a JSON object")
    return data


def _closed(text: str, ends: str) -> Any:
    """Parse JSON text, closing it first if it was cut off, without its last line if need be.

    Raises the original parse error otherwise.
    """
    for kept in (text, text.rpartition("\n")[0]):
        try:
            return json.loads(kept.rstrip().rstrip(",") + ends)
        except ValueError:
            continue
    return json.loads(text)
