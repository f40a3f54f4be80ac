"""The measured search learns what its model lacks, goes on after failures, keeps its budget."""

import math

import numpy as np
import pytest
from stand_in_session import StandInSession
from test_beam_search import PLAIN, by_change
from test_moves import stencils

from tilewright.halide.ir.nest import exact_size
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.learned.beam_search import Effort, structure_of
from tilewright.halide.schedulers.learned.evaluation import PRIOR_NAMES
from tilewright.halide.schedulers.learned.measured_search import (
    TRUST,
    MeasuredSearch,
    Residuals,
    scaled,
)
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.search import autotune
from tilewright.halide.search.finals import Final
from tilewright.halide.search.top_k import Watch
from tilewright.measure import Measurement

FEW = Effort(structures=6000, visits=150_000, beam=4, moves=5)
SPEEDUP = 6.0


def stored(schedule):
    """The trait that the model knows nothing of: a Func before the first stencil is not inlined."""
    return any(entry.func < 3 and entry.compute.kind == "at" for entry in schedule.funcs)


def reordered(schedule):
    """The trait of schedules that fail: the output's loops are not columns, rows, channels."""
    loops = [loop.name for loop in schedule.funcs[-1].stages[0].loops]
    if not {"v0b", "v1n"} <= set(loops):
        return False
    order = [loops.index(name) for name in ("v0b", "v1n", "v2b") if name in loops]
    return len(order) < 3 or order != sorted(order)


class Machine(StandInSession):
    """A session whose times are the analytic model's, but much shorter for schedules `stored`.

    Those of `failing` crash. `patience` measurements are interrupted.
    """

    def __init__(self, made, failing=lambda schedule: False, patience=math.inf):
        super().__init__(made)
        self.search = MeasuredSearch(made, PLAIN, 0, FEW)
        self.failing, self.patience = failing, patience

    def seconds(self, schedule):
        prior = self.search.search.evaluator.prior(exact_size(schedule))
        return prior.seconds / (SPEEDUP if stored(schedule) else 1.0)

    def measurement(self, schedule):
        if self.failing(schedule):
            return Measurement("crashed")
        return Measurement("ok", (self.seconds(schedule),) * 3, (0.0,) * 3)

    def measure(self, variants):
        for variant in variants:
            if len(self.measured) >= self.patience:
                raise KeyboardInterrupt
            yield from super().measure([variant])


def tuned(made, machine, evaluations=24, planned=None):
    planned = planned or plan(made, k=3)
    return autotune.measure_tuned(
        machine,
        planned,
        made,
        watch=Watch(None),
        evaluations=evaluations,
        structures=machine.search,
    )[0]


@pytest.fixture(scope="module")
def made():
    return stencils()


def test_it_finds_the_better_structure_that_the_model_does_not_know(made):
    planned = plan(made, k=3)
    assert not any(stored(each.schedule) for each in planned)
    machine = Machine(made)
    outcome = tuned(made, machine, planned=planned)
    assert stored(outcome.best.planned.schedule)
    times = [machine.seconds(each.schedule) for each in planned]
    assert outcome.best.seconds < min(times) / 2
    assert len(machine.measured) == 3 + 24
    assert not any(check(each, made.algorithm) for each in machine.measured)


@pytest.mark.thorough
def test_what_it_has_learnt_directs_the_proposals(made):
    machine = Machine(made)
    found = machine.search
    for each in plan(made, k=3):
        found.tell(each.schedule, machine.seconds(each.schedule))
    shares = []
    for _ in range(6):
        batch = [each.schedule for each in found.propose(4)]
        assert len({structure_of(exact_size(each)) for each in batch}) == 4
        shares.append(sum(map(stored, batch)))
        for schedule in batch:
            found.tell(schedule, machine.seconds(schedule))
    assert shares[0] <= 2
    assert sum(shares[-2:]) >= 6


def test_it_goes_on_after_failures_and_avoids_them(made):
    machine = Machine(made, failing=reordered)
    planned = [each for each in plan(made, k=5) if not reordered(each.schedule)][:2]
    found = machine.search
    for each in planned:
        found.tell(each.schedule, machine.seconds(each.schedule))
    failures = []
    for _ in range(6):
        batch = [each.schedule for each in found.propose(4)]
        assert len(batch) == 4
        failures.append(sum(map(reordered, batch)))
        for schedule in batch:
            found.tell(schedule, None if reordered(schedule) else machine.seconds(schedule))
    assert sum(failures) >= 1
    assert sum(failures[-2:]) <= 3


def test_features_that_differ_by_rounding_do_not_count():
    rows = np.array([[0.1 + 0.2, 1.0], [0.3, 3.0], [0.3, 3.0]])
    assert scaled(rows).shape == (3, 1)
    residuals = Residuals(scaled(rows), np.zeros((3, 0), dtype=np.int64), np.zeros(3))
    mean, spreads, _ = residuals.predicted(np.array([0.0, 1.0]))
    assert mean == pytest.approx([1.0], abs=0.2)
    assert 0 < spreads[0, 0] < 1


def test_the_shipped_correction_is_relative_to_the_best_of_the_analytic_plans(made):
    search = MeasuredSearch(made, by_change("tasks"), 0, FEW)
    best = plan(made)[0].schedule
    assert search.analytic == best
    row = search.search.costed(exact_size(best)).row
    search.tell(best, 1.0)
    search.propose(4)
    states = list(search.search.seen.values())
    at = PRIOR_NAMES.index("tasks")
    corrections = [round(math.log(s.seconds / s.prior)) for s in states]
    assert corrections == [1 if s.row[0, at] > row[0, at] else -1 for s in states]


def test_nothing_is_proposed_while_nothing_has_run(made):
    found = MeasuredSearch(made, PLAIN, 0, FEW)
    found.tell(plan(made, k=1)[0].schedule, None)
    assert found.propose(4) == []


def test_the_same_seed_and_times_give_the_same_proposals(made):
    runs = [Machine(made), Machine(made)]
    for machine in runs:
        tuned(made, machine, evaluations=10)
    assert runs[0].measured == runs[1].measured


def test_an_interruption_gives_the_best_so_far(made):
    machine = Machine(made, patience=3 + 6)
    outcome = tuned(made, machine)
    assert outcome.stopped == "an interruption"
    assert len(outcome.tried) == 3 + 6
    assert outcome.best.seconds == min(map(machine.seconds, machine.measured))


def test_the_best_planned_schedule_is_in_the_final_rounds(made, monkeypatch):
    finals = []

    def decided(session, leaders, *_, **__):
        finals.append([variant.schedule for variant in leaders])
        return Final(session.finals(leaders))

    monkeypatch.setattr(autotune, "decide", decided)
    monkeypatch.setattr("tilewright.halide.search.top_k.decide", decided)
    planned = plan(made, k=3)
    machine = Machine(made)
    best = min(planned, key=lambda each: machine.seconds(each.schedule))
    planned.sort(key=lambda each: -machine.seconds(each.schedule))
    tuned(made, machine, planned=planned)
    assert best.schedule in finals[-1]
    assert any(stored(each) for each in finals[-1])


def test_a_covariance_that_rounding_spoils_leaves_what_is_shipped():
    rng = np.random.default_rng(0)
    features, corrections = 1e9 + 1e-6 * rng.random((30, 3)), rng.random(30)
    residuals = Residuals(features, np.zeros((30, 0), dtype=np.int64), corrections)
    mean, covariance, noise = residuals.predicted(np.zeros(28))
    assert mean == pytest.approx(TRUST * corrections[28:])
    assert covariance.shape == (2, 2)
    assert noise > 0
