import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.measure import Candidate, RunLimits, Timing
from tilewright.records import CandidateTrial, Records, measure_recorded

SPECIMENS = Path(__file__).with_name("specimens.py")
QUICK = Timing(seconds=20.0, min_samples=2, max_samples=3)
KEYS: dict[str, Any] = {"problem": "p", "machine": {"name": "m"}, "versions": {"v": 1}}


def trials(log, count):
    for number in range(count):
        payload = {"log": str(log), "number": number}
        yield CandidateTrial(
            {"number": number}, Candidate(f"{SPECIMENS}:Logged", payload, str(number))
        )


def test_a_second_run_measures_only_what_is_new(tmp_path):
    log = tmp_path / "log"
    with Records(tmp_path / "r") as records:
        first = list(measure_recorded(trials(log, 6), records, timing=QUICK, **KEYS))
        second = list(measure_recorded(trials(log, 8), records, timing=QUICK, **KEYS))
        again = list(
            measure_recorded(trials(log, 1), records, timing=QUICK, remeasure=True, **KEYS)
        )
        stored = list(records.query("p"))
    assert [o.recorded for o in first] == [False] * 6
    assert [o.measurement.status for o in first].count("crashed") == 1  # known hereafter
    recorded = {o.trial.configuration["number"]: o.recorded for o in second}
    assert recorded == {n: n < 6 for n in range(8)}
    assert not again[0].recorded
    assert sorted(map(int, log.read_text().split())) == [0, 0, 1, 2, 3, 4, 5, 6, 7]
    assert len(stored) == 9
    assert stored[0].context["timing"]["seconds"] == 20.0


def test_other_versions_are_measured_again(tmp_path):
    log = tmp_path / "log"
    with Records(tmp_path / "r") as records:
        for versions in ({"v": 1}, {"v": 2}):
            keys = {**KEYS, "versions": versions}
            (outcome,) = measure_recorded(trials(log, 1), records, timing=QUICK, **keys)
            assert not outcome.recorded


def test_a_failure_under_tighter_limits_is_tried_again(tmp_path):
    trial = CandidateTrial({"mb": 150}, Candidate(f"{SPECIMENS}:Hungry", 150, "hungry"))
    seen = []
    with Records(tmp_path / "r") as records:
        for megabytes in (100, 100, 400, 100):
            limits = RunLimits(memory_bytes=megabytes << 20)
            (outcome,) = measure_recorded([trial], records, limits=limits, timing=QUICK, **KEYS)
            seen.append((outcome.measurement.status, outcome.recorded))
    assert seen == [
        ("out_of_memory", False),
        ("out_of_memory", True),
        ("ok", False),
        ("ok", True),
    ]


def test_notes_are_recorded_and_a_measurement_outlives_an_interrupted_note(tmp_path):
    calls = iter(["fine"])

    def note(measurement):
        weather = next(calls, None)
        if weather is None:
            raise KeyboardInterrupt
        return replace(measurement, details={"weather": weather})

    asked = trials(tmp_path / "log", 3)
    with Records(tmp_path / "r") as records:
        with pytest.raises(KeyboardInterrupt):
            list(measure_recorded(asked, records, timing=QUICK, jobs=1, note=note, **KEYS))
        stored = list(records.query("p"))
    assert [record.measurement.ok for record in stored] == [True, True]
    assert {record.measurement.details.get("weather") for record in stored} == {"fine", None}


TUNER = """
import sys
sys.path.insert(0, sys.argv[3])
from test_measured import KEYS, QUICK, trials
from tilewright.records import Records, measure_recorded
with Records(sys.argv[1]) as records:
    for outcome in measure_recorded(trials(sys.argv[2], 40), records, timing=QUICK, jobs=2, **KEYS):
        if not outcome.recorded:
            print(outcome.trial.configuration["number"], flush=True)
"""


def test_a_run_killed_at_random_moments_resumes_and_loses_nothing(tmp_path):
    script, log, store = tmp_path / "tuner.py", tmp_path / "log", tmp_path / "records"
    script.write_text(TUNER)
    argv = [sys.executable, str(script), str(store), str(log), str(Path(__file__).parent)]
    choose = random.Random(4)
    told: list[int] = []
    for _ in range(4):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as tuner:
            told.append(int(tuner.stdout.readline()))
            time.sleep(choose.uniform(0, 0.15))
            tuner.kill()
            told += [int(line) for line in tuner.stdout if line.endswith("\n")]
        with Records(store) as records:
            known = {r.configuration["number"] for r in records.query()}
        assert known >= set(told)
        assert len(told) == len(set(told))  # nothing reported was measured again
    finished = subprocess.run(argv, capture_output=True, text=True, check=True)
    told += map(int, finished.stdout.split())
    with Records(store) as records:
        everything = list(records.query())
    assert {r.configuration["number"] for r in everything} == set(range(40))
    assert len(everything) == 40
    assert len(log.read_text().split()) <= 40 + 4 * 3  # again only what was in flight
