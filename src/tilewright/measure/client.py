"""The client's side of the workers: starts the server, sends requests, reads events."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tilewright.errors import TilewrightError

from .candidate import Candidate, Measurement, RunLimits, Timing, machine_id
from .job import Request
from .worker import COMMAND_BUILDER

_START_SECONDS = 120.0


# A file that measures at import would start workers that import it, and so on.
_DEPTH = "TILEWRIGHT_WORKERS_DEPTH"
_DEEPEST = 3


class WorkersError(TilewrightError):
    """The workers' server could not be started."""


@dataclass(frozen=True)
class Event:
    """An event in the life of a candidate.

    `name` is one of started, built, ready, waiting (another process is timing), timing, sampled,
    finished. `measurement` comes with ``finished``; `data` has the request's number and further
    values.
    """

    name: str
    candidate: Candidate
    measurement: Measurement | None
    data: dict[str, Any]


Mailbox = queue.SimpleQueue[Event]


class Workers:
    """A server of worker processes, as a context manager.

    The server starts with the first candidate and ends, with all its workers, when this
    object is closed or this process dies for any reason. Candidates may be submitted from
    several threads. If the server itself dies, the candidates that it was running count as
    crashed, and the next candidate gets a new server.

    Args:
        jobs: the number of candidates built at once; by default the number of CPUs that this
            process may use.
        preload: what the server does once, before it forks workers: modules to import
            (``"package.module"``) and functions to call (``"package.module:function"``, or with
            a string argument ``"package.module:function:argument"``). They must leave no thread
            and no device behind.

    Raises:
        WorkersError: `jobs` is less than 1.
    """

    def __init__(self, *, jobs: int | None = None, preload: Sequence[str] = ()) -> None:
        if jobs is not None and jobs < 1:
            raise WorkersError(f"jobs={jobs}: at least one worker is needed")
        self.jobs = jobs or len(os.sched_getaffinity(0))
        self.preload = tuple(preload)
        self._lock = threading.RLock()
        self._ids = itertools.count()
        self._pending: dict[int, tuple[Candidate, Mailbox]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Workers:
        """Give the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close them."""
        self.close()

    def submit(
        self,
        candidate: Candidate,
        limits: RunLimits,
        timing: Timing,
        mailbox: Mailbox,
        *,
        hold: bool = False,
    ) -> int:
        """Ask for a measurement; its events, ``finished`` the last, arrive in `mailbox`.

        With `hold` the worker says ``ready`` and waits for `sample` and `end`. Returns the
        request's number. Raises WorkersError when the server cannot be started.
        """
        is_command = candidate.builder == COMMAND_BUILDER
        request = Request(
            id=next(self._ids),
            builder=candidate.builder,
            payload=pickle.dumps(candidate.payload, protocol=pickle.HIGHEST_PROTOCOL),
            env=dict(candidate.env),
            limits=limits,
            timing=timing,
            hold=hold,
            exclusive=not is_command or bool(candidate.payload.get("exclusive", True)),
        )
        with self._lock:
            self._start()
            self._pending[request.id] = (candidate, mailbox)
        self._send(op="measure", request=request)
        return request.id

    def sample(self, number: int, timing: Timing) -> None:
        """Have a held worker time itself; ``sampled`` (or ``finished``) answers."""
        self._send(op="sample", id=number, timing=timing)

    def end(self, number: int) -> None:
        """Let a held worker finish."""
        self._send(op="end", id=number)

    def cancel(self, number: int) -> None:
        """Cancel a request: it is not begun, or killed."""
        with self._lock:
            self._pending.pop(number, None)
        self._send(op="cancel", id=number)

    def close(self) -> None:
        """End the server and all its workers."""
        with self._lock:
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
        if process is None or connection is None:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(connection.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)  # wakes the server and the thread that listens
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def abandon(self) -> None:
        """Drop the server without ending it: for a forked copy of this process."""
        self._lock = threading.RLock()
        connection, self._connection, self._process = self._connection, None, None
        self._pending = {}
        if connection is not None:
            connection.close()

    def _start(self) -> None:
        if self._connection is not None:
            return
        depth = int(os.environ.get(_DEPTH, "0"))
        if depth >= _DEEPEST:
            raise WorkersError(
                f"workers inside workers, {depth} deep: a file that a worker loads seems to "
                'measure at import; put that part of it under `if __name__ == "__main__":`'
            )
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tilewright.measure.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # nothing may mix with what this process prints
                start_new_session=True,  # Ctrl-C in a terminal reaches the client only
                env={**os.environ, _DEPTH: str(depth + 1)},
            )
        connection = Connection(ours.detach())
        connection.send({"path": sys.path, "preload": self.preload, "jobs": self.jobs})
        try:
            answer = connection.recv() if connection.poll(_START_SECONDS) else None
        except (EOFError, ConnectionError):
            answer = {"event": "died", "message": f"exit code {process.wait()}"}
        if answer is None or answer["event"] != "serving":
            process.kill()
            process.wait()
            connection.close()
            reason = "no answer" if answer is None else answer["message"]
            raise WorkersError(f"the workers' server did not start: {reason}")
        self._process, self._connection = process, connection
        _open.add(self)
        threading.Thread(
            target=self._listen, args=(connection, process), name="tilewright-workers", daemon=True
        ).start()

    def _send(self, **message: Any) -> None:
        with self._lock:
            # A dead server needs no message: the listener ends all of its candidates.
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.send(message)

    def _listen(self, connection: Connection, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                break
            self._deliver(message)
        with self._lock:
            if self._connection is connection:
                self._connection = self._process = None
            orphaned, self._pending = self._pending, {}
        connection.close()
        process.wait()
        lost = Measurement(
            "crashed",
            message="the workers' server ended",
            machine=machine_id(),
            details={"lost": True},  # the cause may lie outside this candidate
        )
        for number, (candidate, mailbox) in orphaned.items():
            mailbox.put(Event("finished", candidate, lost, {"number": number}))

    def _deliver(self, message: dict[str, Any]) -> None:
        number, name = message.pop("id"), message.pop("event")
        finished = name == "finished"
        with self._lock:
            entry = self._pending.get(number)
            if finished:
                self._pending.pop(number, None)
        if entry is None:  # cancelled
            return
        candidate, mailbox = entry
        measurement = None
        if finished:
            fields = {"machine": machine_id(), **message.pop("measurement")}
            measurement = Measurement.from_json(fields)
        mailbox.put(Event(name, candidate, measurement, {"number": number, **message}))


_open: weakref.WeakSet[Workers] = weakref.WeakSet()


def _after_fork() -> None:
    """Close the connection in a forked copy; otherwise the server would outlive this process."""
    for workers in list(_open):
        workers.abandon()


os.register_at_fork(after_in_child=_after_fork)
