"""Our models of run time against the usual ones, on tables of other people and on ours.

The tables are recorded search spaces (``--data``, its folder ``replay``: T4 results files and
Kernel Tuner's caches), the public table of SGEMM on a GPU (``prediction``), and the data sets of
this repository. A model is fitted to 250 random instances and asked for 250 others; the error is
the mean absolute relative one, without the 30% that run shortest. Compared are ours of at most 75
numbers, `Auto`, and peers that model the logarithm of the time: a Gaussian process (Matérn 5/2, a
length for each input), gradient boosting, randomised trees, and ridge regression, without and with
products of inputs. Peers get the complexity, where there is one, and logarithms where these help.

- ``vs_gp``: the process's error over that of ours;
- ``auto_vs_best_of_peers``: the error of each table's best peer, by the test, over `Auto`'s;
- ``coverage_…``, ``worst_blow_up``: of ours, as in ``prediction_unseen``, on the tables of others;
- ``large_…``: `Auto` fitted to `LARGE` instances, the best peer's error there over its error, and
  the share of its error with 250 instances that is left, beside the best peer's own.

Geometric means over tables and splits. Kernels in ``DESIGNED`` and two thirds of our own data sets
took part in choices; ``held_out`` marks the rest, which the summary is of (``pooled_…`` has all,
``public_…`` the held-out tables of others).
"""

from __future__ import annotations

import csv
import io
import time
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
import prediction_unseen
from prediction_adapt import DESIGNED, table
from prediction_common import COVERAGE, DATA, TRAINING, data_sets, split
from tilewright.prediction import Augmented, Auto
from tilewright.prediction.models.intervals import thresholded
from tilewright.tuning.interop.replay import read_cache, read_t4

SPLITS = 1
LARGE = (5000, 100_000)  # training instances; of a table with fewer, two thirds
TESTED = 2000  # instances of the test of large fits
PEERS = ("gp", "boosting", "forest", "linear", "quadratic")
LARGE_PEERS = ("boosting", "forest", "quadratic")  # a process would take hours
OURS = ("augmented", "auto")


def public_tables(folder: Path) -> list[dict[str, Any]]:
    """The recorded spaces, and the table of SGEMM."""
    found = []
    for path in sorted((folder / "replay").glob("*.json*")):
        if "T4" in path.name or "cache" in path.name:
            replay = (read_t4 if "T4" in path.name else read_cache)(path)
            made = table(replay)
            found.append(_described(replay.name, made["names"], made["X"], made["y"]))
    for path in sorted((folder / "prediction").glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if Path(n).name == f"{path.stem[:-8]}.csv")
            text = io.StringIO(archive.read(name).decode())
        names = next(csv.reader(text))
        numbers = np.loadtxt(text, delimiter=",")
        runs = [i for i, heading in enumerate(names) if heading.startswith("Run")]
        inputs = [i for i in range(len(names)) if i not in runs]
        seconds = numbers[:, runs].mean(axis=1) * 1e-3
        found.append(
            _described(path.stem[:-8], [names[i] for i in inputs], numbers[:, inputs], seconds)
        )
    return found


def _described(name: str, names: Any, columns: Any, seconds: Any) -> dict[str, Any]:
    return {
        "name": name,
        "features": tuple(names),
        "complexity": None,
        "X": columns,
        "y": seconds,
        "public": True,
        "held_out": not name.startswith(DESIGNED),
    }


def peer(name: str, many: bool, seed: int) -> Any:
    """A peer of log time, with scikit-learn's conventions."""
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        GradientBoostingRegressor,
        HistGradientBoostingRegressor,
    )
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    if name == "gp":
        kernel = ConstantKernel(1.0) * Matern(1.0, (1e-2, 1e3), nu=2.5)
        kernel += WhiteKernel(1e-2, (1e-6, 10.0))
        return GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    if name == "boosting" and many:
        return HistGradientBoostingRegressor(
            max_iter=600, learning_rate=0.07, early_stopping=False, random_state=seed
        )
    if name == "boosting":
        return GradientBoostingRegressor(
            n_estimators=300, learning_rate=0.05, max_depth=4, subsample=0.7, random_state=seed
        )
    if name == "forest":
        return ExtraTreesRegressor(100 if many else 300, random_state=seed)
    ridge = RidgeCV(np.logspace(-4, 3, 15))
    if name == "linear":
        return make_pipeline(StandardScaler(), ridge)
    return make_pipeline(StandardScaler(), PolynomialFeatures(2), StandardScaler(), ridge)


def peer_error(name: str, model: Augmented, data: dict[str, Any], rows: Any, seed: int) -> float:
    """The error of a peer; `model` adds the complexity to the inputs."""
    train, test = rows
    own, asked = (model._with_complexity(data["X"][part]) for part in rows)
    positive = own.min(axis=0) > 0
    floor = np.where(positive, own.min(axis=0) * 1e-3, 1.0)
    own, asked = (
        np.where(positive, np.log(np.maximum(part, floor)), part) for part in (own, asked)
    )
    varied = np.ptp(own, axis=0) > 0
    own, asked = own[:, varied], asked[:, varied]
    made = peer(name, len(own) > 10 * TRAINING, seed)
    if name == "gp":
        middle, width = own.mean(axis=0), own.std(axis=0)
        own, asked = (own - middle) / width, (asked - middle) / width
        made.kernel.k1.k2.length_scale = np.ones(own.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length at its bound: an input that is of no use
        made.fit(own, np.log(data["y"][train]))
    return thresholded(np.exp(made.predict(asked)), data["y"][test])


def our_figures(model: Any, data: dict[str, Any], test: Any) -> dict[str, float]:
    """The error, and the coverage of the intervals."""
    queries, measured = data["X"][test], data["y"][test]
    low, high = model.predict_interval(queries, COVERAGE)
    return {
        "error": thresholded(model.predict(queries), measured),
        "coverage": float(np.mean((low <= measured) & (measured <= high))),
    }


def figures(data: dict[str, Any], seed: int, count: int = TRAINING) -> dict[str, Any]:
    """The errors of all models on one split of one table."""
    many = count > TRAINING
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    train, test = split(data, seed) if not many else (order[:count], order[count:][:TESTED])
    X, y = data["X"][train], data["y"][train]
    named = {"features": data["features"], "complexity": data["complexity"], "seed": seed}
    began = time.process_time()
    small = Augmented(**named).fit(X, y)
    middle = time.process_time()
    auto = Auto(**named).fit_around(small, X, y)
    return {
        "seed": seed,
        "training": len(train),
        "augmented": our_figures(small, data, test),
        "auto": our_figures(auto, data, test),
        "weights": auto.chosen_["weights"],
        "augmented_cpu_s": middle - began,
        "auto_cpu_s": time.process_time() - began,
        "peers": {
            name: peer_error(name, small, data, (train, test), seed)
            for name in (LARGE_PEERS if many else PEERS)
        },
    }


def large_counts(data: dict[str, Any]) -> list[int]:
    """How many instances the large fits of a table have."""
    known = len(data["y"])
    return sorted({min(count, 2 * known // 3) for count in LARGE if known >= count // 2})


def best(split_: dict[str, Any]) -> float:
    """The error of the best peer."""
    return float(min(split_["peers"].values()))


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of these tables."""
    splits = [s for row in rows for s in row["splits"]]
    summary: dict[str, Any] = {"tables": len(rows), "public": sum(r["public"] for r in rows)}
    summary["vs_gp"] = common.geometric_mean(
        s["peers"]["gp"] / s["augmented"]["error"] for s in splits
    )
    summary["vs_best_of_peers"] = common.geometric_mean(
        best(s) / s["augmented"]["error"] for s in splits
    )
    ratios = [best(s) / s["auto"]["error"] for s in splits]
    summary["auto_vs_best_of_peers"] = common.geometric_mean(ratios)
    summary["auto_vs_best_of_peers_min"] = min(ratios)
    for name in PEERS:
        summary[f"auto_vs_{name}"] = common.geometric_mean(
            s["peers"][name] / s["auto"]["error"] for s in splits
        )
    summary["auto_coverage"] = float(np.mean([s["auto"]["coverage"] for s in splits]))
    summary["auto_cpu_s"] = max(s["auto_cpu_s"] for s in splits)
    regimes = [s for row in rows for s in row["unseen"]]
    for regime in prediction_unseen.REGIMES:
        found = [s[regime]["coverage"] for s in regimes if regime in s]
        summary[f"coverage_{regime}"] = float(np.mean(found)) if found else None
    summary["worst_blow_up"] = max((s[r]["blow_up"] for s in regimes for r in s), default=None)
    large = [(row, s) for row in rows for s in row["large"]]
    summary["large_fits"] = len(large)
    summary["large_auto_vs_best_of_peers"] = common.geometric_mean(
        best(s) / s["auto"]["error"] for _, s in large
    )
    summary["large_error_left"] = common.geometric_mean(
        s["auto"]["error"] / row["splits"][0]["auto"]["error"] for row, s in large
    )
    summary["large_error_left_of_peers"] = common.geometric_mean(
        best(s) / best(row["splits"][0]) for row, s in large
    )
    summary["large_auto_cpu_s"] = max((s["auto_cpu_s"] for _, s in large), default=None)
    return summary


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a table"])
    parser.add_argument("--data", type=Path, required=True, help="replay/ and prediction/ in it")
    parser.add_argument("--splits", type=int, default=SPLITS, help="random splits")
    parser.add_argument(
        "--kept", action="store_true", help="only pieces of earlier runs; `not_run` names the rest"
    )
    args = parser.parse_args()
    own = [
        {**data, "public": False, "held_out": prediction_unseen.held_out(data["name"])}
        for data in data_sets(DATA, None)
    ]
    tables = [*public_tables(args.data), *own]
    if args.only:
        tables = [data for data in tables if data["name"] in args.only.split(",")]
    pieces = common.Pieces(args.work, "prediction_peers", args.fresh)
    not_run: list[str] = []

    def get(key: str, make: Callable[[], Any]) -> list[Any]:
        if args.kept and not pieces.has(key):
            not_run.append(key)
            return []
        return [pieces.get(key, make)]

    rows = []
    for data in sorted(tables, key=lambda data: not data["held_out"]):
        name = data["name"]
        row = {key: data[key] for key in ("name", "public", "held_out")}
        row["instances"] = len(data["y"])
        row |= {"splits": [], "unseen": [], "large": []}
        for seed in range(args.splits):
            row["splits"] += get(f"{name}-{seed}", partial(figures, data, seed))
        if not row["splits"]:
            continue
        if data["public"]:
            unseen = partial(prediction_unseen.figures, data, 0)
            row["unseen"] = get(f"{name}-unseen", unseen)
            for count in large_counts(data):
                made = partial(figures, data, 0, count)
                row["large"] += get(f"{name}-large-{count}", made)
        rows.append(row)
        first = row["splits"][0]
        shown = {model: first[model]["error"] for model in OURS} | first["peers"]
        print(f"{name:32}", " ".join(f"{k} {100 * v:.2f}" for k, v in shown.items()), flush=True)
    summary = summarised([row for row in rows if row["held_out"]] or rows)
    summary |= {f"pooled_{key}": value for key, value in summarised(rows).items()}
    public = [row for row in rows if row["held_out"] and row["public"]]
    if public:
        summary |= {f"public_{key}": value for key, value in summarised(public).items()}
    common.write(args, "prediction_peers", rows, summary, not_run=not_run)


if __name__ == "__main__":
    main()
