"""The workers' server: a clean, single-threaded process that forks a worker per candidate.

It imports the preloaded modules once, enforces limits, drains output, and hands the timing
token to one worker at a time while all others are stopped. It ends, and ends its workers,
when its client goes away. Started by `tilewright.measure.client`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import sys
import warnings
from collections import deque
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from tilewright.errors import TilewrightError

from . import processes
from .job import Job, Request
from .token import Patience, TimingToken

_TICK = 0.03  # seconds between checks of memory and time
_TIMING_TICK = 0.1  # while something is timed: a check costs some 100 microseconds


class Server:
    """The loop and its state."""

    def __init__(self, client: Connection, jobs: int) -> None:
        self._client = client
        self._jobs = jobs
        self._queue: deque[Request] = deque()
        self._live: dict[int, Job] = {}
        self._waiting: deque[tuple[Job, dict[str, Any]]] = deque()
        self._timed: Job | None = None
        self._best: float | None = None
        self._token = TimingToken()
        self._patience = Patience()
        self._selector = selectors.DefaultSelector()
        self._selector.register(client.fileno(), selectors.EVENT_READ, ("client", None))

    def run(self) -> None:
        """Serve until the client goes away."""
        try:
            while True:
                tick = _TICK if self._timed is None else _TIMING_TICK
                for key, _ in self._selector.select(tick if self._live else None):
                    kind, job = key.data
                    if kind == "client":
                        while self._client.poll():
                            self._take(self._client.recv())
                    elif kind == "reports":
                        self._read_reports(job)
                        if not job.reports_open:
                            self._selector.unregister(key.fd)
                    elif kind == "output":
                        if not job.read_output(key.fd):
                            self._selector.unregister(key.fd)
                    else:
                        self._selector.unregister(key.fd)  # it has ended: reaped below
                self._look_after()
        except (EOFError, ConnectionError, BrokenPipeError):
            pass  # the client is gone and with it the use of the results
        finally:
            for job in self._live.values():
                processes.kill_tree(job.pid)
            self._kill_orphans()
            for job in self._live.values():
                job.close()

    # -- what the client says

    def _take(self, message: dict[str, Any]) -> None:
        if message["op"] == "measure":
            self._queue.append(message["request"])
        elif message["op"] == "sample":
            job = self._live.get(message["id"])
            if job is not None and job.phase == "ready":
                self._waiting.append((job, asdict(message["timing"])))
        elif message["op"] == "end":
            job = self._live.get(message["id"])
            if job is not None and job.phase == "ready":
                job.ask_details()
        elif message["op"] == "cancel":
            self._queue = deque(r for r in self._queue if r.id != message["id"])
            if message["id"] in self._live:
                self._live[message["id"]].fail("crashed", "cancelled")

    def _tell(self, job: Job, event: str, **data: Any) -> None:
        self._client.send({"id": job.request.id, "event": event, **data})

    # -- what the workers say

    def _read_reports(self, job: Job) -> bool:
        """Act on a worker's reports; return False if there were none."""
        reports = job.read_reports()
        for report in reports:
            event = report["event"]
            if event == "beat":
                job.enter(job.phase)
            elif event == "failed":
                job.take_failure(report)
            elif event == "built":
                job.outcome["build_seconds"] = report["seconds"]
                job.enter("verifying")
                self._tell(job, "built", seconds=report["seconds"])
            elif event == "rechecking":
                job.enter("building")
            elif event == "ready":
                job.outcome["verified"] = report["verified"]
                if report.get("max_error") is not None:
                    job.outcome["max_error"] = report["max_error"]
                job.enter("ready")
                if job.request.hold:
                    self._tell(job, "ready")
                elif not job.request.exclusive:
                    job.grant(asdict(job.request.timing), None)
                else:
                    self._waiting.append((job, asdict(job.request.timing)))
            elif event == "timed":
                self._release(job)
                job.enter("ready")
                for field in ("times", "cpu_times", "runs", "lower_bound"):
                    job.outcome[field] = report[field]
                if job.request.hold:
                    self._tell(job, "sampled", **{k: report[k] for k in ("times", "cpu_times")})
                else:
                    job.ask_details()
            elif event == "done":
                job.outcome.update(status="ok", details=report["details"])
        return bool(reports)

    # -- the life of workers

    def _look_after(self) -> None:
        for job in list(self._live.values()):
            job.check_limits()
            if job.ended():
                while job.reports_open and self._read_reports(job):
                    pass
                self._retire(job)
        self._start_some()
        self._pass_token()
        self._pause_and_resume()

    def _start_some(self) -> None:
        while self._queue and self._timed is None:
            # Held workers wait for orders and neither build nor count against the slots.
            active = [j for j in self._live.values() if not j.request.hold or self._busy(j)]
            if sum(map(self._busy, active)) >= self._jobs or len(active) > self._jobs:
                return
            request = self._queue.popleft()
            try:
                job = Job(request)
            except OSError as error:  # no process or no temporary directory is available
                outcome = {"status": "crashed", "message": f"no worker: {error}"}
                event = {"id": request.id, "event": "finished", "measurement": outcome}
                self._client.send(event)
                continue
            self._live[request.id] = job
            self._selector.register(job.reports, selectors.EVENT_READ, ("reports", job))
            for fd in job.outputs:
                self._selector.register(fd, selectors.EVENT_READ, ("output", job))
            if job.pidfd is not None:
                self._selector.register(job.pidfd, selectors.EVENT_READ, ("end", job))
            self._tell(job, "started")

    def _retire(self, job: Job) -> None:
        del self._live[job.request.id]
        for fd in (job.reports, *job.outputs, job.pidfd):
            with contextlib.suppress(KeyError, ValueError):
                if fd is not None:
                    self._selector.unregister(fd)
        self._release(job)
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not job)
        outcome = job.conclude()
        self._kill_orphans()
        job.close()
        compared = job.request.timing.cutoff_ratio is not None
        if compared and outcome["status"] == "ok" and outcome.get("times"):
            median = sorted(outcome["times"])[len(outcome["times"]) // 2]
            self._best = min(median, self._best or median)
        self._tell(job, "finished", measurement=outcome)

    def _kill_orphans(self) -> None:
        """Kill processes that ended workers left behind and this process inherited."""
        workers = {job.pid for job in self._live.values()}
        for pid in processes.children(os.getpid()):
            if pid not in workers:
                processes.kill_tree(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _busy(self, job: Job) -> bool:
        """Return whether a worker computes while others do."""
        unguarded = job.phase == "timing" and job is not self._timed
        return unguarded or job.phase in ("building", "verifying")

    # -- the token

    def _pass_token(self) -> None:
        if self._timed is not None or not self._waiting or not self._token.try_acquire():
            return
        job, timing = self._waiting.popleft()
        self._timed = job
        for other in self._live.values():
            if other is not job:
                other.pause()
        ratio = timing["cutoff_ratio"]
        job.grant(timing, ratio * self._best if ratio and self._best else None)
        self._tell(job, "timing")

    def _release(self, job: Job) -> None:
        if self._timed is job:
            self._timed = None
            self._token.release()

    def _pause_and_resume(self) -> None:
        """Pause builds while this or another process times."""
        if self._timed is not None or not self._live:
            return
        elsewhere = self._token.taken_elsewhere()
        if not elsewhere:
            self._patience.end()
        elif self._patience.due():
            self._tell(next(iter(self._live.values())), "waiting")
        for job in self._live.values():
            if elsewhere and self._busy(job):
                job.pause()
            else:
                job.resume()


def preload(entry: str) -> None:
    """Import ``"module"``, or import and call ``"module:function"``, with ``":argument"``."""
    module, _, call = entry.partition(":")
    imported = importlib.import_module(module)
    if call:
        function, _, argument = call.partition(":")
        getattr(imported, function)(*([argument] if argument else []))


def main() -> None:
    """Serve the client on the socket whose file descriptor is the first argument."""
    with contextlib.suppress(EOFError, ConnectionError):  # the client may end at any moment
        _main(Connection(int(sys.argv[1])))


def _main(client: Connection) -> None:
    """Take the client's greeting, preload, serve."""
    os.set_inheritable(client.fileno(), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client handles Ctrl-C
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    hello = client.recv()
    sys.path[:] = hello["path"]
    try:
        for entry in hello["preload"]:
            preload(entry)
        server = Server(client, hello["jobs"])
    except (Exception, SystemExit) as error:
        # A user's module may raise anything; the client says what it was.
        kind = "" if isinstance(error, TilewrightError) else f"{type(error).__name__}: "
        client.send({"event": "refused", "message": f"{kind}{error}"})
        return
    processes.adopt_orphans()
    gc.collect()
    gc.freeze()  # leaves the preloaded modules' memory shared with the workers
    client.send({"event": "serving"})
    server.run()


if __name__ == "__main__":
    main()
