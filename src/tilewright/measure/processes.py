"""Process trees: who belongs to one, how much memory it uses, stopping and killing it.

Everything here reads ``/proc`` directly: a walk over a worker's tree takes microseconds, while a
scan of all processes of the machine would disturb timing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, known to be `parent`, dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none escapes."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children(pid: int) -> list[int]:
    """Return the process ids of the children of `pid`, those of all its threads."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{pid}/task/{thread}/children", "rb") as listing,
        ):
            found += map(int, listing.read().split())
    return found


def tree(pid: int) -> list[int]:
    """Return `pid` and all its descendants."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def resident_bytes(pids: list[int]) -> int:
    """Return the total resident memory of the processes; pages that they share count for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as statm:
            fields = statm.read().split()
            if len(fields) > 1:
                total += int(fields[1]) * _PAGE
    return total


def send(pids: list[int], signal_number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def stop_tree(pid: int, *, seconds: float = 1.0) -> list[int]:
    """Stop `pid` and its descendants, top down until none is new, so that none forks unseen."""
    known: list[int] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fresh = [p for p in tree(pid) if p not in known]
        if not fresh:
            break
        send(fresh, signal.SIGSTOP)
        known += fresh
    return known


def kill_tree(pid: int) -> None:
    """Kill `pid` and its descendants, those that fork while being killed included."""
    send([*stop_tree(pid), pid], signal.SIGKILL)
