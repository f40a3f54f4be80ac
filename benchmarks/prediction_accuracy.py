"""How well at most 75 fitted numbers from 250 instances predict run times.

Every data set of ``--data`` (``NAME.csv`` with its ``NAME.json``) is split at random ten times.
Compared are our default model and NN+C in the paper's protocol; the error is the paper's, without
the 30% of test instances that run shortest. The floor of a data set is the median relative
difference of two independent measurements. Intervals are nominal 90%; their interval score is
compared with that of constant widths, in seconds and in log time, whose constants are taken from
the test instances themselves. Interrupt it whenever you like: a data set that is done is kept.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import common
from tilewright.prediction import NNC, Augmented
from tilewright.prediction.intervals import thresholded

DATA = common.HERE / "data" / "prediction"
MODEL = common.HERE.parent / "src" / "tilewright" / "prediction"
TRAINING, TESTING, SPLITS, COVERAGE, QUIET = 250, 250, 10, 0.9, 0.015


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
        "again": np.array([float(row["retime_s"]) for row in rows]),
    }


def disturbed(data: dict[str, Any], share: float = 0.05, seed: int = 0) -> dict[str, Any]:
    """The data set with a share of its measurements slowed down by 1.3 to 6 times."""
    random = np.random.default_rng(seed)
    slow = [
        np.where(random.random(len(y)) < share, random.uniform(1.3, 6.0, len(y)), 1.0)
        for y in (data["y"], data["again"])
    ]
    return {
        **data,
        "name": f"{data['name']}+outliers",
        "dense": False,  # not a kernel of its own
        "y": data["y"] * slow[0],
        "again": data["again"] * slow[1],
    }


def interval_score(low: Any, high: Any, y: Any) -> float:
    """Mean interval score (Gneiting and Raftery 2007, equation 43)."""
    miss = 2 / (1 - COVERAGE)
    return float(np.mean(high - low + miss * (np.maximum(low - y, 0) + np.maximum(y - high, 0))))


def split(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """One random split: both models' errors, the intervals, the time to train."""
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    train, test = order[:TRAINING], order[TRAINING : TRAINING + TESTING]
    X, y = data["X"], data["y"]
    common_arguments = {
        "features": tuple(data["features"]),
        "complexity": data["complexity"],
        "seed": seed,
    }
    cpu, wall = time.process_time(), time.perf_counter()
    ours = Augmented(**common_arguments).fit(X[train], y[train])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert ours.parameter_count_ <= 75
    predicted, (low, high) = ours.predict(X[test]), ours.predict_interval(X[test], COVERAGE)
    measured = y[test]
    paper = NNC(**common_arguments, folds=0).fit(X[train], y[train])
    width = float(np.quantile(np.abs(predicted - measured), COVERAGE))
    factor = float(np.quantile(np.abs(np.log(predicted / measured)), COVERAGE))
    logs = np.log(predicted)
    return {
        "mape": thresholded(predicted, measured),
        "mape_nnc": thresholded(paper.predict(X[test]), measured),
        "parameters": ours.parameter_count_,
        "train_cpu_s": cpu,
        "train_wall_s": wall,
        "coverage": float(np.mean((low <= measured) & (measured <= high))),
        "score": interval_score(low, high, measured)
        / interval_score(predicted - width, predicted + width, measured),
        "score_log": interval_score(np.log(low), np.log(high), np.log(measured))
        / interval_score(logs - factor, logs + factor, np.log(measured)),
        "chosen": {k: ours.chosen_[k] for k in ("inputs", "terms", "hidden")},
    }


def row(data: dict[str, Any]) -> dict[str, Any]:
    """One data set's figures."""
    y, again = data["y"], data["again"]
    splits = [split(data, seed) for seed in range(SPLITS)]
    floor = float(np.median(2 * np.abs(y - again) / (y + again)))
    mape = float(np.mean([s["mape"] for s in splits]))
    nnc = float(np.mean([s["mape_nnc"] for s in splits]))
    return {
        "data": data["name"],
        "dense": bool(data["dense"]),
        "instances": len(y),
        "floor": floor,
        "remeasured_mape": thresholded(again, y),
        "mape": mape,
        "mape_nnc": nnc,
        "excess": mape / max(0.5 * nnc, 1.5 * floor),
        "coverage": float(np.mean([s["coverage"] for s in splits])),
        "score": common.geometric_mean([s["score"] for s in splits]),
        "score_log": common.geometric_mean([s["score_log"] for s in splits]),
        "train_cpu_s": max(s["train_cpu_s"] for s in splits),
        "train_wall_s": max(s["train_wall_s"] for s in splits),
        "splits": splits,
    }


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a data set"])
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of data sets")
    args = parser.parse_args()
    sets = [read(path) for path in sorted(args.data.glob("*.csv"))]
    sets = [data for data in sets if len(data["y"]) >= TRAINING + 50]
    sets += [disturbed(data) for data in sets if data["name"] in ("matmul-numpy", "conv-numpy")]
    if args.only:
        sets = [data for data in sets if data["name"] in args.only.split(",")]
    code = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(MODEL.glob("*.py"))))
    pieces = common.Pieces(args.work, "prediction_accuracy", args.fresh, ours=False)
    rows = []
    for data in sets:
        seen = hashlib.sha256(data["X"].tobytes() + data["y"].tobytes())
        key = f"{data['name']}-{seen.hexdigest()[:8]}-{code.hexdigest()[:8]}"
        rows.append(pieces.get(key, lambda data=data: row(data)))
        latest = rows[-1]
        print(
            f"{latest['data']:32s} floor {latest['floor']:7.2%} ours {latest['mape']:7.2%} "
            f"NN+C {latest['mape_nnc']:9.2%} excess {latest['excess']:.2f}",
            flush=True,
        )
    columns = "data dense floor mape mape_nnc excess coverage score score_log train_cpu_s".split()
    common.print_table(columns, [[r[c] for c in columns] for r in rows])
    quiet = [r for r in rows if r["dense"] and r["floor"] < QUIET]
    summary = {
        "max_mape_quiet_dense": 100 * max((r["mape"] for r in quiet), default=float("nan")),
        "quiet_dense_kernels": len(quiet),
        "max_excess": max(r["excess"] for r in rows),
        "max_train_seconds": max(max(r["train_cpu_s"], r["train_wall_s"]) for r in rows),
        "interval_coverage": float(np.mean([r["coverage"] for r in rows])),
        "interval_score": common.geometric_mean([r["score"] for r in rows]),
        "interval_score_log": common.geometric_mean([r["score_log"] for r in rows]),
        "data_sets": len(rows),
        "geometric_mean_mape": 100 * (common.geometric_mean([r["mape"] for r in rows]) or 0.0),
    }
    common.write(args, "prediction_accuracy", rows, summary)


if __name__ == "__main__":
    main()
