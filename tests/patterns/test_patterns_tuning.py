"""Tuning: kernels are verified, measured once, and shown with what they were chosen for."""

import functools
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import tilewright.patterns as tp
from tilewright.measure import ConfidenceInterval
from tilewright.patterns import nodes as n
from tilewright.patterns import programs, ranking, tuning
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.page import deciding_features, patterns_page, program_graph
from tilewright.patterns.ranking import NearestNeighbours, fitted
from tilewright.patterns.ranking.cpu import CPU_FEATURES, cpu_features, cpu_vector
from tilewright.patterns.ranking.trained import CPU_POINTS, is_stencil
from tilewright.records import Records

STENCIL = programs.STENCILS["hotspot"].build(16, 32)


@functools.cache
def shipped():
    """The shipped model, and what it is called."""
    return ranking.cpu_model(STENCIL)


class Opposite:
    """A model that ranks in the opposite order."""

    def fit(self, features, performance):
        raise AssertionError("it has learnt already")

    def predict(self, features):
        return -shipped()[0].predict(features)


SETTINGS = rw.ExplorationSettings("c", tiles=(4, 8), limit=30)
TOP = tuning.TuningOptions(top=2, threads=1)


@pytest.fixture(scope="module")
def stencil():
    p = STENCIL
    return p, tuning.ranked_for_cpu(p, {}, SETTINGS, threads=1)


@pytest.fixture(scope="module")
def tuned(stencil, tmp_path_factory):
    """A wrong kernel first, then right ones: tuned twice, the second time from records."""
    p, ranked = stencil
    grids = tp.array("T", tp.f32[16, 32]), tp.array("P", tp.f32[16, 32])
    wrong = tp.zip2(*grids) >> tp.map_seq(tp.map_seq(tp.add))
    other = rw.Derivation(p, ((ranked[0].derivation.steps[0][0], wrong),))
    planted = [replace(ranked[0], derivation=other), *ranked]
    path = tmp_path_factory.mktemp("records") / "records.db"
    with Records(path) as records:
        first = tuning.tune_kernels(p, planted, "c", replace(TOP, top=3), records)
        again = tuning.tune_kernels(p, planted, "c", replace(TOP, top=3), records)
    return first, again


def test_the_fastest_right_kernel_is_kept(tuned):
    first, again = tuned
    assert [m.measurement.status for m in first.measured] == ["ok", "wrong_answer", "ok", "ok"]
    assert first.best.number in (2, 3)
    finals = {m.number: m.final.median for m in first.measured if m.final}
    assert set(finals) == {0, 2, 3}
    assert first.best.seconds == min(v for k, v in finals.items() if k)
    assert first.speedup.low <= first.speedup.estimate <= first.speedup.high
    assert not any(m.recorded for m in first.measured)
    assert all(m.recorded for m in again.measured)


def test_without_a_right_kernel_there_is_no_best(stencil):
    p, ranked = stencil
    refused = tp.array("T", tp.f32[16, 32]) >> tp.map_par(tp.map_simd(tp.map_par(tp.copy)))
    bad = rw.Derivation(p, ((ranked[0].derivation.steps[0][0], refused),))
    found = tuning.tune_kernels(p, [replace(ranked[0], derivation=bad)], "c", TOP)
    assert found.best is None
    assert found.speedup is None
    assert "gave the right result" in patterns_page(found, "nothing")


def test_the_page_shows_program_derivation_kernel_and_memory(tuned):
    page = patterns_page(tuned[0], "an estimate")
    best = tuned[0].best
    for rule, _ in best.kernel.derivation.steps:
        assert str(rule) in page
    assert "int kernel(" in page
    assert "Predicted and measured" in page
    assert "wrong answer" in page
    assert "T f32[16, 32]" in page


def test_features_that_differ_are_sorted_by_what_they_explain(tuned):
    found = deciding_features(tuned[0])
    assert all(abs(a[3]) >= abs(b[3]) for a, b in pairwise(found))


def test_the_graph_of_a_program_leads_from_inputs_to_the_result():
    graph = program_graph(programs.LINEAR_ALGEBRA["gemv"](8, 4))
    inputs = {node.name.split()[0] for node in graph.nodes if node.kind == "input"}
    assert inputs == {"A", "x", "y", "alpha", "beta"}
    (result,) = [node.name for node in graph.nodes if node.kind == "output"]
    reached = {result}
    for _ in graph.edges:
        reached |= {a for a, b in graph.edges if b in reached}
    assert reached == {node.name for node in graph.nodes}


def test_counts_of_c_kernels_are_exact():
    x = tp.array("x", tp.f32[64])
    p = x >> tp.split(8) >> tp.map_par(tp.map_simd(tp.fun(lambda v: v + v))) >> tp.join
    f = cpu_features(generate(p), {})
    assert (f.loads, f.stores, f.calls, f.loop_bodies) == (64, 64, 64, 8 + 64)
    assert (f.vector_share, f.parallel, f.parallel_loops) == (1, 8, 1)


def test_kernels_are_measured_in_the_order_of_the_predictions(stencil):
    p, ranked = stencil
    table = np.array([cpu_vector(k.features, 1) for k in ranked])
    seconds = 1 / shipped()[0].predict(table)
    assert [k.predicted for k in ranked] == pytest.approx(list(seconds))
    assert list(seconds) == pytest.approx(sorted(seconds))
    reversed_order = tuning.ranked_for_cpu(p, {}, SETTINGS, Opposite(), 1)
    assert reversed_order[-1].predicted == pytest.approx(-seconds[0])


def test_an_unseen_program_runs_long_loops_on_all_cores_first():
    p = programs.APPLICATIONS["box"](512, 512)
    ranked = tuning.ranked_for_cpu(p, {}, rw.ExplorationSettings("c", limit=150), threads=2)
    first, last = ranked[0].features, ranked[-1].features
    assert first.parallel_loops == 1
    assert first.parallel > 2
    assert first.innermost > 6  # 64 points of a row
    assert last.parallel == 1


@pytest.mark.thorough
def test_the_points_that_come_along_rank_a_program_that_is_left_out():
    found = ranking.leave_one_program_out(ranking.cpu_points(), ranking.NearestNeighbours)
    figures = ranking.summary([q for q in found if q.program in programs.STENCILS])
    assert figures["correlation_median"] > 0.85
    assert figures["runs_to_90_worst"] <= 20
    about = json.loads(CPU_POINTS.read_text())["about"]
    for q in found:
        kept = about["left_out"][q.program]
        assert q.correlation == pytest.approx(kept["correlation"], abs=0.01)


def test_the_model_of_c_kernels_depends_on_the_program_and_what_is_installed(monkeypatch):
    assert shipped()[1] == "randomised trees from 6400 measured kernels"
    total = programs.LINEAR_ALGEBRA["dot"]()
    model, called = ranking.cpu_model(total)
    assert called == "nearest neighbours, a trend and trees from 922 measured kernels"
    assert isinstance(model, ranking.GeometricMean)
    table = ranking.cpu_points()[-1].features
    each = [one.predict(table) for one in model.models]
    assert np.allclose(model.predict(table), np.sqrt(each[0] * each[1]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert ranking.cpu_model(total)[1] == "nearest neighbours from 7322 measured kernels"
    assert ranking.cpu_model(STENCIL)[1] == "nearest neighbours from 7322 measured kernels"


def test_a_stencil_computes_from_windows_of_its_inputs_only():
    known = programs.LINEAR_ALGEBRA | programs.APPLICATIONS
    assert all(is_stencil(s.build(8, 8)) for s in programs.STENCILS.values())
    assert {name for name, build in known.items() if is_stencil(build())} == {
        *("convolution", "box", "life", "heat"),
    }


@pytest.mark.parametrize("left_out", ["srad1", "harris"])
def test_the_default_models_need_no_more_runs_than_neighbours(left_out):
    points = ranking.cpu_points()
    (p,) = (p for p in points if p.program == left_out)
    others = [q for q in points if q.program != left_out]
    wanted = ranking.quality(p, fitted(NearestNeighbours(), others).predict(p.features))
    plain = programs.LINEAR_ALGEBRA | programs.APPLICATIONS
    if left_out in programs.STENCILS:
        others = [q for q in others if q.program not in plain]
        model: ranking.PerformanceModel = ranking.RandomisedTrees()
    else:
        others = [q for q in others if q.program in plain]
        model = ranking.GeometricMean((NearestNeighbours(), ranking.TrendAndTrees()))
    found = ranking.quality(p, fitted(model, others).predict(p.features))
    assert found.runs <= wanted.runs


def test_features_of_c_kernels_say_how_their_innermost_loop_runs():
    grid = tp.array("A", tp.f32[32, 64]) >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1)
    rows = grid >> tp.map2(tp.fun(lambda w: w[1, 0] + w[1, 2] * 2 - w[0, 1], "f"))
    f = cpu_features(generate(rw.derive(rows, rw.lower_nest(n.PAR, n.SIMD)).program), {})
    assert (f.innermost, f.second, f.third, f.nest) == (6, 5, 0, 2)
    assert (f.contiguous, f.irregular, f.lanes_share) == (1, 0, 1)
    assert f.operations == 3 * f.stores == 3 * 32 * 64
    assert f.tests == f.stores  # of the row; columns need none inside of the grid
    columns = tp.array("A", tp.f32[32, 64]) >> tp.transpose >> tp.map(tp.map(tp.copy))
    g = cpu_features(generate(rw.derive(columns, rw.lower_nest(n.PAR, n.SEQ)).program), {})
    assert (g.contiguous, g.irregular, g.lanes_share) == (0.5, 0, 0)
    names = dict(zip(CPU_FEATURES, cpu_vector(g, 3), strict=True))
    assert names["speedup"] == 1 + (64 / 22 - 1) / 2
    assert names["innermost"] == 5


def test_times_of_final_rounds_are_not_shown_as_lower_bounds(tuned):
    best = tuned[0].best
    short = replace(best.measurement, lower_bound=True)
    assert not replace(best, measurement=short).time.startswith(">")
    assert replace(best, measurement=short, final=None).time.startswith("> ")
    assert replace(best, measurement=replace(short, status="wrong_answer")).time == "wrong answer"


def test_an_uncertain_speedup_of_a_pattern_is_said_to_be_so(tuned):
    wide = replace(tuned[0], speedup=ConfidenceInterval(80.0, 0.5, 1100.0))
    page = patterns_page(wide, "an estimate")
    assert "(uncertain: 0.5× to 1100×)" in page
    assert "80×" in page


def test_the_page_of_patterns_suits_telephones_and_says_how_it_was_made(tuned):
    page = patterns_page(tuned[0], "an estimate", {"command": "tilewright patterns tune"})
    charts = page.split("<h2>Predicted and measured</h2>")[1].split("</section>")[0]
    assert charts.count("<svg") == charts.count('class="wide"') * 2 == 2
    assert "How this was made" in page
    assert "tilewright patterns tune" in page
