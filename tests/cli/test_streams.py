"""Output that goes nowhere, and signals that ask a command to end."""

import errno
import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tilewright.cli import main
from tilewright.cli.signals import interrupted, interruptions
from tilewright.cli.streams import Tolerant, tolerant_streams

LIST = [sys.executable, "-m", "tilewright.cli", "machine", "--list"]


class Broken(io.StringIO):
    """A stream that takes a few characters and then fails."""

    def __init__(self, number, room=3):
        super().__init__()
        self.number, self.room, self.calls = number, room, 0

    def write(self, text):
        self.calls += 1
        if self.tell() + len(text) > self.room:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC])
def test_a_stream_that_fails_is_left_alone(number):
    broken = Broken(number)
    stream = Tolerant(broken)
    assert stream.write("one") == 3
    assert (stream.write("two"), stream.write("three")) == (3, 5)
    stream.flush()
    assert broken.calls == 2
    assert broken.getvalue() == "one"
    assert bool(stream.lost) == (number == errno.ENOSPC)
    assert not stream.isatty()


def test_streams_are_put_back(monkeypatch):
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with tolerant_streams():
        print("said")
    assert (sys.stdout, sys.stderr) == (out, err)
    assert out.getvalue() == "said\n"
    monkeypatch.setattr(sys, "stdout", None)
    with tolerant_streams() as made:
        print("to nobody")
        assert not sys.stdout.isatty()
    assert made is None


def test_a_full_output_is_an_error_that_says_so():
    with open("/dev/full", "w") as full:
        done = subprocess.run(LIST, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "tilewright: output was lost: No space left on device\n",
    )


def test_a_closed_output_or_error_is_none():
    for closed in (">&-", "2>&-", ">&- 2>&-", "2>/dev/full"):
        command = f'"$0" -m tilewright.cli machine --list {closed}'
        done = subprocess.run(
            ["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), closed
        assert ("H100" in done.stdout) == (">&-" not in closed.split())


def test_characters_that_the_output_lacks_are_escaped(tmp_path):
    script = (
        "import sys; from tilewright.cli.streams import tolerant_streams\n"
        "with tolerant_streams(): print('caf\\u00e9')"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env
    )
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_interrupts_the_command(monkeypatch, capsys, number, code):
    def killed(args):
        # To this thread: what another thread receives does not wake this one.
        signal.raise_signal(number)
        while True:
            time.sleep(0.01)

    def goes_on(args):
        try:
            killed(args)
        except KeyboardInterrupt:
            print("best so far", interrupted())
            return 0

    for run, said in ((killed, ""), (goes_on, "best so far True\n")):
        monkeypatch.setattr("tilewright.cli.machine.run", run)
        assert main(["machine"]) == code
        assert capsys.readouterr().out == said
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_interruption_in_compiled_text_keeps_its_exit_code():
    """Dataclasses, for one, are made of text that is executed while modules are imported."""
    script = (
        "import os, signal, sys, tilewright.cli as cli\n"
        "killed = 'import os, signal; os.kill(os.getpid(), signal.SIGTERM); signal.pause()'\n"
        "cli.machine.run = lambda args: exec(killed)\n"
        "sys.exit(cli.main(['machine']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (143, b"tilewright: interrupted\n")


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptions() as came:
            signal.raise_signal(signal.SIGHUP)
        assert (came.number, came.exit_code) == (0, 0)
    finally:
        signal.signal(signal.SIGHUP, before)


class Finalized:
    """An object during whose finalizer a signal arrives."""

    def __del__(self):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("times", [1, 3])
def test_a_signal_in_a_finalizer_is_not_lost(times, capfd):
    found = [Finalized() for _ in range(times)]
    passed = False
    with interruptions() as came:
        try:
            while found:
                found.pop()
            patience = threading.Event()
            patience.wait(60)
            passed = True
        except KeyboardInterrupt:
            pass
    assert (passed, came.exit_code) == (False, 143)
    assert "Exception ignored" not in capfd.readouterr().err


def test_a_signal_while_handlers_are_restored_changes_the_exit_code_alone(monkeypatch):
    put = signal.signal

    def late(number, handler):
        if handler is before:
            signal.raise_signal(signal.SIGTERM)
        return put(number, handler)

    before = signal.getsignal(signal.SIGINT)
    with interruptions() as came:
        monkeypatch.setattr(signal, "signal", late)
    assert came.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_second_signal_while_the_error_is_printed_has_no_words():
    script = (
        "import os, signal, sys, tilewright.cli as cli\n"
        "class Late(cli.TilewrightError):\n"
        "    def __str__(self): os.kill(os.getpid(), signal.SIGTERM); return 'late'\n"
        "def failed(args): raise Late\n"
        "cli.machine.run = failed\n"
        "sys.exit(cli.main(['machine']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"")


FIRST_PIPE = (
    "import os, tilewright.cli as cli\n"
    "cli._command = lambda argv: os.pipe()[0] <= 2\n"
    "os._exit(cli.main([]))"
)


def test_closed_descriptors_are_not_taken_by_others():
    """A worker would take a pipe with the number 2 for its standard error."""
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        command = f'"$0" -c "$1" {closed}'
        done = subprocess.run(["sh", "-c", command, sys.executable, FIRST_PIPE], check=False)
        assert done.returncode == 0, closed


def test_everything_full_is_an_exit_code_alone():
    with open("/dev/full", "w") as full:
        done = subprocess.run(LIST, stdout=full, stderr=full, check=False)
    assert done.returncode == 2


def test_an_interruption_while_modules_are_imported_has_no_words():
    script = (
        "import os, signal, sys, types\n"
        "class Slow:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'tilewright.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from tilewright.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
