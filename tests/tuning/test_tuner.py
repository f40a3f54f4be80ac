import itertools
import json
import math

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.tuning import (
    Categorical,
    ConfigurationError,
    Integer,
    OptimumPrior,
    Ordinal,
    Permutation,
    Real,
    Settings,
    SettingsError,
    Space,
    Trial,
    Tuner,
    WarmStart,
    tune,
)
from tilewright.tuning.bayes import feasibility, forest, proposal
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.pareto import scalarise
from tilewright.tuning.bayes.proposal import recent, representative
from tilewright.tuning.bayes.surrogate import fit_surrogate, transform
from tilewright.tuning.problems import recorded

SPACE = Space(
    [
        Ordinal("tile", (1, 2, 4, 8, 16, 32, 64), scale="log"),
        Integer("unroll", 1, 8),
        Categorical("schedule", ("static", "dynamic", "guided")),
        Permutation("order", 3),
    ],
    ["unroll <= tile"],
)


INFEASIBLE = {"tile": 1, "unroll": 2, "schedule": "static", "order": (0, 1, 2)}


def cost(c):
    """A stand-in for run time with one best configuration."""
    time = 1 + abs(math.log2(c["tile"]) - 4) + 0.1 * abs(c["unroll"] - 4)
    time += {"static": 0.0, "dynamic": 0.3, "guided": 0.2}[c["schedule"]]
    return time + 0.2 * sum((a - b) ** 2 for a, b in zip(c["order"], (2, 0, 1), strict=True))


def fails(c):
    return c["tile"] * c["unroll"] > 96


def drive(tuner, count, objective=cost):
    for _ in range(count):
        asked = tuner.ask()
        if fails(asked.configuration):
            tuner.tell(asked, status="crashed")
        else:
            tuner.tell(asked, objective(asked.configuration))
    return tuner


def test_it_finds_the_best_in_a_few_dozen_evaluations():
    # Which of the near-best it ends at differs by the machine's last digits, so not every
    # seed must find the very best.
    found = [drive(Tuner(SPACE, seed=s), 45).best.value for s in range(5)]
    assert min(found) == pytest.approx(1.0)
    assert np.median(found) <= 1.1 + 1e-9


def test_no_configuration_is_asked_twice_and_all_are_feasible():
    tuner = drive(Tuner(SPACE, seed=0), 60)
    keys = {SPACE.key(SPACE.encode(t.configuration)) for t in tuner.trials}
    assert len(keys) == 60
    assert all(SPACE.is_feasible(t.configuration) for t in tuner.trials)


def test_a_small_space_is_exhausted_and_then_nothing_is_asked():
    space = Space([Integer("x", 0, 6), Integer("y", 0, 1)], ["x != 3 or y == 0"])
    tuner = Tuner(space, seed=0)
    for _ in range(13):
        asked = tuner.ask()
        tuner.tell(asked, float(asked.configuration["x"]))
    assert tuner.ask() is None


def test_repeats_are_asked_only_where_allowed():
    space = Space([Integer("x", 0, 3)])
    tuner = Tuner(space, settings=Settings(repeats=True))
    for _ in range(12):
        asked = tuner.ask()
        tuner.tell(asked, float(asked.configuration["x"]) + 1)
    assert len(tuner.trials) == 12


def test_a_restored_run_decides_as_the_uninterrupted_one():
    whole = drive(Tuner(SPACE, seed=5), 26)
    texts = [json.dumps(t.to_json()) for t in whole.trials[:17]]
    resumed = Tuner(SPACE, seed=5)
    resumed.restore(Trial.from_json(json.loads(text)) for text in texts)
    drive(resumed, 9)
    assert [t.suggestion for t in resumed.trials] == [t.suggestion for t in whole.trials]


def test_other_seeds_decide_otherwise():
    first, second = (drive(Tuner(SPACE, seed=s), 8) for s in (1, 2))
    assert [t.configuration for t in first.trials] != [t.configuration for t in second.trials]


def test_hidden_constraints_are_learned():
    share = [
        np.mean([t.ok for s in (1, 2) for t in drive(Tuner(SPACE, seed=s, settings=c), 35).trials])
        for c in (Settings(), Settings(feasibility=False))
    ]
    assert share[0] > share[1] + 0.05


def test_of_many_observations_the_model_takes_the_best_and_the_whole_range():
    outputs = np.array([5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0, 0.0])
    kept = representative(outputs, 6)
    assert sorted(outputs[kept]) == [0.0, 1.0, 2.0, 3.0, 6.0, 9.0]
    assert list(kept) == sorted(kept)
    assert list(representative(outputs, 10)) == list(range(10))
    valid = np.array([True, False, True, True, False, True])
    assert list(recent(valid, 2)) == [1, 3, 4, 5]


def test_a_run_longer_than_the_model_takes_goes_on_improving():
    settings = Settings(most_points=25)
    space = Space([Integer("x", 0, 400), Integer("y", 0, 400)])
    tuner = Tuner(space, seed=1, settings=settings)
    for _ in range(100):
        asked = tuner.ask()
        x, y = asked.configuration["x"], asked.configuration["y"]
        if (x + y) % 7 == 0:
            tuner.tell(asked, status="run_failed")
        else:
            tuner.tell(asked, 1.0 + (x - 133) ** 2 + (y - 250) ** 2)
    assert tuner.best.value < 30.0


def test_hyperparameters_are_fitted_also_when_the_model_takes_no_more():
    space = Space([Integer("x", 0, 400), Integer("y", 0, 400)])
    codes = space.sample(np.random.default_rng(0), 100)
    tuner = Tuner(space, settings=Settings(most_points=82))  # by itself, a count without fits
    for code in codes:
        configuration = space.decode(code)
        tuner.tell(configuration, 1.0 + (configuration["x"] - 133) ** 2 + configuration["y"])
    for _ in range(9):
        asked = tuner.ask()
        tuner.tell(asked, 1.0 + (asked.configuration["x"] - 133) ** 2 + asked.configuration["y"])
    thetas = [trial.suggestion.theta for trial in tuner.trials if trial.suggestion.theta]
    assert len(set(thetas)) > 2


def test_the_queue_is_asked_first():
    queue = [
        {"tile": 8, "unroll": 2, "schedule": "static", "order": (0, 1, 2)},
        {"tile": 4, "unroll": 4, "schedule": "guided", "order": (2, 1, 0)},
    ]
    tuner = Tuner(SPACE, queue=queue)
    asked = [tuner.ask() for _ in range(3)]
    assert [a.configuration for a in asked[:2]] == queue
    assert [a.origin for a in asked] == ["queue", "queue", "random"]
    with pytest.raises(ConfigurationError, match="breaks the known constraint 'unroll <= tile'"):
        Tuner(SPACE, queue=[{**queue[0], "tile": 1}])


def test_pending_suggestions_differ_from_one_another():
    tuner = drive(Tuner(SPACE, seed=3), 14)
    asked = [tuner.ask() for _ in range(8)]
    keys = {SPACE.key(SPACE.encode(a.configuration)) for a in asked}
    assert len(keys) == 8
    for a in reversed(asked):
        tuner.tell(a, cost(a.configuration))
    assert tuner.pending == {}
    assert len(tuner.trials) == 22


def test_what_is_believed_of_pending_runs_counts_as_the_best(monkeypatch):
    bests = []
    real = proposal.log_expected_improvement

    def recorded(mean, variance, best):
        bests.append(best)
        return real(mean, variance, best)

    monkeypatch.setattr(proposal, "log_expected_improvement", recorded)
    tuner = Tuner(Space([Ordinal("x", list(range(200)))]), seed=1)
    for x in range(0, 60, 5):
        tuner.tell({"x": x}, 500.0 - x)
    assert tuner.ask().configuration["x"] > 60  # where the line leads
    alone = bests[-1]
    tuner.ask()
    assert bests[-1] < alone


def test_a_configuration_works_if_more_than_half_of_its_evaluations_do():
    tuner = Tuner(SPACE)
    asked = tuner.ask().configuration
    usable = []
    for value in (3.0, None, 5.0, None, 4.0):
        tuner.tell(asked, value)
        seen = tuner._observations(np.random.default_rng(0))
        usable.append((bool(seen.valid[0]), tuner.best is not None))
    assert usable == [(w, w) for w in (True, False, True, False, True)]
    assert seen.values[0] == tuner.best.value == 4.0


def test_of_two_points_on_a_level_of_the_norm_the_dominating_one_is_better():
    values = np.array([[10.0, 1.0], [10.0, 5.0], [1.0, 10.0], [5.0, 10.0], [math.nan, 1.0]])
    for seed in range(20):
        found = scalarise(values, np.random.default_rng(seed))
        assert found[0] < found[1]
        assert found[2] < found[3]
        assert math.isnan(found[4])


def test_the_slow_half_is_compressed_by_its_slope():
    values = np.exp(np.arange(11.0))
    for slope in (0.0, 0.25):
        found = transform(values, Settings(clip=0.5, clipped_slope=slope)).values
        steps = np.diff(found) / (found[1] - found[0])
        assert steps == pytest.approx([1.0] * 5 + [slope] * 5)


def test_reported_outcomes_are_checked():
    tuner = Tuner(SPACE)
    asked = tuner.ask()
    with pytest.raises(SettingsError, match="'slow' is unknown"):
        tuner.tell(asked, status="slow")
    with pytest.raises(SettingsError, match=r"give one number per objective \(1\)"):
        tuner.tell(asked, (1.0, 2.0))
    for value in ("fast", object(), ("fast",)):
        with pytest.raises(SettingsError, match="one number per objective"):
            tuner.tell(asked, value)
    lost = tuner.tell(tuner.ask(), None)
    assert (lost.status, lost.message) == ("run_failed", "no value was reported")
    assert tuner.tell(asked, math.nan).status == "run_failed"
    assert tuner.best is None
    with pytest.raises(ConfigurationError):
        tuner.tell({"tile": 3}, 1.0)
    tuner.tell({"tile": 8, "unroll": 2, "schedule": "static", "order": (0, 1, 2)}, 2.0)
    assert best_of(tuner).value == 2.0


def best_of(tuner):
    """The best trial now, which a type checker would take for the earlier None."""
    return tuner.best


def test_lower_bounds_and_outliers_are_not_the_best():
    tuner = Tuner(SPACE)
    a = {"tile": 8, "unroll": 2, "schedule": "static", "order": (0, 1, 2)}
    b = {"tile": 4, "unroll": 2, "schedule": "static", "order": (0, 1, 2)}
    tuner.tell(a, 0.5, lower_bound=True)
    assert tuner.best is None
    for value in (0.1, 3.0, 3.1):
        tuner.tell(b, value)
    tuner.tell({**a, "unroll": 1}, 2.0)
    assert best_of(tuner).configuration == {**a, "unroll": 1}
    assert [t.configuration for t in tuner.leaders(5)] == [{**a, "unroll": 1}, b]


def test_several_objectives_have_a_front():
    space = Space([Integer("x", 0, 30), Integer("y", 0, 30)])
    tuner = Tuner(space, seed=0, objectives=2)
    for _ in range(50):
        asked = tuner.ask()
        x, y = asked.configuration["x"], asked.configuration["y"]
        tuner.tell(asked, (1 + x + 5 * y, 1 + (30 - x) + 5 * y))
    front = tuner.pareto
    assert len(front) >= 8
    assert all(t.configuration["y"] <= 1 for t in front)
    values = [t.values for t in front]
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(values))


def test_a_prior_leads_early_and_a_wrong_one_is_overcome():
    right = OptimumPrior({"tile": {16: 10.0}, "schedule": {"static": 5.0}})
    wrong = OptimumPrior({"tile": {1: 10.0}, "schedule": {"dynamic": 5.0}})
    plain, led = (
        np.mean([drive(Tuner(SPACE, seed=s, prior=p), 16).best.value for s in range(4)])
        for p in (None, right)
    )
    assert led <= plain
    assert drive(Tuner(SPACE, seed=0, prior=wrong), 50).best.value < 1.3


def test_a_prior_does_not_change_what_an_evaluation_is_expected_to_gain():
    """Weights that are all alike prefer nothing, and promise nothing."""
    alike = OptimumPrior({"schedule": dict.fromkeys(("static", "dynamic", "guided"), 1e-3)})
    plain, led = (drive(Tuner(SPACE, seed=3, prior=p), 14) for p in (None, alike))
    expected = [[t.suggestion.expected for t in tuner.trials] for tuner in (plain, led)]
    assert any(expected[0])
    assert expected[1] == [e if e is None else pytest.approx(e) for e in expected[0]]


def test_a_warm_start_begins_with_the_best_of_a_similar_problem():
    before = drive(Tuner(SPACE, seed=0), 40)
    tuner = Tuner(SPACE, seed=1, warm=WarmStart.of(before.trials, queued=3))
    asked = [tuner.ask() for _ in range(4)]
    assert [a.origin for a in asked] == ["queue", "queue", "queue", "random"]
    assert asked[0].configuration == before.best.configuration


def test_the_stopping_rule_waits_until_nothing_is_expected():
    tuner = Tuner(SPACE, seed=2)
    stopped = None
    for count in range(150):
        if tuner.exhausted(0.01):
            stopped = count
            break
        drive(tuner, 1)
    assert stopped is not None
    assert stopped > 20
    assert tuner.best.value < 1.15


def test_the_gain_of_the_rest_grows_with_the_evaluations_left():
    tuner = Tuner(SPACE, seed=2)
    assert tuner.remaining_gain(10) is None  # the model has not decided yet
    drive(tuner, 30)
    few, many = tuner.remaining_gain(2), tuner.remaining_gain(200)
    assert 0 < few < many
    assert tuner.remaining_gain() == tuner.remaining_gain(30)
    assert tuner.exhausted((few + many) / 2, rest=2)
    assert not tuner.exhausted((few + many) / 2, rest=200)


@pytest.mark.thorough
def test_stopping_looks_further_than_the_next_evaluation():
    # on this recording, gains of less than 0.5 % in a step were expected with much to come
    problem = next(p for p in recorded() if p.name == "opencl_matmul")
    losses = []
    for seed in range(3):
        found = tune(problem, problem.space, budget=60, seed=seed, converge=0.005)
        whole = tune(problem, problem.space, budget=60, seed=seed)
        losses.append(1 - whole.best.value / found.best.value)
    assert sum(losses) / len(losses) < 0.02


@pytest.mark.parametrize(
    "settings",
    [
        Settings(surrogate="rf"),
        Settings(metric="kendall"),
        Settings(metric="naive"),
        Settings(objective="plain", log_parameters=False, alignment=False),
        Settings(objective="log"),
        Settings(feasibility=False),
        Settings(biased_sampling=True, local_search=False),
    ],
)
def test_every_piece_can_be_switched(settings):
    assert drive(Tuner(SPACE, seed=0, settings=settings), 40).best.value < 2.0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"objectives": 0}, "objectives is 0"),
        ({"settings": Settings(surrogate="gpp")}, "did you mean 'gp'"),
        ({"settings": Settings(metric="kendal")}, "did you mean 'kendall'"),
        ({"prior": OptimumPrior({"tle": {8: 2.0}})}, "did you mean 'tile'"),
        ({"prior": OptimumPrior({"tile": {7: 2.0}})}, "7 is not one of its values"),
        ({"prior": OptimumPrior({"tile": {8: 0.0}})}, "above 0"),
        ({"prior": OptimumPrior({"tile": {8: math.inf}})}, "not a finite number"),
        ({"prior": OptimumPrior({"unroll": {"two": 2.0}})}, "'two' is not one of its values"),
        ({"prior": OptimumPrior({"tile": (8.0, 2.0)})}, "dictionary of values"),
        ({"queue": [INFEASIBLE]}, "unroll <= tile"),
        ({"queue": [{"tle": 1}]}, "did you mean 'tile'"),
    ],
)
def test_unusable_arguments_are_refused_at_once(arguments, named):
    with pytest.raises(TilewrightError, match=named):
        Tuner(SPACE, **arguments)


def test_a_prior_on_a_real_parameter_draws_the_search_to_its_centre():
    space = Space([Real("x", 0.0, 10.0)])
    prior = OptimumPrior({"x": (8.0, 0.3)}, strength=30.0)
    tuner = Tuner(space, seed=0, prior=prior, settings=Settings(initial=2))
    for _ in range(5):
        asked = tuner.ask()
        tuner.tell(asked, 5 + math.sin(5 * asked.configuration["x"]))
    modelled = [t for t in tuner.trials if t.suggestion.origin == "model"]
    assert all(6.5 < t.configuration["x"] < 9.5 for t in modelled)


def test_after_stagnation_every_second_decision_is_not_the_processes():
    problem = next(p for p in recorded() if p.name == "cc_flags")
    tuner = Tuner(problem.space, seed=3)
    for _ in range(70):
        asked = tuner.ask()
        tuner.tell(asked, problem(asked.configuration))
    values = [t.value for t in tuner.trials]
    found = values.index(min(values))
    assert found < 55  # the rest stagnates
    origins = [t.suggestion.expected is None for t in tuner.trials[found + 11 :]]
    assert set(origins[::2]) | set(origins[1::2]) == {True, False}
    assert len(set(origins[::2])) == len(set(origins[1::2])) == 1
    alone = Tuner(problem.space, seed=3, settings=Settings(stagnation=0))
    alone.restore(tuner.trials)
    assert alone.ask().expected is not None


@pytest.mark.parametrize("optimum", [0.12, 0.2])
def test_a_certain_process_does_not_repeat_what_it_knows(optimum):
    for seed in range(4):
        found = tune(
            lambda c: (c["x"] - optimum) ** 2, Space([Real("x", 0.0, 1.0)]), budget=20, seed=seed
        )
        assert found.best.value < 1e-3


def test_branches_of_conditional_parameters_are_not_neglected():
    kinds = Categorical("kind", ("deep", "wide", "none"))
    space = Space(
        [
            kinds,
            Real("c", 1e-3, 1e3, scale="log", when="kind == 'deep'"),
            Integer("depth", 1, 20, when="kind == 'wide'"),
            Integer("width", 1, 20, when="kind == 'wide'"),
        ]
    )

    def value(c):
        if c["kind"] == "deep":
            return abs(math.log10(c["c"]) - 1)
        if c["kind"] == "wide":
            return 0.5 + abs(c["depth"] - 15) * 0.1 + abs(c["width"] - 10) * 0.02
        return 3.0

    for seed in range(3):
        found = tune(value, space, budget=50, seed=seed)
        assert found.best.configuration["kind"] == "deep"
        assert found.best.value < 0.5
        # a branch without parameters has one configuration
        assert sum(t.configuration["kind"] == "none" for t in found.trials) <= 1


@pytest.mark.parametrize(
    ("count", "last", "stagnates"), [(10, 0, False), (11, 0, True), (11, 1, False)]
)
def test_stagnation_counts_evaluations_since_the_best(count, last, stagnates):
    values = np.full(count, math.nan)
    values[: last + 1] = np.arange(last + 1, 0, -1.0)
    seen = proposal.Observations(np.zeros((count, 1)), values, np.zeros(count, dtype=bool))
    assert seen.stagnates(10, 0) is stagnates
    assert not seen.stagnates(10, 1)
    assert not seen.stagnates(0, 0)


@pytest.mark.parametrize("surrogate", ["gp", "rf"])
def test_what_is_pending_is_no_longer_uncertain(surrogate):
    rng = np.random.default_rng(0)
    encode = encoder(SPACE)
    codes = np.unique(SPACE.sample(rng, 40), axis=0)
    known, pending = codes[:-4], codes[-4:]
    points, outputs = encode(known), encode(known).sum(axis=1)
    settings = Settings(surrogate=surrogate)
    model = fit_surrogate(encode, known, outputs, settings, np.random.default_rng(1)).surrogate
    after = proposal._completed(
        model, encode, points, outputs, np.zeros(len(known), bool), pending, rng
    )
    assert (after.predict(encode(pending))[1] < model.predict(encode(pending))[1]).all()


def test_a_pending_evaluation_counts_in_the_model_of_failures(monkeypatch):
    grown = []

    def grow(points, outputs, rng, **options):
        grown.append((points, outputs))
        return forest.grow(points, outputs, rng, **options)

    monkeypatch.setattr(feasibility, "grow", grow)
    codes = np.unique(SPACE.sample(np.random.default_rng(0), 20), axis=0)
    values = np.where(np.arange(len(codes) - 1) % 3 == 0, np.nan, 1.0)
    seen = proposal.Observations(codes[:-1], values, np.zeros(len(values), bool))
    encode = encoder(SPACE)
    for pending in (codes[:0], codes[-1:]):
        proposal._feasible(encode, seen, pending, Settings(), np.random.default_rng(0))
    first, again, both = (outputs for _, outputs in grown)
    assert (first == again).all()
    assert (both[:-1] == again).all()
    assert 0.0 < both[-1] < 1.0
    point = encode(codes[-1:])[0]
    assert (grown[-1][0][-1][: len(point)] == point).all()
