"""Picks by predicted time among candidates that were never measured, by recorded times.

Of the schedules of Halide's blur and FFT (the data sets ``halide_blur-cpu`` and
``halide_fft-cpu``), models are trained on 250, as many of each size; of the variants of a matrix
product (``matmul-…``, the same operands for all), each variant's on 250 operands. The pick is what
is predicted to be the fastest: of a size's schedules that no model was trained on, and of the
variants for operands that no model was trained on. A figure is the geometric mean of the pick's
recorded time over that of the best of the same candidates, over sizes (operands) and ``SPLITS``
random splits. The best candidate is that of the first measurement, and both times are those of the
second, as the least of many first times owes something to chance; nothing is timed here.

Models are `Augmented` (``ours``, at most 75 numbers) and a forest. ``wide`` has all factors,
``table_iv`` those of the paper's Table IV (few schedules per size). ``…_random`` is the
mean candidate over the best one, and ``…_of_three`` the best, by the first measurement, of those
three that are predicted to be the fastest.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
from prediction_common import DATA, TRAINING, data_sets
from prediction_selection import MODELS, SIZES, model_of, trained_on, unmeasured
from tilewright.prediction import Augmented, Forest, read_csv
from tilewright.prediction.kernels.families import schedule_family

SPLITS = 3
TOP = 3


def ratios(predicted: Any, first: Any, second: Any) -> dict[str, float]:
    """What picks of these candidates cost over the best one."""
    order, best = np.argsort(predicted), second[first.argmin()]
    top = order[:TOP]
    return {
        "pick": float(second[order[0]] / best),
        "of_three": float(second[top[first[top].argmin()]] / best),
        "random": float(second.mean() / best),
    }


def schedules(name: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The picks of a family of schedules, by size, model and factors."""
    chosen, runs = schedule_family(name), read_csv(folder / f"{name}-cpu.csv")
    taken, second = trained_on(runs, seed), np.asarray(runs.retimes)
    second = np.where(np.isnan(second), runs.times, second)
    rows = []
    for kind in MODELS:
        model = model_of(kind, chosen, runs, taken)
        for size in SIZES[name]:
            for factors, pool in unmeasured(runs, taken, size).items():
                found = ratios(model.predict(runs.table[pool]), runs.times[pool], second[pool])
                row = {"model": kind, "factors": factors, "size": size, "candidates": len(pool)}
                rows.append({"seed": seed, **row, **found})
    return rows


def products(folder: Path, seed: int) -> list[dict[str, Any]]:
    """The picks among the variants of a matrix product, by model, means over operands."""
    sets = [data for data in data_sets(folder, None) if data["kernel"] == "matmul"]
    sets = [data for data in sets if len(data["y"]) == len(sets[0]["y"])]
    assert all(np.allclose(data["X"][:, :5], sets[0]["X"][:, :5]) for data in sets)
    order = np.random.default_rng(seed).permutation(len(sets[0]["y"]))
    train, test = order[:TRAINING], order[TRAINING:]
    first, second = (np.stack([d[which][test] for d in sets], axis=1) for which in ("y", "again"))
    second = np.where(np.isnan(second), first, second)
    rows = []
    for kind, model in {"ours": Augmented, "forest": Forest}.items():
        predicted = np.stack(
            [
                model(features=tuple(data["features"]), complexity=data["complexity"])
                .fit(data["X"][train], data["y"][train])
                .predict(data["X"][test])
                for data in sets
            ],
            axis=1,
        )
        every = [ratios(*one) for one in zip(predicted, first, second, strict=True)]
        row = {"model": kind, "factors": "variants", "size": None, "candidates": len(sets)}
        means = {key: common.geometric_mean(r[key] for r in every) for key in every[0]}
        rows.append({"seed": seed, **row, **means})
    return rows


def main() -> None:
    kinds = [*SIZES, "matmul"]
    parser = common.arguments(__doc__ or "", kinds)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of data sets")
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "prediction_selection_recorded", args.fresh)
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for kind in common.chosen(args, kinds):
        own = []
        for seed in range(SPLITS):
            make = products if kind == "matmul" else partial(schedules, kind)
            own += pieces.get(f"{kind}-{seed}", partial(make, args.data, seed))
        rows += [{"kernel": kind, **row} for row in own]
        name = kind.removeprefix("halide_")
        for model, factors in dict.fromkeys((row["model"], row["factors"]) for row in own):
            some = [r for r in own if (r["model"], r["factors"]) == (model, factors)]
            for key, ending in {"pick": "vs_best_candidate", "of_three": "of_three"}.items():
                mean = common.geometric_mean(r[key] for r in some)
                summary[f"{name}_{model}_{factors}_{ending}"] = mean
            summary[f"{name}_{factors}_random"] = common.geometric_mean(r["random"] for r in some)
        print({k: common.shown(v) for k, v in summary.items() if k.startswith(name)}, flush=True)
    common.write(args, "prediction_selection_recorded", rows, summary)


if __name__ == "__main__":
    main()
