"""Pages of ``schedule`` and ``compare``, which link to each other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from tilewright.files import is_stream

if TYPE_CHECKING:
    from tilewright.halide import Result
    from tilewright.report import ScheduleReport

Kind = Literal["schedule", "compare"]
_OTHER: Mapping[Kind, Kind] = {"schedule": "compare", "compare": "schedule"}
# The text of a link to a page of each kind.
_LINK_TEXT: Mapping[Kind, str] = {
    "schedule": "Schedule of this pipeline",
    "compare": "Comparison with other schedules of this pipeline",
}


def write_page(
    path: str, report: ScheduleReport, kind: Kind, result: Result, records: str | None
) -> None:
    """Write the page of a schedule, and link it and the last page of the other kind to each other.

    Args:
        path: the file; ``-`` is standard output, which no page links to.
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
    other = None
    if path != "-":
        with contextlib.suppress(RecordsError), Records(records) as store:
            other = store.last_page(subject, _OTHER[kind])
    # The remembered page may be the one that is about to be overwritten.
    if other is not None and os.path.realpath(other) == os.path.realpath(path):
        other = None
    links = {} if other is None else _link(path, other, _OTHER[kind])
    write_file(path, schedule_page(report, links, _links_key(subject, kind)))
    if path == "-" or is_stream(path):
        return
    with contextlib.suppress(RecordsError), Records(records) as store:
        store.remember_page(path, subject, kind)
    if other is not None:
        _link_back(other, path, subject, kind)


def _links_key(subject: str, kind: Kind) -> str:
    return f"{kind} {subject}"


def _link(page: str | Path, target: str | Path, kind: Kind) -> dict[str, str]:
    """Return the relative address of `target`, a page of this kind, by link text."""
    address = os.path.relpath(target, os.path.dirname(os.path.abspath(page)))
    return {_LINK_TEXT[kind]: quote(address)}


def _link_back(other: Path, path: str, subject: str, kind: Kind) -> None:
    """Change the link on an earlier page of the other kind to the new page, where that is safe.

    Args:
        other: the earlier page. It is left alone if it is not what was written at that time: a
            page of this subject and kind, in a file of this user.
        path: the new page.
        subject: the subject of both.
        kind: the kind of the new page.
    """
    from tilewright.files import edit_text
    from tilewright.report.pages import with_links

    key, links = _links_key(subject, _OTHER[kind]), _link(other, path, kind)
    edit_text(other, lambda text: with_links(text, key, links))
