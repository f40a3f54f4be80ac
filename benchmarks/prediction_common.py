"""What the benchmarks of predicted run times share: data sets, random splits, and the methods.

A method's figures on one split of one data set are a piece that is kept between runs and between
benchmarks, as long as neither the data nor the method's code change.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import common
from tilewright.prediction import LRC, NLRC, NN, NNC, Augmented, Boosted, C, GaussianProcess
from tilewright.prediction.models.intervals import thresholded

DATA = common.HERE / "data" / "prediction"
MODELS = common.HERE.parent / "src" / "tilewright" / "prediction" / "models"
TRAINING, TESTING, COVERAGE = 250, 250, 0.9
# Hidden layers of the networks of Section IV-B; elsewhere as wide as 75 numbers allow. Blur's
# second layer is one narrower than the paper's: its schedules have one more feature here.
HIDDEN = {
    "matmul": (7,),
    "matvec": (7,),
    "convolution": (9,),
    "pooling": (9,),
    "halide_blur": (5, 4),
    "halide_fft": (5, 3),
}
PAPER = {"nnc": NNC, "nn": NN, "c": C, "lrc": LRC, "nlrc": NLRC}
UNLIMITED = {"boosted": Boosted, "gp": GaussianProcess}
SCALED = "nnc_scaled"  # NN+C of seconds divided by their standard deviation
# The networks with the rates and epochs that predict held-out training instances best.
SEARCHED = {"nnc_searched": "nnc", "nn_searched": "nn", "nnc_scaled_searched": SCALED}
RATES = ((1e-2,), (1e-3,), (1e-4,), (1e-2, 1e-3, 1e-4))  # the paper names these
EPOCHS = (2000, 6000, 18000)
OURS = "ours"
UNCONSTRAINED = 2500  # training instances of NN+C without a limit, or half of a data set
_PAPERS_FILES = ("nnc_paper", "network", "trees")
_OUR_FILES = (
    *("augmented", "candidate_inputs", "distillation", "gaussian_process", "initialization"),
    *("inputs", "intervals", "levenberg_marquardt", "model_selection", "surface"),
)


def read(path: Path) -> dict[str, Any]:
    """A data set: what its JSON says, with features X, times y and times measured again."""
    about: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    with path.open() as file:
        rows = list(csv.DictReader(file))
    names = list(about["features"])
    return {
        **about,
        "name": path.stem,
        "X": np.array([[float(row[name]) for name in names] for row in rows]),
        "y": np.array([float(row["time_s"]) for row in rows]),
        "again": np.array([float(row["retime_s"] or "nan") for row in rows]),
    }


def data_sets(folder: Path, only: str | None) -> list[dict[str, Any]]:
    """Those of a folder with instances enough, all or the named ones."""
    sets = [read(path) for path in sorted(folder.glob("*.csv"))]
    sets = [data for data in sets if len(data["y"]) >= TRAINING + 50]
    return [data for data in sets if only is None or data["name"] in only.split(",")]


def split(data: dict[str, Any], seed: int, training: int = TRAINING) -> tuple[Any, Any]:
    """Random training instances, and as many others (or those that are left) for the test."""
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    return order[:training], order[training : training + max(training, TESTING)]


def interval_score(low: Any, high: Any, y: Any) -> float:
    """Mean interval score (Gneiting and Raftery 2007, equation 43)."""
    miss = 2 / (1 - COVERAGE)
    return float(np.mean(high - low + miss * (np.maximum(low - y, 0) + np.maximum(y - high, 0))))


def figures(method: str, data: dict[str, Any], seed: int) -> dict[str, Any]:
    """A method trained on one random split, and its errors on the test instances."""
    large = method == "unconstrained"
    half = min(UNCONSTRAINED, len(data["y"]) // 2)
    train, test = split(data, seed, half if large else TRAINING)
    X, y, measured = data["X"], data["y"][train], data["y"][test]
    named: dict[str, Any] = {
        "features": tuple(data["features"]),
        "complexity": data["complexity"],
        "seed": seed,
    }
    method, search = SEARCHED.get(method, method), method in SEARCHED
    unit = float(y.std()) if method == SCALED else 1.0
    model: Any
    if method == OURS:
        model = Augmented(**named)
    elif method in UNLIMITED:
        model = UNLIMITED[method](**named, folds=0)
    elif large:
        model = NNC(**named, folds=0, max_parameters=None)
    else:
        network = method in ("nnc", "nn", SCALED)
        hidden = {"hidden": HIDDEN.get(data["kernel"])} if network else {}
        made = PAPER["nnc" if method == SCALED else method]
        model = made(**named, **hidden, folds=0)
        if search:
            model.set_params(**searched(model, X[train], y / unit))
    cpu, wall = timed(lambda: model.fit(X[train], y / unit), patient=method == OURS)
    predicted = model.predict(X[test]) * unit
    constant = float(np.ptp(predicted)) == 0.0  # which has no ranks
    found = {
        "mape": thresholded(predicted, measured),
        "rho": 0.0 if constant else float(spearmanr(predicted, measured).statistic),
        "parameters": model.parameter_count_,
        "train_cpu_s": cpu,
        "train_wall_s": wall,
    }
    if method == OURS:
        assert model.parameter_count_ <= 75
        found |= intervals(model, X[test], predicted, measured)
        found["mape_agreeing"] = agreeing(predicted, measured, data["again"][test])
        found["chosen"] = {k: model.chosen_[k] for k in ("inputs", "terms", "hidden")}
    return found


def searched(model: Any, X: Any, y: Any) -> dict[str, Any]:
    """A network's rates and epochs with the least error on a fifth of its training instances."""
    out = np.arange(len(y)) % 5 == 0
    errors = {}
    for rates, epochs in itertools.product(RATES, EPOCHS):
        model.set_params(rates=rates, epochs=epochs).fit(X[~out], y[~out])
        errors[rates, epochs] = thresholded(model.predict(X[out]), y[out])
    rates, epochs = min(errors, key=lambda key: errors[key])
    return {"rates": rates, "epochs": epochs}


def timed(fit: Callable[[], Any], patient: bool) -> tuple[float, float]:
    """CPU and wall seconds of training.

    Where other processes had the CPU, patience trains up to three times for a clean wall time.
    """
    best: tuple[float, float] | None = None
    for _ in range(3 if patient else 1):
        cpu, wall = time.process_time(), time.perf_counter()
        fit()
        spent = (time.process_time() - cpu, time.perf_counter() - wall)
        best = spent if best is None or spent[1] < best[1] else best
        if best[1] <= 1.15 * best[0] + 0.05 or best[1] < 1.0:
            break
    assert best is not None
    return best


def intervals(model: Any, queries: Any, predicted: Any, measured: Any) -> dict[str, float]:
    """Coverage, and scores against constant widths that the test instances themselves chose."""
    low, high = model.predict_interval(queries, COVERAGE)
    width = float(np.quantile(np.abs(predicted - measured), COVERAGE))
    factor = float(np.quantile(np.abs(np.log(predicted / measured)), COVERAGE))
    logs = np.log(predicted)
    return {
        "coverage": float(np.mean((low <= measured) & (measured <= high))),
        "score": interval_score(low, high, measured)
        / interval_score(predicted - width, predicted + width, measured),
        "score_log": interval_score(np.log(low), np.log(high), np.log(measured))
        / interval_score(logs - factor, logs + factor, np.log(measured)),
    }


def agreeing(predicted: Any, measured: Any, again: Any) -> float | None:
    """The error on those instances that both measurements agree about: what noise has no part in.

    They agree if they differ by no more than three times the median difference.
    """
    difference = np.abs(measured - again) / (measured + again)
    with np.errstate(invalid="ignore"):
        agreed = difference <= 3 * np.nanmedian(difference) if len(difference) else difference > 0
    long = measured >= np.quantile(measured, 0.3)
    kept = agreed & long
    return float(np.mean(np.abs(predicted / measured - 1)[kept])) if kept.any() else None


class Figures:
    """Figures by method, data set and split, kept in files."""

    def __init__(self, work: Path, fresh: bool) -> None:
        self._pieces = common.Pieces(work, "prediction_figures", fresh, ours=False)
        self._code = {
            which: hashlib.sha256(b"".join((MODELS / f"{n}.py").read_bytes() for n in names))
            for which, names in (
                ("paper", _PAPERS_FILES),
                ("ours", _OUR_FILES),
                ("unlimited", (*_OUR_FILES, "boosted", "trees")),
            )
        }

    def get(self, method: str, data: dict[str, Any], seed: int) -> dict[str, Any]:
        """See `figures`."""
        told = repr((data["features"], data["complexity"])).encode()
        seen = hashlib.sha256(data["X"].tobytes() + data["y"].tobytes() + told).hexdigest()
        which = "ours" if method == OURS else "unlimited" if method in UNLIMITED else "paper"
        code = self._code[which].hexdigest()
        key = f"{data['name']}-{method}-{seed}-{seen[:8]}-{code[:8]}"
        made: dict[str, Any] = self._pieces.get(key, lambda: figures(method, data, seed))
        return made
