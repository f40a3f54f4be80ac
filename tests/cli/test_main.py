import os
import subprocess
import sys

import pytest

from tilewright import __version__
from tilewright.cli import machine, main
from tilewright.errors import TilewrightError


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tilewright {__version__}\n"


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "schedule" in out
    assert "machine" in out


def test_a_wrong_command_line(capsys):
    assert main(["frobnicate"]) == 2
    assert "invalid choice" in capsys.readouterr().err


def _failing(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (TilewrightError("the cause and the cure"), 2, "tilewright: the cause and the cure\n"),
        (KeyboardInterrupt(), 130, "tilewright: interrupted\n"),
    ],
)
def test_errors_end_with_a_code_and_a_message(monkeypatch, capsys, error, code, message):
    monkeypatch.setattr(machine, "run", _failing(error))
    assert main(["machine"]) == code
    captured = capsys.readouterr()
    assert captured.err == message
    assert captured.out == ""


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr(machine, "run", _failing(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["machine"])


def test_a_reader_that_leaves_is_not_an_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright.cli", "machine", "--list"],
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=600,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_line_is_light():
    heavy = "halide, numpy, rich, pyopencl"
    code = (
        "import sys; import tilewright.cli; tilewright.cli.parser(); "
        f"print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == "[]"
