"""How well models of other GPUs are adapted to one by 20 runs on it.

The tables are recorded spaces of one kernel on several GPUs (``--data``: T4 results files and
Kernel Tuner's caches; those with the same parameters are of one kernel). Each GPU is left out in
turn: boosted models of ``SOURCE`` runs on each of the others are adapted by ``FEW`` runs on it.
``error_vs_20_alone`` is the error of that over that of a model of the same runs alone, and
``error_vs_250`` over that of one of ``MANY`` runs there, each the best of ours, boosting and a
Gaussian process by cross-validation. Errors are mean absolute relative ones of other configurations
there; the ratios' geometric means are over GPUs and seeds. The kernels in ``DESIGNED`` took part in
the choice of the model; ``held_out`` marks the others, which the summary is of (``pooled_…`` has
all, ``dedispersion_…`` and so on each kernel). Dedispersion had been looked at once before the last
change of the model (a model of the runs alone has to be better by two standard errors).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
from tilewright.prediction import Adapted, Auto, Boosted
from tilewright.tuning.interop.replay import Replay, read_cache, read_t4

SOURCE, FEW, MANY, TEST = 1500, 20, 250, 1000  # runs
SEEDS = 3
DESIGNED = ("convolution", "pnpoly")
METHODS = {"alone": FEW, "own": MANY}


def table(replay: Replay) -> dict[str, Any]:
    """The configurations that ran, as numbers, and their times."""
    ran = [(key, value) for key, value in replay.values.items() if isinstance(value, float)]
    decoded = [replay.space.decode(np.frombuffer(key, dtype=np.int64)) for key, _ in ran]
    names = list(decoded[0])
    words = {n: sorted({c[n] for c in decoded}, key=str) for n in names}
    numbers = [[_number(c[n], words[n]) for n in names] for c in decoded]
    columns = np.array(numbers, dtype=float)
    varied = [i for i in range(len(names)) if np.ptp(columns[:, i]) > 0]
    return {
        "names": tuple(names[i] for i in varied),
        "X": columns[:, varied],
        "y": np.array([value for _, value in ran]),
    }


def _number(value: Any, words: list[Any]) -> float:
    return float(value) if isinstance(value, int | float) else float(words.index(value))


def kernels(folder: Path) -> dict[str, dict[str, Any]]:
    """Recorded tables by kernel and GPU; a kernel of one GPU is left out."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for path in sorted(folder.glob("*.json*")):
        if "T4" in path.name:
            replay = read_t4(path)
        elif "cache" in path.name:
            replay = read_cache(path)
        else:
            continue
        data = table(replay)
        found.setdefault(data["names"], {})[replay.name] = data
    several = [tables for tables in found.values() if len(tables) > 1]
    return {next(iter(tables)).split("_")[0]: tables for tables in several}


def source(data: dict[str, Any]) -> Boosted:
    """A model of one GPU."""
    some = np.random.default_rng(0).permutation(len(data["y"]))[:SOURCE]
    model = Boosted(features=data["names"], folds=0)
    return model.fit(data["X"][some], data["y"][some])


def error(model: Any, data: dict[str, Any], rows: Any) -> float:
    """Mean absolute relative error of these rows."""
    return float(np.mean(np.abs(model.predict(data["X"][rows]) / data["y"][rows] - 1)))


def figures(data: dict[str, Any], sources: list[Any], seed: int) -> dict[str, Any]:
    """The errors on one GPU with one choice of runs."""
    order = np.random.default_rng(seed).permutation(len(data["y"]))
    test = order[MANY : MANY + TEST]
    found: dict[str, Any] = {}
    few = order[:FEW]
    adapted = Adapted(features=data["names"], sources=sources)
    adapted.fit(data["X"][few], data["y"][few])
    found["adapted"], found["chosen"] = error(adapted, data, test), adapted.chosen_
    low, high = adapted.predict_interval(data["X"][test])
    inside = (low <= data["y"][test]) & (data["y"][test] <= high)
    found["coverage"] = float(inside.mean())
    for method, count in METHODS.items():
        rows = order[:count]
        model = Auto(features=data["names"]).fit(data["X"][rows], data["y"][rows])
        found[method] = error(model, data, test)
    return found


def summary(rows: list[dict[str, Any]], prefix: str = "") -> dict[str, Any]:
    """Geometric means of the ratios, and the mean coverage."""
    ratios = {"error_vs_20_alone": "alone", "error_vs_250": "own"}
    found: dict[str, Any] = {
        f"{prefix}{name}": common.geometric_mean(r["adapted"] / r[method] for r in rows)
        for name, method in ratios.items()
    }
    found[f"{prefix}coverage"] = float(np.mean([r["coverage"] for r in rows])) if rows else None
    found[f"{prefix}gpus"] = len({(r["kernel"], r["gpu"]) for r in rows})
    return found


def main() -> None:
    parser = common.arguments(__doc__ or "", ["a kernel"])
    parser.add_argument("--data", type=Path, required=True, help="a folder of recorded spaces")
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "prediction_adapt", args.fresh)
    rows = []
    for kernel, tables in kernels(args.data).items():
        if args.only and kernel not in args.only:
            continue
        models = {gpu: source(data) for gpu, data in tables.items()}
        for gpu, data in tables.items():
            others = [model for name, model in models.items() if name != gpu]
            for seed in range(SEEDS):
                made = pieces.get(f"{gpu}-{seed}", partial(figures, data, others, seed))
                rows.append(
                    {
                        "kernel": kernel,
                        "gpu": gpu,
                        "seed": seed,
                        "held_out": not kernel.startswith(DESIGNED),
                        **made,
                    }
                )
                shown = " ".join(f"{k} {made[k]:.3f}" for k in ("adapted", *METHODS, "coverage"))
                print(f"{gpu:32} {seed} {shown}", flush=True)
    held_out = [row for row in rows if row["held_out"]]
    found = {**summary(held_out), **summary(rows, "pooled_")}
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        found |= summary([row for row in rows if row["kernel"] == kernel], f"{kernel}_")
    common.write(args, "prediction_adapt", rows, found)


if __name__ == "__main__":
    main()
