"""Evaluations as tables and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.report import units
from tilewright.report.pages import PredictionReport
from tilewright.report.table import Table, columns

if TYPE_CHECKING:
    from tilewright.prediction.data.runs import Runs
    from tilewright.prediction.models.estimator import Estimator
    from tilewright.prediction.models.evaluation import Evaluation


def evaluation_table(found: Evaluation) -> Table:
    """Return the figures of an evaluation, one row each; unknown ones are left out."""
    rank = units.NONE if found.spearman is None else units.digits(found.spearman, 4)
    rows = {
        "runs": str(len(found)),
        "error without the 30% shortest": units.percent(found.mape_long),
        "error of all runs": units.percent(found.mape),
        "median error": units.percent(found.median_error),
        "noise floor": units.percent(found.floor),
        "Spearman's rank correlation": rank,
        f"inside intervals of {units.percent(found.nominal)}": units.percent(found.coverage),
        "upper over lower bound": units.ratio(found.width),
        "outside the training range": str(int(found.outside.sum())),
    }
    known = tuple((name, text) for name, text in rows.items() if text != units.NONE)
    return Table(columns("figure | >value"), known)


def feature_ranges(model: Estimator) -> list[tuple[str, str, float, float]]:
    """Return the name, unit, smallest and largest value of each feature in training."""
    return [
        (name, (model.units or {}).get(name, ""), low, high)
        for name, low, high in zip(model.names_, *model.ranges_.tolist(), strict=True)
    ]


def prediction_report(
    model: Estimator, runs: Runs, found: Evaluation, /, **about: Any
) -> PredictionReport:
    """Return the report of a model and of its predictions of runs.

    Args:
        model: the model, fitted.
        runs: the runs.
        found: its predictions of them.
        about: further fields of the report: title, model, how, results, facts.
    """
    machine = runs.facts.get("machine")
    calibration = model.calibration_
    error = {} if calibration is None else {"error": calibration.error}
    return PredictionReport(
        machine=str(machine.get("processor", "")) if isinstance(machine, dict) else "",
        measured=found.measured.tolist(),
        predicted=found.predicted.tolist(),
        low=[] if found.low is None else found.low.tolist(),
        high=[] if found.high is None else found.high.tolist(),
        outside=found.outside.tolist(),
        texts=[
            ", ".join(f"{name} {value:g}" for name, value in zip(runs.names, row, strict=True))
            for row in runs.table.tolist()
        ],
        nominal=found.nominal,
        coverages=found.coverages or {},
        mape=found.mape,
        mape_long=found.mape_long,
        spearman=found.spearman,
        floor=found.floor,
        parameters=model.parameter_count_,
        features=feature_ranges(model),
        chosen={**model.chosen_, **error},
        dropped=runs.dropped,
        **about,
    )
