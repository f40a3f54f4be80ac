"""Measure candidates: many at once (`measure_all`), or one (`measure_one`)."""

from __future__ import annotations

import atexit
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from .candidate import Candidate, Measurement, RunLimits, Timing
from .client import Event, Workers
from .token import say_wait


def measure_all(
    candidates: Iterable[Candidate],
    *,
    limits: RunLimits | None = None,
    timing: Timing | None = None,
    jobs: int | None = None,
    preload: Sequence[str] = (),
    workers: Workers | None = None,
    on_event: Callable[[Event], object] | None = None,
    deadline: float | None = None,
) -> Iterator[tuple[Candidate, Measurement]]:
    """Build, verify and time every candidate; yield each with its measurement as it ends.

    Candidates are built in parallel (`jobs` at once), but each is timed alone, builds
    stopped meanwhile. `candidates` is read lazily, a few ahead of what is being measured. A
    candidate that fails in any way yields a Measurement that says so. `on_event` is called in this
    thread. With `workers`, a running server is used; `jobs` and `preload` are ignored. Leaving the
    iterator early kills all running candidates; so does the `deadline` (of `time.monotonic`), at
    which the iterator ends.

    Raises WorkersError when no server can be started.
    """
    limits, timing = limits or RunLimits(), timing or Timing()
    mailbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    source = iter(candidates)
    under_way: set[int] = set()
    exhausted = False
    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(Workers(jobs=jobs, preload=preload))
        try:
            while True:
                while not exhausted and len(under_way) < workers.jobs + 1:
                    candidate = next(source, None)
                    if candidate is None:
                        exhausted = True
                    else:
                        under_way.add(workers.submit(candidate, limits, timing, mailbox))
                if not under_way:
                    return
                try:
                    event = mailbox.get(timeout=remaining(deadline))
                except queue.Empty:
                    return
                if event.name == "waiting":
                    say_wait()
                if on_event is not None:
                    on_event(event)
                if event.measurement is not None:
                    under_way.discard(event.data["number"])
                    yield event.candidate, event.measurement
        finally:
            for number in under_way:
                workers.cancel(number)


def remaining(deadline: float | None) -> float | None:
    """Return seconds until `deadline`, not negative; None if there is none (None or infinite)."""
    if deadline is None or deadline == math.inf:
        return None
    return max(0.0, deadline - time.monotonic())


_local = threading.local()


def measure_one(
    candidate: Candidate,
    limits: RunLimits | None = None,
    timing: Timing | None = None,
    preload: Sequence[str] = (),
) -> Measurement:
    """Measure a single candidate, in the calling thread's own server of workers.

    A plain function of picklable arguments, for any `concurrent.futures` executor: processes,
    threads, Dask, MPI. The server is kept for the thread's next call.
    """
    workers = _thread_workers(tuple(preload))
    mailbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
    number = workers.submit(candidate, limits or RunLimits(), timing or Timing(), mailbox)
    if threading.current_thread().name.startswith(tuple(_ended)):
        workers.close()  # ended before the server was there to be closed
    try:
        while True:
            event = mailbox.get()
            if event.name == "waiting":
                say_wait()
            if event.measurement is not None:
                return event.measurement
    except BaseException:
        workers.cancel(number)
        raise


class _ThreadServers:
    """The servers of one thread, by preloaded modules; they are closed with the thread."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, ...], Workers] = {}
        self.thread = threading.current_thread().name
        with _listing:
            _all_servers.add(self)

    def close(self) -> None:
        """Close them."""
        for workers in list(self.servers.values()):  # its thread may add one meanwhile
            workers.close()

    def __del__(self) -> None:
        self.close()


_all_servers: weakref.WeakSet[_ThreadServers] = weakref.WeakSet()
_listing = threading.Lock()  # held to add to them or to list them
_ended: set[str] = set()  # beginnings of the names of threads that measure no more


def end_servers(prefix: str) -> None:
    """End `measure_one`, now and later, in threads whose names begin with `prefix`.

    The result is ``crashed``.
    """
    _ended.add(prefix)
    with _listing:
        known = list(_all_servers)
    for servers in known:
        if servers.thread.startswith(prefix):
            servers.close()


@atexit.register
def _close_servers() -> None:
    for servers in list(_all_servers):
        servers.close()


def _thread_workers(preload: tuple[str, ...]) -> Workers:
    servers: _ThreadServers | None = getattr(_local, "servers", None)
    if servers is None:
        servers = _local.servers = _ThreadServers()
    if preload not in servers.servers:
        servers.servers[preload] = Workers(jobs=1, preload=preload)
    return servers.servers[preload]
