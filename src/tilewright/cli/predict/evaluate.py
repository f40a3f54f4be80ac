"""``tilewright predict evaluate``: evaluates a model on runs that it was not fitted to."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, write_file
from tilewright.cli.predict import shared

if TYPE_CHECKING:
    from tilewright.prediction import Evaluation, Runs


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "evaluate",
        example="tilewright predict evaluate model.json other_runs.csv",
        help="compare a model's predictions with measured runs",
        description="Compare a model's predictions with runs that it was not fitted to: its "
        "errors, Spearman's rank correlation, and how many times lie inside the intervals.",
        options={
            "model MODEL.json": "the model, written by tilewright predict fit",
            "runs RUNS.csv": "the runs to compare with",
            **shared.TARGET,
            "--coverage SHARE = 0.9": "nominal probability of the intervals",
            "-o --output FILE.csv": "write every run with its prediction; - prints them",
            **shared.REPORT,
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    from tilewright.prediction import evaluate, evaluation_table, load, prediction_report

    tables = shared.read_tables(args.tables)
    model = load(args.model)
    every = shared.read_runs(args, model.names_, levels=model.levels, units=model.units)
    runs = every.ended()
    stopped = len(every) - len(runs)
    found = evaluate(model, runs.table, runs.times, coverage=args.coverage, retimes=runs.retimes)
    unknown = f"{stopped} more were stopped and are not compared" if stopped else ""
    head = [f"{shared.describe(model)} on {args.runs}", unknown, shared.left_out(runs)]
    result = {"model": model.kind, **found.to_dict(), "dropped": list(runs.dropped)}
    result["stopped"] = stopped
    show(args, result, "; ".join(filter(None, head)), evaluation_table(found))
    if args.output:
        write_file(args.output, _csv(runs, found))
    if args.report:
        report = prediction_report(
            model,
            runs,
            found,
            title=f"{args.model} on {args.runs}",
            model=shared.describe(model),
            how=f"{len(runs)} runs of {args.runs}",
            results=tables,
        )
        facts = {"model": args.model, "runs": args.runs, "complexity": model.complexity or ""}
        shared.write_page(args, model, report, facts)
    return 0


def _csv(runs: Runs, found: Evaluation) -> str:
    """Return CSV with features, measured and predicted seconds, interval and trust of each run."""
    from tilewright.report.table import cell, to_csv

    seconds = {"time_s": found.measured, "predicted_s": found.predicted}
    if found.low is not None and found.high is not None:
        seconds |= {"low_s": found.low, "high_s": found.high}
    rows = zip(runs.table, *seconds.values(), found.outside, strict=True)
    return to_csv(
        [*runs.names, *seconds, "outside"],
        (
            [*(f"{value:.12g}" for value in values), *map(cell, times), int(outside)]
            for values, *times, outside in rows
        ),
    )
