"""The timing token: a file of the user's own, and a wait that is said."""

import fcntl
import os

import pytest

from tilewright.cli.progress import WAITING, show_progress
from tilewright.measure import Candidate, RunLimits, Timing, TimingToken, TokenError, measure_all
from tilewright.measure import token as module
from tilewright.measure.token import Patience, say_wait

ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


class Nothing:
    """A candidate that does nothing."""

    def __init__(self, payload):
        pass

    def run(self):
        pass


def test_it_is_a_file_of_the_user_alone(tmp_path):
    token = TimingToken()
    assert str(os.geteuid()) in token.path.name
    assert token.path.stat().st_mode & 0o777 == 0o600
    token.close()
    TimingToken().close()  # it exists now


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_token_that_is_not_a_regular_file_is_refused(tmp_path, kind):
    path, victim = tmp_path / "token", tmp_path / "victim"
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(TokenError, match="remove it, or set TMPDIR"):
        TimingToken(path)
    assert not victim.exists()


def test_a_wait_is_said_once_and_late(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    patience = Patience()
    said = []
    for now[0] in (0.0, 0.5, 1.5, 2.0, 9.0):
        said.append(patience.due())
    assert said == [False, False, True, False, False]
    patience.end()
    assert [patience.due() for now[0] in (10.0, 10.5, 12.0)] == [False, False, True]


def test_a_waiting_process_is_notified(monkeypatch):
    """The wait ends when it has been said."""
    holder = TimingToken()
    assert holder.try_acquire()
    with module.on_wait(holder.release):
        waiter = TimingToken()
        waiter.acquire()
        assert waiter.held
        waiter.release()
        assert holder.try_acquire()
        candidate = Candidate(f"{__file__}:Nothing", None, "nothing")
        ((_, measured),) = measure_all([candidate], limits=RunLimits(), timing=ONCE)
    assert measured.ok, measured.message
    fcntl.flock(waiter._fd, fcntl.LOCK_UN)
    waiter.close()
    holder.close()


def test_progress_says_it(capsys):
    with show_progress(False):
        say_wait()
    assert WAITING in capsys.readouterr().err
    with show_progress(True):
        say_wait()
    say_wait()
    assert capsys.readouterr().err == ""
