"""One candidate that stays in its worker and is timed again whenever that is asked."""

from __future__ import annotations

import queue
import statistics

from .candidate import Candidate, RunLimits, Timing
from .client import Event, Workers
from .measuring import remaining
from .token import say_wait


class Held:
    """A candidate that stays built in a worker, to be timed between other candidates.

    A context manager; leaving it ends the worker.

    Args:
        candidate: the candidate. It is built and verified at the first `sample`.
        workers: the server of its worker.
        limits: limits on its time and memory.
        timing: says whether its answer is verified.
        deadline: the time of `time.monotonic` at which waiting for it ends.
    """

    def __init__(
        self,
        candidate: Candidate,
        workers: Workers,
        limits: RunLimits,
        timing: Timing,
        *,
        deadline: float | None = None,
    ) -> None:
        self._workers = workers
        self._order = (candidate, limits, timing)
        self._deadline = deadline
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._number: int | None = None
        self._lost = False

    def __enter__(self) -> Held:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its worker."""
        self.close()

    def close(self) -> None:
        """End its worker; later samples are None."""
        if self._number is not None and not self._lost:
            self._workers.cancel(self._number)
        self._lost = True

    def sample(self, visit: Timing) -> float | None:
        """Return its median time in seconds now; None once it has failed or the deadline passed."""
        if not self._lost and self._number is None:
            candidate, limits, timing = self._order
            self._number = self._workers.submit(candidate, limits, timing, self._events, hold=True)
            self._wait_for("ready")
        if self._lost or self._number is None:
            return None
        self._workers.sample(self._number, visit)
        event = self._wait_for("sampled")
        return None if event is None else float(statistics.median(event.data["times"]))

    def _wait_for(self, name: str) -> Event | None:
        while True:
            try:
                event = self._events.get(timeout=remaining(self._deadline))
            except queue.Empty:
                self.close()
                return None
            if event.name == "waiting":
                say_wait()
            elif event.name == "finished":
                self._lost = True
                return None
            elif event.name == name:
                return event
