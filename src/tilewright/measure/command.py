"""A command as a candidate: run without a shell, its output kept within bounds."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .candidate import Candidate
from .capture import OutputCapture
from .worker import COMMAND_BUILDER

_SHOWN = 200  # characters of a command's output in a message
_KEPT = 16 << 10  # bytes of each of a command's streams, as of a candidate's
_CHUNK = 64 << 10  # bytes read at a time


@dataclass(frozen=True)
class EndedCommand:
    """The end of a command, and the beginning and the end of its output."""

    exit_code: int
    stdout: str
    stderr: str


def run_to_end(argv: Sequence[str], seconds: float) -> EndedCommand:
    """Run a command, a list of words, without a shell, and wait for the end of its output.

    Raises:
        subprocess.TimeoutExpired: it was killed after `seconds`.
        OSError: it cannot be started.
    """
    deadline = time.monotonic() + seconds
    with (
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        selectors.DefaultSelector() as open_streams,
    ):
        captures = []
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            captures.append(OutputCapture(_KEPT))
            open_streams.register(stream, selectors.EVENT_READ, captures[-1])
        try:
            while open_streams.get_map():
                left = deadline - time.monotonic()
                ready = open_streams.select(left) if left > 0 else []
                if not ready:
                    raise subprocess.TimeoutExpired(list(argv), seconds)
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        key.data.add(data)
                    else:
                        open_streams.unregister(key.fileobj)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException:
            process.kill()
            raise
    out, err = (capture.text() for capture in captures)
    return EndedCommand(code, out, err)


def printed(output: str) -> str:
    r"""Return a command's output on one line for a message; only its end if it is long.

    >>> printed("size 4\n")
    "it printed 'size 4'"
    """
    text = " ".join(output.split())
    if not text:
        return "it printed nothing"
    said = "printed" if len(text) <= _SHOWN else "ended with"
    return f"it {said} {text[-_SHOWN:]!r}"


def last_words(stdout: str, stderr: str) -> str:
    r"""Return why a command failed in its own words: its last error line and its output.

    >>> last_words("size 4\n", "a warning\nno memory\n")
    "no memory; it printed 'size 4'"
    >>> last_words("size 4\n", "")
    "it printed 'size 4'"
    """
    errors = stderr.strip().splitlines()
    if not errors:
        return printed(stdout)
    return errors[-1][:_SHOWN] + (f"; {printed(stdout)}" if stdout.strip() else "")


def command(
    argv: Sequence[str],
    *,
    key: str = "",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    exclusive: bool = True,
    repeated: bool = False,
) -> Candidate:
    """Return a candidate that runs a command, a list of words, in directory `cwd`.

    `env` is added to this process's environment. The command runs once and its wall time is
    the one sample; exit code 0 is ``ok``, another ``run_failed``, death by a signal
    ``crashed``, a program that cannot be started ``build_failed``. The measurement's details
    hold ``exit_code``, ``stdout`` and ``stderr`` (each cut to ``Limits.output_bytes``), also
    when it failed or was killed. CPU time counts its children that it waited for.

    An `exclusive` command runs alone, as anything that is timed; others run during builds and
    at the same time, for objectives other than time.

    With `repeated`, the command is timed as any other candidate, with warm-up and as many
    runs as the timing asks for; its output is kept merged, in the measurement's ``output``.

    Raises ValueError for an empty command or a single string.
    """
    if isinstance(argv, str) or not argv:
        raise ValueError("a command is a non-empty list of words, not one string")
    payload: dict[str, Any] = {
        "argv": [str(word) for word in argv],
        "cwd": None if cwd is None else str(cwd),
        "exclusive": exclusive,
    }
    builder = "tilewright.measure.command:Repeated" if repeated else COMMAND_BUILDER
    return Candidate(builder, payload, key or " ".join(payload["argv"]), dict(env or {}))


class CommandFailedError(Exception):
    """A repeated command ended with another exit code than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the command ended with exit code {code}")
        self.details = {"exit_code": code}


class Repeated:
    """A command that is started again for every run."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take ``{"argv": [...], "cwd": path or None}``."""
        self._argv = payload["argv"]
        self._cwd = payload["cwd"]

    def run(self) -> None:
        """Run it once; raises CommandFailedError for an exit code other than 0."""
        code = subprocess.run(self._argv, cwd=self._cwd, check=False).returncode
        if code != 0:
            raise CommandFailedError(code)
