import time

import pytest

from tilewright.errors import TilewrightError
from tilewright.tuning import Ordinal, tunable


def test_a_function_runs_its_best_way_once_tuned():
    calls = []

    @tunable([Ordinal("pause", (1, 200, 400), default=400), Ordinal("wrong", (0, 1))])
    def work(n, pause, wrong=0):
        calls.append(pause)
        time.sleep(pause / 1000)
        return n + wrong

    found = work.tune(7, budget=6, repeat=2, check=lambda result: result == 7)
    assert {t.status for t in found.trials} == {"ok", "wrong_answer"}
    assert work.best == found.best.configuration == {"pause": 1, "wrong": 0}
    assert work(3) == 3  # type: ignore[call-arg]
    assert calls[-1] == 1
    assert work(3, pause=200) == 3
    assert calls[-1] == 200


def test_defaults_hold_before_tuning_and_names_must_fit():
    @tunable([Ordinal("tile", (8, 16), default=16)])
    def work(tile):
        """What it does."""
        return tile

    assert work() == 16  # type: ignore[call-arg]
    assert work.__doc__ == "What it does."
    with pytest.raises(TilewrightError, match="no argument 'tiles'"):
        tunable([Ordinal("tiles", (8, 16))])(lambda tile: tile)
