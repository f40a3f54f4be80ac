"""How well the learned cost model ranks schedules of pipelines that it was not fitted to.

The labels are those of ``halide_labels`` and, as ``pairs:PROGRAM``, the recorded pairs of
``halide_calibration``, whose schedules are all the analytic search's own. One program at a time is
held out: the model is fitted to all other pipelines, and ranks that program's schedules, of either
source. Pipelines whose two copies of the anchor differ by more than `NOISY` are left out, as are
those with fewer than `LEAST` labels.

- ``spearman``: rank correlation of predicted and measured times;
- ``ordering``: share of pairs that differ by 1.3 or more in time and are ordered right;
- ``regret``: time of the schedule that is predicted to be the fastest, over the fastest one's.

Keys that end in ``_prior`` are of the analytic model alone, which is corrected, in ``_linear`` of
the linear model alone, whose coefficients are fitted to the other programs, in ``_mean`` of the
geometric mean of both, in ``_unshrunk`` of the correction at full weight, in ``_array`` of the
corrected linear model, which rates all sizes at once, and in ``_roofline`` of the features' own
simple model, in which nothing is fitted. ``weight`` is what cross-validation over the other
programs chose for the correction, 0 to 1 (`tilewright.halide.schedulers.learned.shrinkage`).
``walks_…`` are the figures of random walks alone, without the recorded pairs. ``…_anchor`` is the
regret of always taking the analytic schedule, ``…_guarded`` that of taking the model's choice only
where its gain exceeds ``needed_gain`` and ``residual``. ``--train`` fits the model to everything
and writes the file that the package ships.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import math
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
import halide_labels
from support import cpu_plans

Data = dict[str, Any]
LEAST = 6  # labels of a pipeline
NOISY = 1.25  # the anchor's second copy over the first, at most, or the inverse
APART = 1.3  # pairs of times that count for the ordering
KINDS = ("", "_prior", "_linear", "_mean", "_unshrunk", "_array", "_roofline")
SEED = 0
RESIDUAL = 0.34  # of models that are fitted without one program: the figure of all
LEARNED = common.HERE.parent / "src" / "tilewright" / "halide" / "schedulers" / "learned"
# The modules of the learned scheduler that compute features, and those that fit.
FEATURE_FILES = ("features", "part_features", "evaluation", "instances", "term_counts")
FITTING_FILES = ("cost_model", "linear_model", "shrinkage")


def program_of(name: str) -> str:
    """The pipeline of a set of labels."""
    return name.removeprefix("pairs:")


def pairs() -> list[Data]:
    """The pairs of ``halide_calibration``, as labels."""
    import halide_calibration

    data = halide_calibration.read(halide_calibration.DATA)
    common_to_all = {"again": None, "machine": data["machine"]}
    return [
        {**each, **common_to_all, "pipeline": f"pairs:{each['program']}"}
        for each in data["programs"]
    ]


def described(pipeline: Data, machine: Any) -> Data:
    """The features of a pipeline's labelled schedules, as JSON data."""
    from tilewright.halide.ir.json import from_data
    from tilewright.halide.legality.check import check
    from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
    from tilewright.halide.schedulers.learned.evaluation import Evaluator

    task = halide_labels.task_of(program_of(pipeline["pipeline"]))
    if task.algorithm.digest != pipeline["digest"]:
        return {"status": "changed since it was recorded", "rows": []}
    model = model_of(machine)
    base = cpu_plans.analysed(task.algorithm)
    evaluator = Evaluator(task.algorithm, model)
    rows = []
    for entry in pipeline["schedules"]:
        if entry["status"] != "ok" or "ratio" not in entry:
            continue
        if "schedule" in entry:
            schedule = from_data(entry["schedule"], task.algorithm)
        else:
            schedule = cpu_plans.schedule_of(task.algorithm, base, machine, model.constants, entry)
        if check(schedule, task.algorithm):
            continue  # a recorded plan that today's nests do not have
        prior, found = evaluator.prior(schedule), evaluator.features(schedule)
        if prior is None or found is None:
            continue
        row = prior.with_features(found, model.clock_hz)[0]
        rows.append(
            {
                "ratio": entry["ratio"],
                "roofline": float(found.roofline[0]) / model.clock_hz,
                "prior": prior.seconds,
                "features": [float(f"{x:.7g}") for x in row],
                "terms": [float(f"{x / model.clock_hz:.7g}") for x in found.terms[0]],
            }
        )
    return {"status": "ok", "rows": rows}


def table(args: Any) -> tuple[Data, dict[str, Data]]:
    """The labels with their features, by pipeline; features are kept between runs."""
    from tilewright.machines import detect_cpu, machine_from_dict, machine_to_dict

    data = halide_labels.read(args.data)
    data.setdefault("machine", machine_to_dict(detect_cpu()))
    folder = args.work / "halide_model"
    folder.mkdir(parents=True, exist_ok=True)
    hashed = hashlib.sha256()
    for path in [
        *sorted(LEARNED.glob("*.py")),
        *sorted((LEARNED.parent / "analytic").rglob("*.py")),
    ]:
        if path.stem in FEATURE_FILES or "analytic" in path.parts:
            hashed.update(path.read_bytes())
    found = {}
    for pipeline in [*data["pipelines"], *pairs()]:
        name = pipeline["pipeline"]
        machine = pipeline.get("machine", data["machine"])
        text = json.dumps([pipeline, machine], sort_keys=True)
        key = hashlib.sha256((hashed.hexdigest() + text).encode()).hexdigest()[:16]
        path = folder / f"{key}.json"
        if not path.exists():
            path.write_text(json.dumps(described(pipeline, machine_from_dict(machine))))
        found[name] = json.loads(path.read_text()) | {"again": pipeline["again"]}
    return data, found


def usable(pipeline: Data) -> bool:
    """Whether a pipeline's labels are enough, and not too noisy."""
    again = pipeline["again"] or 1.0
    quiet = max(again, 1 / again) <= NOISY
    return pipeline["status"] == "ok" and quiet and len(pipeline["rows"]) >= LEAST


class Labels:
    """Labels as arrays: features, times over the anchor's, predictions, pipelines."""

    def __init__(self, found: dict[str, Data]) -> None:
        rows = [(name, row) for name, data in found.items() for row in data["rows"]]
        self.groups = [name for name, _ in rows]
        self.of = np.array(self.groups)
        self.rows = np.array([row["features"] for _, row in rows])
        self.times = np.log([row["ratio"] for _, row in rows])
        self.prior = np.log([row["prior"] for _, row in rows])
        self.roofline = np.log([row["roofline"] for _, row in rows])
        self.terms = np.array([row["terms"] for _, row in rows])
        self.analytic = np.arange(len(self.of))  # the anchor of each label, whose ratio is 1
        for group in set(self.groups):
            own = np.flatnonzero(self.of == group)
            self.analytic[own] = own[np.argmin(np.abs(self.times[own]))]

    def fitted(self, train: Any, seed: int = SEED) -> Fitted:
        """The linear model of some labels, and both corrections.

        Their weights are chosen by cross-validation over the programs of these labels only.
        """
        from tilewright.halide.schedulers.learned.linear_model import fitted_coefficients
        from tilewright.halide.schedulers.learned.shrinkage import shrunk

        of = [group for group, used in zip(self.groups, train, strict=True) if used]
        coefficients = fitted_coefficients(self.terms[train], self.times[train], of)
        linear = np.log(self.terms @ coefficients)
        made = {
            array: shrunk(self.training(array, linear).only(train), seed) for array in (True, False)
        }
        return Fitted(self, train, coefficients, made[True], made[False])

    def training(self, array: bool, linear: Any) -> Any:
        """All labels, to correct the linear model's time (`array`) or the analytic model's."""
        from tilewright.halide.schedulers.learned.evaluation import CHANGE_NAMES
        from tilewright.halide.schedulers.learned.part_features import NAMES
        from tilewright.halide.schedulers.learned.shrinkage import Training

        base = linear if array else self.prior
        families = [program_of(group) for group in self.groups]
        targets, rows = self.times - base, self.inputs(array)
        if array:
            return Training(rows, targets, base, self.groups, families, NAMES)
        targets = targets - targets[self.analytic]
        return Training(rows, targets, base, self.groups, families, CHANGE_NAMES, centred=False)

    def inputs(self, array: bool) -> Any:
        """The features that a correction takes, of the linear or of the analytic model's time."""
        from tilewright.halide.schedulers.learned.evaluation import with_changes
        from tilewright.halide.schedulers.learned.part_features import NAMES

        if array:
            return self.rows[:, : len(NAMES)]
        return with_changes(self.rows, self.rows[self.analytic])


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was fitted to the labels `used`."""

    labels: Labels
    used: Any
    coefficients: Any
    sizes: Any
    schedules: Any

    def model(self, residual: float = RESIDUAL, provenance: Data | None = None) -> Any:
        """The model as the package ships it."""
        from tilewright.halide.schedulers.learned.cost_model import LearnedModel
        from tilewright.halide.schedulers.learned.term_counts import TERMS

        names = [term.name for term in TERMS]
        coefficients = dict(zip(names, self.coefficients.tolist(), strict=True))
        return LearnedModel(
            self.sizes,
            self.schedules,
            residual,
            provenance or {},
            coefficients,
            *moved(self.labels, self.used),
        )


def model_without(labels: Labels, program: str, folder: Path) -> Any:
    """The model of all labels but a program's, kept in the folder between runs."""
    from tilewright.halide.schedulers.learned.cost_model import from_json

    hashed = hashlib.sha256(program.encode())
    for array in (labels.rows, labels.terms, labels.times, labels.prior):
        hashed.update(np.ascontiguousarray(array).tobytes())
    for name in FITTING_FILES:
        hashed.update((LEARNED / f"{name}.py").read_bytes())
    path = folder / f"without-{program}-{hashed.hexdigest()[:16]}.json"
    if not path.exists():
        others = np.array([program_of(group) != program for group in labels.groups])
        path.write_text(labels.fitted(others).model().to_json())
    return from_json(path.read_text())


def ordering(costs: Any, times: Any) -> tuple[int, int]:
    """Pairs of schedules whose times differ, and those of them that are ordered right."""
    right = count = 0
    for i in range(len(times)):
        for j in range(i):
            if abs(times[i] - times[j]) >= math.log(APART):
                count += 1
                right += (costs[i] - costs[j]) * (times[i] - times[j]) > 0
    return right, count


def held_out(labels: Labels, name: str, model: Any) -> Data:
    """One set's row, with a model of all other programs."""
    from scipy.stats import spearmanr

    from tilewright.halide.schedulers.learned.term_counts import TERMS

    test = labels.of == name
    coefficients = [model.coefficients[term.name] for term in TERMS]
    linear = np.log(labels.terms[test] @ coefficients)
    prior = labels.prior[test]
    rows = labels.inputs(False)[test]
    costs = {
        "": prior + model.schedules.correction(rows).mean,
        "_unshrunk": prior + replace(model.schedules, weight=1.0).correction(rows).mean,
        "_mean": (prior + linear) / 2,
        "_linear": linear,
        "_prior": prior,
        "_array": linear + model.sizes.correction(labels.inputs(True)[test]).mean,
        "_roofline": labels.roofline[test],
    }
    times = labels.times[test]
    off = times - costs[""]
    row: Data = {"program": name, "labels": int(test.sum()), "residual": float(off.std())}
    row |= {"weight": model.schedules.weight, "weight_array": model.sizes.weight}
    own = int(np.argmin(np.abs(times)))  # the anchor, whose ratio is 1
    best = int(np.argmin(costs[""]))
    row |= {
        "gain": float(costs[""][own] - costs[""][best]),
        "best_over_fastest": float(np.exp(times[best] - times.min())),
        "anchor_over_fastest": float(np.exp(times[own] - times.min())),
    }
    for kind, cost in costs.items():
        right, count = ordering(cost, times)
        row[f"spearman{kind}"] = float(spearmanr(cost, times).statistic)
        row[f"regret{kind}"] = float(np.exp(times[np.argmin(cost)] - times.min()))
        row[f"right{kind}"], row["pairs"] = int(right), count
    return row


def held_out_sets(labels: Labels, folder: Path, program: str, names: list[str]) -> list[Data]:
    """The rows of a program's sets of labels; the model without it is kept in the folder."""
    model = model_without(labels, program, folder)
    return [held_out(labels, name, model) for name in names]


def residual(labels: Labels, name: str) -> float:
    """What the analytic times leave to explain in all pipelines but one.

    An upper bound of what a model fitted to them leaves, which is costlier to know.
    """
    off = labels.times - labels.prior
    groups = [g for g in sorted(set(labels.groups)) if program_of(g) != name]
    return math.sqrt(statistics.fmean(float(off[labels.of == g].var()) for g in groups))


def moved(labels: Labels, used: Any) -> tuple[float, float]:
    """Mean and standard deviation of what random moves do to the logarithm of the time.

    Only the labels `used` count, and their pipelines have equal weight. The times are over those of
    the anchor, where the walks begin.
    """
    groups = [g for g in sorted(set(labels.of[used])) if not g.startswith("pairs:")]
    each = [labels.times[used & (labels.of == g)] for g in groups]
    drift = statistics.fmean(float(times.mean()) for times in each)
    squares = statistics.fmean(float(((times - drift) ** 2).mean()) for times in each)
    return drift, math.sqrt(squares)


def summary(rows: list[Data], labels: Labels, found: dict[str, Data], random: int) -> Data:
    """The figures that the claim is about."""
    copies = [d["again"] for d in found.values() if d["again"]]
    result: Data = {
        "programs": len({program_of(row["program"]) for row in rows}),
        "sets": len(rows),
        "labels_of_programs": sum(row["labels"] for row in rows),
        "random_pipelines": random,
        "labels": sum(len(data["rows"]) for data in found.values()),
        "noise_floor": statistics.median(max(c, 1 / c) for c in copies) if copies else None,
        "best_possible": common.geometric_mean(
            min(r["ratio"] for r in found[row["program"]]["rows"]) for row in rows
        ),
    }
    for key in ("weight", "weight_array"):
        result[f"{key}_mean"] = statistics.fmean(row[key] for row in rows)
    result["residual"] = math.sqrt(statistics.fmean(row["residual"] ** 2 for row in rows))
    drift, deviation = moved(labels, np.ones(len(labels.of), dtype=bool))
    needed = drift * (result["residual"] / deviation) ** 2
    result |= {"drift": drift, "deviation": deviation, "needed_gain": needed}
    least = max(needed, result["residual"])  # as in the learned scheduler
    walks = [row for row in rows if not row["program"].startswith("pairs:")]
    for among, name in ((rows, ""), (walks, "walks_")):
        for kind in KINDS if among else ():
            spearman = [row[f"spearman{kind}"] for row in among]
            result[f"{name}spearman_median{kind}"] = statistics.median(spearman)
            result[f"{name}spearman_min{kind}"] = min(spearman)
            pairs = sum(row["pairs"] for row in among)
            right = sum(row[f"right{kind}"] for row in among)
            result[f"{name}ordering_rate{kind}"] = right / pairs
            regret = common.geometric_mean(row[f"regret{kind}"] for row in among)
            result[f"{name}top1_regret{kind}"] = regret
        if among:
            result[f"{name}top1_regret_guarded"] = common.geometric_mean(
                row["best_over_fastest" if row["gain"] > least else "anchor_over_fastest"]
                for row in among
            )
            result[f"{name}top1_regret_anchor"] = common.geometric_mean(
                row["anchor_over_fastest"] for row in among
            )
    return result


def train(labels: Labels, data: Data, figures: Data, path: Path) -> None:
    """Fit the model to every label, and write it with its provenance."""
    made = labels.fitted(np.ones(len(labels.of), dtype=bool))
    provenance = {
        "date": datetime.date.today().isoformat(),
        "machine": data["machine"],
        "versions": {"halide": importlib.metadata.version("halide")},
        "seed": SEED,
        "pipelines": sorted(set(labels.groups)),
        "labels": len(labels.of),
        "held_out": {k: figures[k] for k in ("spearman_median", "ordering_rate", "top1_regret")},
    }
    path.write_text(made.model(round(figures["residual"], 4), provenance).to_json())
    print(f"{path}: {path.stat().st_size} bytes")


def main() -> None:
    """Hold every program out in turn."""
    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--data", type=Path, default=halide_labels.DATA, help="the labels")
    parser.add_argument("--train", type=Path, help="write the model of all labels to this file")
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    args = parser.parse_args()
    data, everything = table(args)
    found = {name: d for name, d in everything.items() if usable(d)}
    names = [name for name in found if not name.startswith("random:")]
    if args.only:
        names = [name for name in common.chosen(args, [*common.PROGRAMS, *names]) if name in found]
    if not names:
        sys.exit("no program has enough labels: record some with halide_labels.py")
    labels = Labels(found)
    rows = []
    sets = {p: [n for n in names if program_of(n) == p] for p in map(program_of, names)}
    work = partial(held_out_sets, labels, args.work / "halide_model")
    with ProcessPoolExecutor(args.workers) as pool:
        for made in pool.map(work, sets, sets.values()):
            rows += made
            print("\n".join(map(line, made)), flush=True)
    figures = summary(rows, labels, found, sum(name.startswith("random:") for name in found))
    figures["left_out"] = len(everything) - len(found)
    print(json.dumps(figures, indent=1))
    if args.train:
        train(labels, data, figures, args.train)
    common.write(args, "halide_model", rows, figures)


def line(row: Data) -> str:
    """One program, as it is finished."""
    shown = "; ".join(
        f"{kind.strip('_') or 'learned'} {row[f'spearman{kind}']:.2f} {row[f'regret{kind}']:.2f}"
        for kind in KINDS
    )
    return f"{row['program']:20} {row['labels']:3} labels  Spearman and regret: {shown}"


if __name__ == "__main__":
    main()
