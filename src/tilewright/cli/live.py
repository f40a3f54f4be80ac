"""A page that follows a run while it goes on, for this machine's user alone (``--serve``)."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tilewright.cli.output import warn
from tilewright.errors import TilewrightError
from tilewright.report import Progress

ADDRESS = "127.0.0.1"
# The share of a run's time that may go into drawing its page.
_SHARE = 0.05
# Seconds after which an idle connection is closed.
_IDLE = 10.0
_WAITING = "<!doctype html>\n<html><body><main><p>Nothing has been measured yet.</p></main></body>"
# The browser asks for the page every two seconds (answered with 304 while it is the same), and
# replaces what it shows. If the server does not answer, the run has ended.
_FOLLOW = """\
<p id="live" style="padding: 0 1em">This page follows the run.</p>
<script>
let tag = "", timer = setInterval(async () => {
  let answer, text;
  try {
    answer = await fetch(location.href, {headers: {"If-None-Match": tag}, cache: "no-store"});
    text = await answer.text();
  } catch {
    clearInterval(timer);
    document.getElementById("live").textContent = "The run has ended; this was its last state.";
    return;
  }
  if (answer.status !== 200) return;
  tag = answer.headers.get("ETag");
  const next = new DOMParser().parseFromString(text, "text/html");
  document.title = next.title;
  document.head.replaceWith(next.head);
  document.querySelector("main").replaceWith(next.querySelector("main"));
}, 2000);
</script>
"""


class LivePage:
    """What the server answers with. Draw it between evaluations; serving it sends bytes only."""

    def __init__(self) -> None:
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self._due = 0.0
        self._changes = 0
        self.state = self._followed(_WAITING)

    def show(self, page: Callable[[], str]) -> None:
        """Replace the page by what ``page`` returns, unless drawing takes too much of the run."""
        started = time.monotonic()
        if started < self._due:
            return
        self.state = self._followed(page())
        ended = time.monotonic()
        self._due = ended + (ended - started) / _SHARE

    def _followed(self, page: str) -> tuple[str, bytes]:
        """Return the tag of this state of the page, and the page with what keeps it up to date."""
        self._changes += 1
        text = page.replace("<body>", f"<body>\n{_FOLLOW}", 1)
        return f'"{self._changes}"', text.encode()


@contextmanager
def live_page(wanted: bool) -> Iterator[LivePage | None]:
    """Serve a page while the block runs, and print its address; yield None if it is not wanted.

    The page has a random address on the loopback interface: neither other machines nor other users
    of this one can read it without that address.

    Raises:
        TilewrightError: the system allows no server.
    """
    if not wanted:
        yield None
        return
    page = LivePage()
    try:
        server = ThreadingHTTPServer((ADDRESS, 0), _handler(page))
    except OSError as error:
        raise TilewrightError(f"--serve: cannot listen on {ADDRESS}: {error.strerror}") from None
    server.daemon_threads = True
    server.block_on_close = False  # an open connection does not hold up the end of the run
    threading.Thread(target=server.serve_forever, name="live page", daemon=True).start()
    warn(f"follow the run at http://{ADDRESS}:{server.server_port}{page.path}")
    try:
        yield page
    finally:
        server.shutdown()
        server.server_close()


def _handler(page: LivePage) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers requests for the page, and no others."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _IDLE

        def do_GET(self) -> None:
            asked = urlsplit(self.path).path.encode(errors="replace")
            if not secrets.compare_digest(asked, page.path.encode()):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            tag, body = page.state
            same = self.headers.get("If-None-Match") == tag
            self.send_response(HTTPStatus.NOT_MODIFIED if same else HTTPStatus.OK)
            self.send_header("ETag", tag)
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            if not same:
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not same:
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Print nothing: standard error shows the run's progress."""

    return Handler


class ProgressPage:
    """The page of a run that is known by its `Progress`: called with each, it draws the page."""

    def __init__(self, title: str, page: LivePage) -> None:
        self.title = title
        self.page = page
        self._start = time.monotonic()
        self._times: list[float] = []
        self._best: list[float] = []

    def __call__(self, progress: Progress) -> None:
        """Take the state of the run."""
        now = time.monotonic() - self._start
        if progress.best is not None and progress.best not in self._best[-1:]:
            self._times.append(now)
            self._best.append(progress.best)
        self.page.show(lambda: self._html(progress, now))

    def _html(self, progress: Progress, now: float) -> str:
        from tilewright.report import units
        from tilewright.report.charts import Line, line_chart, reflowing
        from tilewright.report.pages import Figure, Section, html_page

        done = str(progress.done) + ("" if progress.total is None else f" of {progress.total}")
        failed = sum(progress.failed.values())
        figures = [Figure(done, progress.phase), Figure(units.seconds(now), "since the beginning")]
        if failed:
            causes = (f"{n} {s.replace('_', ' ')}" for s, n in progress.failed.items() if n)
            figures.append(Figure(str(failed), f"failed: {', '.join(causes)}", "bad"))
        sections = []
        if self._best:
            figures.insert(0, Figure(units.seconds(self._best[-1]), "best so far", "good"))
            times, best = [*self._times, now], [*self._best, self._best[-1]]
            line = Line("best so far", times, best, steps=True)
            chart = reflowing(
                lambda width: line_chart(
                    [line],
                    label="least time after each second of the run",
                    x_label="seconds",
                    y_label="time of a run",
                    y_text=units.seconds,
                    log_y=True,
                    width=width,
                )
            )
            sections.append(Section("Best so far", chart))
        return html_page(self.title, sections, subtitle=progress.message, figures=figures)
