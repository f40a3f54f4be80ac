"""One worker process as its server sees it: pipes, phase, clock, limits, outcome."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Literal

from . import processes
from .candidate import RunLimits, Timing
from .capture import OutputCapture
from .worker import COMMAND_BUILDER, run_worker

Phase = Literal["building", "verifying", "ready", "timing", "ending", "gone"]

_END_SECONDS = 30.0  # for the details at the end
_BEAT_SLACK = 0.5  # interval within which a worker reports that no single run hangs
_MAX_REPORT = 16 << 20
_LAST_READS = 32  # of 64 KB: more than a pipe holds


@dataclass(frozen=True)
class Request:
    """A client's request to measure something.

    `payload` stays pickled in the server. With `hold`, the worker stays alive once it is ready and
    takes samples only on request. Without `exclusive`, a command need not run alone.
    """

    id: int
    builder: str
    payload: bytes
    env: dict[str, str]
    limits: RunLimits
    timing: Timing
    hold: bool = False
    exclusive: bool = True

    @property
    def is_command(self) -> bool:
        """Whether the worker becomes a command instead of running a Python candidate."""
        return self.builder == COMMAND_BUILDER


class Job:
    """A forked worker and everything known about it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.outcome: dict[str, Any] = {"status": "crashed", "details": {}}
        self.captures = {"stdout": OutputCapture(request.limits.output_bytes)}
        self.failed = False
        self.phase: Phase = "building"
        self.paused = False
        self.directory = tempfile.mkdtemp(prefix="tilewright-worker-")
        self._used = 0.0
        self._since = time.monotonic()
        self._partial = b""
        self._killed = False
        self._ended: tuple[int, Any] | None = None
        self.reports_open = True
        self.asked_details = False
        self._fork()

    def _fork(self) -> None:
        orders_read, self.orders = os.pipe()
        self.reports, reports_write = os.pipe()
        output, stdout = os.pipe()
        self.outputs = {output: self.captures["stdout"]}
        stderr = stdout
        if self.request.is_command:
            errors, stderr = os.pipe()
            self.captures["stderr"] = OutputCapture(self.request.limits.output_bytes)
            self.outputs[errors] = self.captures["stderr"]
        server = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _become_worker(server, self.directory, stdout, stderr)
                _close_all_but(orders_read, reports_write)
                request = self.request
                run_worker(
                    request.builder,
                    request.payload,
                    request.env,
                    request.timing.verify,
                    orders_read,
                    reports_write,
                )
            finally:
                os._exit(70)
        for fd in {orders_read, reports_write, stdout, stderr}:
            os.close(fd)
        for fd in (self.reports, *self.outputs):
            os.set_blocking(fd, False)
        self.pidfd: int | None = None
        with contextlib.suppress(OSError):  # kernels before 5.3: its end is noticed by polling
            self.pidfd = os.pidfd_open(self.pid)

    # -- clock: time during which the worker is stopped does not count

    def enter(self, phase: Phase) -> None:
        """Enter a phase; its clock starts at zero."""
        self.phase = phase
        self._used, self._since = 0.0, time.monotonic()

    def elapsed(self) -> float:
        """Return seconds in this phase, pauses left out."""
        return self._used + (0.0 if self.paused else time.monotonic() - self._since)

    def ask_details(self) -> None:
        """Ask the worker for its details; it then ends."""
        self.asked_details = True
        self.enter("ending")
        self.order(do="end")

    def pause(self) -> None:
        """Stop the worker and its descendants."""
        if not self.paused and self.phase != "gone":
            self._used, self.paused = self.elapsed(), True
            processes.stop_tree(self.pid)

    def resume(self) -> None:
        """Let the worker and its descendants run again."""
        if self.paused:
            self.paused, self._since = False, time.monotonic()
            processes.send(processes.tree(self.pid), signal.SIGCONT)

    # -- orders and reports

    def order(self, **order: Any) -> None:
        """Send the worker an order; a worker that is gone ignores it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.orders, json.dumps(order).encode() + b"\n")

    def grant(self, timing: dict[str, Any], cutoff: float | None) -> None:
        """Let the worker time its candidate now."""
        self.resume()
        self.enter("timing")
        self.order(do="time", timing=timing, cutoff=cutoff)

    def read_reports(self) -> list[dict[str, Any]]:
        """Read the reports that have arrived; a worker that writes nonsense is killed."""
        try:
            data = os.read(self.reports, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return []
        self.reports_open = bool(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        try:
            if len(self._partial) > _MAX_REPORT:
                raise ValueError("report too long")
            reports = [json.loads(line) for line in lines]
            if not all(isinstance(report, dict) and "event" in report for report in reports):
                raise ValueError("not a report")
        except ValueError as error:
            self.fail("crashed", f"the worker's reports are unreadable: {error}")
            return []
        return reports

    def read_output(self, fd: int) -> bool:
        """Take printed bytes; False at the end of the output."""
        try:
            data = os.read(fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return True
        self.outputs[fd].add(data)
        return bool(data)

    # -- limits and the end

    def check_limits(self) -> None:
        """Kill the worker if it exceeds its time or memory."""
        if self._killed:
            return
        limits = self.request.limits
        used = processes.resident_bytes(processes.tree(self.pid))
        self.outcome["peak_memory"] = max(self.outcome.get("peak_memory", 0), used)
        if used > limits.memory_bytes:
            self.fail(
                "out_of_memory",
                f"killed at {used >> 20} MB of resident memory, "
                f"limit {limits.memory_bytes >> 20} MB",
            )
            return
        slack = 0.0 if self.request.is_command else _BEAT_SLACK
        allowed = {
            "building": limits.build_seconds,
            "verifying": 2 * limits.run_seconds,
            "timing": limits.run_seconds + slack,
            "ending": _END_SECONDS,
        }.get(self.phase, math.inf)
        if self.elapsed() > allowed:
            self.fail("timeout", f"killed after {allowed:g} s of {self.phase}")

    def fail(self, status: str, message: str) -> None:
        """Record why the worker failed, unless known, and kill it and its descendants."""
        if not self.failed:
            self.failed = True
            self.outcome.update(status=status, message=message)
        self._killed = True
        processes.kill_tree(self.pid)

    def take_failure(self, report: dict[str, Any]) -> None:
        """Record a failure that the worker reports before it ends."""
        if self.failed:
            return
        self.failed = True
        self.enter("ending")
        for field in ("status", "message", "max_error", "details"):
            if report.get(field) is not None:
                self.outcome[field] = report[field]

    def ended(self) -> bool:
        """Return whether the process is gone; its pipes may still hold reports and output."""
        if self._ended is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid != 0:
                self._ended = (status, usage)
        return self._ended is not None

    def conclude(self) -> dict[str, Any]:
        """Return the outcome of a process that has ended, as the fields of a Measurement."""
        assert self._ended is not None
        status, usage = self._ended
        wall = self.elapsed()
        was, self.phase = self.phase, "gone"
        for fd in self.outputs:  # its last output; descendants may continue to print
            for _ in range(_LAST_READS):
                if not self.read_output(fd):
                    break
        outcome = self.outcome
        peak = max(outcome.get("peak_memory", 0), usage.ru_maxrss * 1024)
        outcome["peak_memory"] = peak
        if not self.failed and outcome["status"] != "ok":
            self._explain_end(was, os.waitstatus_to_exitcode(status))
        if self.asked_details and outcome["status"] != "ok":
            # It has been verified and timed: only its details are missing.
            outcome["message"] = f"no details: {outcome.get('message', '')}"
            outcome["status"] = "ok"
        if not self.request.is_command:
            outcome["output"] = self.captures["stdout"].text()
        elif was == "timing":
            outcome["details"] = {name: c.text() for name, c in self.captures.items()}
            outcome["details"]["exit_code"] = os.waitstatus_to_exitcode(status)
            cpu = usage.ru_utime + usage.ru_stime
            outcome.update(times=[wall], cpu_times=[cpu], runs=1)
        return outcome

    def _explain_end(self, was: Phase, code: int) -> None:
        """Record the meaning of an end without a report."""
        if self.request.is_command and was == "timing" and code >= 0:
            self.outcome["status"] = "ok" if code == 0 else "run_failed"
            self.outcome["message"] = "" if code == 0 else f"exit code {code}"
            return
        if code < 0:
            message = f"died of {_signal_name(-code)} while {was}"
            if -code == signal.SIGKILL:
                message += ", sent by the system when memory ran out, or by another process"
        else:
            message = f"left its process with exit code {code} while {was}"
        starved = any(b"bad_alloc" in capture.tail for capture in self.captures.values())
        aborted = code == -signal.SIGABRT
        self.outcome["status"] = "out_of_memory" if aborted and starved else "crashed"
        self.outcome["message"] = message

    def close(self) -> None:
        """Close the pipes and remove the worker's temporary files."""
        for fd in (self.orders, self.reports, *self.outputs):
            os.close(fd)
        if self.pidfd is not None:
            os.close(self.pidfd)
        shutil.rmtree(self.directory, ignore_errors=True)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _become_worker(server: int, directory: str, stdout: int, stderr: int) -> None:
    """Set up the fresh process: own session, killed with the server, no core dumps."""
    import resource

    os.setsid()
    processes.die_with_parent(server)
    processes.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # when memory runs out, this process is the one to end
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.environ["TMPDIR"] = directory


def _close_all_but(*keep: int) -> None:
    """Close the server's file descriptors, the timing token's among them."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
