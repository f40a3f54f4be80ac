"""``--serve``: a page that follows a run, on an address that nobody guesses, until the run ends."""

import json
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tilewright.cli import live
from tilewright.cli.live import LivePage, ProgressPage, live_page
from tilewright.report.model import Progress

PAGE = "<!doctype html>\n<html><body><main>{}</main></body></html>"
DIRECT = build_opener(ProxyHandler({}))  # a proxy of the environment would be asked for loopback


def fetch(address, **headers):
    asked = Request(address, headers={k.replace("_", "-"): v for k, v in headers.items()})
    with DIRECT.open(asked, timeout=30) as answer:
        return answer.headers, answer.read().decode()


def address_in(text):
    return next(word for word in text.split() if word.startswith("http://127.0.0.1:"))


def test_the_page_is_at_its_address_only_and_ends_with_the_block(capsys):
    with live_page(True) as page:
        address = address_in(capsys.readouterr().err)
        assert "Nothing has been measured yet" in fetch(address)[1]
        page.show(lambda: PAGE.format("first ß"))
        headers, text = fetch(address + "?again")
        assert "first ß" in text
        assert "This page follows the run" in text
        assert headers["Cache-Control"] == "no-store"
        with pytest.raises(HTTPError, match="304"):
            fetch(address, If_None_Match=headers["ETag"])
        root = address.split("/", 3)
        for other in ("", "favicon.ico", root[3][:-2] + "/", "%C3%9F"):
            with pytest.raises(HTTPError, match="404"):
                fetch("/".join([*root[:3], other]))
        with pytest.raises(HTTPError, match="501"):
            DIRECT.open(Request(address, data=b"x"), timeout=30)
    with pytest.raises(URLError):
        fetch(address)


def test_a_changed_page_is_sent_although_the_browser_has_one(capsys):
    with live_page(True) as page:
        address = address_in(capsys.readouterr().err)
        tag = fetch(address)[0]["ETag"]
        page.show(lambda: PAGE.format("second"))
        assert "second" in fetch(address, If_None_Match=tag)[1]


def test_an_open_connection_does_not_hold_up_the_end(capsys):
    with live_page(True):
        host = address_in(capsys.readouterr().err).split("/")[2]
        idle = socket.create_connection(host.split(":"))
        idle.sendall(b"GET /")
    idle.close()


def test_it_listens_on_the_loopback_only(monkeypatch):
    bound = []

    class Server(live.ThreadingHTTPServer):
        def __init__(self, at, handler):
            bound.append(at)
            super().__init__(at, handler)

    monkeypatch.setattr(live, "ThreadingHTTPServer", Server)
    with live_page(True) as first, live_page(True) as second:
        assert first.path != second.path
    assert bound == [("127.0.0.1", 0)] * 2
    with live_page(False) as page:
        assert page is None


def test_drawing_takes_a_small_share_of_the_run(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    page, drawn = LivePage(), []

    def draw():
        now[0] += 1.0  # second
        drawn.append(now[0])
        return PAGE.format(len(drawn))

    for _ in range(100):
        page.show(draw)
        now[0] += 1.0
    assert len(drawn) == 5
    assert b"<main>5</main>" in page.state[1]


def test_progress_is_shown_with_its_curve(monkeypatch):
    page = LivePage()
    monkeypatch.setattr(live, "_SHARE", float("inf"))  # draw every time
    watch = ProgressPage("Scheduling <p>", page)
    watch(Progress("searching"))
    assert b"searching" in page.state[1]
    assert b"Best so far" not in page.state[1]
    watch(Progress("measuring", 1, 5, best=0.004))
    watch(Progress("measuring", 2, 5, {"wrong_answer": 1}, best=0.003, message="<b>"))
    text = page.state[1].decode()
    for part in (
        "Scheduling &lt;p&gt;",
        "2 of 5",
        "1 wrong answer",
        "3 ms",
        "Best so far",
        "&lt;b&",
    ):
        assert part in text


# A document as far as the page's script needs it, and three answers: new, the same, none.
BROWSER = """\
const shown = {}, asked = [];
const part = name => ({replaceWith: next => { shown[name] = next; }});
const live = {};
const document = {head: part("head"), querySelector: part, getElementById: () => live};
const location = {href: "here"};
class DOMParser {
  parseFromString(text) {
    return {title: "new title", head: "new head", querySelector: name => `new ${name}: ${text}`};
  }
}
const answers = [[200, '"7"', "text"], [304, '"7"', ""]];
async function fetch(address, options) {
  asked.push([address, options.headers["If-None-Match"]]);
  if (!answers.length) throw new TypeError("refused");
  const [status, tag, text] = answers.shift();
  return {status, headers: {get: () => tag}, text: async () => text};
}
let tick, cleared = false;
const setInterval = f => { tick = f; return 5; };
const clearInterval = timer => { cleared = timer === 5; };
"""
AFTER = """\
(async () => {
  for (let i = 0; i < 3; i++) await tick();
  console.log(JSON.stringify({shown, asked, cleared, title: document.title, live}));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_of_the_page_follows_the_run_and_notices_its_end():
    script = live._FOLLOW.partition("<script>")[2].partition("</script>")[0]
    words = ["node", "-e", BROWSER + script + AFTER]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {
        "shown": {"head": "new head", "main": "new main: text"},
        "asked": [["here", ""], ["here", '"7"'], ["here", '"7"']],
        "cleared": True,
        "title": "new title",
        "live": {"textContent": "The run has ended; this was its last state."},
    }


# The first evaluation is done at once, the others wait until the page has been read.
WAITS = """\
import os, sys, time
while sys.argv[1] != "1" and not os.path.exists("read"):
    time.sleep(0.01)
print('{"cost": %s}' % sys.argv[1])
"""


def test_tune_shows_its_evaluations_while_it_runs(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "problem.toml").write_text(
        f"""name = "toy <kernel>"
[objective]
command = [{json.dumps(sys.executable)}, "waits.py", "{{size}}"]
value = "json"
json = "cost"
[[parameters]]
name = "size"
type = "integer"
low = 1
high = 9
default = 1
"""
    )
    words = [sys.executable, "-m", "tilewright.cli", "tune", "problem.toml", "--serve", "--quiet"]
    words += ["--budget", "3", "--records", "records.db"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        address = address_in(run.stderr.readline())
        text = ""
        while "Tuning toy &lt;kernel&gt;" not in text:
            assert run.poll() is None
            text = fetch(address)[1]
        assert "Best configuration" in text
        (tmp_path / "read").touch()
        assert run.wait(timeout=120) == 0
    with pytest.raises(URLError):
        fetch(address)
