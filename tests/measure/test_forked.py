"""Calls in a forked process: results, errors, limits, crashes."""

import os
import signal
import threading

import pytest

from tilewright.measure import ForkedCallError, call_forked, forked, processes

LIMITS = {"cpu_seconds": 20, "memory_bytes": 1 << 30}


@pytest.fixture(autouse=True)
def no_child_is_left():
    before = processes.children(os.getpid())
    yield
    assert set(processes.children(os.getpid())) <= set(before)


def spin():
    while True:
        pass


def test_the_result_comes_back_and_this_process_is_not_changed():
    seen = []

    def call():
        seen.append(1)
        return {"pid": os.getpid(), "seen": len(seen)}

    result = call_forked(call, **LIMITS)
    assert result["pid"] != os.getpid()
    assert result["seen"] == 1
    assert seen == []


def test_an_exception_is_raised_here():
    def call():
        raise KeyError("name")

    with pytest.raises(KeyError, match="name"):
        call_forked(call, **LIMITS)


def test_a_call_without_end_reaches_its_limit():
    with pytest.raises(ForkedCallError, match="it took more than 1 s of CPU time"):
        call_forked(spin, cpu_seconds=1, memory_bytes=LIMITS["memory_bytes"])


def test_handlers_of_this_process_do_not_keep_a_crash_from_ending_it():
    kept = signal.signal(signal.SIGSEGV, lambda *_: None)
    try:
        with pytest.raises(ForkedCallError, match="crashed with SIGSEGV"):
            call_forked(lambda: os.kill(os.getpid(), signal.SIGSEGV), **LIMITS)
    finally:
        signal.signal(signal.SIGSEGV, kept)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bytearray(2 << 30), "ran out of memory"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crashed with SIGSEGV"),
        (lambda: threading.Lock(), "cannot pickle"),
    ],
    ids=["memory", "crash", "result"],
)
def test_what_gives_no_result_is_said(call, message):
    with pytest.raises((ForkedCallError, TypeError), match=message):
        call_forked(call, **LIMITS)


def test_a_call_that_waits_for_ever_is_ended(monkeypatch):
    monkeypatch.setattr(forked, "_PATIENCE", 1)
    with pytest.raises(ForkedCallError, match="did not end in 1 s"):
        call_forked(signal.pause, cpu_seconds=1, memory_bytes=LIMITS["memory_bytes"])


def test_an_interrupt_ends_the_call():
    def interrupt():
        os.kill(os.getppid(), signal.SIGINT)
        spin()

    with pytest.raises(KeyboardInterrupt):
        call_forked(interrupt, **LIMITS)


def test_an_interrupt_during_the_fork_leaves_no_call_behind(monkeypatch, tmp_path):
    called = tmp_path / "called"
    fork = os.fork

    def interrupted():
        if pid := fork():
            lost.append(pid)
            raise KeyboardInterrupt
        return pid

    lost: list[int] = []
    monkeypatch.setattr(os, "fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call_forked(called.touch, **LIMITS)
    _, status = os.waitpid(lost[0], 0)  # it ends without being killed
    assert os.WIFEXITED(status)
    assert not called.exists()
