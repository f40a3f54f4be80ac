"""What `Auto` gains from thousands of instances, next to peers without a limit on their size.

Of public tables (as in ``prediction_public``) with enough instances, `Auto` and the peers are
fitted to random subsets of `SIZES` instances and asked for `ASKED` others:

- ``boosting``: scikit-learn's histogram gradient boosting with its defaults, and
  ``boosting, large`` with 2,000 trees of 63 leaves;
- ``forest``: 100 trees of its random forest.

All see logarithms of sizes and of times. The error is the mean absolute relative one.
``auto_vs_best`` is the least error of a peer (by the test instances themselves) over that of
`Auto`, as a geometric mean over splits; ``seconds`` are those of a fit. Large trees were tried on
SGEMM first, so its rows are not held out, and the summary has them apart (``pooled_…`` are all).
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import common
from prediction_peers import public_tables
from tilewright.prediction import Auto

SIZES = (5_000, 10_000, 20_000, 100_000)
ASKED = 1_000
SPLITS = 3
DESIGNED = ("sgemm_product",)


def peers(seed: int) -> dict[str, Any]:
    """The peers, not fitted."""
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

    return {
        "boosting": HistGradientBoostingRegressor(random_state=seed),
        "boosting, large": HistGradientBoostingRegressor(
            max_iter=2000, max_leaf_nodes=63, random_state=seed
        ),
        "forest": RandomForestRegressor(100, random_state=seed, n_jobs=-1),
    }


def error(predicted: Any, measured: Any) -> float:
    """Mean absolute relative error."""
    return float(np.mean(np.abs(predicted - measured) / measured))


def split(data: dict[str, Any], size: int, seed: int) -> dict[str, Any]:
    """Errors and seconds of one split."""
    order = np.random.default_rng([seed, size]).permutation(len(data["y"]))
    train, test = order[:size], order[size : size + ASKED]
    X, y = data["X"], data["y"]
    found: dict[str, Any] = {"errors": {}, "seconds": {}}
    logs = np.log1p(np.maximum(X, 0.0))
    began = time.perf_counter()
    auto = Auto(features=data["features"], complexity=data["complexity"], seed=seed)
    auto.fit(X[train], y[train])
    found["seconds"]["auto"] = time.perf_counter() - began
    found["errors"]["auto"] = error(auto.predict(X[test]), y[test])
    found["weights"] = auto.chosen_["weights"]
    for name, model in peers(seed).items():
        began = time.perf_counter()
        model.fit(logs[train], np.log(y[train]))
        found["seconds"][name] = time.perf_counter() - began
        found["errors"][name] = error(np.exp(model.predict(logs[test])), y[test])
    return found


def row(data: dict[str, Any], size: int, splits: int) -> dict[str, Any]:
    """One table and size."""
    made = [split(data, size, seed) for seed in range(splits)]
    names = made[0]["errors"]
    best = [min(e for n, e in each["errors"].items() if n != "auto") for each in made]
    return {
        "data": data["name"],
        "held_out": data["name"] not in DESIGNED,
        "instances": size,
        "auto_vs_best": common.geometric_mean(
            b / each["errors"]["auto"] for b, each in zip(best, made, strict=True)
        ),
        "errors": {n: common.geometric_mean(each["errors"][n] for each in made) for n in names},
        "seconds": {n: float(np.median([each["seconds"][n] for each in made])) for n in names},
        "weights": [each["weights"] for each in made],
    }


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    found: dict[str, Any] = {}
    for prefix, part in (("", [r for r in rows if r["held_out"]]), ("pooled_", rows)):
        if part:
            ratios = [r["auto_vs_best"] for r in part]
            found[f"{prefix}auto_vs_best"] = common.geometric_mean(ratios)
            found[f"{prefix}auto_vs_best_min"] = min(ratios)
            found[f"{prefix}max_seconds"] = max(r["seconds"]["auto"] for r in part)
            found[f"{prefix}rows"] = len(part)
    return found


def main() -> None:
    """Fit and ask all models on every table that is large enough."""
    parser = common.arguments(__doc__ or "", ["a table"])
    parser.add_argument("--data", type=Path, required=True, help="replay/ and prediction/ in it")
    parser.add_argument("--splits", type=int, default=SPLITS)
    args = parser.parse_args()
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in public_tables(args.data):
            if args.only and data["name"] not in args.only.split(","):
                continue
            for size in SIZES:
                if len(data["y"]) >= size + ASKED:
                    rows.append(row(data, size, args.splits))
                    errors = "  ".join(f"{n} {e:.2%}" for n, e in rows[-1]["errors"].items())
                    print(f"{data['name']:28} {size:7,}  {errors}", flush=True)
    common.write(args, "prediction_rows", rows, summarised(rows))


if __name__ == "__main__":
    main()
