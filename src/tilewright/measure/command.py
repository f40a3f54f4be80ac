"""A command as a candidate: run without a shell, its output kept within bounds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from .candidate import Candidate
from .worker import COMMAND_BUILDER


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
