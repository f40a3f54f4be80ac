"""Code that the commands of ``tilewright predict`` share: models, kernels, runs and pages."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.cli import options
from tilewright.cli.output import write_file
from tilewright.cli.provenance import provenance
from tilewright.errors import TilewrightError
from tilewright.report import units
from tilewright.shapes import read_json

if TYPE_CHECKING:
    from tilewright.prediction import CollectionProgress, Estimator, Kernel, Runs
    from tilewright.report import Progress
    from tilewright.report.pages import PredictionReport

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

TARGET = {
    "--target A,B": "the column of run times; its heading may say their unit, as in "
    "'time [ms]' (default: time_s, time, seconds or runtime); several are repeated measurements",
    "--names A,B": "the names of all columns, for a file without a line of headings",
    "--failed A,B": "texts in the place of run times that say that a run failed: it is left out",
    "--timed-out TEXT=LIMIT ...": "a text that says that a run was stopped, with the time limit in "
    "the unit of the run times, such as timeout=120; >120 in the place of a run time says the same "
    "without an option; repeatable",
    "--status COLUMN": "the column that has these texts if it is not that of the run times; "
    "--timed-out TEXT then takes the run time as the limit",
}
REPORT = {
    **options.REPORT,
    "--tables FILE.json ...": "show the results of this benchmark on the page, too, such as "
    "benchmarks/results/prediction_tables.json; repeatable",
}


def read_runs(args: argparse.Namespace, features: Sequence[str] | None, **how: Any) -> Runs:
    """Return the runs that the arguments of `TARGET` describe."""
    from tilewright.prediction import Unfinished, read_csv

    limits: dict[str, float | None] = {}
    for given in args.timed_out or ():
        text, equals, limit = given.rpartition("=")
        try:
            limits[text if equals else given] = float(limit) if equals else None
        except ValueError:
            raise TilewrightError(
                f"--timed-out {given!r} is not TEXT=LIMIT, such as timeout=120"
            ) from None
    unfinished = Unfinished(args.failed or (), limits, args.status)
    return read_csv(
        args.runs, args.target, features, names=args.names, unfinished=unfinished, **how
    )


def load_kernel(text: str) -> Kernel:
    """Return a registered kernel by its name, or the `Kernel` that ``file.py:name`` names."""
    from tilewright.cli.pipeline import load_object
    from tilewright.prediction import Kernel, kernels

    if ".py:" not in text:
        return kernels.kernel(text)
    found = load_object(text)
    if not isinstance(found, Kernel):
        raise TilewrightError(
            f"{text} is not a Kernel: make one of your functions with "
            "tilewright.prediction.data.user_kernels.from_callable"
        )
    return found


def progress_of(collected: CollectionProgress, phase: str) -> Progress:
    """Return the progress of a collection in the form that the progress line shows."""
    from tilewright.report import Progress

    noun = "instance" if collected.failed == 1 else "instances"
    failed = {noun: collected.failed} if collected.failed else {}
    again = f"{collected.dirty} measured again" if collected.dirty else ""
    return Progress(phase, collected.done, collected.total, failed, message=again)


def left_out(runs: Runs) -> str:
    """Return how many rows were left out, with the reasons for the first few."""
    if not runs.dropped:
        return ""
    reasons = list(runs.dropped[:_SHOWN])
    if len(runs.dropped) > _SHOWN:
        reasons.append(f"and {len(runs.dropped) - _SHOWN} more")
    return f"{units.plural(len(runs.dropped), 'row')} left out ({'; '.join(reasons)})"


def error_of(model: Estimator) -> float | None:
    """Return the model's cross-validated error; None if it was fitted without."""
    return None if model.calibration_ is None else model.calibration_.error


def write_page(
    args: argparse.Namespace, model: Estimator, report: PredictionReport, facts: Mapping[str, str]
) -> None:
    """Write the page of a model, with facts on how it was made."""
    from tilewright.report.pages import prediction_page

    made = {**facts, **provenance(args.words, model.seed, args.load_before)}
    known = {name: value for name, value in made.items() if value}
    write_file(args.report, prediction_page(replace(report, facts=known)))


def name_of(model: Estimator) -> str:
    """Return the model's name on the command line."""
    named = {kind: name for name, kind in MODELS.items()}
    return named.get(type(model).__name__, model.kind)


def describe(model: Estimator) -> str:
    """Describe a model in a few words, such as ``ours (75 fitted numbers)``."""
    word = name_of(model)
    if word == "auto":
        picked = str(model.chosen_.get("model"))
        word = f"auto: {picked.replace('augmented', 'ours').replace('+', ', ')}"
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
