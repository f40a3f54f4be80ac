"""Facts on how a page was made: command, date, version, computer and its load."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright import __version__

if TYPE_CHECKING:
    from tilewright.report import ScheduleReport


def load() -> float:
    """Return the average number of runnable processes in the last minute."""
    return os.getloadavg()[0]


def with_provenance(
    report: ScheduleReport, words: Sequence[str], seed: int, load_before: float
) -> ScheduleReport:
    """Return the report with facts on how it was made.

    Args:
        report: the report.
        words: the command line after ``tilewright``.
        seed: the seed of the random inputs.
        load_before: `load` when the command began, which excludes its own work.
    """
    return replace(report, facts={**report.facts, **provenance(words, seed, load_before)})


def provenance(words: Sequence[str], seed: int, load_before: float) -> dict[str, str]:
    """Return the facts by name; the arguments are those of `with_provenance`."""
    from tilewright.machines import detect_cpu

    cpu = detect_cpu()
    return {
        "command": shlex.join(["tilewright", *words]),
        "date": datetime.datetime.now().astimezone().isoformat(" ", "minutes"),
        "version": f"tilewright {__version__}",
        "seed": str(seed),
        "computer": f"{cpu.name}, {cpu.cores} cores",
        "load": f"{load_before:.1f} processes in the minute before",
    }
