"""How all tests run: in any order, in processes that share nothing, with what is skipped named.

Tests marked ``opencl`` run where an OpenCL platform works, and are skipped with the reason
where none does. Tests marked ``thorough`` repeat at length what others show in short, and run with
``--thorough`` (``make test-thorough``). So do the variants of a test marked ``few(n)``, except n.
Tests marked ``failing_model`` make a scheduler's model fail; in all others, its error is raised.
"""

import importlib
import os
import random
import signal
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from multiprocessing import util
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tilewright.halide.schedulers import registry
from tilewright.machines import OpenclError, detect_cpu, load_opencl

# What a process of the tests takes at most, with the workers that it starts.
MEMORY_BYTES = 2 << 30

# How long an example takes depends on who else uses the machine.
settings.register_profile(
    "tilewright",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tilewright")


# How schedules are timed in the processes of the tests: no test asks which of two is faster by less
# than the noise.
BRIEF = {"min_samples": 2, "max_samples": 3, "seconds": 0.1, "sample_seconds": 0.001}
# Where the settings are that take longer.
TIMINGS = (
    "tilewright.measure.finalists.VISIT",
    "tilewright.halide.search.top_k.TIMING",
    "tilewright.halide.search.drift.VISIT",
)


@pytest.fixture(autouse=True, scope="session")
def brief_timing():
    with pytest.MonkeyPatch.context() as patch:
        for name in TIMINGS:
            module, setting = name.rsplit(".", 1)
            found = importlib.import_module(module)
            patch.setattr(found, setting, replace(getattr(found, setting), **BRIEF))
        yield


@pytest.fixture(autouse=True)
def defects_of_models_are_raised(request, monkeypatch):
    """A planner that fails gives a plain schedule and a note, in which most tests would not look.

    Tests marked ``failing_model`` provoke that.
    """
    if request.node.get_closest_marker("failing_model") is None:
        monkeypatch.setattr(registry, "_guarded", lambda step, *raised: (step(), ""))


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")
    parser.addoption("--thorough", action="store_true", help="run the tests marked thorough, too")


def pytest_configure(config):
    """Give this process folders of its own, so that none finds what another left or measures.

    Caches are not the user's, and the lock on timing, which is a temporary file, is not that of
    another process of the same run: one would wait for the other in the middle of a test.
    """
    # `tmp_path` stays where it is. Names are short: sockets are made in these folders, and a
    # socket's path has at most 107 characters.
    shared = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # `multiprocessing` removes its folder when the process ends. It must not lie in one that is
    # removed before, be it this process's own or, in a worker of xdist, that of the main process.
    tempfile.tempdir = shared
    util.get_temp_dir()
    config.own_folder = tempfile.TemporaryDirectory(prefix="tw", dir=shared)
    folder = Path(config.own_folder.name)
    for variable, name in (("XDG_CACHE_HOME", "cache"), ("TMPDIR", "tmp")):
        (folder / name).mkdir()
        os.environ[variable] = str(folder / name)
    tempfile.tempdir = None
    # A shell's background jobs ignore Ctrl-C, those under nohup SIGHUP, and so would the processes
    # that tests start.
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGTERM: signal.SIG_DFL,
    }
    for number, handler in handlers.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process more than there are cores for this process, as far as the memory goes.

    Tests wait for the processes that they start, for locks and for limits: with a process per
    core, half of the cores' time is lost.
    """
    machine = detect_cpu()
    memory = machine.memory_bytes or MEMORY_BYTES
    return max(1, min(machine.cores + 1, memory // MEMORY_BYTES))


def pytest_unconfigure(config):
    tempfile.tempdir = None
    config.own_folder.cleanup()


# The files that take longest, begun first: no process is left alone with one at the end.
LONGEST = (
    "docs/test_long_documents.py",
    "docs/test_documents.py",
    "halide/test_session.py",
    "halide/learned/test_moves.py",
    "halide/learned/test_kept_evaluations.py",
    "halide/test_measuring.py",
    "halide/gpu/test_scheduler.py",
    "halide/gpu/test_sliding_kernels.py",
    "halide/learned/test_beam_search.py",
    "testing/test_conformance.py",
    "patterns/test_rise.py",
    "tuning/test_tuner.py",
    "halide/learned/test_training.py",
    "halide/gpu/test_wrapped_reductions.py",
    "test_rooms.py",
    "halide/test_printing.py",
    "tuning/test_problem_file.py",
    "measure/test_workers.py",
    "halide/gpu/test_splitting.py",
    "prediction/test_prediction_models.py",
    "halide/test_scaling.py",
)


def repetitions(items):
    """Return the tests marked thorough, and the variants beyond those that ``few(n)`` leaves.

    What it leaves are the first variant and others at equal distances.
    """
    left_out, variants = set(), defaultdict(list)
    for item in items:
        if item.get_closest_marker("thorough"):
            left_out.add(item)
        elif few := item.get_closest_marker("few"):
            variants[item.path, item.originalname, few.args[0]].append(item)
    for (_, _, count), found in variants.items():
        kept = {len(found) * place // count for place in range(count)}
        left_out.update(item for place, item in enumerate(found) if place not in kept)
    return left_out


def pytest_collection_modifyitems(config, items):
    tests = Path(__file__).parent
    if not config.getoption("thorough"):
        left_out = repetitions(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    begun = {tests / file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: begun.get(item.path, len(LONGEST)))
    seed = config.getoption("shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
    marked = [item for item in items if item.get_closest_marker("opencl")]
    if marked:
        try:
            load_opencl()
        except OpenclError as error:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=str(error)))


def pytest_terminal_summary(terminalreporter):
    """Say what was skipped and why; pytest's closing line, which follows, counts them."""
    if not terminalreporter.config.getoption("thorough"):
        terminalreporter.write_line("left out: tests marked thorough or few (make test-thorough)")
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    if failed := os.environ.get("FAILED"):
        terminalreporter.write_line(f"{failed} failed, see above")
