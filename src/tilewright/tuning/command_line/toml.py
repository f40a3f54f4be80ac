"""Problem files: a search space and a command in TOML, for ``tilewright tune``."""

from __future__ import annotations

import json
import math
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.measure import (
    Measurement,
    RunLimits,
    Timing,
    command,
    filled,
    last_words,
    measure_one,
    names_in,
    printed,
)
from tilewright.tuning.bayes.prior import OptimumPrior
from tilewright.tuning.command_line.checks import (
    OBJECTIVE,
    SCRATCH,
    SEARCH,
    TOP,
    check_formats,
    check_objective,
    check_program,
    check_search,
    known,
    line_of,
    lists_of,
    requirements,
)
from tilewright.tuning.command_line.regex import SlowRegexError, last_match
from tilewright.tuning.errors import ConfigurationError, SettingsError, SpaceError
from tilewright.tuning.space.expressions import Constraint
from tilewright.tuning.space.json import space_from_dict
from tilewright.tuning.space.parameters import Integer, Real
from tilewright.tuning.space.space import Configuration, Space

_CUTOFF = 5.0
_CONFIRM = 2

PROBLEM_TEMPLATE = """\
# A problem for `tilewright tune`. Run it with:  tilewright tune problem.toml
name = "my-kernel"

# Known constraints, in Python's notation; leave this out if there are none.
constraints = ["tile % unroll == 0 or unroll < 4"]

# What to run. {name} is replaced by the value of a parameter, {name:03d} in that format, {{name}}
# by the text {name}; other braces stay. There is no shell.
[objective]
command = ["./kernel", "--tile={tile}", "--unroll={unroll}", "--order={order}"]
# {scratch} is a new folder per evaluation, removed after it: with jobs > 1, build there.
# build = ["cc", "-O3", "-DTILE={tile}", "kernel.c", "-o", "kernel"]   # run before the command;
#                           # a list of such lists: several steps
# env = {OMP_NUM_THREADS = "{unroll}"}   # environment variables of build and command
value = "time"              # the command's wall time, or:
# value = "json"            # a number in the last line of JSON that it prints
# json = "result.seconds"   # ... under this key (a list of keys: several objectives)
# require = ["error < 1e-3"]   # ... about other keys of that line; else the answer is wrong
# value = "regex"           # a number in its output
# regex = "took ([0-9.]+) ms"
# maximise = true           # larger is better (records and exports have the values negated)
timeout = 10                # seconds per run; a longer run is a failure, and learned from
memory_mb = 4096            # memory it may take
repeat = 1                  # runs; the median counts (only with value = "time")

[search]
budget = 60                 # evaluations
seed = 0
jobs = 1                    # evaluations at once
# time_limit = 600          # seconds in all
# converge = 0.005          # stop when the rest is expected to gain less
# confirm = 2               # with value = "time": measure the leaders again, this many times
# cutoff = 5                # with value = "time": give up runs this many times slower than the best

# Where you expect the optimum (optional): how much likelier these values are than the others.
# [prior]
# tile = {16 = 3, 32 = 5}

# Configurations to try first (optional, any number).
[[start]]
tile = 16
unroll = 4
order = ["i", "j", "k"]

# Parameters: real, integer, ordinal, categorical, permutation.
[[parameters]]
name = "tile"
type = "ordinal"
values = [4, 8, 16, 32, 64]
scale = "log"               # for values that are exponential by nature
default = 16

[[parameters]]
name = "unroll"
type = "integer"
low = 1
high = 8

[[parameters]]
name = "order"
type = "permutation"
items = ["i", "j", "k"]     # the command gets them as i,j,k

# A parameter may be conditional:  when = "tile > 8"
"""


@dataclass(frozen=True)
class CommandProblem:
    """A problem file's content; called with a configuration, it evaluates it."""

    name: str
    space: Space
    objective: Mapping[str, Any]
    search: Mapping[str, Any] = field(default_factory=dict)
    start: Sequence[Configuration] = ()
    folder: Path = Path()
    prior: OptimumPrior | None = None

    @property
    def objectives(self) -> int:
        """The number of objectives of an evaluation."""
        keys = self.objective.get("json")
        return len(keys) if isinstance(keys, list) else 1

    @property
    def queue(self) -> list[Configuration]:
        """The configurations to try first: [[start]], then all defaults together if feasible."""
        default = self.space.default()
        if default is None or not self.space.is_feasible(default):
            return list(self.start)
        return [*self.start, default]

    @property
    def timed(self) -> bool:
        """Whether the objective is the command's wall time."""
        return bool(self.objective.get("value", "time") == "time")

    @property
    def maximised(self) -> bool:
        """Whether larger values of the objective are better. Their negatives are the costs."""
        return bool(self.objective.get("maximise", False))

    def shown(self, cost: float) -> float:
        """Return a cost as the value of the objective that the user knows."""
        return -cost if self.maximised else cost

    @property
    def cutoff(self) -> float | None:
        """The factor over the best time at which a run is cut short."""
        return float(self.search.get("cutoff", _CUTOFF)) if self.timed else None

    @property
    def confirm(self) -> int:
        """The number of times that the leaders are measured again."""
        return int(self.search.get("confirm", _CONFIRM if self.timed else 0))

    def __call__(self, configuration: Configuration, limit: float = math.inf) -> dict[str, Any]:
        """Build and run the command; return the outcome as keyword arguments of `Tuner.tell`.

        A timed command that takes more than ``limit`` seconds is cut short.
        """
        lists = [w for key in ("command", "build", "env") for w in lists_of(self.objective, key)]
        if not any(SCRATCH in names_in(words) for words in lists) or SCRATCH in self.space.index:
            return self._run(configuration, limit)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            return self._run({**configuration, SCRATCH: scratch}, limit)

    def _run(self, values: Mapping[str, Any], limit: float) -> dict[str, Any]:
        timed = self.timed
        limits = RunLimits(
            build_seconds=float(self.objective.get("build_timeout", 300)),
            run_seconds=float(self.objective.get("timeout", 60)),
            memory_bytes=int(self.objective.get("memory_mb", 8192)) << 20,
            output_bytes=64 << 10,
        )
        folder = self.folder / self.objective.get("directory", ".")
        texts = filled(lists_of(self.objective, "env")[0], values)
        env = dict(zip(self.objective.get("env", {}), texts, strict=True))
        for words in lists_of(self.objective, "build") if "build" in self.objective else []:
            room = RunLimits(limits.build_seconds, limits.build_seconds, limits.memory_bytes)
            step = command(filled(words, values), cwd=folder, env=env, exclusive=False)
            built = measure_one(step, room)
            if not built.ok:
                status = "build_failed" if built.status == "run_failed" else built.status
                return {"status": status, "message": _why(built)}
        (words,) = lists_of(self.objective, "command")
        repeat = int(self.objective.get("repeat", 1))
        candidate = command(
            filled(words, values),
            cwd=folder,
            env=env,
            exclusive=timed,
            repeated=timed and repeat > 1,
        )
        cut = timed and limit < limits.run_seconds
        if cut:
            limits = replace(limits, run_seconds=limit)
        timing = Timing(
            warmup=0, min_samples=repeat, max_samples=repeat, seconds=math.inf, sample_seconds=0.0
        )
        found = measure_one(candidate, limits, timing)
        if cut and found.status == "timeout":
            return {"value": limit, "lower_bound": True}
        if not found.ok:
            return {"status": found.status, "message": _why(found)}
        if timed:
            return {"value": found.median, "details": {"times": list(found.times)}}
        return self._read(str(found.details.get("stdout", "")))

    def _read(self, output: str) -> dict[str, Any]:
        """Return the objective in the command's output."""
        sign = -1.0 if self.maximised else 1.0
        if self.objective["value"] == "regex":
            try:
                found = last_match(self.objective["regex"], output)
                if found is None:
                    return _unusable(f"its output does not match the regex; {printed(output)}")
                return {"value": sign * float(found)}
            except SlowRegexError as error:
                return _unusable(str(error))
            except ValueError:
                return _unusable(f"{found!r} is not a number; {printed(output)}")
        keys = self.objective.get("json", "time")
        for line in reversed(output.strip().splitlines()):
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(data, dict):  # a lone number is JSON, too
                break
        else:
            return _unusable(f"there is no line of JSON in its output; {printed(output)}")
        for constraint in requirements(self.objective):
            broken = _broken(constraint, data)
            if broken is not None:
                return broken
        try:
            values = [sign * _under(data, k) for k in (keys if isinstance(keys, list) else [keys])]
        except (KeyError, TypeError, ValueError) as error:
            return _unusable(f"its JSON has no number under {error}; {printed(output)}")
        return {"value": values if len(values) > 1 else values[0]}


def load_problem(path: str | Path, *, runnable: bool = False) -> CommandProblem:
    """Read a problem file.

    Args:
        path: the file.
        runnable: whether the program that it names must exist.

    Raises:
        SpaceError: the file cannot be read, or an entry is missing or wrong, with its line
            where TOML gives one.
        ConfigurationError: a configuration to start from is not one of the space's.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        data = tomllib.loads(text)
    except OSError as error:
        raise SpaceError(
            f"cannot read {path}: {error.strerror or error}; tilewright tune --init writes a "
            "problem file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpaceError(f"{path} is not TOML: {error}") from None
    try:
        problem = _problem(data, path)
        if runnable:
            check_program(problem.objective, problem.folder)
        return problem
    except (SpaceError, ConfigurationError) as error:
        line = line_of(text, str(error))
        where = f"{path}, line {line}" if line else str(path)
        raise type(error)(f"{where}: {error}") from None


def _problem(data: Mapping[str, Any], path: Path) -> CommandProblem:
    known("", data, TOP)
    objective, search = data.get("objective"), data.get("search", {})
    if objective is not None:
        known("objective.", objective, OBJECTIVE)
    known("search.", search, SEARCH)
    check_search(search)
    space = space_from_dict(data)
    folder = path.resolve().parent
    check_objective(objective, space.index, folder)
    assert isinstance(objective, dict)
    check_formats(objective, space)
    name = data.get("name", path.stem)
    if not isinstance(name, str) or not name:
        raise SpaceError(f"'name' is {name!r}; give a name in quotes")
    return CommandProblem(
        name,
        space,
        objective,
        search,
        _start(data.get("start", []), space),
        folder,
        _prior(data.get("prior", {}), space),
    )


def _start(entries: Any, space: Space) -> list[Configuration]:
    """Return the configurations to try first."""
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise SpaceError("start must be a list of tables: write [[start]], in double brackets")
    found = []
    for entry in entries:
        configuration = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        try:
            code = space.encode(configuration)
        except ConfigurationError as error:
            raise ConfigurationError(f"start: {error}") from None
        if not space.contains(code[None])[0]:
            raise ConfigurationError(
                f"start: {entry} breaks the constraint {space.broken(configuration)!r}; change it"
            )
        found.append(configuration)
    return found


def _unusable(why: str) -> dict[str, Any]:
    """Return the outcome of a command that ran without giving an objective."""
    return {"status": "run_failed", "message": why}


def _broken(constraint: Constraint, data: Any) -> dict[str, Any] | None:
    """Return the failure of a configuration whose output breaks a constraint, None otherwise."""
    try:
        numbers = {name: np.array([_number(data, name)]) for name in constraint.names}
    except (KeyError, TypeError, ValueError) as error:
        return _unusable(f"its JSON has no number under {error}, which objective.require names")
    if bool(constraint(numbers, 1)[0]):
        return None
    said = ", ".join(f"{name} is {number[0]:g}" for name, number in numbers.items())
    message = f"its output breaks the requirement {constraint.text!r}: {said}"
    return {"status": "wrong_answer", "message": message}


def _number(data: Any, name: str) -> float:
    """Return what a requirement is about: a number, 1 for true and 0 for false."""
    return float(data[name]) if isinstance(data[name], bool) else _under(data, name)


def _prior(entries: Any, space: Space) -> OptimumPrior | None:
    """Return the user's prior of the optimum: weights of values, which TOML writes as texts."""
    if not isinstance(entries, dict) or not all(isinstance(e, dict) for e in entries.values()):
        raise SpaceError("prior must be a table of tables: tile = {16 = 3, 32 = 5}")
    weights: dict[str, Any] = {}
    for name, entry in entries.items():
        for text, weight in entry.items():
            if isinstance(weight, dict):  # a bare key with a point is a table of tables
                raise SpaceError(f'prior: write values of {name} with a point in quotes: "0.5" = 3')
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise SpaceError(
                    f"prior: the weights of {name} must be numbers; that of {text} is not"
                )
        parameter = space[name] if name in space.index else None
        if isinstance(parameter, Real):
            if set(entry) != {"centre", "spread"}:
                raise SpaceError(f"prior: give {name} = {{centre = 0.5, spread = 0.1}}")
            weights[name] = (entry["centre"], entry["spread"])
            continue
        values = {_as_key(v): v for v in getattr(parameter, "values", ())}
        if isinstance(parameter, Integer):
            values = {text: int(text) for text in entry if re.fullmatch(r"-?\d+", text)}
        weights[name] = {values.get(text, text): weight for text, weight in entry.items()}
    prior = OptimumPrior(weights)
    try:
        prior.check(space)
    except (SettingsError, TypeError) as error:
        raise SpaceError(f"prior: {error}") from None
    return prior if weights else None


def _as_key(value: Any) -> str:
    """Return a value as a key of TOML: without quotes, true and false in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _under(data: Any, key: str) -> float:
    for part in str(key).split("."):
        data = data[part]
    if isinstance(data, bool):
        raise TypeError(key)
    return float(data)


def _why(measurement: Measurement) -> str:
    """Return the reason of a failure, with the command's last words."""
    details = measurement.details
    # A command that is timed several times prints both streams to one.
    stdout = str(details.get("stdout") or measurement.output)
    stderr = str(details.get("stderr") or "")
    if not stdout.strip() and not stderr.strip():
        return measurement.message
    return f"{measurement.message}: {last_words(stdout, stderr)}"
