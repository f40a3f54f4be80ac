"""Signals that end a run: each interrupts it, and the best result so far is shown."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

# A shell reports a process that a signal has ended as this plus the signal's number.
_SHELL_BASE = 128
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds, chosen: Python has left the finalizer, and a user notices no delay.
_AGAIN = 0.02


@dataclass
class Interruption:
    """The signal that was received, 0 if none."""

    number: int = 0

    @property
    def exit_code(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP; 0 if none was received."""
        return _SHELL_BASE + self.number if self.number else 0


_current = Interruption()


def interrupted() -> bool:
    """Return whether a signal has asked the present command to end."""
    return _current.number != 0


@contextlib.contextmanager
def interruptions(came: Interruption | None = None) -> Iterator[Interruption]:
    """Raise KeyboardInterrupt in the block for every signal that asks it to end.

    Signals that the process was started to ignore (``nohup``) stay ignored. Python drops an
    exception that is raised in a finalizer (``__del__``) or a callback of the garbage collector; a
    signal that arrives there is sent again. Outside the main thread nothing changes, because Python
    allows no handlers there.

    Args:
        came: records the signal, even one that arrives before the block begins.
    """
    global _current
    came = Interruption() if came is None else came
    _current = came
    before: dict[signal.Signals, Any] = {}
    restoring = False

    def handle(number: int, frame: FrameType | None) -> None:
        came.number = number
        if not restoring:
            raise KeyboardInterrupt

    def send_again() -> None:
        time.sleep(_AGAIN)
        if not restoring:
            os.kill(os.getpid(), came.number)

    show = sys.unraisablehook

    def dropped(unraisable: sys.UnraisableHookArgs) -> None:
        if came.number and issubclass(unraisable.exc_type, KeyboardInterrupt):
            # A signal sent from here would interrupt this hook, and be dropped again.
            _thread.start_new_thread(send_again, ())
        else:
            show(unraisable)

    try:
        if threading.current_thread() is threading.main_thread():
            for wanted in _SIGNALS:
                if signal.getsignal(wanted) is not signal.SIG_IGN:
                    before[wanted] = signal.getsignal(wanted)
                    signal.signal(wanted, handle)
            sys.unraisablehook = dropped
        yield came
    finally:
        restoring = True
        if sys.unraisablehook is dropped:
            sys.unraisablehook = show
        for number, handler in before.items():
            signal.signal(number, handler)
