"""Calls a function in a forked copy of this process, with limits of CPU time and memory.

A fork starts in milliseconds with all that is loaded, where a fresh worker imports everything
again. It suits short calls whose result is plain data. Timed candidates run in workers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import select
import signal
import warnings
from collections.abc import Callable
from typing import TypeVar

from tilewright.measure import processes

Result = TypeVar("Result")
# Signals whose handlers the forked process drops: those of a user, and those of crashes, for which
# an OpenCL platform may have installed a handler that goes on.
_ENDING = tuple(
    signal.Signals[f"SIG{name}"]
    for name in ("INT", "TERM", "HUP", "XCPU", "SEGV", "BUS", "FPE", "ILL", "ABRT")
)
_FAILED, _NO_MEMORY = 70, 71  # exit codes of the forked process
# Wall-clock time that a call may take, in its limits of CPU time: on a busy machine it gets a small
# share of a core, and one that waits for a lock held at the fork uses no CPU time at all.
_PATIENCE = 20
_CLOSED = -1  # in place of the descriptor of a pipe's end that is closed already


class ForkedCallError(RuntimeError):
    """The forked process reached a limit or crashed; the text says which."""


def call_forked(function: Callable[[], Result], *, cpu_seconds: int, memory_bytes: int) -> Result:
    """Return what `function` returns in a forked process.

    Args:
        function: what to call; its result, or the exception it raises, must be picklable.
        cpu_seconds: limit of the CPU time of the call, in seconds.
        memory_bytes: limit of the memory allocated on top of what this process has.

    Raises:
        ForkedCallError: the call exceeded a limit, crashed, returned what cannot be pickled, or
            took 20 times its CPU limit by the clock.
    """
    received, sent = os.pipe()
    waiting, go = os.pipe()
    parent, pid, status, answer = os.getpid(), 0, 0, b""
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns where threads run. The child takes no lock of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(received)
            os.close(go)
            _answer(function, waiting, sent, parent, cpu_seconds, memory_bytes)
        # An interrupt from here on finds `pid` set. The child waits, and ends if one came before.
        os.write(go, b"1")
        os.close(sent)
        sent = _CLOSED
        if not select.select([received], [], [], _PATIENCE * cpu_seconds)[0]:
            raise ForkedCallError(f"it did not end in {_PATIENCE * cpu_seconds} s")
        with open(received, "rb", closefd=False) as stream:
            answer = stream.read()
    except BaseException:
        if os.getpid() != parent:
            os._exit(_FAILED)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    finally:
        for end in (received, sent, waiting, go):
            if end != _CLOSED:
                os.close(end)
        if pid:
            _, status = os.waitpid(pid, 0)
    if status or not answer:
        raise ForkedCallError(_ending(status, cpu_seconds))
    ok, value = pickle.loads(answer)
    if not ok:
        raise value
    result: Result = value
    return result


def _answer(
    function: Callable[[], object],
    waiting: int,
    sent: int,
    parent: int,
    cpu_seconds: int,
    memory_bytes: int,
) -> None:
    """In the forked process: call once the parent says so, write the pickled answer, and end."""
    code = _FAILED
    try:
        if not os.read(waiting, 1):
            return  # to the end of the process
        processes.die_with_parent(parent)
        faulthandler.disable()  # a crash is reported by the caller
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        _limit(resource.RLIMIT_CPU, cpu_seconds)
        with open("/proc/self/statm", "rb") as statm:
            size = int(statm.read().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, size + memory_bytes)
        _limit(resource.RLIMIT_CORE, 0)
        try:
            answer = pickle.dumps((True, function()))
        except MemoryError:
            os._exit(_NO_MEMORY)
        except Exception as error:
            answer = pickle.dumps((False, error))
        with open(sent, "wb") as stream:
            stream.write(answer)
        code = 0
    finally:
        os._exit(code)


def _limit(which: int, value: int) -> None:
    """Lower the soft limit of a resource; a lower one that is in force stays."""
    soft, hard = resource.getrlimit(which)
    kept = [limit for limit in (soft, hard, value) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(which, (min(kept), hard))


def _ending(status: int, cpu_seconds: int) -> str:
    """Say in words how a forked process ended that gave no answer."""
    if not os.WIFSIGNALED(status):
        out_of_memory = os.waitstatus_to_exitcode(status) == _NO_MEMORY
        return "it ran out of memory" if out_of_memory else "its result cannot be returned"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return f"it took more than {cpu_seconds} s of CPU time"
    return f"it crashed with {signal.Signals(number).name}"
