"""How well intervals hold, and errors stay small, where a model has seen nothing.

From every data set of ``--data`` at most 75 numbers are fitted to 250 instances, in three regimes:
``inside`` tests on other instances of the same range; ``gap`` trains without those instances whose
most important size (the feature most correlated with the time) lies between its quantiles 0.4 and
0.65, and tests on them; ``outside`` trains on those below its quantile 0.7, and tests on those
above. Coverage is of nominal 90% intervals. A blow-up is the mean relative error over that of a
linear model of the logarithms, fitted to the same instances. The weight of the folds' models in an
interval was chosen on two thirds of the data sets; ``held_out`` marks the rest, which the summary
is of (``pooled_…`` has all).
"""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
from prediction_common import COVERAGE, DATA, TRAINING, data_sets, interval_score
from tilewright.prediction import Augmented

SEEDS = 3
GAP = (0.4, 0.65)  # quantiles of the most important size
ABOVE = 0.7
VALUES = 12  # different ones that a size has at least
LEAST = (100, 20)  # instances for training and for the test
REGIMES = ("inside", "gap", "outside")


def held_out(name: str) -> bool:
    """Whether a data set had no part in the choice of the settings."""
    return zlib.crc32(name.encode()) % 3 == 0


def most_important(data: dict[str, Any]) -> int | None:
    """The column of the size that the time follows most."""
    from scipy.stats import spearmanr

    table, seconds = data["X"], data["y"]
    sizes = [j for j in range(table.shape[1]) if len(np.unique(table[:, j])) >= VALUES]
    ranks = {j: abs(float(spearmanr(table[:, j], seconds).statistic)) for j in sizes}
    return max(ranks, key=lambda j: ranks[j]) if ranks else None


def regimes(data: dict[str, Any], seed: int) -> dict[str, tuple[Any, Any]]:
    """Instances for training and for the test, by regime."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(data["y"]))
    found = {"inside": (order[:TRAINING], order[TRAINING : 2 * TRAINING])}
    j = most_important(data)
    if j is None:
        return found
    size = data["X"][:, j]
    low, high = np.quantile(size, GAP)
    for regime, tested in (
        ("gap", (size > low) & (size < high)),
        ("outside", size > np.quantile(size, ABOVE)),
    ):
        train = random.permutation(np.flatnonzero(~tested))[:TRAINING]
        found[regime] = train, np.flatnonzero(tested)
    enough = found.items()
    return {k: v for k, v in enough if len(v[0]) >= LEAST[0] and len(v[1]) >= LEAST[1]}


def linear(train: Any, seconds: Any, queries: Any) -> Any:
    """Seconds by a linear model of the logarithms."""

    def inputs(table: Any) -> Any:
        return np.column_stack([np.ones(len(table)), np.log(np.maximum(table, 1e-9))])

    weights = np.linalg.lstsq(inputs(train), np.log(seconds), rcond=None)[0]
    return np.exp(inputs(queries) @ weights)


def fitted(data: dict[str, Any], seed: int, train: Any) -> Augmented:
    """Our model of at most 75 numbers, fitted to these instances without a limit of time."""
    model = Augmented(
        features=tuple(data["features"]),
        complexity=data["complexity"],
        seed=seed,
        max_seconds=None,
    )
    return model.fit(data["X"][train], data["y"][train])


def scored(model: Augmented, data: dict[str, Any], train: Any, test: Any) -> dict[str, Any]:
    """The figures of a model that was fitted to `train`, on the instances `test`."""
    table, seconds = data["X"], data["y"]
    queries, measured = table[test], seconds[test]
    predicted = model.predict(queries)
    low, high = model.predict_interval(queries, COVERAGE)
    error = float(np.mean(np.abs(predicted / measured - 1)))
    simple = linear(table[train], seconds[train], queries)
    return {
        "coverage": float(np.mean((low <= measured) & (measured <= high))),
        "width": float(np.median(high / low)),
        "score_log": interval_score(np.log(low), np.log(high), np.log(measured)),
        "unsure": float(model.unsure(queries).mean()),
        "error": error,
        "blow_up": error / float(np.mean(np.abs(simple / measured - 1))),
    }


def figures(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """The figures of every regime of one data set with one seed."""
    return {
        regime: scored(fitted(data, seed, train), data, train, test)
        for regime, (train, test) in regimes(data, seed).items()
    }


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverages and errors by regime, and the worst blow-up, over all splits of these rows."""
    summary: dict[str, Any] = {"data_sets": len(rows)}
    for regime in REGIMES:
        every = [s[regime] for row in rows for s in row["splits"] if regime in s]
        summary[f"coverage_{regime}"] = float(np.mean([s["coverage"] for s in every]))
        summary[f"error_{regime}"] = common.geometric_mean([s["error"] for s in every])
        summary[f"score_log_{regime}"] = common.geometric_mean([s["score_log"] for s in every])
        summary[f"unsure_{regime}"] = float(np.mean([s["unsure"] for s in every]))
    blown = [s[regime]["blow_up"] for row in rows for s in row["splits"] for regime in s]
    summary["worst_blow_up"] = max(blown)
    return summary


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a data set"])
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of data sets")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="random splits")
    args = parser.parse_args()
    sets = data_sets(args.data, args.only)
    pieces = common.Pieces(args.work, "prediction_unseen", args.fresh)
    rows = []
    for data in sets:
        splits = [
            pieces.get(f"{data['name']}-{seed}", partial(figures, data, seed))
            for seed in range(args.seeds)
        ]
        rows.append(
            {"data": data["name"], "held_out": held_out(data["name"]), "splits": splits}
            | {
                f"coverage_{regime}": float(
                    np.mean([s[regime]["coverage"] for s in splits if regime in s])
                )
                for regime in splits[0]
            }
            | {"blow_up": max(s[r]["blow_up"] for s in splits for r in s)}
        )
        print({k: v for k, v in rows[-1].items() if k != "splits"}, flush=True)
    summary = summarised([row for row in rows if row["held_out"]] or rows)
    summary |= {f"pooled_{key}": value for key, value in summarised(rows).items()}
    common.write(args, "prediction_unseen", rows, summary)


if __name__ == "__main__":
    main()
