"""What is chosen, and every speedup, comes from the final rounds; nothing here is timed."""

from __future__ import annotations

import time
from dataclasses import replace

import halide as hl
import pytest

from tilewright.halide.autoschedule import conclude_top
from tilewright.halide.execution.session import Measured, Session, Variant, versions
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.registry import naive, plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.finals import Rounds
from tilewright.halide.search.top_k import (
    LEADING,
    MOST_LEADERS,
    NAIVE,
    Outcome,
    Tried,
    Watch,
    measure_top,
)
from tilewright.measure import Finals, Measurement
from tilewright.records import MeasurementRecord, Records
from tilewright.report.table import attempt_table
from tilewright.report.text import headline

K = 4


def measured(*times: float, **more) -> Measurement:
    return Measurement("ok", times, times, len(times), verified=True, **more)


class MadeUp(Session):
    """A session whose measurements are given: `alone` and `together`, in seconds, by name."""

    def __init__(self, task, alone, together=None, **options):
        super().__init__(task.algorithm, **options)
        self.alone, self.together = alone, together or {}
        self.finals_asked: list[tuple[str, ...]] = []
        self.brief: tuple[str, ...] = ()
        self.interrupted = False

    def prepare(self):
        return self.problem

    def measure(self, variants):
        for variant in variants:
            found = self.alone[variant.name]
            found = found if isinstance(found, Measurement) else measured(found)
            yield Measured(variant, found, recorded=True)

    def finals(self, variants, rounds=10, *, seconds=None, brief=()):
        if self.interrupted:
            raise KeyboardInterrupt
        self.finals_asked.append(tuple(v.name for v in variants))
        self.brief = tuple(brief)
        candidates = tuple(self.problem.candidate(v) for v in variants)
        times = (self.together.get(v.name, self.alone[v.name]) for v in variants)
        return Finals(
            candidates,
            tuple(t if isinstance(t, Measurement) else measured(t, t, t) for t in times),
        )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def task():
    x, y = hl.Var("x"), hl.Var("y")
    image, across, out = hl.ImageParam(hl.UInt(16), 2), hl.Func(), hl.Func()
    across[x, y] = image[x, y] + image[x + 2, y]
    out[x, y] = across[x, y] + across[x, y + 2]
    out.set_estimates([(0, 640), (0, 360)])
    return make_task(out, target="host")


@pytest.fixture(scope="module")
def planned(task):
    return plan(task, k=K)


def names(*times):
    return {f"schedule {i}": t for i, t in enumerate(times, 1)}


def run(task, planned, session, **options) -> Outcome:
    baseline = Variant(naive(task), target=task.target)
    with session:
        return measure_top(
            session, planned, target=task.target, watch=Watch(None), naive=baseline, **options
        )


def test_records_of_another_moment_do_not_choose(task, planned):
    """The one shot was recorded while other work ran; the rounds of now have it in front."""
    alone = {**names(1.4, 1.0, 1.2, 9.0), NAIVE: 40.0}
    together = {**names(0.7, 1.05, 1.2, 9.0), NAIVE: 14.0}
    session = MadeUp(task, alone, together)
    outcome = run(task, planned, session)
    assert session.finals_asked == [("schedule 1", "schedule 2", "schedule 3", NAIVE)]
    result = conclude_top(task, outcome, {})
    assert result.planned is planned[0]
    assert (result.seconds, result.speedup) == (0.7, pytest.approx(20.0))
    assert result.facts["final rounds"] == "3 of 4 schedules, in this run"
    rows = {a.label: a for a in result.report().attempts}
    assert rows["schedule 1"].measured == 0.7
    assert rows["schedule 1"].chosen
    assert rows["schedule 1"].source == "final rounds"
    assert rows["schedule 4"].source == "alone, recorded"
    assert sum(row.chosen for row in rows.values()) == 1


def test_the_one_shot_is_a_leader_however_slow_it_was_alone(task, planned):
    alone = {**names(99.0, 1.0, 1.0, 1.0), NAIVE: 3.0}
    session = MadeUp(task, alone)
    run(task, planned, session)
    assert session.finals_asked[0][:2] == ("schedule 1", "schedule 2")


def test_a_cut_sample_decides_nothing(task, planned):
    """It was cut short two samples in, and looks 174 times as fast as the naive schedule."""
    short = measured(0.01, 0.01, lower_bound=True)
    alone = {**names(2.0, short, 1.0, short), NAIVE: 1.74}
    session = MadeUp(task, alone)
    result = conclude_top(task, run(task, planned, session), {})
    assert session.finals_asked == [("schedule 1", "schedule 3", NAIVE)]
    assert result.planned is planned[2]
    assert result.speedup == pytest.approx(1.74)
    session = MadeUp(task, alone)
    session.interrupted = True
    result = conclude_top(task, run(task, planned, session), {})
    assert result.planned is planned[2]


def test_candidates_that_all_fail_before_the_time_is_up_are_not_right(task, planned):
    wrong = Measurement("wrong_answer", message="out differs at (0, 0)")
    outcome = Outcome((Tried(planned[0], 0, wrong),), stopped="the time limit")
    result = conclude_top(task, outcome, {})
    assert result.verified is False
    assert result.measurement is wrong
    assert "no candidate has passed so far" in result.notes[0]
    assert result.notes[-1] == "Wrong answer: out differs at (0, 0)."
    assert "WRONG ANSWER" in headline(result.report())


def test_a_candidate_that_was_cut_short_is_shown_as_such_whatever_its_note(task, planned):
    short = measured(0.01, 0.01, lower_bound=True)
    tried = (
        Tried(planned[0], 0, measured(0.005)),
        Tried(planned[1], 1, short, reads_beyond=("image",)),
        Tried(planned[2], 2, measured(0.02), reads_beyond=("image",)),
    )
    report = conclude_top(task, Outcome(tried), {}).report()
    assert [a.cut_short for a in report.attempts] == [False, True, False]
    shown = attempt_table(report)
    place = [column.heading for column in shown.columns].index("status")
    assert [row[place] for row in shown.rows] == ["ok", "cut short", "ok"]


def test_leaders_are_near_and_few(task, planned):
    many = [*planned, *planned, *planned]
    session = MadeUp(task, {**names(*[1.0 + i / 100 for i in range(len(many))]), NAIVE: 2.0})
    run(task, many, session)
    assert len(session.finals_asked[0]) == MOST_LEADERS + 1
    far = {**names(1.0, 1.1 * LEADING, 0.9 * LEADING, 99.0), NAIVE: 2.0}
    session = MadeUp(task, far)
    run(task, planned, session)
    assert session.finals_asked == [("schedule 1", "schedule 3", NAIVE)]


def test_the_schedule_that_was_there_and_the_one_shot_both_compete(task, planned):
    given = [PlannedSchedule(planned[0].schedule, (), 1.0, name="given"), *planned]
    session = MadeUp(task, {"given": 9.0, **dict.fromkeys(_keys(given), 9.0), NAIVE: 9.0})
    session.alone["schedule 4"] = 1.0
    run(task, given, session)
    assert session.finals_asked == [("given", "schedule 2", "schedule 4", NAIVE)]


def _keys(plans):
    return [f"schedule {i}" for i in range(1, len(plans) + 1)]


def test_without_final_rounds_there_is_no_speedup(task, planned):
    session = MadeUp(task, {**names(1.0, 2.0, 3.0, 4.0), NAIVE: 8.0})
    session.interrupted = True
    outcome = run(task, planned, session)
    result = conclude_top(task, outcome, {})
    assert outcome.stopped == "an interruption"
    assert result.planned is planned[0]
    assert result.speedup is None
    assert any("no time for final rounds" in note for note in result.notes)


def test_rounds_that_the_deadline_cut_count_only_where_all_had_some(task, planned):
    alone = {**names(1.0, 0.9, 5.0, 5.0), NAIVE: 8.0}
    past = time.monotonic() - 1.0
    late = Measurement("timeout", message="the time for everything was up")
    session = MadeUp(task, alone, {"schedule 1": measured(0.8, 0.8), "schedule 2": late})
    session.deadline = past
    outcome = run(task, planned, session)
    assert outcome.final is None
    assert outcome.stopped == "the time limit"
    assert outcome.best.planned is planned[1]
    together = {"schedule 1": measured(0.8, 0.9, 7.0), "schedule 2": measured(1.0, 1.0)}
    session = MadeUp(task, alone, together)
    session.deadline = past
    outcome = run(task, planned, session)
    assert outcome.best.planned is planned[0]
    assert outcome.best.measurement.times == (0.8, 0.9)


def test_wrong_answers_in_the_final_rounds_are_failures(task, planned):
    alone = {**names(1.0, 0.9, 5.0, 5.0), NAIVE: 8.0}
    wrong = Measurement("wrong_answer", message="a value of out is wrong")
    session = MadeUp(task, alone, {"schedule 2": wrong})
    outcome = run(task, planned, session)
    assert outcome.best.planned is planned[0]
    assert not outcome.tried[1].ok
    session = MadeUp(task, alone, {"schedule 2": Measurement("out_of_memory")})
    assert run(task, planned, session).tried[1].ok


def test_a_slow_naive_schedule_takes_part_briefly(task, planned):
    rounds = Rounds(10, 5.0)
    session = MadeUp(task, {**names(0.1, 0.1, 0.1, 0.1), NAIVE: 0.6})
    run(task, planned, session, rounds=rounds)
    assert session.brief == (NAIVE,)
    session.alone[NAIVE] = 0.4
    run(task, planned, session, rounds=rounds)
    assert session.brief == ()


def test_others_take_part_and_are_never_chosen(task, planned):
    other = Variant(serialized=b"scheduled by another author", name="other")
    session = MadeUp(task, {**names(1.0, 2.0, 3.0, 4.0), NAIVE: 8.0, "other": 0.1})
    outcome = run(task, planned, session, others=[other])
    assert session.finals_asked[0] == ("schedule 1", "other", NAIVE)
    assert outcome.final.measurement("other").median == 0.1
    assert outcome.best.planned is planned[0]


def test_a_recorded_final_serves_as_a_whole_or_not_at_all(task, planned, tmp_path):
    alone = {**names(1.0, 1.1, 9.0, 9.0), NAIVE: 8.0}
    with Records(tmp_path / "records") as records:
        first = MadeUp(task, alone, names(1.0, 0.8), records=records)
        assert run(task, planned, first).best.planned is planned[1]
        second = MadeUp(task, alone, names(0.1, 0.2), records=records)
        outcome = run(task, planned, second)
        assert second.finals_asked == []
        assert outcome.best.planned is planned[1]
        assert outcome.best.recorded
        assert "recorded 20" in outcome.final.words
        # Another run has recorded one of the three since: the others are of another moment.
        kept = [r for r in records.query() if "run" in r.context]
        assert len(kept) == 3
        records.add(replace(kept[0], context={"run": "another"}, id=0, time=""))
        third = MadeUp(task, alone, names(0.1, 0.2), records=records)
        assert run(task, planned, third).best.planned is planned[0]
        assert len(third.finals_asked) == 1
        fourth = MadeUp(task, alone, names(0.1, 0.2), records=records, remeasure=True)
        run(task, planned, fourth)
        assert len(fourth.finals_asked) == 1
        fifth = MadeUp(task, alone, names(0.1, 0.2), records=records)
        run(task, planned, fifth, rounds=Rounds(reuse=False))
        assert len(fifth.finals_asked) == 1


def test_records_from_before_runs_had_numbers_are_not_taken_for_one_run(task, planned, tmp_path):
    alone = {**names(1.0, 1.1, 9.0, 9.0), NAIVE: 8.0}
    with Records(tmp_path / "records") as records:
        run(task, planned, MadeUp(task, alone, records=records))
        for old in list(records.query()):
            records.add(
                MeasurementRecord(
                    old.problem,
                    old.configuration,
                    old.machine,
                    versions(),
                    old.measurement,
                    {"finals": 3},
                )
            )
        again = MadeUp(task, alone, records=records)
        run(task, planned, again)
        assert len(again.finals_asked) == 1
