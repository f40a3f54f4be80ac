import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from deadlines import DeadlineAfter

from tilewright.measure import (
    Candidate,
    Measurement,
    RunLimits,
    Timing,
    Workers,
    WorkersError,
    end_servers,
    measure_all,
    measure_one,
)

SPECIMENS = Path(__file__).with_name("specimens.py")
# Samples, not seconds, end the timing: how many fit into a second depends on the load.
QUICK = Timing(seconds=60.0, min_samples=3, max_samples=5)
# For what ends by itself, however slow the machine is; and for what never does.
LIMITS = RunLimits(
    build_seconds=300.0, run_seconds=100.0, memory_bytes=400 << 20, output_bytes=2000
)
HASTY = replace(LIMITS, build_seconds=1.0, run_seconds=0.5)


def specimen(name, payload=None, **more):
    return Candidate(f"{SPECIMENS}:{name}", payload, key=name, **more)


def measure(*candidates, limits=LIMITS, timing=QUICK, **more):
    results = measure_all(candidates, limits=limits, timing=timing, **more)
    return {c.key: m for c, m in results}


def alive(pid):
    """Whether a process exists and is not merely a corpse that nobody has collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def wait_until(condition, seconds=300.0):
    """Wait for an event; the seconds only end a test that has failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_good_candidate_is_built_verified_and_timed():
    candidate = specimen("Sleep", 0.002, env={"SPECIMEN": "yes"})
    result = measure(candidate, timing=replace(QUICK, sample_seconds=0.2))["Sleep"]
    assert result.status == "ok"
    assert result.ok
    assert result.verified
    assert result.max_error == 0.25
    assert 3 <= len(result.times) == len(result.cpu_times) <= 5
    assert result.runs >= 3 * len(result.times)  # several runs fill a sample of 200 ms
    assert 0.002 <= result.minimum <= result.median
    assert result.cpu_median < result.minimum
    assert result.peak_memory > 1 << 20
    assert result.details["env"] == "yes"
    assert result.details["pid"] != os.getpid()
    assert not Path(result.details["tmp"]).exists()
    assert result.machine
    assert Measurement.from_json(result.to_json()) == result


def test_every_misbehaviour_is_recorded_and_the_rest_goes_on(tmp_path):
    log = tmp_path / "children"
    hanging = ("Spin", "SpinInBuild", "SpinWhileTimed", "Print")
    outcomes = measure(*map(specimen, hanging), limits=HASTY, jobs=4)
    # It hangs once its children are there, for which it gets the time.
    outcomes |= measure(specimen("Fork", str(log)), limits=replace(LIMITS, run_seconds=4.0))
    outcomes |= measure(
        specimen("Segfault"),
        specimen("Abort"),
        specimen("BadAlloc"),
        specimen("Allocate"),
        specimen("AllocateInChild"),
        specimen("Raise"),
        specimen("RaiseMemory"),
        specimen("BuildFails"),
        specimen("Wrong"),
        specimen("Exit"),
        specimen("SystemExits"),
        Candidate("no.such.module:f", key="unimportable"),
        Candidate("nonsense", key="nonsense"),
        specimen("NoVerify"),
        specimen("OddDetails"),
        specimen("BadDetails"),
        specimen("CrashingDetails"),
        specimen("Sleep"),
        limits=replace(LIMITS, memory_bytes=150 << 20),
        jobs=4,
    )
    assert {key: m.status for key, m in outcomes.items()} == {
        "Segfault": "crashed",
        "Abort": "crashed",
        "BadAlloc": "out_of_memory",
        "Spin": "timeout",
        "SpinInBuild": "timeout",
        "SpinWhileTimed": "timeout",
        "Allocate": "out_of_memory",
        "AllocateInChild": "out_of_memory",
        "Print": "timeout",
        "Fork": "timeout",
        "Raise": "run_failed",
        "RaiseMemory": "out_of_memory",
        "BuildFails": "build_failed",
        "Wrong": "wrong_answer",
        "Exit": "crashed",
        "SystemExits": "run_failed",
        "unimportable": "build_failed",
        "nonsense": "build_failed",
        "NoVerify": "ok",
        "OddDetails": "ok",
        "BadDetails": "ok",
        "CrashingDetails": "ok",
        "Sleep": "ok",
    }
    assert "SIGSEGV" in outcomes["Segfault"].message
    assert "SIGABRT" in outcomes["Abort"].message
    assert "terminate called" in outcomes["Abort"].output
    assert "exit code 3" in outcomes["Exit"].message
    assert "no such loop" in outcomes["BuildFails"].message
    assert "no such loop" in outcomes["BuildFails"].output  # the traceback
    assert outcomes["Wrong"].message == "3 of 10 values differ"
    assert outcomes["Wrong"].max_error == 7.5
    assert outcomes["Allocate"].peak_memory > 100 << 20
    assert len(outcomes["Print"].output) < 2200
    assert not outcomes["NoVerify"].verified
    assert "nothing to tell" in outcomes["BadDetails"].message
    assert "SIGSEGV" in outcomes["CrashingDetails"].message
    assert outcomes["CrashingDetails"].times
    assert not any(m.times for m in outcomes.values() if not m.ok)
    children = [int(line) for line in log.read_text().split()]
    assert children
    assert not any(alive(pid) for pid in children)


def test_children_left_behind_are_killed_with_their_worker(tmp_path):
    log = tmp_path / "children"
    assert measure(specimen("ForkAndReturn", str(log)))["ForkAndReturn"].ok
    children = [int(line) for line in log.read_text().split()]
    assert len(children) == 3
    assert not any(alive(pid) for pid in children)


@pytest.mark.parametrize("really", [True, False])
def test_a_wrong_answer_may_be_looked_at_again(really):
    limits = replace(LIMITS, run_seconds=1.0)
    result = measure(specimen("Recheck", really), limits=limits)["Recheck"]
    assert result.status == ("ok" if really else "wrong_answer")
    assert result.max_error == 2.0


def test_output_keeps_its_beginning_and_its_end():
    output = measure(specimen("PrintALot"))["PrintALot"].output
    assert output.startswith("firstxxx")
    assert output.endswith("xxxlast")
    assert "bytes dropped" in output
    assert len(output) < 2200


def test_nothing_of_ours_runs_while_a_candidate_is_timed(tmp_path):
    log = tmp_path / "log"
    events: list = []
    candidates = [Candidate(f"{SPECIMENS}:Overlap", str(log), key=str(i)) for i in range(4)]
    results = measure_all(
        candidates,
        limits=LIMITS,
        timing=Timing(seconds=60.0, min_samples=2, max_samples=3, verify=False),
        jobs=3,
        on_event=events.append,
    )
    assert all(m.ok for _, m in results)
    runs, others = [], []
    for line in log.read_text().splitlines():
        what, pid, *stamps = line.split()
        moments = [(int(stamp), pid) for stamp in stamps]
        if what == "run":
            runs.append((moments[0][0], moments[-1][0], pid))
        others += moments
    # A moment at either end: the stop takes that long to reach its target.
    overlaps = sum(
        begin + 5 < moment < end - 5 and pid != other
        for begin, end, pid in runs
        for moment, other in others
    )
    assert len(runs) >= 12  # a warm-up and two samples each
    assert overlaps == 0
    names = [event.name for event in events]
    assert names.count("finished") == 4


def test_candidates_are_read_lazily_and_leaving_early_kills_what_runs():
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield specimen("Sleep")

    for _, measurement in measure_all(endless(), limits=LIMITS, timing=QUICK, jobs=1):
        assert measurement.ok
        break
    assert len(taken) <= 3


def test_a_clearly_slower_candidate_is_cut_short():
    fast = Candidate(f"{SPECIMENS}:Sleep", 0.001, key="fast")
    slow = Candidate(f"{SPECIMENS}:Sleep", 0.6, key="slow")
    timing = Timing(seconds=60.0, min_samples=10, max_samples=10, cutoff_ratio=3.0)
    with Workers(jobs=1) as workers:
        results: dict = {}
        for candidate in (fast, slow):
            results |= {
                c.key: m for c, m in measure_all([candidate], timing=timing, workers=workers)
            }
    assert not results["fast"].lower_bound
    assert results["slow"].ok
    assert results["slow"].lower_bound
    assert len(results["slow"].times) == 2


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(WorkersError, match=r"no_such_module"):
        list(measure_all([specimen("Sleep")], preload=["no_such_module"]))


def test_a_preloaded_module_that_leaves_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "leaving_module.py").write_text("import sys\nsys.exit('enough')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WorkersError, match="SystemExit: enough"):
        list(measure_all([specimen("Sleep")], preload=["leaving_module"]))


def test_a_file_that_measures_when_it_is_loaded_ends(tmp_path):
    path = tmp_path / "careless.py"
    path.write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            from tilewright.measure import Candidate, RunLimits, measure_all

            with open(Path(__file__).with_name("loads"), "a") as file:
                file.write("x")

            def build(payload):
                return lambda: None

            limits = RunLimits(build_seconds=200.0)
            ((_, measured),) = measure_all([Candidate(f"{__file__}:build", None)], limits=limits)
            if not measured.ok:
                raise RuntimeError(measured.message)
            """
        )
    )
    ((_, measured),) = measure_all(
        [Candidate(f"{path}:build", None)], limits=RunLimits(build_seconds=300.0)
    )
    assert not measured.ok
    assert "__main__" in measured.message
    assert 1 < len((tmp_path / "loads").read_text()) < 5


def test_a_candidate_that_kills_the_server_is_not_the_end():
    with Workers(jobs=1) as workers:
        first = dict(measure_all([specimen("KillServer")], timing=QUICK, workers=workers))
        second = dict(measure_all([specimen("Sleep")], timing=QUICK, workers=workers))
    assert [m.status for m in first.values()] == ["crashed"]
    assert [m.status for m in second.values()] == ["ok"]


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_measure_one_works_on_any_executor(executor):
    with executor(2) as pool:
        futures = [
            pool.submit(measure_one, specimen(name), LIMITS, QUICK)
            for name in ("Sleep", "Segfault", "Sleep", "Raise")
        ]
        statuses = [future.result().status for future in futures]
    assert statuses == ["ok", "crashed", "ok", "run_failed"]


def test_threads_that_were_ended_begin_nothing():
    """Ctrl-C may come before a thread has started its server."""
    end_servers("ended-thread")
    patient = RunLimits(build_seconds=600.0, run_seconds=600.0)
    with ThreadPoolExecutor(1, "ended-thread") as pool:
        found = pool.submit(measure_one, specimen("Sleep", 500), patient).result()
    assert found.status == "crashed"
    with ThreadPoolExecutor(1, "other-thread") as pool:
        assert pool.submit(measure_one, specimen("Sleep"), LIMITS, QUICK).result().ok


CLIENT = """
import itertools, sys
from tilewright.measure import Candidate, RunLimits, Workers, measure_all
specimens, log = sys.argv[1:]
with Workers(jobs=2) as workers:
    sleep = Candidate(specimens + ":Sleep", 0.001, "sleep")
    list(measure_all([sleep], limits=RunLimits(600, 600), workers=workers))
    print("measured", flush=True)
    forks = itertools.repeat(Candidate(specimens + ":Fork", log, "fork"))
    list(measure_all(forks, limits=RunLimits(600, 600), workers=workers))
"""


def test_workers_die_with_a_client_that_is_killed(tmp_path):
    log = tmp_path / "children"
    script = tmp_path / "client.py"
    script.write_text(textwrap.dedent(CLIENT))
    argv = [sys.executable, str(script), str(SPECIMENS), str(log)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout.readline() == b"measured\n"
            wait_until(lambda: log.exists() and len(log.read_text().split()) >= 3)
            (server,) = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
            workers = Path(f"/proc/{server}/task/{server}/children").read_text().split()
            assert workers
        finally:
            client.send_signal(signal.SIGKILL)
    family = [int(server), *map(int, workers), *map(int, log.read_text().split())]
    try:
        wait_until(lambda: not any(map(alive, family)))
    finally:
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_at_the_deadline_the_iterator_ends_and_nothing_is_left():
    found: dict = {}
    before = servers_below()  # `measure_one` keeps its own
    candidates = [specimen("Sleep"), specimen("SpinInBuild")]
    deadline = DeadlineAfter(lambda: found)
    for candidate, measured in measure_all(
        candidates, limits=LIMITS, timing=QUICK, deadline=deadline
    ):
        found[candidate.key] = measured.status
    assert found == {"Sleep": "ok"}
    assert servers_below() <= before


def servers_below():
    """Process ids of the servers that this process has started and that are alive."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "tilewright.measure.server" in process.cmdline() and alive(process.pid):
                found.add(process.pid)
    return found
