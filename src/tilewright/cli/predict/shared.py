"""Code that the commands of ``tilewright predict`` share: models, runs and reports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError
from tilewright.report import units
from tilewright.shapes import read_json

if TYPE_CHECKING:
    from tilewright.prediction import Estimator, Evaluation, Kernel, Runs
    from tilewright.report.pages import PredictionReport
    from tilewright.report.table import Table

# Names of the models on the command line, and their classes.
MODELS = {
    "ours": "Augmented",
    "auto": "Auto",
    "boosted": "Boosted",
    "gp": "GaussianProcess",
    "nnc": "NNC",
    "nn": "NN",
    "c": "C",
    "lrc": "LRC",
    "nlrc": "NLRC",
}
_SHOWN = 3  # rows that were left out


def names(text: str) -> list[str]:
    """Split names at commas.

    >>> names("m, n,k")
    ['m', 'n', 'k']
    """
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names such as m,n,k")
    return found


def query(text: str) -> dict[str, float]:
    """Parse values by name, such as ``m=512,n=64,d=0.25``; words stay words.

    >>> query("m=512, d=0.25")
    {'m': 512, 'd': 0.25}
    """
    from tilewright.cli.arguments import assignment

    return dict(assignment(part) for part in text.split(","))  # type: ignore[misc]


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the column of run times."""
    parser.add_argument(
        "--target",
        metavar="COLUMN",
        help="the column of run times; its heading may say their unit, as in 'time [ms]' "
        "(default: time_s, time, seconds or runtime)",
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a page, and for benchmark results to show on it."""
    parser.add_argument("--report", metavar="PAGE.html", help="write an HTML report")
    parser.add_argument(
        "--tables",
        metavar="FILE.json",
        action="append",
        default=[],
        help="show the results of this benchmark on the page, too, such as "
        "benchmarks/results/prediction_tables.json; repeatable",
    )


def load_model(path: str) -> Estimator:
    """Load a fitted model of any kind."""
    from tilewright.prediction import load

    return load(path)


def load_kernel(text: str) -> Kernel:
    """Return a registered kernel by its name, or the `Kernel` that ``file.py:name`` names."""
    from tilewright.prediction import Kernel
    from tilewright.prediction.kernels import kernel as registered

    if ".py:" not in text:
        return registered(text)
    found = load_object(text)
    if not isinstance(found, Kernel):
        raise TilewrightError(
            f"{text} is not a Kernel: make one of your functions with "
            "tilewright.prediction.data.user_kernels.from_callable"
        )
    return found


def load_object(text: str) -> Any:
    """Return the object that ``file.py:name`` names."""
    from tilewright.cli.pipeline import load_module

    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise TilewrightError(f"there is no file {path}")
    module = load_module(Path(path))
    # Worker processes import functions from here.
    sys.modules.setdefault(module.__name__, module)
    if not hasattr(module, name):
        raise TilewrightError(f"{path} has no {name!r}")
    return getattr(module, name)


def same_units(model: Estimator, given: Mapping[str, str], path: str) -> None:
    """Refuse a column whose unit differs from that of the runs that the model was fitted to."""
    for name, unit in (model.units or {}).items():
        found = given.get(name, "1")
        if found not in ("1", unit):
            raise TilewrightError(
                f"{path}: the column {name!r} is in {found}, but the model was fitted to {unit}: "
                f"convert it, or give it no unit if it is in {unit}"
            )


def left_out(runs: Runs) -> str:
    """Return how many rows were left out, with the reasons for the first few."""
    if not runs.dropped:
        return ""
    shown = "; ".join(runs.dropped[:_SHOWN])
    more = len(runs.dropped) - _SHOWN
    return f"{units.plural(len(runs.dropped), 'row')} left out ({shown}" + (
        f"; and {more} more)" if more > 0 else ")"
    )


def warn(text: str) -> None:
    """Print a line on standard error."""
    print(f"tilewright: {text}", file=sys.stderr)


def evaluation_table(found: Evaluation) -> Table:
    """Return the figures of an evaluation, one row each."""
    from tilewright.report.table import Column, Table

    rows = [
        ("runs", str(len(found))),
        ("error without the 30% shortest", units.percent(found.mape_long)),
        ("error of all runs", units.percent(found.mape)),
        ("median error", units.percent(found.median_error)),
    ]
    if found.floor is not None:
        rows.append(("noise floor", units.percent(found.floor)))
    if found.spearman is not None:
        rows.append(("Spearman's rank correlation", units.digits(found.spearman, 4)))
    if found.coverage is not None:
        label = f"inside intervals of {units.percent(found.nominal)}"
        rows.append((label, units.percent(found.coverage)))
        rows.append(("upper over lower bound", units.ratio(found.width)))
    rows.append(("outside the training range", str(int(found.outside.sum()))))
    return Table((Column("figure"), Column("value", "right")), tuple(rows))


def report_of(
    model: Estimator,
    runs: Runs,
    found: Evaluation,
    *,
    title: str,
    how: str,
    tables: list[dict[str, Any]],
    facts: dict[str, str],
) -> PredictionReport:
    """Return the report of a model and of its predictions of the given runs."""
    from tilewright.report.pages import PredictionReport

    machine = runs.facts.get("machine")
    about = machine if isinstance(machine, dict) else {}
    texts = [
        ", ".join(f"{name} {value:g}" for name, value in zip(runs.names, row, strict=True))
        for row in runs.table.tolist()
    ]
    chosen = dict(model.chosen_)
    if model.calibration_ is not None:
        chosen = {**chosen, "error": model.calibration_.error}
    return PredictionReport(
        title=title,
        model=describe(model),
        machine=str(about.get("processor", "")),
        how=how,
        measured=found.measured.tolist(),
        predicted=found.predicted.tolist(),
        low=[] if found.low is None else found.low.tolist(),
        high=[] if found.high is None else found.high.tolist(),
        outside=found.outside.tolist(),
        texts=texts,
        nominal=found.nominal,
        coverages=found.coverages or {},
        mape=found.mape,
        mape_long=found.mape_long,
        spearman=found.spearman,
        floor=found.floor,
        parameters=model.parameter_count_,
        features=[
            (name, (model.units or {}).get(name, ""), low, high)
            for name, low, high in zip(model.names_, *model.ranges_.tolist(), strict=True)
        ],
        chosen=chosen,
        dropped=runs.dropped,
        results=tables,
        facts=facts,
    )


def describe(model: Estimator) -> str:
    """Describe a model in a few words, such as ``ours (75 fitted numbers)``."""
    named = {kind: name for name, kind in MODELS.items()}
    word = named.get(type(model).__name__, model.kind)
    if word == "auto":
        picked = str(model.chosen_.get("model"))
        word = f"auto: {'ours' if picked == 'augmented' else picked}"
    return f"{word} ({model.parameter_count_} fitted numbers)"


def read_tables(paths: list[str]) -> list[dict[str, Any]]:
    """Read the benchmark results that a page is to show; TilewrightError if a file has none."""
    found = []
    for path in paths:
        data = read_json(path, TilewrightError)
        if not isinstance(data, dict) or "rows" not in data:
            raise TilewrightError(f"{path} has no benchmark results: there are no rows")
        found.append(data)
    return found
