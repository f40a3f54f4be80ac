"""Runs of tuners on recorded or live problems, each kept in a file and continued by the next call.

A run is the list of the values of a tool's distinct configurations, in the order of evaluation,
None for failures. A file holds the runs of one tool with one budget on one problem, by seed.
"""

from __future__ import annotations

import json
import math
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from tilewright.tuning import Settings, Tuner
from tilewright.tuning.interop.replay import Replay
from tilewright.tuning.problems.standins import StandIn
from tilewright.tuning.tune import FailedError
from tuning_large import Live

BUDGETS = (20, 40, 60, 120)
LONGEST = 240
PART = 0.95
OURS = "tilewright"
# these plan their search for a budget, so they are given each one
PLANNERS = "kernel_tuner"
Run: TypeAlias = list[float | None]


def budgets(tool: str, problem: Replay | Live) -> tuple[int, ...]:
    """The budgets that a tool is run with; without a plan, the longest run holds the others.

    Kernel Tuner lists all configurations of a space before it starts, so it has no runs on the
    large ones.
    """
    if isinstance(problem, Live):
        return () if tool.startswith(PLANNERS) else BUDGETS[-1:]
    return (*BUDGETS, LONGEST) if tool.startswith(PLANNERS) else (LONGEST,)


def ours(
    problem: Replay | Live | StandIn, seed: int, budget: int, settings: Settings | None = None
) -> Run:
    """A run of our tuner; past the last of BUDGETS it ends when PART of the best is reached."""
    return traced(problem, seed, budget, settings)[0]


def traced(
    problem: Replay | Live | StandIn, seed: int, budget: int, settings: Settings | None = None
) -> tuple[Run, list[float | None]]:
    """A run of `ours`, and the gain that the model expected of each evaluation, None without."""
    tuner = Tuner(problem.space, seed=seed, settings=settings)
    asked: Run = []
    while len(asked) < budget:
        if len(asked) >= BUDGETS[-1] and _arrived(problem, tuner):
            break
        suggestion = tuner.ask()
        if suggestion is None:
            break
        try:
            value = problem(suggestion.configuration)
        except FailedError as failure:
            tuner.tell(suggestion, status=failure.status)
            asked.append(None)
        else:
            tuner.tell(suggestion, value)
            asked.append(value)
    asks = [trial.suggestion for trial in tuner.trials]
    return asked, [a.expected if a.origin == "model" else None for a in asks]


def _arrived(problem: Replay | Live | StandIn, tuner: Tuner) -> bool:
    best = tuner.best
    if not isinstance(problem, Replay) or best is None:
        return False
    return best.value <= problem.optimum / PART


class Store:
    """The kept runs of a folder, filled until a deadline.

    Args:
        folder: where the files are.
        python: the Python of the peers' environment, or None.
        deadline: the `time.monotonic` at which filling stops.
    """

    def __init__(self, folder: Path, python: str | None, deadline: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.python = python
        self.deadline = deadline
        self._written: set[str] = set()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def _path(self, tool: str, problem: Replay | Live, budget: int) -> Path:
        return self.folder / f"{problem.name}--{tool}--{budget}.json"

    def runs(self, tool: str, problem: Replay | Live, budget: int) -> dict[int, Run]:
        """What is kept, by seed."""
        path = self._path(tool, problem, budget)
        return {int(k): v for k, v in json.loads(path.read_text()).items()} if path.exists() else {}

    def _keep(self, tool: str, problem: Replay | Live, budget: int, seed: int, run: Run) -> None:
        kept = self.runs(tool, problem, budget) | {seed: run}
        path = self._path(tool, problem, budget)
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(dict(sorted(kept.items()))))
        draft.replace(path)

    def fill(self, tool: str, problem: Replay | Live, seeds: Iterable[int]) -> None:
        """Run what is missing of a tool and a problem, seed by seed, until the time is up."""
        for budget in budgets(tool, problem):
            kept = self.runs(tool, problem, budget)
            missing = [seed for seed in seeds if seed not in kept]
            if not missing or self.over:
                continue
            if tool == OURS:
                for seed in missing:
                    if not self.over:
                        run, expected = traced(problem, seed, budget)
                        self._keep(f"{OURS}_expected", problem, budget, seed, expected)
                        self._keep(tool, problem, budget, seed, run)
            elif self.python is not None:
                self._peer(tool, problem, budget, missing)

    def _peer(self, tool: str, problem: Replay | Live, budget: int, seeds: Sequence[int]) -> None:
        if problem.name not in self._written:
            write_problem(problem, self.folder / f"{problem.name}.problem.json")
            self._written.add(problem.name)
        script = Path(__file__).parent / "peers" / "tuning_peer.py"
        command = [str(self.python), str(script), tool, f"{problem.name}.problem.json"]
        command += [str(budget), *map(str, seeds)]
        left = self.deadline - time.monotonic()
        seconds = None if math.isinf(left) else max(1.0, left)
        # a peer's chatter goes to a file of its own; what it printed before the end counts
        with (self.folder / f"{tool}.log").open("w") as log:
            lines = _lines(command, self.folder, log, seconds, problem)
        for line in lines:
            if line.startswith("{") and line.endswith("}"):
                found = json.loads(line)
                if found["error"]:
                    print(f"{tool} on {problem.name}, seed {found['seed']}: {found['error']}")
                if found.get("impatient"):
                    print(f"{tool} on {problem.name}, seed {found['seed']}: only repeats")
                self._keep(tool, problem, budget, found["seed"], found["asked"])


def _lines(
    command: list[str], folder: Path, log: IO[str], seconds: float | None, problem: Replay | Live
) -> list[str]:
    """What a peer printed within ``seconds``; a live problem answers what it asks meanwhile."""
    lines = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        over = threading.Timer(seconds, peer.kill) if seconds is not None else None
        if over is not None:
            over.start()
        try:
            for line in peer.stdout:
                if isinstance(problem, Live) and line.startswith('{"ask"'):
                    print(json.dumps(_answer(problem, json.loads(line)["ask"])), file=peer.stdin)
                    peer.stdin.flush()
                else:
                    lines.append(line.rstrip("\n"))
        except BrokenPipeError:  # the time was up
            pass
        finally:
            if over is not None:
                over.cancel()
    return lines


def _answer(problem: Live, values: list[Any]) -> float | None:
    """The objective of values in the order of the space's parameters, None if it fails."""
    names = [p.name for p in problem.space.parameters]
    try:
        return problem(dict(zip(names, values, strict=True)))
    except FailedError:
        return None


def write_problem(problem: Replay | Live, path: Path) -> None:
    """The problem as the peers' script reads it; the orders of a permutation are texts there.

    A live one has no table.
    """
    from tilewright.tuning import Permutation

    space = problem.space
    if isinstance(problem, Live):
        parameters = {p.name: listed(p) for p in space.parameters}
        rules = list(space.constraint_sources)
        path.write_text(json.dumps({"parameters": parameters, "constraints": rules}))
        return
    table = {}
    for key, value in problem.values.items():
        configuration = space.decode(np.frombuffer(key, dtype=np.int64).astype(float))
        name = "|".join(_plain(configuration[p.name]) for p in space.parameters)
        table[name] = value if isinstance(value, float) else None
    data: dict[str, Any] = {
        "parameters": {p.name: listed(p) for p in space.parameters},
        "permutations": {
            p.name: list(map(str, p.item_names))
            for p in space.parameters
            if isinstance(p, Permutation)
        },
        "constraints": list(space.constraint_sources),
        "table": table,
        "target": problem.optimum / PART,
        "settled": BUDGETS[-1],
    }
    path.write_text(json.dumps(data))


def listed(parameter: Any) -> list[Any]:
    """A discrete parameter's values as the peers are given them."""
    from itertools import permutations

    from tilewright.tuning import Integer, Permutation

    if isinstance(parameter, Permutation):
        return [_plain(order) for order in permutations(parameter.item_names)]
    if isinstance(parameter, Integer):
        return list(range(parameter.low, parameter.high + 1))
    return list(parameter.values)


def _plain(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)
