"""The benchmark of faults sees what it is there to see."""

import os
import signal
import subprocess
import sys

import pytest

import cli_faults
from support.faults import Killer, World, ending, rows
from tilewright.measure import Measurement
from tilewright.records import MeasurementRecord, Records

# A command that does everything wrong: it survives Ctrl-C, leaves things about, and complains.
BAD = """
import os, signal, subprocess, sys, tempfile
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
tempfile.mkdtemp()
open("litter", "w").close()
print("ready", flush=True)
if "wait" in sys.argv:
    signal.pause()
raise SystemError
"""


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "world", (sys.executable, "-c", BAD))


def test_tracebacks_exit_codes_and_files_left_are_seen(world):
    found = cli_faults.Findings()
    found.look("here", world.run(["end"]), (0,))
    assert found.counts == {
        "rows_lost": 0,
        "tracebacks": 1,
        "leftovers": 0,
        "wrong_exit_codes": 1,
    }
    left = world.leftovers()
    assert [name.partition("/")[0] for name in left] == ["tmp", "work"]
    world.keep()
    assert "work/litter" not in world.leftovers()


def test_a_signal_that_is_swallowed_is_seen(world):
    class AtOnce(Killer):
        def __call__(self, process):
            out = world.folder / "output" / "stdout"
            while not out.read_text():
                assert process.poll() is None
            super().__call__(process)

    killer = AtOnce(signal.SIGINT, 0.0, world.work / "none")
    ended = world.run(["wait"], disturb=killer)
    assert killer.landed
    found = cli_faults.Findings()
    found.look("here", ended, (130, -2))
    assert found.counts["wrong_exit_codes"] == 1


def test_a_process_that_has_its_exit_code_is_told_from_one_that_runs():
    with subprocess.Popen(["sleep", "1000"]) as process:
        assert not ending(process.pid)
        process.kill()
        # It stays in the table of processes until somebody asks for its exit code.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ending(process.pid)
    assert ending(process.pid)


def test_processes_that_stay_are_found_and_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("support.faults.SURVIVAL_SECONDS", 0.5)
    script = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
    world = World(tmp_path, (sys.executable, "-c", script))
    assert world.run([]).survivors == 1
    assert world._processes() == []


def test_rows_are_counted_and_missing_ones_seen(tmp_path):
    world = cli_faults.world_of(tmp_path)
    records = world.work / cli_faults.RECORDS
    assert rows(records) == 0
    with Records(records) as store:
        for number in range(3):
            store.add(MeasurementRecord("p", {"n": number}, {}, {}, Measurement("ok", (1.0,))))
    found = cli_faults.Findings()
    cli_faults._count_rows(found, "here", world, 3)
    (tmp_path / "steps").write_text("1\n" * 4)  # one of them may be under way
    cli_faults._count_rows(found, "here", world, 0)
    assert found.counts["rows_lost"] == 0
    (tmp_path / "steps").write_text("1\n" * 6)
    cli_faults._count_rows(found, "here", world, 0)
    assert found.counts["rows_lost"] == 2
    records.write_bytes(records.read_bytes()[:5000])
    cli_faults._count_rows(found, "here", world, 3)
    assert found.counts["rows_lost"] == 5


def test_a_target_that_is_replaced_is_seen(tmp_path):
    path = tmp_path / "target"
    cli_faults._read_only(path)
    before = cli_faults._state(path)
    path.unlink()
    path.write_text("mine")
    assert cli_faults._state(path) != before


@pytest.mark.parametrize(
    ("last", "before"),
    [
        ('File "<frozen site>", line 5, in <module>\nKeyboardInterrupt\n', True),
        ('File "/a/src/tilewright/__init__.py", line 6, in <module>\nKeyboardInterrupt\n', True),
        ('File "/a/src/tilewright/cli/tune.py", line 6, in run\nKeyboardInterrupt\n', False),
        ('File "<frozen site>", line 5, in <module>\nValueError: 1\n', False),
        ("tilewright: interrupted\n", False),
    ],
)
def test_interruptions_of_pythons_own_start_are_set_apart(last, before):
    from support.faults import Ended

    assert (
        Ended(1, "", f"Traceback (most recent call last):\n{last}", 0.1).before_the_program
        == before
    )
