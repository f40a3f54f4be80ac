"""BaCO's and HyperMapper's client-server protocol: requests and replies in CSV.

The client starts the tuner with a scenario file and talks to it over the tuner's standard
input and output. The tuner asks::

    Request 2
    tile,order
    16,"(0, 2, 1)"      (without the quotes: permutations are Python's tuples)
    64,(1, 0, 2)

and the client replies with a header and one row per configuration, columns in any order::

    tile,order,runtime,Valid
    16,(0, 2, 1),0.51,True
    64,(1, 0, 2),0,False

After the last reply the tuner writes ``End of HyperMapper``.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TextIO

from tilewright.errors import TilewrightError
from tilewright.files import check_writable, write_text
from tilewright.tuning.bayes.pareto import front
from tilewright.tuning.errors import ConfigurationError
from tilewright.tuning.interop.hypermapper_scenario import Scenario
from tilewright.tuning.space.parameters import (
    Categorical,
    Integer,
    Ordinal,
    Parameter,
    Permutation,
    Real,
)
from tilewright.tuning.space.space import Configuration
from tilewright.tuning.trial import Suggestion, Trial
from tilewright.tuning.tune import FailedError, Journal, Outcome, TuningResult, tune
from tilewright.tuning.tuner import Tuner

END = "End of HyperMapper\n"
# commas inside the parentheses of a permutation do not separate columns
_COMMA = re.compile(r",(?![^(]*\))")


class ReplyError(TilewrightError):
    """A reply of the client that cannot be read: the message names the line and the cure."""


def serve_hypermapper(
    scenario: Scenario,
    replies: TextIO,
    requests: TextIO,
    *,
    seed: int = 0,
    journal: Journal | None = None,
) -> TuningResult:
    """Run a scenario with a client that reads ``requests`` and writes ``replies``.

    Raises:
        ReplyError: a reply that cannot be read, or the client ended before the last one.
    """
    tuner = _tuner(scenario, seed)
    _check_pareto(scenario)
    journal = journal or Journal()
    tuner.restore(journal.load())
    deadline = None if scenario.seconds is None else time.monotonic() + scenario.seconds
    stopped = "budget"
    with ExitStack() as stack:
        talk = _Conversation(scenario, replies, requests)
        if scenario.log_file is not None:
            talk.log = _begun(scenario.log_file, "log_file")
            stack.callback(_close, talk.log)
        samples = stack.enter_context(SampleFile(scenario, tuner.trials))
        while len(tuner.trials) < scenario.budget:
            if deadline is not None and time.monotonic() >= deadline:
                stopped = "time"
                break
            done = len(tuner.trials)
            wanted = scenario.samples - done if done < scenario.samples else scenario.batch
            asked = _ask(tuner, min(wanted, scenario.budget - done))
            if not asked:
                stopped = "exhausted"
                break
            for suggestion, outcome in zip(asked, talk.exchange(asked), strict=True):
                trial = tuner.tell(suggestion, outcome.pop("value", None), **outcome)
                journal.add(trial)
                samples.add(trial)
        talk.send(END)
    write_pareto(scenario, tuner)
    return TuningResult(tuner.best, tuple(tuner.trials), stopped, tuner)


def optimize(
    scenario: Scenario,
    function: Callable[[dict[str, Any]], Any],
    *,
    seed: int = 0,
    journal: Journal | None = None,
) -> TuningResult:
    """Run a scenario with a Python function in place of the client (mode ``default``).

    ``function`` is called with a dictionary from the file's parameter names to values and returns
    the objectives: a number, a list or tuple of numbers, or a dictionary by their names. If the
    scenario has a feasibility column, it comes last, or under its name.
    """
    tuner = _tuner(scenario, seed)  # reads the file to resume from, if there is one
    _check_pareto(scenario)
    with SampleFile(scenario, tuner.trials) as samples:
        found = tune(
            _Function(scenario, function),
            scenario.space,
            scenario.budget,
            seed=seed,
            settings=scenario.settings,
            queue=scenario.queue,
            objectives=len(scenario.objectives),
            prior=scenario.prior,
            journal=_Resumed(tuner.trials, journal or Journal()),
            time_limit=scenario.seconds,
            on_trial=lambda trial, _: samples.add(trial),
        )
    write_pareto(scenario, found.tuner)
    return found


class _Resumed(Journal):
    """A journal that first returns the trials of a CSV file."""

    def __init__(self, trials: Sequence[Trial], inner: Journal) -> None:
        self.trials, self.inner = list(trials), inner

    def load(self) -> list[Trial]:
        return self.inner.load() or self.trials

    def add(self, trial: Trial) -> None:
        self.inner.add(trial)


class _Function:
    """The user's function as an objective of `tune`."""

    def __init__(self, scenario: Scenario, function: Callable[[dict[str, Any]], Any]) -> None:
        self.scenario, self.function = scenario, function

    def __call__(self, configuration: Configuration) -> Outcome:
        shown = self.scenario.published
        found = self.function({shown[k]: v for k, v in configuration.items()})
        names = list(self.scenario.objectives)
        if self.scenario.feasible is not None:
            names.append(self.scenario.feasible.name)
        if isinstance(found, Mapping):
            values = [found[name] for name in names]
        else:
            values = list(found) if isinstance(found, list | tuple) else [found]
        if len(values) != len(names):
            raise FailedError(
                "run_failed", f"the function returned {len(values)} values for {', '.join(names)}"
            )
        if self.scenario.feasible is not None and not _valid(self.scenario, values.pop()):
            raise FailedError("run_failed", "not valid")
        return [float(v) for v in values]


def _valid(scenario: Scenario, value: Any) -> bool:
    assert scenario.feasible is not None
    return value is True or str(value) == scenario.feasible.true_value


def _tuner(scenario: Scenario, seed: int) -> Tuner:
    tuner = Tuner(
        scenario.space,
        seed=seed,
        settings=scenario.settings,
        queue=scenario.queue,
        objectives=len(scenario.objectives),
        prior=scenario.prior,
    )
    if scenario.resume_file is not None:
        tuner.restore(read_samples(scenario, scenario.resume_file))
    return tuner


def _ask(tuner: Tuner, count: int) -> list[Suggestion]:
    asked: list[Suggestion] = []
    while len(asked) < count:
        suggestion = tuner.ask()
        if suggestion is None:
            break
        asked.append(suggestion)
    return asked


class _Conversation:
    """The two streams, and the log of the conversation, if any."""

    def __init__(self, scenario: Scenario, replies: TextIO, requests: TextIO) -> None:
        self.scenario, self.replies, self.requests = scenario, replies, requests
        self.log: TextIO | None = None
        self.line = 0

    def send(self, text: str) -> None:
        self.requests.write(text)
        self.requests.flush()
        self._note(text)

    def _note(self, text: str) -> None:
        if self.log is not None and self.scenario.log_file is not None:
            try:
                self.log.write(text)
                self.log.flush()
            except OSError as error:
                raise _unwritable(self.scenario.log_file, error, "log_file") from None

    def receive(self) -> list[str]:
        line = self.replies.readline()
        while line and not line.strip():
            self.line += 1
            line = self.replies.readline()
        if not line:
            raise ReplyError(
                f"the client ended after line {self.line} of its replies, before the last one: "
                "what it has reported is kept"
            )
        self.line += 1
        self._note(line)
        return [cell.strip().strip('"') for cell in _COMMA.split(line.rstrip("\r\n"))]

    def exchange(self, asked: Sequence[Suggestion]) -> list[dict[str, Any]]:
        """Request the configurations; return each outcome as keyword arguments of `Tuner.tell`."""
        names = list(self.scenario.published.values())
        lines = [f"Request {len(asked)}", ",".join(names)]
        lines += [",".join(cells(self.scenario, s.configuration)) for s in asked]
        self.send("\n".join(lines) + "\n")
        header = self.receive()
        columns = {name: i for i, name in enumerate(header)}
        wanted = [*names, *self.scenario.objectives]
        if self.scenario.feasible is not None:
            wanted.append(self.scenario.feasible.name)
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise ReplyError(
                f"line {self.line} of the replies: the header {','.join(header)!r} lacks the "
                f"column {missing[0]!r}; it must name {', '.join(wanted)}"
            )
        found: dict[int, dict[str, Any]] = {}
        for place in range(len(asked)):
            row = self.receive()
            if len(row) < len(header):
                raise ReplyError(
                    f"line {self.line} of the replies has {len(row)} columns, its header "
                    f"{len(header)}: {','.join(row)!r}"
                )
            outcome = self._outcome({name: row[i] for name, i in columns.items()})
            found[self._which(asked, row, columns, found, place)] = outcome
        return [found[i] for i in range(len(asked))]

    def _which(
        self,
        asked: Sequence[Suggestion],
        row: Sequence[str],
        columns: Mapping[str, int],
        found: Mapping[int, object],
        place: int,
    ) -> int:
        """Return which request a row answers: the one it repeats, or the first open one."""
        space = self.scenario.space
        given = read_cells(self.scenario, {name: row[i] for name, i in columns.items()})
        open_ones = [i for i in range(len(asked)) if i not in found]
        if given is not None:
            for i in sorted(open_ones, key=lambda i: i != place):
                if space.key(space.encode(asked[i].configuration)) == space.key(
                    space.encode(given)
                ):
                    return i
        return place if place not in found else open_ones[0]

    def _outcome(self, row: Mapping[str, str]) -> dict[str, Any]:
        if self.scenario.feasible is not None and not _valid(
            self.scenario, row[self.scenario.feasible.name]
        ):
            return {"status": "run_failed", "message": "the client says that it is not valid"}
        values = []
        for name in self.scenario.objectives:
            try:
                values.append(float(row[name]))
            except ValueError:
                raise ReplyError(
                    f"line {self.line} of the replies: {name} is {row[name]!r}, not a number"
                ) from None
        return {"value": values}


def cells(scenario: Scenario, configuration: Mapping[str, Any]) -> list[str]:
    """Return a configuration as the cells of a row, in the order of the file's parameters."""
    result = []
    for name in scenario.published:
        value, p = configuration[name], scenario.space[name]
        if isinstance(p, Permutation):
            result.append(str(tuple(value)))
        elif isinstance(p, Real):
            result.append(repr(float(value)))
        else:
            result.append(str(value))
    return result


def read_cells(scenario: Scenario, row: Mapping[str, str]) -> Configuration | None:
    """Return the configuration in the cells of a row, by column; None if it is invalid."""
    result: Configuration = {}
    try:
        for name, shown in scenario.published.items():
            result[name] = _value(scenario.space[name], row[shown])
        scenario.space.encode(result)
    except (ValueError, KeyError, ConfigurationError):
        return None
    return result


def _value(p: Parameter, text: str) -> Any:
    if isinstance(p, Permutation):
        return tuple(int(item) for item in text.strip("()").split(","))
    if isinstance(p, Categorical):
        return {str(v): v for v in p.values}[text]
    number = float(text)
    if isinstance(p, Integer | Ordinal) and number.is_integer():
        return int(number)
    return number


class SampleFile:
    """The CSV file of everything reported: a row is on the disk before the next decision."""

    def __init__(self, scenario: Scenario, before: Sequence[Trial] = ()) -> None:
        self.scenario = scenario
        self.before = list(before)
        self.file: TextIO | None = None

    def __enter__(self) -> SampleFile:
        """Begin the file with its header and the earlier trials."""
        if self.scenario.data_file is not None:
            self.file = _begun(self.scenario.data_file, "output_data_file")
            self._write(",".join(header(self.scenario)))
            for trial in self.before:
                self.add(trial)
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self.file is not None:
            _close(self.file)

    def add(self, trial: Trial) -> None:
        """Append a trial; it is on the disk when this returns."""
        self._write(",".join(sample(self.scenario, trial)))

    def _write(self, line: str) -> None:
        if self.file is None:
            return
        try:
            self.file.write(line + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            assert self.scenario.data_file is not None
            raise _unwritable(self.scenario.data_file, error, "output_data_file") from None


def _begun(path: Path, setting: str) -> TextIO:
    """Begin an output file of the scenario; `setting` is the entry that names it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error, setting) from None


def _close(file: TextIO) -> None:
    """Close a file; errors of writing were raised when its lines were flushed."""
    with suppress(OSError):
        file.close()


def _unwritable(path: Path, error: OSError, setting: str) -> TilewrightError:
    said = error.strerror or error
    return TilewrightError(f"{path}: {said}; make room, or give another {setting!r}")


def header(scenario: Scenario) -> list[str]:
    """Return the columns of the file of samples."""
    valid = [scenario.feasible.name] if scenario.feasible is not None else []
    return [*scenario.published.values(), *scenario.objectives, *valid, scenario.timestamp]


def sample(scenario: Scenario, trial: Trial) -> list[str]:
    """Return a trial as the cells of the file of samples."""
    values = trial.values if trial.ok else (math.nan,) * len(scenario.objectives)
    row = [*cells(scenario, trial.configuration), *(repr(v) for v in values)]
    if scenario.feasible is not None:
        words = (scenario.feasible.false_value, scenario.feasible.true_value)
        row.append(words[trial.ok])
    return [*row, f"{time.time():.3f}"]


def read_samples(scenario: Scenario, path: Path) -> list[Trial]:
    """Return the trials of a file of samples, with a header or in its order.

    Raises:
        ReplyError: the file cannot be read, with the line that is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ReplyError(f"resume_optimization: {path} cannot be read: {error}") from None
    columns = header(scenario)
    trials: list[Trial] = []
    for number, line in enumerate(lines, 1):
        row = [cell.strip().strip('"') for cell in _COMMA.split(line)]
        if not line.strip():
            continue
        if number == 1 and set(scenario.objectives) <= set(row):
            columns = row
            continue
        named = dict(zip(columns, row, strict=False))
        configuration = read_cells(scenario, named)
        try:
            values = tuple(float(named[name]) for name in scenario.objectives)
        except (KeyError, ValueError):
            configuration = None
        if configuration is None:
            raise ReplyError(f"{path}, line {number}: {line!r} is not a sample of this scenario")
        good = all(math.isfinite(v) for v in values)
        if scenario.feasible is not None:
            good = good and _valid(scenario, named.get(scenario.feasible.name))
        asked = Suggestion(len(trials), configuration, "resumed")
        trials.append(Trial(asked, "ok" if good else "run_failed", values if good else ()))
    return trials


def _check_pareto(scenario: Scenario) -> None:
    """Create the folder of the Pareto front; raise if the file cannot be written at the end."""
    if scenario.pareto_file is not None:
        with suppress(OSError):  # the check names what cannot be created
            scenario.pareto_file.parent.mkdir(parents=True, exist_ok=True)
        check_writable(scenario.pareto_file)


def write_pareto(scenario: Scenario, tuner: Tuner) -> None:
    """Write the Pareto front of several objectives as CSV, as HyperMapper does."""
    good = [t for t in tuner.trials if t.ok]
    if scenario.pareto_file is None or not good:
        return
    import numpy as np

    kept = front(np.array([t.values for t in good]))
    rows = [header(scenario), *(sample(scenario, good[i]) for i in kept)]
    write_text(scenario.pareto_file, "".join(",".join(row) + "\n" for row in rows))
