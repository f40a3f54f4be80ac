import io

from tilewright.cli import progress as module
from tilewright.cli.progress import progress_text, show_progress
from tilewright.report.model import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_line_says_what_matters():
    text = progress_text(
        Progress("measuring", 3, 9, {"timeout": 2, "wrong_answer": 1, "ok": 0}, 0.0021), 12.3
    )
    assert text == "measuring 3/9, failed: 2 timeout, 1 wrong answer, best 2.1 ms, 12 s"
    assert progress_text(Progress("searching"), 0.2) == "searching"
    assert progress_text(Progress("searching", 7, message="grouping"), 0) == "searching 7, grouping"


def test_plain_lines_come_seldom(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with show_progress(False, stream) as show:
        for done in range(101):
            now[0] += 1.0
            show(Progress("measuring", done, 100))
        show(Progress("finals", 0, 3))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("measuring 0/100")
    assert "measuring 100/100" in lines[-2]
    assert lines[-1].startswith("finals 0/3")
    assert 10 <= len(lines) <= 14


def test_quiet_is_quiet():
    stream = io.StringIO()
    with show_progress(True, stream) as show:
        show(Progress("measuring", 1, 2))
    assert stream.getvalue() == ""


def test_a_terminal_gets_a_live_line():
    stream = Terminal()
    with show_progress(False, stream) as show:
        show(Progress("measuring", 1, 2, {"crashed": 1}, 0.5))
    assert "measuring 1/2, failed: 1 crashed, best 500 ms" in stream.getvalue()
