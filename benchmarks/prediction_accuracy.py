"""How well at most 75 fitted numbers from 250 instances predict run times.

Every data set of ``--data`` (``NAME.csv`` with its ``NAME.json``) is split at random ten times.
Compared are our default model and NN+C in the paper's protocol; the error is the paper's, without
the 30% of test instances that run shortest. The floor of a data set is the median relative
difference of two independent measurements. Intervals are nominal 90%; their interval score is
compared with that of constant widths, in seconds and in log time, whose constants are taken from
the test instances themselves. ``mape_agreeing`` is the error on the test instances about which
the two measurements agree: the rest were disturbed in one of them. NN+C is trained on some of the
splits, and models without a limit on their numbers on the first. Interrupt it whenever you like:
a split that is done is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import common
from prediction_common import DATA, OURS, UNLIMITED, Figures, data_sets
from tilewright.prediction.models.intervals import thresholded

SPLITS, NNC_SPLITS, UNLIMITED_SPLITS, QUIET = 10, 2, 1, 0.015
UNLIMITED_SETS = (  # they train for long
    "matmul-numpy",
    "matmul-eigen_sparse",
    "matmul-ublas_dense",
    "matvec-numpy",
    "convolution-ublas_dense",
    "pooling-ublas_dense",
)
DISTURBED = ("matmul-numpy", "convolution-numpy")


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


def row(data: dict[str, Any], known: Figures, splits: int) -> dict[str, Any]:
    """One data set's figures."""
    y, again = data["y"], data["again"]
    twice = np.isfinite(again)
    y, again = y[twice], again[twice]
    ours = [known.get(OURS, data, seed) for seed in range(splits)]
    paper = [known.get("nnc", data, seed) for seed in range(min(NNC_SPLITS, splits))]
    floor = float(np.median(2 * np.abs(y - again) / (y + again))) if len(y) else float("nan")
    mape = float(np.mean([s["mape"] for s in ours]))
    nnc = float(np.mean([s["mape"] for s in paper]))
    found = {
        "data": data["name"],
        "dense": bool(data.get("dense", False)),
        "instances": len(data["y"]),
        "floor": floor,
        "remeasured_mape": thresholded(again, y) if len(y) else None,
        "mape": mape,
        "mape_agreeing": float(np.mean([s["mape_agreeing"] for s in ours if s["mape_agreeing"]])),
        "mape_nnc": nnc,
        "excess": mape / np.nanmax([0.5 * nnc, 1.5 * floor]),
        "coverage": float(np.mean([s["coverage"] for s in ours])),
        "score": common.geometric_mean([s["score"] for s in ours]),
        "score_log": common.geometric_mean([s["score_log"] for s in ours]),
        "parameters": max(s["parameters"] for s in ours),
        "train_cpu_s": max(s["train_cpu_s"] for s in ours),
        "train_wall_s": max(s["train_wall_s"] for s in ours),
        "mape_ours_first_splits": float(np.mean([s["mape"] for s in ours[:UNLIMITED_SPLITS]])),
    }
    for method in UNLIMITED if data["name"] in UNLIMITED_SETS else ():
        made = [known.get(method, data, seed)["mape"] for seed in range(UNLIMITED_SPLITS)]
        found[f"mape_{method}"] = float(np.mean(made))
    return {**found, "splits": ours}


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a data set"])
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of data sets")
    parser.add_argument("--splits", type=int, default=SPLITS, help="random splits")
    args = parser.parse_args()
    sets = data_sets(args.data, None)
    sets += [disturbed(data) for data in sets if data["name"] in DISTURBED]
    if args.only:
        sets = [data for data in sets if data["name"] in args.only.split(",")]
    known = Figures(args.work, args.fresh)
    rows = []
    for data in sets:
        rows.append(row(data, known, args.splits))
        latest = rows[-1]
        print(
            f"{latest['data']:32s} floor {latest['floor']:7.2%} ours {latest['mape']:7.2%} "
            f"NN+C {latest['mape_nnc']:9.2%} excess {latest['excess']:.2f}",
            flush=True,
        )
    columns = "data dense floor remeasured_mape mape mape_agreeing mape_nnc excess".split()
    columns += [
        "coverage",
        "score",
        "score_log",
        "train_cpu_s",
        "mape_ours_first_splits",
        *(f"mape_{method}" for method in UNLIMITED),
    ]
    common.print_table(columns, [[r.get(c) for c in columns] for r in rows])
    quiet = [r for r in rows if r["dense"] and r["floor"] < QUIET]
    unlimited = [r for r in rows if all(f"mape_{method}" in r for method in UNLIMITED)]
    summary = {
        "max_mape_quiet_dense": 100 * max((r["mape"] for r in quiet), default=float("nan")),
        "quiet_dense_kernels": len(quiet),
        "max_mape_quiet_dense_agreeing": 100
        * max((r["mape_agreeing"] for r in quiet), default=float("nan")),
        "min_remeasured_mape_quiet_dense": 100
        * min((r["remeasured_mape"] for r in quiet), default=float("nan")),
        "max_excess": max(r["excess"] for r in rows),
        "max_train_seconds": max(max(r["train_cpu_s"], r["train_wall_s"]) for r in rows),
        "interval_coverage": float(np.mean([r["coverage"] for r in rows])),
        "interval_score": common.geometric_mean([r["score"] for r in rows]),
        "interval_score_log": common.geometric_mean([r["score_log"] for r in rows]),
        "data_sets": len(rows),
        "splits": args.splits,
        "splits_nnc": min(NNC_SPLITS, args.splits),
        "geometric_mean_mape": 100 * (common.geometric_mean([r["mape"] for r in rows]) or 0.0),
        **{
            f"unlimited_{name}": 100
            * (common.geometric_mean([r[f"mape_{name}"] for r in unlimited]) or 0.0)
            for name in ("ours_first_splits", *UNLIMITED)
        },
    }
    common.write(args, "prediction_accuracy", rows, summary)


if __name__ == "__main__":
    main()
