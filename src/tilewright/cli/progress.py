"""Progress of long work: a live line on a terminal, otherwise occasional plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TextIO

from tilewright.report import Progress

# Seconds between two plain lines.
PLAIN_INTERVAL = 10.0
WAITING = "waiting until another process has finished timing"


def progress_text(progress: Progress, elapsed: float) -> str:
    """Format progress in one line: phase, candidates done, failures by cause, best, time.

    >>> from tilewright.report.model import Progress
    >>> progress_text(Progress("measuring", 3, 5, {"timeout": 1}, 0.0021), 12)
    'measuring 3/5, failed: 1 timeout, best 2.1 ms, 12 s'
    """
    from tilewright.report import units

    head = progress.phase
    if progress.total is not None:
        head += f" {progress.done}/{progress.total}"
    elif progress.done:
        head += f" {progress.done}"
    parts = [head]
    failed = [f"{n} {status.replace('_', ' ')}" for status, n in progress.failed.items() if n]
    if failed:
        parts.append(f"failed: {', '.join(failed)}")
    if progress.best is not None:
        parts.append(f"best {units.seconds(progress.best)}")
    if progress.message:
        parts.append(progress.message)
    if elapsed >= 1:
        parts.append(f"{elapsed:.0f} s")
    return ", ".join(parts)


@contextmanager
def show_progress(
    quiet: bool, stream: TextIO | None = None
) -> Iterator[Callable[[Progress], None]]:
    """Yield a function to call with each `Progress`, which is shown on standard error.

    On a terminal the last line is kept up to date; elsewhere a line is printed when the phase
    changes, every `PLAIN_INTERVAL` seconds, and when another process has to finish timing first.
    """
    from tilewright.measure import on_wait

    if quiet:
        yield lambda progress: None
        return
    stream = stream or sys.stderr
    start = time.monotonic()
    shown = _live(stream, start) if stream.isatty() else nullcontext(_plain(stream, start))
    last = [Progress("measuring")]
    with shown as show:

        def remember(progress: Progress) -> None:
            last[0] = progress
            show(progress)

        with on_wait(lambda: show(replace(last[0], message=WAITING))):
            yield remember


def counted(show: Callable[[Progress], None], phase: str) -> Callable[[int, int], None]:
    """Return a function that shows the number done and the total of a phase."""
    return lambda done, total: show(Progress(phase, done, total))


@contextmanager
def _live(stream: TextIO, start: float) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    last: list[Progress] = []

    def line() -> Text:
        text = progress_text(last[-1], time.monotonic() - start) if last else ""
        return Text(text, no_wrap=True, overflow="ellipsis")

    console = Console(file=stream)
    # Live calls `line` from its own thread, so that the seconds tick while nothing happens.
    with Live(get_renderable=line, console=console, refresh_per_second=4, transient=True):
        yield lambda progress: last.__setitem__(slice(None), [progress])


def _plain(stream: TextIO, start: float) -> Callable[[Progress], None]:
    printed: dict[str, float | str] = {"at": float("-inf"), "phase": ""}

    def show(progress: Progress) -> None:
        now = time.monotonic()
        due = now - float(printed["at"]) >= PLAIN_INTERVAL
        finished = progress.total is not None and progress.done == progress.total
        waits = progress.message == WAITING
        if due or finished or waits or progress.phase != printed["phase"]:
            print(progress_text(progress, now - start), file=stream, flush=True)
            printed.update(at=now, phase=progress.phase)

    return show
