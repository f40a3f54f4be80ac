"""``tilewright predict evaluate``: evaluates a model on runs that it was not fitted to."""

from __future__ import annotations

import argparse
import csv
import io
import json
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.cli.provenance import provenance

if TYPE_CHECKING:
    from tilewright.prediction import Evaluation, Runs


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "evaluate",
        example="tilewright predict evaluate model.json other_runs.csv",
        help="compare a model's predictions with measured runs",
        description="Compare a model's predictions with runs that it was not fitted to: its "
        "errors, Spearman's rank correlation, and how many times lie inside the intervals.",
    )
    parser.add_argument("model", metavar="MODEL.json", help="written by tilewright predict fit")
    parser.add_argument("runs", metavar="RUNS.csv", help="the runs")
    shared.add_target(parser)
    parser.add_argument(
        "--coverage",
        type=_share,
        default=0.9,
        metavar="SHARE",
        help="nominal probability of the intervals (default: 0.9)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.csv", help="write every run with its prediction"
    )
    shared.add_report(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    from tilewright.cli.output import print_table, write_file
    from tilewright.prediction import evaluate, read_csv

    tables = shared.read_tables(args.tables)
    model = shared.load_model(args.model)
    runs = read_csv(args.runs, args.target, model.names_, levels=model.levels)
    shared.same_units(model, runs.features, args.runs)
    found = evaluate(model, runs.table, runs.times, coverage=args.coverage, retimes=runs.retimes)
    # Printed first, so that an error while writing the files loses no result.
    if args.json:
        result = {"model": model.kind, **found.to_dict(), "dropped": list(runs.dropped)}
        print(json.dumps(result, indent=2))
    elif arguments.prints_text(args):
        dropped = shared.left_out(runs)
        print(f"{shared.describe(model)} on {args.runs}" + (f"; {dropped}" if dropped else ""))
        print_table(shared.evaluation_table(found))
    if args.output:
        write_file(args.output, _csv(runs, found))
    if args.report:
        from tilewright.report.pages import prediction_page

        facts = {"model": args.model, "runs": args.runs, "complexity": model.complexity or ""}
        facts |= provenance(args.words, model.seed, args.load_before)
        report = shared.report_of(
            model,
            runs,
            found,
            title=f"{args.model} on {args.runs}",
            how=f"{len(runs)} runs of {args.runs}",
            tables=tables,
            facts={k: v for k, v in facts.items() if v},
        )
        write_file(args.report, prediction_page(report))
    return 0


def _csv(runs: Runs, found: Evaluation) -> str:
    """Return CSV with features, measured and predicted seconds, interval and trust of each run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    bounds = [] if found.low is None else ["low_s", "high_s"]
    writer.writerow([*runs.names, "time_s", "predicted_s", *bounds, "outside"])
    for i, row in enumerate(runs.table.tolist()):
        numbers = [found.measured[i], found.predicted[i]]
        if found.low is not None and found.high is not None:
            numbers += [found.low[i], found.high[i]]
        cells = [f"{value:.12g}" for value in row] + [f"{value:.6g}" for value in numbers]
        writer.writerow([*cells, int(found.outside[i])])
    return text.getvalue()


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, such as 0.9")
    return value
