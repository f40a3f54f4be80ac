"""Full disks, shared and unwritable records, lost workers, Ctrl-C: each has its outcome."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from tilewright.cli import main
from tilewright.records import Records, RecordsError
from tilewright.tuning import Integer, Space, load_problem, tune
from tilewright.tuning.journal import RecordsJournal, problem_key, warm_start

SPACE = Space([Integer("x", 0, 30), Integer("y", 0, 30)])
PROBLEM = """\
name = "toy"
[objective]
command = [PYTHON, "-c", "import time; open('begun', 'w'); time.sleep({pause}); print('{x}')"]
value = "regex"
regex = "([0-9]+)"
timeout = 900
[search]
budget = 9
[[parameters]]
name = "x"
type = "integer"
low = 1
high = 40
[[parameters]]
name = "pause"
type = "ordinal"
values = [PAUSE]
"""


def cost(c):
    return 1.0 + abs(c["x"] - 11) + abs(c["y"] - 4)


def die_at_three(c):
    if c["x"] % 3 == 0:
        os._exit(1)
    return float(c["x"])


@pytest.fixture
def problem(tmp_path):
    def write(pause):
        text = PROBLEM.replace("PYTHON", json.dumps(sys.executable))
        (tmp_path / "problem.toml").write_text(text.replace("PAUSE", str(pause)))
        return ["tune", str(tmp_path / "problem.toml"), "--records", str(tmp_path / "r.sqlite")]

    return write


def test_a_full_disk_ends_the_run_and_the_rerun_decides_the_same(tmp_path):
    key = problem_key("toy", SPACE)
    with Records(tmp_path / "whole.sqlite") as records:
        whole = tune(cost, SPACE, budget=14, journal=RecordsJournal(records, key, 0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    asked = []

    def objective(c):
        asked.append(c)
        if len(asked) == 7:  # from here on nothing more can be written
            sizes = [p.stat().st_size for p in tmp_path.glob("full.sqlite*")]
            resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes), before[1]))
        return cost(c)

    try:
        with Records(tmp_path / "full.sqlite") as records:
            journal = RecordsJournal(records, key, 0)
            with pytest.raises(RecordsError, match=r"full\.sqlite"):
                tune(objective, SPACE, budget=14, journal=journal)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert len(asked) == 7
    with Records(tmp_path / "full.sqlite") as records:
        again = tune(cost, SPACE, budget=14, journal=RecordsJournal(records, key, 0))
    assert [t.suggestion for t in again.trials] == [t.suggestion for t in whole.trials]


def test_records_of_another_tuner_or_that_cannot_be_read_are_named(problem, tmp_path, capsys):
    line = problem(0)
    made = load_problem(line[1], runnable=True)
    with Records(tmp_path / "r.sqlite") as records:
        RecordsJournal(records, problem_key(made.name, made.space, made.objective), 0)
        assert main(line) == 2
        assert "works on the same problem" in capsys.readouterr().err
    (tmp_path / "r.sqlite").write_bytes(b"not a database, but long enough to be looked at" * 40)
    assert main(line) == 2
    assert "corrupt" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    os.chmod(tmp_path / "folder", stat.S_IRUSR | stat.S_IXUSR)
    if os.geteuid() != 0:  # who is root may write anywhere
        assert main([*line[:-1], str(tmp_path / "folder" / "r.sqlite")]) == 2
        assert "permission" in capsys.readouterr().err.lower()


def test_a_process_pool_that_loses_a_process_ends_with_what_was_found():
    queue = [{"x": 1, "y": 0}, {"x": 2, "y": 0}, {"x": 3, "y": 0}]
    with ProcessPoolExecutor(1) as executor:
        found = tune(die_at_three, SPACE, budget=20, queue=queue, executor=executor)
    assert found.stopped == "executor"
    assert found.best.configuration == {"x": 1, "y": 0}
    assert found.trials[2].status == "crashed"


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.few(1)
def test_ctrl_c_ends_at_once_with_the_best_so_far(problem, tmp_path, jobs):
    line = [sys.executable, "-m", "tilewright.cli", *problem(800), "--jobs", str(jobs)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=400)  # much less than a run takes
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped: interrupted" in out
    assert "Traceback" not in err


def test_progress_says_the_best_and_the_failures(problem, capsys):
    line = problem(0)
    assert main([*line, "--budget", "3", "--jobs", "2", "--time-limit", "600s"]) == 0
    said = capsys.readouterr()
    assert "tuning 3/3" in said.err
    assert "best" in said.err
    assert "3 evaluations, 0 failed; stopped: budget" in said.out


def test_records_of_the_same_space_elsewhere_are_begun_with(tmp_path):
    space, other = Space([Integer("x", 0, 30)]), Space([Integer("y", 0, 30)])

    def run(records, name, space, objective, seed=0, budget=10, warm=None):
        journal = RecordsJournal(records, problem_key(name, space, objective), seed)
        (parameter,) = space.index
        cost = lambda c: 1 + abs(c[parameter] - 12)  # noqa: E731
        return tune(cost, space, budget, seed=seed, journal=journal, warm=warm)

    with Records(tmp_path / "r.sqlite") as records:
        first = run(records, "kernel", space, "small input", budget=20)
        run(records, "another", other, "small input")
        # another seed of the same problem is independent of the first
        again = run(records, "kernel", space, "small input", seed=1, budget=2)
        assert not first.tuner.warm
        assert not again.tuner.warm
        found = run(records, "kernel", space, "large input", budget=4)
        assert found.trials[0].configuration == first.best.configuration
        assert [len(each.evaluations) for each in found.tuner.warm] == [22]
        assert not run(records, "kernel", space, "third input", budget=2, warm=()).tuner.warm
        # what came since does not change a run that is taken up again
        resumed = run(records, "kernel", space, "large input", budget=6)
        assert resumed.tuner.warm == found.tuner.warm


def test_earlier_best_configurations_are_tried_first(tmp_path):
    small, large = Space([Integer("x", 0, 30)]), Space([Integer("x", 0, 60)])
    with Records(tmp_path / "r.sqlite") as records:
        for space, scale in ((small, 1.0), (small, 1.0)):
            key = problem_key("kernel", space, scale)
            journal = RecordsJournal(records, key, 0)
            tune(lambda c: 1 + abs(c["x"] - 12), space, budget=20, journal=journal)
        key = problem_key("kernel", large, 9.0)
        journal = RecordsJournal(records, key, 0)
        warm = warm_start(records, "kernel", but=journal)
        assert [len(each.evaluations) for each in warm] == [20]
        found = tune(lambda c: 9 + abs(c["x"] - 12), large, budget=6, warm=warm, journal=journal)
        assert found.trials[0].configuration == {"x": 12}
        assert found.trials[0].suggestion.origin == "queue"
        assert warm_start(records, "kernel", but=journal) == warm
        assert not warm_start(records, "other", but=journal)


def test_a_warm_start_of_another_problem_stays_that_of_the_runs_beginning(tmp_path):
    space = Space([Integer("x", 0, 30)])
    with Records(tmp_path / "r.sqlite") as records:

        def run(name, budget, seed=0):
            journal = RecordsJournal(records, problem_key(name, space), seed)
            return tune(lambda c: c["x"], space, budget=budget, warm=(), journal=journal)

        run("kernel", 5)
        run("kernel/deep", 7)  # the name of another problem
        own = RecordsJournal(records, problem_key("own", space), 0)
        before = warm_start(records, "kernel", but=own)
        assert [len(each.evaluations) for each in before] == [5]
        tune(lambda c: c["x"], space, budget=2, warm=before, journal=own)
        run("kernel", 4, seed=1)
        assert warm_start(records, "kernel", but=own) == before
