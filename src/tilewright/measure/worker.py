"""The worker's side: build one candidate, verify it, time it on request.

A worker is forked from the server for one candidate and ends with it. It reports in JSON
lines on one pipe and takes orders in JSON lines from another.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .candidate import Timing
from .timing import time_runs

COMMAND_BUILDER = "tilewright.measure.command:execute"
_BEAT_SECONDS = 0.2


class Reports:
    """The pipe on which a worker reports."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._last = time.monotonic()

    def send(self, event: str, **data: Any) -> None:
        """Write one report."""
        line = json.dumps({"event": event, **data}, default=str).encode() + b"\n"
        self._last = time.monotonic()
        while line:
            line = line[os.write(self._fd, line) :]

    def beat(self) -> None:
        """Say that the worker is alive, unless it said so a moment ago."""
        if time.monotonic() - self._last > _BEAT_SECONDS:
            self.send("beat")


def load_builder(builder: str) -> Callable[[Any], Any]:
    """Return the function that ``"package.module:function"`` or ``"path/file.py:function"`` names.

    Raises ValueError if the text has another form, ImportError and AttributeError if
    there is no such module or function.
    """
    module_name, _, function = builder.rpartition(":")
    if not module_name or not function:
        raise ValueError(f"builder {builder!r} is not 'package.module:function'")
    if module_name.endswith(".py"):
        path = Path(module_name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.exists():
            raise ImportError(f"there is no Python file {module_name}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_name)
    found: Callable[[Any], Any] = getattr(module, function)
    return found


def describe(error: BaseException) -> str:
    """Return one line for an exception, bounded in length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:2000] if text else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory, of host or device, ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text
        for sign in ("out of memory", "out_of_memory", "bad_alloc", "cannot allocate memory")
    )


def run_worker(
    builder: str,
    payload: bytes,
    env: Mapping[str, str],
    verify: bool,
    orders_fd: int,
    reports_fd: int,
) -> NoReturn:
    """Serve one candidate, then leave the process without running any destructor.

    `payload` is pickled.
    """
    reports = Reports(reports_fd)
    os.environ.update(env)
    tempfile.tempdir = None  # the server gave this worker a temporary directory of its own
    orders = _orders(orders_fd)
    if builder == COMMAND_BUILDER:
        _execute(pickle.loads(payload), orders, reports)
    phase = "build_failed"
    try:
        began = time.perf_counter()
        candidate = load_builder(builder)(pickle.loads(payload))
        reports.send("built", seconds=time.perf_counter() - began)
        phase = "run_failed"
        _verify(candidate, verify, reports)
        _obey(candidate, orders, reports)
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: anything that a candidate raises is its outcome.
        status = "out_of_memory" if is_out_of_memory(error) else phase
        details = getattr(error, "details", None)
        if not isinstance(details, dict):  # else the error is a report, not a surprise
            traceback.print_exc()
        reports.send(
            "failed",
            status=status,
            message=describe(error),
            details=details if isinstance(details, dict) else {},
        )
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _verify(candidate: Any, wanted: bool, reports: Reports) -> None:
    """Report whether the answer is right; a wrong one ends the process."""
    if not wanted or not hasattr(candidate, "verify"):
        reports.send("ready", verified=False)
        return
    result = candidate.verify()
    if not result.ok and hasattr(candidate, "recheck"):
        reports.send("rechecking")
        result = candidate.recheck()
    if not result.ok:
        reports.send(
            "failed",
            status="wrong_answer",
            message=result.message or "the answer differs from the reference's",
            max_error=_number(result.max_error),
            details=_details(candidate),
        )
        os._exit(0)
    reports.send("ready", verified=True, max_error=_number(result.max_error))


def _obey(candidate: Any, orders: Iterator[dict[str, Any]], reports: Reports) -> None:
    """Time the candidate as often as ordered; the order to end ends the process."""
    for order in orders:
        if order["do"] == "end":
            reports.send("done", details=_details(candidate))
            os._exit(0)
        samples = time_runs(
            candidate.run,
            Timing(**order["timing"]),
            sync=getattr(candidate, "sync", None),
            beat=reports.beat,
            cutoff=order.get("cutoff"),
        )
        reports.send(
            "timed",
            times=samples.times,
            cpu_times=samples.cpu_times,
            runs=samples.runs,
            lower_bound=samples.lower_bound,
        )


def _orders(fd: int) -> Iterator[dict[str, Any]]:
    """Yield orders as they arrive, until the server closes the pipe."""
    with os.fdopen(fd, "rb") as lines:
        for line in lines:
            yield json.loads(line)


def _details(candidate: Any) -> dict[str, Any]:
    details = getattr(candidate, "details", None)
    return dict(details()) if callable(details) else {}


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _execute(
    payload: Mapping[str, Any], orders: Iterator[dict[str, Any]], reports: Reports
) -> None:
    """Become the command: check it, wait for the turn, and replace this process by it."""
    argv = [str(word) for word in payload["argv"]]
    try:
        if payload.get("cwd"):
            os.chdir(payload["cwd"])
    except OSError as error:
        reports.send("failed", status="build_failed", message=describe(error))
        os._exit(0)
    reports.send("built", seconds=0.0)
    reports.send("ready", verified=False)
    next(orders)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; programs expect them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        reports.send(
            "failed", status="build_failed", message=f"{shlex.quote(argv[0])}: {describe(error)}"
        )
    finally:
        os._exit(127)
