"""The figures of the benchmark of public tables, from made-up splits and a made-up table."""

from typing import Any

import numpy as np
import pytest

import prediction_public
import prediction_unseen


def split(gp: float, linear: float, ours: float, auto: float, **regimes: tuple[float, float]):
    peers = {"gp": gp, "boosting": 1.0, "forest": 1.0, "linear": linear}
    found = {k: {"coverage": c, "blow_up": b} for k, (c, b) in regimes.items()}
    return {
        "augmented": ours,
        "auto": auto,
        "peers": peers,
        "regimes": found,
        "parameters": 70,
    }


def test_a_table_s_figures_are_over_its_splits():
    data = {"name": "a", "held_out": True, "y": np.ones(300)}
    splits = [
        split(0.2, 0.4, 0.1, 0.1, inside=(0.9, 0.5), outside=(0.8, 2.0)),
        split(0.2, 0.1, 0.4, 0.1, inside=(0.7, 0.6), outside=(0.6, 3.5)),
    ]
    row = prediction_public.row(data, splits)
    assert row["vs_gp"] == pytest.approx((2.0 * 0.5) ** 0.5)
    assert row["auto_vs_best_of_peers"] == pytest.approx((2.0 * 1.0) ** 0.5)  # the best by split
    assert row["coverage_inside"] == pytest.approx(0.8)
    assert row["blow_up"] == 3.5
    other = prediction_public.row(
        {"name": "b", "held_out": False, "y": np.ones(300)},
        [split(0.1, 0.4, 0.2, 0.4, inside=(1.0, 0.1))],
    )
    summary = prediction_public.summarised([row, other])
    assert summary["vs_gp"] == pytest.approx(0.5**0.5)
    assert summary["auto_vs_best_of_peers_min"] == pytest.approx(0.25)
    assert summary["coverage_inside"] == pytest.approx(0.9)
    assert summary["coverage_outside"] == pytest.approx(0.7)  # of one table
    assert (summary["tables_inside"], summary["tables_outside"]) == (2, 1)
    assert summary["coverage_gap"] is None
    assert summary["worst_blow_up"] == 3.5


def test_peers_and_ours_are_asked_for_the_same_instances(monkeypatch):
    """A peer that knows the training instances only is wrong on the others."""
    rng = np.random.default_rng(0)
    X = rng.integers(1, 100, (400, 2)).astype(float)
    data: dict[str, Any] = {"name": "made", "features": ("m", "n"), "complexity": None}
    data |= {"X": X, "y": 1e-6 * X[:, 0] * X[:, 1] ** 2}
    train, test = prediction_unseen.regimes(data, 3)["inside"]
    asked = []
    monkeypatch.setattr(
        prediction_public, "peer_error", lambda name, model, data, rows, seed: asked.append(rows)
    )
    prediction_public.peers(data, 3)
    assert len(asked) == len(prediction_public.PEERS)
    assert all((rows[0] == train).all() and (rows[1] == test).all() for rows in asked)
    assert not set(train) & set(test)


def test_a_model_of_the_right_form_does_not_blow_up():
    rng = np.random.default_rng(0)
    X = rng.integers(1, 100, (400, 2)).astype(float)
    data = {"features": ("m", "n"), "complexity": "m*n", "X": X, "y": 1e-6 + 1e-8 * X.prod(axis=1)}
    train, test = np.arange(200), np.arange(200, 400)
    model = prediction_unseen.fitted(data, 0, train)
    found = prediction_unseen.scored(model, data, train, test)
    assert found["error"] < 0.01
    assert found["blow_up"] < 0.2
    worse = prediction_unseen.scored(model, {**data, "y": 2 * data["y"]}, train, test)
    assert worse["coverage"] < 0.1 < 0.8 < found["coverage"]
