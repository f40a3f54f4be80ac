"""The checks that are shipped: ours pass them, and what is wrong on purpose does not."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from cpu_machines import FOUR_CORES, TIMED_CORES

from tilewright.halide.ir import INLINE, ROOT, Level
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import Task
from tilewright.machines import detect_cpu, gpu, gpu_names
from tilewright.prediction import Augmented, Forest
from tilewright.records import Records
from tilewright.testing import (
    PIPELINES,
    check_cost_model,
    check_estimator,
    check_journal,
    check_machine,
    check_scheduler,
)
from tilewright.tuning import Journal, RecordsJournal

GPU = gpu("rtx2080ti")
STENCILS = {"stencils": PIPELINES["stencils"]}


# --- machines -----------------------------------------------------------------------------------


def test_our_machines_conform():
    check_machine(FOUR_CORES)
    check_machine(detect_cpu())
    for name in gpu_names():
        check_machine(gpu(name))


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (replace(FOUR_CORES, cores=0), "cannot be stored"),
        (replace(FOUR_CORES, caches=FOUR_CORES.caches[::-1]), "not ordered by level"),
        (replace(FOUR_CORES, vector_bits=200), "not a power of two"),
        (
            replace(FOUR_CORES, caches=(replace(FOUR_CORES.caches[0], line_bytes=60),)),
            "60 bytes",
        ),
        (replace(GPU, warp_size=33), "warp_size is 33"),
        (replace(GPU, max_threads_per_block=4096), "max_threads_per_block"),
        (replace(GPU, max_warps_per_sm=8), "fewer than"),
        (replace(GPU, compute_capability=None), "compute_capability"),
    ],
)
def test_a_wrong_machine_does_not(machine, said):
    with pytest.raises(AssertionError, match=said):
        check_machine(machine)


# --- schedulers ---------------------------------------------------------------------------------


def ours(algorithm, machine):
    return schedule_cpu(algorithm, machine)[0].schedule


def test_our_cpu_schedulers_conform():
    check_scheduler(ours, FOUR_CORES)
    check_scheduler(lambda algorithm, _: naive_schedule(algorithm), FOUR_CORES, pipelines=STENCILS)


def test_our_gpu_scheduler_conforms():
    check_scheduler(lambda algorithm, machine: schedule_gpu(algorithm, machine)[0].schedule, GPU)


def illegal(algorithm, machine):
    """The first Func is computed at a loop of a Func that is not there."""
    schedule = naive_schedule(algorithm)
    wrong = replace(schedule.funcs[0], compute=Level("at", 99, 0, "v0"), store=ROOT)
    return replace(schedule, funcs=(wrong, *schedule.funcs[1:]))


def changing():
    """Another schedule every time."""
    turns = iter(range(100))

    def scheduler(algorithm, machine):
        schedule = naive_schedule(algorithm)
        if next(turns) % 2:
            first = replace(schedule.funcs[0], compute=INLINE, store=INLINE, stages=())
            return replace(schedule, funcs=(first, *schedule.funcs[1:]))
        return schedule

    return scheduler


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        (lambda *_: None, "stencils: None is not a Schedule"),
        (lambda a, _: replace(naive_schedule(a), algorithm="0" * 64), "another algorithm"),
        (illegal, "the schedule is illegal: "),
        (changing(), "built again gets another schedule"),
    ],
)
def test_a_wrong_scheduler_does_not(scheduler, said):
    with pytest.raises(AssertionError, match=said):
        check_scheduler(scheduler, FOUR_CORES, pipelines=STENCILS)


def test_wrong_answers_are_found(monkeypatch):
    # No legal schedule is wrong, so that what is run is another pipeline here.
    builds = iter(range(100))

    def build():
        out = PIPELINES["stencils"]()
        late = next(builds) >= 3  # after it was loaded twice and run unscheduled
        monkeypatch.setattr(
            "tilewright.testing.scheduler_checks.apply",
            (lambda _, __, pipeline: None) if late else None,
        )
        return PIPELINES["pointwise"]() if late else out

    with pytest.raises(AssertionError, match=r"pipe: \d+ of 2867 values are wrong"):
        check_scheduler(ours, FOUR_CORES, pipelines={"pipe": build})


# --- cost models --------------------------------------------------------------------------------

DRAWN = itertools.count(1.0)


def our_model(algorithm, schedule, machine):
    found = predicted(Task(algorithm, schedule.target, machine, "it"), schedule)
    return None if found is None else found.seconds


def test_our_cost_models_conform():
    check_cost_model(our_model, TIMED_CORES)
    check_cost_model(our_model, GPU, pipelines=STENCILS)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda *_: -1.0, "stencils: the cost is -1.0, not above zero"),
        (lambda *_: float("nan"), "the cost is nan"),
        (lambda *_: "cheap", "'cheap', not a number"),
        (lambda *_: 1.0, "256 times the points cost 1.0, not more than 1.0"),
        (lambda *_: None, "no cost for any pipeline"),
        (lambda *_: next(DRAWN), "the same schedule costs 1.0, and then 2.0"),
    ],
)
def test_a_wrong_cost_model_does_not(model, said):
    with pytest.raises(AssertionError, match=said):
        check_cost_model(model, FOUR_CORES, pipelines=STENCILS)


# --- estimators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [Augmented(folds=0), Forest(trees=20, folds=0)])
def test_our_estimators_conform(model):
    check_estimator(model)


class Constant(Forest):
    kind = "constant"

    def _predict(self, data):
        return np.full(len(data), 1.0)


class Negative(Forest):
    kind = "negative"

    def _predict(self, data):
        return -super()._predict(data)


class Neighbours(Forest):
    kind = "neighbours"

    def _predict(self, data):
        return super()._predict(data) * (1.0 + 0.1 * np.arange(len(data)) / max(1, len(data)))


class Forgetful(Forest):
    kind = "forgetful"

    def _restore(self, state):
        super()._restore(state)
        self.trees_ = replace(self.trees_, offset=1.0)


class Unseeded(Forest):
    kind = "unseeded"
    drawn = itertools.count()

    def _fit(self, data, seconds):
        self.seed = next(self.drawn)
        super()._fit(data, seconds)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Constant, "half of the training instances are off"),
        (Negative, "not above zero"),
        (Neighbours, "order of the rows"),
        (Forgetful, "it predicts other times"),
        (Unseeded, "use no randomness but its seed"),
    ],
)
def test_a_wrong_estimator_does_not(model, said):
    with pytest.raises(AssertionError, match=said):
        check_estimator(model(trees=20, folds=0))


# --- journals -----------------------------------------------------------------------------------


def test_our_journal_conforms(tmp_path):
    with Records(tmp_path / "records.db") as records:
        journals: list = []

        def opened():
            if not journals:
                journals.append(RecordsJournal(records, "tuning/it", 0))
            return journals[0]

        check_journal(opened)


class Kept(Journal):
    """Trials in a list that several journals share."""

    def __init__(self, trials):
        self.trials = trials

    def load(self):
        return list(self.trials)

    def add(self, trial):
        self.trials.append(trial)


class Aliased(Kept):
    def load(self):
        return self.trials


class Once(Kept):
    def add(self, trial):
        if trial.status == "ok":
            super().add(trial)


class Sorted(Kept):
    def load(self):
        return sorted(self.trials, key=lambda trial: trial.value)


def test_a_list_is_a_journal():
    trials: list = []
    check_journal(lambda: Kept(trials))


@pytest.mark.parametrize(
    ("journal", "said"),
    [
        (Aliased, "5 trials were added, but 0 are loaded"),
        (Once, "4 trials were added, but 3 are loaded"),
        (Sorted, "a trial was added as"),
        (lambda _: Kept([]), "1 trials were added, but 0 are loaded"),
        (lambda _: Kept(["old"]), "a fresh journal has 1 trials"),
    ],
)
def test_a_wrong_journal_does_not(journal, said):
    trials: list = []
    with pytest.raises(AssertionError, match=said):
        check_journal(lambda: journal(trials))
