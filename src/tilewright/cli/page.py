"""Pages about schedules, each with a link to the last page of the other kind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from tilewright.files import is_stream

if TYPE_CHECKING:
    from tilewright.halide import Result
    from tilewright.records import Records
    from tilewright.report import ScheduleReport

Kind = Literal["schedule", "compare"]
# The target of links on a page of one kind, and the words of the link.
_OTHER: Mapping[Kind, tuple[Kind, str]] = {
    "schedule": ("compare", "Comparison with other schedules of this pipeline"),
    "compare": ("schedule", "Schedule of this pipeline"),
}


def write_page(
    path: str, report: ScheduleReport, kind: Kind, result: Result, records: str | None
) -> None:
    """Write the page of a schedule, and remember it for the pages that are written later.

    Args:
        path: the file; ``-`` is standard output, which is not remembered.
        report: the content of the page.
        kind: the command that writes it.
        result: the schedule. Pages belong together if they are of one algorithm and target.
        records: the records file that remembers pages, None for the default one. If it cannot be
            used, the page has no link.

    Raises:
        TilewrightError: the page cannot be written.
    """
    from tilewright.cli.output import write_file
    from tilewright.records import Records, RecordsError
    from tilewright.report.pages import schedule_page

    subject = f"{result.task.algorithm.digest[:32]} {result.schedule.target}"
    links: dict[str, str] = {}
    with contextlib.suppress(RecordsError), Records(records) as store:
        links = links_to_other(path, kind, subject, store)
    write_file(path, schedule_page(report, links))
    if path != "-" and not is_stream(path):
        with contextlib.suppress(RecordsError), Records(records) as store:
            store.remember_page(path, subject, kind)


def links_to_other(path: str, kind: Kind, subject: str, store: Records) -> dict[str, str]:
    """Return the relative address of the last page of the other kind, by link text."""
    other, words = _OTHER[kind]
    found = store.last_page(subject, other)
    # The remembered page may be the one that is about to be overwritten.
    if found is None or path == "-" or os.path.realpath(found) == os.path.realpath(path):
        return {}
    folder = os.path.dirname(os.path.abspath(path))
    return {words: quote(os.path.relpath(found, folder))}
