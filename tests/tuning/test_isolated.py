import os
import sys

import psutil
import pytest

from tilewright.errors import TilewrightError
from tilewright.tuning import Integer, Isolated, Space, tune

sys.path.insert(0, os.path.dirname(__file__))
import unruly

SPACE = Space([Integer("x", 0, 11)])


def test_an_unruly_objective_is_outcomes_and_never_the_end():
    isolated = Isolated(unruly.objective, seconds=5.0, memory_bytes=600 << 20)
    queue = [{"x": x} for x in range(9)]
    found = tune(isolated, SPACE, budget=9, queue=queue)
    assert [t.status for t in found.trials] == [
        "crashed",
        "timeout",
        "out_of_memory",
        "ok",
        "ok",
        "run_failed",
        "run_failed",
        "run_failed",
        "ok",
    ]
    assert "no such tile" in found.trials[7].message
    assert "'fast'" in found.trials[6].message
    assert found.best.configuration == {"x": 3}
    # what an objective has started goes with it
    below = psutil.Process().children(recursive=True)
    assert not [p for p in below if p.is_running() and "sleep" in p.name()]


def test_what_no_worker_can_import_is_refused():
    with pytest.raises(TilewrightError, match="top level"):
        Isolated(lambda c: 1.0)
