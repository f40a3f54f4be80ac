"""Our models of run time on tables that others measured, over many random splits.

The tables are those of ``prediction_peers`` that are not ours: a recorded search space of each GPU
(``--data``, its folder ``replay``) and the public table of SGEMM (``prediction``). It is a script
of its own, because the 33 data sets of ``prediction_accuracy`` take much longer. On each split, a
model of at most 75 numbers and `Auto` are fitted to 250 random instances and asked for 250 others;
the error is the mean absolute relative one, without the 30% that run shortest.

- ``vs_gp``: the error of a Gaussian process of log time over that of the 75 numbers;
- ``auto_vs_best_of_peers``: the error of each split's best peer (Gaussian process, boosting,
  forest, linear, by the test instances themselves) over that of `Auto`; ``…_min``: the least of a
  table's geometric means;
- ``coverage_inside``, ``…_gap``, ``…_outside``: of nominal 90% intervals of the 75 numbers, with
  the regimes of ``prediction_unseen`` where a table has a size of at least 12 values;
- ``worst_blow_up``: the largest error over that of a linear model, of any split and regime.

Geometric means over tables and splits; coverages are means over tables and splits. Kernels in
``DESIGNED`` took part in choices of the models' settings; ``held_out`` marks the others, which the
summary is of (``pooled_…`` has all). Interrupt it whenever you like: a split that is done is kept
as long as the code of the models does not change.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
import prediction_unseen
from prediction_common import MODELS, TRAINING
from prediction_peers import our_figures, peer_error, public_tables
from tilewright.prediction import Augmented, Auto

SPLITS = 10
PEERS = ("gp", "boosting", "forest", "linear")


def ours(data: dict[str, Any], seed: int) -> dict[str, Any]:
    """Errors and coverages of our models on one split of one table, in every regime."""
    found: dict[str, Any] = {"seed": seed, "regimes": {}}
    for regime, (train, test) in prediction_unseen.regimes(data, seed).items():
        model = prediction_unseen.fitted(data, seed, train)
        found["regimes"][regime] = prediction_unseen.scored(model, data, train, test)
        if regime != "inside":
            continue
        auto = Auto(features=data["features"], complexity=data["complexity"], seed=seed)
        auto.fit_around(model, data["X"][train], data["y"][train])
        found["augmented"] = our_figures(model, data, test)["error"]
        found["auto"] = our_figures(auto, data, test)["error"]
        found["weights"] = auto.chosen_["weights"]
        found["parameters"] = model.parameter_count_
    return found


def peers(data: dict[str, Any], seed: int) -> dict[str, float]:
    """The errors of the peers on the split inside the range."""
    rows = prediction_unseen.regimes(data, seed)["inside"]
    described = Augmented(features=data["features"], complexity=data["complexity"])
    return {name: peer_error(name, described, data, rows, seed) for name in PEERS}


def row(data: dict[str, Any], splits: list[dict[str, Any]]) -> dict[str, Any]:
    """One table's figures over its splits."""
    best = [min(split["peers"].values()) for split in splits]
    auto = [split["auto"] for split in splits]
    regimes = splits[0]["regimes"]
    return {
        "name": data["name"],
        "held_out": data["held_out"],
        "instances": len(data["y"]),
        "error": common.geometric_mean(split["augmented"] for split in splits),
        "error_auto": common.geometric_mean(auto),
        **{
            f"error_{name}": common.geometric_mean(split["peers"][name] for split in splits)
            for name in PEERS
        },
        "vs_gp": common.geometric_mean(s["peers"]["gp"] / s["augmented"] for s in splits),
        "auto_vs_best_of_peers": common.geometric_mean(
            b / a for b, a in zip(best, auto, strict=True)
        ),
        **{
            f"coverage_{regime}": float(
                np.mean([split["regimes"][regime]["coverage"] for split in splits])
            )
            for regime in regimes
        },
        "blow_up": max(s["regimes"][r]["blow_up"] for s in splits for r in regimes),
        "splits": splits,
    }


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of these tables."""
    summary: dict[str, Any] = {"tables": len(rows)}
    for key in ("vs_gp", "auto_vs_best_of_peers"):
        summary[key] = common.geometric_mean(r[key] for r in rows)
        summary[f"{key}_min"] = min(r[key] for r in rows)
    for regime in prediction_unseen.REGIMES:
        found = [r[f"coverage_{regime}"] for r in rows if f"coverage_{regime}" in r]
        summary[f"coverage_{regime}"] = float(np.mean(found)) if found else None
        summary[f"tables_{regime}"] = len(found)
    summary["worst_blow_up"] = max(r["blow_up"] for r in rows)
    summary["max_parameters"] = max(s["parameters"] for r in rows for s in r["splits"])
    return summary


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a table"])
    parser.add_argument("--data", type=Path, required=True, help="replay/ and prediction/ in it")
    parser.add_argument("--splits", type=int, default=SPLITS, help="random splits")
    args = parser.parse_args()
    tables = public_tables(args.data)
    if args.only:
        tables = [data for data in tables if data["name"] in args.only.split(",")]
    pieces = common.Pieces(args.work, "prediction_public", args.fresh, ours=False)
    code = hashlib.sha256()
    for path in (*sorted(MODELS.glob("*.py")), *map(Path, (__file__, prediction_unseen.__file__))):
        code.update(path.read_bytes())
    rows = []
    for data in sorted(tables, key=lambda data: not data["held_out"]):
        seen = hashlib.sha256(data["X"].tobytes() + data["y"].tobytes()).hexdigest()[:8]
        splits = []
        for seed in range(args.splits):
            key = f"{data['name']}-{seed}-{seen}"
            split = pieces.get(f"{key}-{code.hexdigest()[:8]}", partial(ours, data, seed))
            split["peers"] = pieces.get(f"{key}-peers", partial(peers, data, seed))
            splits.append(split)
        rows.append(row(data, splits))
        print({k: v for k, v in rows[-1].items() if k != "splits"}, flush=True)
    summary = summarised([r for r in rows if r["held_out"]] or rows)
    summary |= {f"pooled_{key}": value for key, value in summarised(rows).items()}
    summary |= {"splits": args.splits, "training": TRAINING}
    common.write(args, "prediction_public", rows, summary)


if __name__ == "__main__":
    main()
