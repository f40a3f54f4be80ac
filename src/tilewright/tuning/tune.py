"""Tune a function: ask, evaluate (one at a time or many), record, tell."""

from __future__ import annotations

import itertools
import json
import math
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.measure import STATUSES, Measurement, end_servers
from tilewright.tuning.bayes.prior import OptimumPrior
from tilewright.tuning.bayes.warm import WarmStart
from tilewright.tuning.errors import SettingsError, whole
from tilewright.tuning.settings import Settings
from tilewright.tuning.space.space import Configuration, Space
from tilewright.tuning.trial import Suggestion, Trial, confirming, counted, plain
from tilewright.tuning.tuner import Tuner

_MOST_CONFIRMATIONS = 5
Outcome: TypeAlias = float | Sequence[float] | Measurement | Mapping[str, Any] | None
Objective: TypeAlias = Callable[..., Outcome]
_TOLD = {"value", "status", "lower_bound", "message", "seconds", "details"}
# A run that is less than this many seconds behind is never cut short.
_CLOSE = 0.5
# An evaluation of an executor counts as lost after the larger of these: seconds, and times the
# longest evaluation so far. Past the time limit of the run the second pair counts.
_LOST = (600.0, 20.0)
_LOST_AT_THE_END = (10.0, 2.0)
_runs = itertools.count()


class FailedError(Exception):
    """Raised by an objective to say how a configuration failed.

    ``status`` is one of `tilewright.measure.STATUSES`.
    """

    def __init__(self, status: str, message: str = "") -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class TuningResult:
    """The result of a tuning run.

    ``best`` is None if no evaluation worked. ``stopped`` says why the run ended: ``budget``,
    ``time``, ``converged``, ``exhausted`` (nothing left to try), ``interrupted``, or ``executor``
    (the executor accepts no more work, like a process pool that lost a process).
    """

    best: Trial | None
    trials: tuple[Trial, ...]
    stopped: str
    tuner: Tuner

    @property
    def pareto(self) -> list[Trial]:
        """The Pareto front, for several objectives."""
        return self.tuner.pareto

    def _repr_html_(self) -> str:
        from tilewright.tuning.notebook import result_html
        from tilewright.tuning.report import progress_section

        return result_html(self, counted(self.trials), [progress_section([self.trials])])


class Journal:
    """A store of trials: `add` returns when a trial is safe, `load` returns earlier ones."""

    def load(self) -> list[Trial]:
        """Return the trials of earlier runs, in their order."""
        return []

    def earlier(self, space: Space) -> list[WarmStart]:
        """Return earlier trials of the same space on other inputs or machines."""
        return []

    def add(self, trial: Trial) -> None:
        """Store a trial; it is safe when this returns."""


def tune(
    objective: Objective,
    space: Space,
    budget: int = 50,
    *,
    seed: int = 0,
    settings: Settings | None = None,
    queue: Sequence[Mapping[str, Any]] = (),
    objectives: int = 1,
    prior: OptimumPrior | None = None,
    warm: WarmStart | Sequence[WarmStart] | None = None,
    executor: Executor | None = None,
    jobs: int = 1,
    journal: Journal | None = None,
    time_limit: float | None = None,
    converge: float | None = None,
    confirm: int = 0,
    cutoff: float | None = None,
    on_trial: Callable[[Trial, Tuner], object] | None = None,
) -> TuningResult:
    """Find a configuration of small objective in ``budget`` evaluations.

    Args:
        objective: called with a configuration, a dictionary. It returns a number, one number
            per objective, a `Measurement` (its median counts), or the keyword arguments of
            `Tuner.tell` as a dictionary. It fails by returning None or a value that is not a
            finite number, or by raising `FailedError` or any other exception. If it may hang,
            crash or exhaust memory, wrap it in `Isolated`.
        space: the search space.
        budget: the number of evaluations, including those of earlier runs in the journal.
        seed: as for `Tuner`.
        settings: as for `Tuner`.
        queue: as for `Tuner`.
        objectives: as for `Tuner`.
        prior: as for `Tuner`.
        warm: as for `Tuner`; None for what the journal knows of the same space on other inputs and
            machines (with one objective), ``()`` for none.
        executor: evaluates ``jobs`` configurations at once; any `concurrent.futures` executor.
            Without one, a single job runs in this thread and more in a pool of threads.
            An evaluation that a given executor does not return within the larger of ten minutes and
            20 times the longest evaluation is submitted once more, and the second time recorded as
            a time-out. Past `time_limit` it is recorded at once, after the larger of ten seconds
            and twice the longest evaluation.
        jobs: the number of parallel evaluations.
        journal: stores every trial before the next decision, and returns those of earlier runs.
        time_limit: seconds after which no evaluation is started.
        converge: stop when the rest of the budget is expected to gain less than this share of the
            best value (see `Tuner.remaining_gain`).
        confirm: for noisy objectives: evaluate the best few configurations again at the end, this
            many times and in turns, and compare medians. These do not count in the budget.
        cutoff: for objectives in seconds: call the objective with a second argument, a time limit
            of this many times the best (infinite at first). An objective that stops at the
            limit returns ``{"value": seconds, "lower_bound": True}``.
        on_trial: called after each trial, with the trial and the tuner.

    Ctrl-C ends the run and returns what was found; a second one is not caught.

    Raises:
        SettingsError, ConfigurationError: an argument cannot be used (see `Tuner`).
    """
    if not callable(objective):
        raise SettingsError(f"the objective is {objective!r}; give a function of a configuration")
    whole("budget", budget, 1)
    whole("jobs", jobs, 1)
    whole("confirm", confirm, 0)
    for name, value in (("time_limit", time_limit), ("converge", converge), ("cutoff", cutoff)):
        _check_limit(name, value)
    journal = journal or Journal()
    if warm is None and objectives == 1:
        warm = journal.earlier(space)
    tuner = Tuner(
        space,
        seed=seed,
        settings=settings,
        queue=queue,
        objectives=objectives,
        prior=prior,
        warm=warm,
    )
    tuner.restore(journal.load())
    deadline = None if time_limit is None else time.monotonic() + time_limit
    run = _Run(tuner, objective, journal, on_trial, cutoff, executor, deadline)
    own: ThreadPoolExecutor | None = None
    name = f"tilewright-tune-{next(_runs)}-"
    stopped = "interrupted"
    if executor is None and jobs > 1:
        run.executor = own = ThreadPoolExecutor(jobs, name)
    try:
        stopped = run.search(budget, jobs, converge)
        if confirm:
            run.confirm(confirm)
    except KeyboardInterrupt:
        stopped = "interrupted"
        run.cancel()
        end_servers(name)  # or the threads would wait for the commands they run
    finally:
        if own is not None:
            own.shutdown(wait=stopped != "interrupted", cancel_futures=True)
    return TuningResult(tuner.best, tuple(tuner.trials), stopped, tuner)


def _check_limit(name: str, value: object) -> None:
    """Reject a limit that is neither None nor a number from 0."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if value is None or (number and float(value) >= 0):  # type: ignore[arg-type]
        return
    raise SettingsError(f"{name} is {value!r}; give a number from 0, or None for no limit")


@dataclass(frozen=True)
class _Submitted:
    """A running evaluation: its suggestion, when it was submitted, and whether again."""

    asked: Suggestion
    since: float
    again: bool = False


class _Run:
    """The loop's state: the tuner, and the evaluations under way.

    `remote` says that the executor is the caller's, which may lose work.
    """

    def __init__(
        self,
        tuner: Tuner,
        objective: Objective,
        journal: Journal,
        on_trial: Callable[[Trial, Tuner], object] | None,
        cutoff: float | None,
        executor: Executor | None,
        deadline: float | None,
    ) -> None:
        self.tuner = tuner
        self.objective = objective
        self.journal = journal
        self.on_trial = on_trial
        self.cutoff = cutoff
        self.executor = executor
        self.remote = executor is not None
        self.deadline = deadline
        self.longest = 0.0
        self.under_way: dict[Future[dict[str, Any]], _Submitted] = {}

    def search(self, budget: int, jobs: int, converge: float | None) -> str:
        while self._done < budget:
            if self._late:
                self._drain()
                return "time"
            if converge is not None and self.tuner.exhausted(converge, budget - self._done):
                self._drain()
                return "converged"
            if any(future.done() for future in self.under_way):
                # what ended during the last decision counts in the next
                self._collect()
                continue
            room = min(jobs, budget - self._done) - len(self.under_way)
            asked = self.tuner.ask() if room > 0 else None
            if asked is None and not self.under_way:
                return "exhausted"
            if asked is not None:
                if self.executor is None:
                    work = (self.objective, asked.configuration, self._limit())
                    self._tell(asked, evaluate(*work))
                elif not self._submit(asked):
                    self._drain()
                    return "executor"
            if self.executor is not None and (room <= 1 or asked is None):
                self._collect()
        self._drain()
        return "budget"

    @property
    def _late(self) -> bool:
        """Whether the run's time is over."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def _done(self) -> int:
        """The number of evaluations that count: not those that confirm leaders."""
        return len(self.tuner.trials) - confirming(self.tuner.trials)

    def _limit(self) -> float | None:
        """Return the time limit of an evaluation, None if nothing is cut short."""
        if self.cutoff is None:
            return None
        best = self.tuner.best
        if best is None or best.value <= 0:
            return math.inf
        return max(self.cutoff * best.value, best.value + _CLOSE)

    def confirm(self, repeats: int) -> None:
        """Evaluate the leaders again, in turns, so that a drift of the machine affects all.

        New leaders are evaluated again, too, until all leaders are confirmed.
        """
        for _ in range(_MOST_CONFIRMATIONS):
            leaders = [t for t in self.tuner.leaders(3) if self.tuner.measured(t) <= repeats]
            if not leaders:
                return
            for _ in range(repeats):
                for trial in leaders:
                    if self._late:
                        return
                    limit = None if self.cutoff is None else math.inf
                    outcome = evaluate(self.objective, trial.configuration, limit)
                    again = Suggestion(self.tuner.decisions, trial.configuration, "confirm")
                    self._tell(again, outcome)

    def _complete(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Return the outcome; failed if its number of values is not that of the objectives."""
        value, wanted = outcome.get("value"), self.tuner.objectives
        count = len(value) if isinstance(value, list) else int(value is not None)
        if outcome.get("status", "ok") != "ok" or count == wanted:
            return outcome
        message = f"the objective returned {count} values for {wanted} objectives"
        return {"status": "run_failed", "message": message, "seconds": outcome.get("seconds")}

    def _submit(self, asked: Suggestion, again: bool = False) -> bool:
        """Have the executor evaluate a suggestion; return whether it accepts work."""
        assert self.executor is not None
        try:
            future = self.executor.submit(
                evaluate, self.objective, asked.configuration, self._limit()
            )
        except (BrokenExecutor, RuntimeError):  # broken, or shut down
            return False
        self.under_way[future] = _Submitted(asked, time.monotonic(), again)
        return True

    def _collect(self) -> None:
        """Record evaluations that end, give up lost ones; return at the deadline at the latest."""
        late = self._late
        seconds, times = _LOST_AT_THE_END if late else _LOST
        allowed = max(seconds, times * self.longest)
        deadline = math.inf if self.deadline is None else self.deadline
        oldest = min(each.since for each in self.under_way.values())
        # Evaluations that run at the deadline have that long from then on.
        lost = (deadline if late else oldest) + allowed
        until = lost if late else min(lost, deadline)
        left = max(0.0, until - time.monotonic()) if self.remote else None
        done, _ = wait(self.under_way, timeout=left, return_when=FIRST_COMPLETED)
        # several may have ended: report them in the order they were asked
        for future in sorted(done, key=lambda f: self.under_way[f].asked.index):
            asked = self.under_way.pop(future).asked
            error = future.exception()
            if error is not None:
                outcome = {"status": "crashed", "message": f"the worker was lost: {error}"}
            else:
                outcome = future.result()
            self.longest = max(self.longest, float(outcome.get("seconds") or 0.0))
            self._tell(asked, outcome)
        if not done and time.monotonic() >= lost:
            self._give_up(0.0 if late else allowed, again=not late)

    def _give_up(self, allowed: float, again: bool) -> None:
        """Submit lost evaluations once more if allowed; record the others as time-outs."""
        now = time.monotonic()
        for future, lost in list(self.under_way.items()):
            if now - lost.since < allowed:
                continue
            del self.under_way[future]
            future.cancel()
            if not (again and not lost.again and self._submit(lost.asked, again=True)):
                message = f"the executor returned nothing in {now - lost.since:.0f} s"
                self._tell(lost.asked, {"status": "timeout", "message": message})

    def _drain(self) -> None:
        while self.under_way:
            self._collect()

    def cancel(self) -> None:
        for future in self.under_way:
            future.cancel()

    def _tell(self, asked: Suggestion, outcome: dict[str, Any]) -> None:
        outcome = self._complete(outcome)
        trial = self.tuner.tell(asked, outcome.pop("value", None), **outcome)
        self.journal.add(trial)
        if self.on_trial is not None:
            self.on_trial(trial, self.tuner)


def evaluate(
    objective: Objective, configuration: Configuration, limit: float | None = None
) -> dict[str, Any]:
    """Call the objective; return the outcome as keyword arguments of `Tuner.tell`."""
    started = time.perf_counter()
    more = () if limit is None else (limit,)
    try:
        outcome = as_arguments(objective(dict(configuration), *more))
    except FailedError as failure:
        outcome = {"status": failure.status, "message": failure.message}
    except MemoryError:
        outcome = {"status": "out_of_memory", "message": "MemoryError"}
    except Exception as error:
        outcome = {"status": "run_failed", "message": _words(error)}
    outcome.setdefault("seconds", time.perf_counter() - started)
    return outcome


def _words(error: Exception) -> str:
    """Return an exception as text; its class alone if its own conversion fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def as_arguments(outcome: Outcome) -> dict[str, Any]:
    """Convert the result of an objective to keyword arguments of `Tuner.tell`.

    Raises:
        FailedError: the result is neither numbers nor a `Measurement` nor such arguments.
    """
    if outcome is None:
        return {"status": "run_failed", "message": "the objective returned None"}
    if isinstance(outcome, Measurement):
        result: dict[str, Any] = {"status": outcome.status, "message": outcome.message}
        if outcome.ok:
            result |= {"value": outcome.median, "lower_bound": outcome.lower_bound}
        return result
    result = dict(outcome) if isinstance(outcome, Mapping) else {"value": outcome}
    if not _TOLD.issuperset(result):
        wrong = next(key for key in result if key not in _TOLD)
        raise _wrong(f"a dictionary with {wrong!r}; it may have {', '.join(sorted(_TOLD))}")
    if result.get("status", "ok") not in STATUSES:
        raise _wrong(f"the status {result['status']!r}; use one of {', '.join(STATUSES)}")
    if result.get("value") is not None:
        result["value"] = _floats(result["value"])
    if result.get("seconds") is not None:
        result["seconds"] = _floats(result["seconds"])
        if isinstance(result["seconds"], list):
            raise _wrong("several numbers of seconds; give the evaluation's own")
    if "message" in result:
        result["message"] = str(result["message"])
    if "details" in result:
        result["details"] = _details(result["details"])
    return result


def _details(details: Any) -> dict[str, Any]:
    """Return details as JSON data. Their ``times`` are the run times in seconds."""
    if not isinstance(details, Mapping):
        raise _wrong(f"details of the type {type(details).__name__}; give a dictionary")
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(details), default=repr))
    except (TypeError, ValueError) as error:
        raise _wrong(f"details that JSON cannot express: {error}") from None
    times = found.get("times", [])
    if not isinstance(times, list) or not all(
        isinstance(t, int | float) and math.isfinite(t) and t > 0 for t in times
    ):
        raise _wrong("details whose 'times' are not a list of positive numbers of seconds")
    return found


def _floats(value: Any) -> float | list[float]:
    try:
        if getattr(value, "shape", None) == ():
            value = value.item()  # of an array without dimensions
        if hasattr(value, "__len__") and not isinstance(value, str | bytes):
            return [float(v) for v in value]
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise _wrong(f"{str(value)[:200]!r}, which is not a number") from None


def _wrong(what: str) -> FailedError:
    return FailedError("run_failed", f"the objective returned {what}")


def show(trial: Trial, tuner: Tuner) -> None:
    """Print one line per trial: an ``on_trial`` for scripts."""
    best = tuner.best
    text = f"{trial.values[0]:.6g}" if trial.ok else trial.status
    so_far = "-" if best is None else f"{best.value:.6g}"
    print(f"{len(tuner.trials):4d}  {text:>12}  best {so_far}  {plain(trial.configuration)}")
