import importlib
import os
import sys

import psutil
import pytest

from tilewright.errors import TilewrightError
from tilewright.tuning import Integer, Isolated, Space, tune

sys.path.insert(0, os.path.dirname(__file__))
import unruly

SPACE = Space([Integer("x", 0, 11)])
HANGS = 1


def test_an_unruly_objective_is_outcomes_and_never_the_end():
    isolated = Isolated(unruly.objective, seconds=500.0, memory_bytes=600 << 20)
    queue = [{"x": x} for x in range(9) if x != HANGS]
    found = tune(isolated, SPACE, budget=8, queue=queue)
    assert [t.status for t in found.trials] == [
        "crashed",
        "out_of_memory",
        "ok",
        "ok",
        "run_failed",
        "run_failed",
        "run_failed",
        "ok",
    ]
    assert "no such tile" in found.trials[6].message
    assert "'fast'" in found.trials[5].message
    assert found.best.configuration == {"x": 3}
    # what an objective has started goes with it
    below = psutil.Process().children(recursive=True)
    assert not [p for p in below if p.is_running() and "sleep" in p.name()]


def test_an_objective_that_hangs_is_ended():
    for exclusive in (False, True):
        isolated = Isolated(unruly.objective, seconds=0.5, exclusive=exclusive)
        found = isolated({"x": HANGS})
        assert found["status"] == "timeout"
        assert found["message"] == "the call took more than 0.5 s; give Isolated more `seconds`"


def test_the_limit_is_on_the_call_and_not_on_the_start_of_the_worker(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text(
        "import time\ntime.sleep(3.0)\ndef objective(c):\n    return c['x']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    slow = importlib.import_module("slow_to_import")
    for exclusive in (False, True):
        isolated = Isolated(slow.objective, seconds=2.0, exclusive=exclusive)
        assert isolated({"x": 3})["value"] == 3.0


def test_objectives_that_no_worker_can_import_are_refused():
    with pytest.raises(TilewrightError, match="top level"):
        Isolated(lambda c: 1.0)
