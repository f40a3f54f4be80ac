"""``tilewright predict fit``: fits a model of run time to a CSV file of past runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.cli.provenance import provenance
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.prediction import Estimator, Evaluation, Runs

# With fewer runs a model is little more than a guess, and so are its intervals.
FEW = 30
# With more runs the paper's networks take very long, as every step is over all runs.
MANY = 10_000


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "fit",
        example="tilewright predict fit runs.csv --complexity 'm*n*k' -o model.json",
        help="fit a model to past runs",
        description="Fit a model of run time to a CSV file with one row per run: a column of times "
        "and columns of the features that they depend on. Headings may give units in brackets, as "
        "in 'size [bytes]'. Rows with missing values are omitted and listed.",
    )
    parser.add_argument("runs", metavar="RUNS.csv", help="the file of runs")
    shared.add_target(parser)
    parser.add_argument(
        "--features",
        type=shared.names,
        metavar="A,B,C",
        help="the columns of features (default: all other columns)",
    )
    parser.add_argument(
        "--complexity",
        metavar="EXPRESSION",
        help="the number of operations, such as 'm*n*k' or 'n*log2(n)' (default: that of the "
        "description next to the runs, if there is one)",
    )
    parser.add_argument(
        "--model",
        choices=tuple(shared.MODELS),
        default="ours",
        help="ours: at most 75 fitted numbers; auto: the best of ours, gradient boosting and a "
        "Gaussian process by cross-validation; nnc: the paper's NN+C; nn, c, lrc, nlrc: its "
        "baselines (default: %(default)s)",
    )
    parser.add_argument(
        "--max-parameters",
        type=arguments.positive,
        metavar="N",
        help="maximum number of fitted parameters (default: 75 for ours, nn and nnc; no limit "
        "for auto)",
    )
    parser.add_argument(
        "--threads",
        type=shared.names,
        metavar="A,B",
        help="the columns that count threads (default: those called threads)",
    )
    parser.add_argument(
        "--work",
        action="append",
        metavar="EXPRESSION",
        help="a further expression of the actual work, such as the non-zeros; repeatable",
    )
    arguments.add_seed(parser)
    parser.add_argument(
        "-o", "--output", metavar="MODEL.json", help="the file to write the model to"
    )
    shared.add_report(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    _spare_the_description(args)
    from tilewright.cli.output import print_table
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import read_csv
    from tilewright.report import Progress

    tables = shared.read_tables(args.tables)
    runs = read_csv(args.runs, args.target, args.features)
    model = _model(args, runs)
    if args.model in ("nn", "nnc") and len(runs) > MANY:
        shared.warn(
            f"{args.model} goes through all {len(runs)} runs thousands of times, which may take "
            "hours; the paper has 250"
        )
    with show_progress(args.quiet) as show:
        show(Progress(f"fitting {args.model} to {len(runs)} runs"))
        began = time.perf_counter()
        model.fit(runs.table, runs.times)
        seconds = time.perf_counter() - began
        found = None
        if args.report:
            from tilewright.prediction import cross_validate

            found = cross_validate(
                model,
                runs.table,
                runs.times,
                retimes=runs.retimes,
                on_progress=lambda done, total: show(Progress("cross-validating", done, total)),
            )
    if len(runs) < FEW:
        shared.warn(f"{args.runs} has only {len(runs)} runs; a few hundred make a good model")
    # Printed first, so that an error while writing the files loses no result.
    if args.json:
        print(json.dumps(_result(args, model, runs, seconds, found), indent=2))
    elif arguments.prints_text(args):
        print("\n".join(_text(args, model, runs, seconds)))
        print_table(_ranges(model))
        if found is not None:
            print("\nCross-validated:")
            print_table(shared.evaluation_table(found))
        if not args.output and not args.quiet:
            print("\nThe model was not saved: give -o MODEL.json to save it.")
    _write(args, model, runs, found, seconds, tables)
    return 0


def _write(
    args: argparse.Namespace,
    model: Estimator,
    runs: Runs,
    found: Evaluation | None,
    seconds: float,
    tables: list[dict[str, Any]],
) -> None:
    """Write the model and the page, as far as they are asked for."""
    from tilewright.cli.output import write_file

    if args.output:
        write_file(args.output, json.dumps(model.to_dict(), indent=1) + "\n")
    if args.report and found is not None:
        from tilewright.report.pages import prediction_page

        report = shared.report_of(
            model,
            runs,
            found,
            title=f"Run times of {args.runs}",
            how="predictions held out by 5-fold cross-validation",
            tables=tables,
            facts=_facts(args, model, runs, seconds),
        )
        write_file(args.report, prediction_page(report))
    if args.output and arguments.prints_text(args) and not args.quiet:
        print(f"wrote {args.output}")


def _spare_the_description(args: argparse.Namespace) -> None:
    """Refuse to overwrite the description of the runs, a file next to them, with the model."""
    from tilewright.prediction import sidecar_of

    if args.output in (None, "-"):
        return
    beside = Path(args.runs).with_suffix(".json")
    if Path(args.output).resolve() == beside.resolve() and sidecar_of(args.runs):
        raise TilewrightError(
            f"{args.output} describes {args.runs}: give the model another name, such as "
            f"{beside.stem}_model.json"
        )


def _model(args: argparse.Namespace, runs: Runs) -> Estimator:
    """Return the model that the arguments name, not fitted yet."""
    import tilewright.prediction

    kind = getattr(tilewright.prediction, shared.MODELS[args.model])
    known = {field.name for field in dataclasses.fields(kind)}
    own = {
        "--max-parameters": ("max_parameters", args.max_parameters),
        "--threads": ("threads", args.threads),
        "--work": ("work", args.work),
    }
    settings: dict[str, Any] = {
        "features": runs.names,
        "units": {name: unit for name, unit in runs.features.items() if unit != "1"},
        "levels": runs.facts.get("levels"),
        "complexity": args.complexity or runs.facts.get("complexity"),
        "seed": args.seed,
    }
    for option, (name, value) in own.items():
        if value is None:
            continue
        if name not in known:
            raise TilewrightError(f"the model {args.model} has no use for {option}; leave it out")
        settings[name] = value
    if kind.needs_complexity and settings["complexity"] is None:
        raise TilewrightError(
            f"the model {args.model} needs the number of operations: give --complexity 'm*n*k'"
        )
    model: Estimator = kind(**settings)
    return model


def _facts(
    args: argparse.Namespace, model: Estimator, runs: Runs, seconds: float
) -> dict[str, str]:
    from tilewright.report import units

    facts = {
        "runs": f"{args.runs}, {len(runs)} rows",
        "complexity": str(model.complexity or ""),
        "time to train": units.seconds(seconds),
        "kernel": " by ".join(str(runs.facts[k]) for k in ("kernel", "variant") if k in runs.facts),
        "versions": ", ".join(f"{k} {v}" for k, v in dict(runs.facts.get("versions", {})).items()),
        "measured": str(runs.facts.get("date", "")),
        **provenance(args.words, model.seed, args.load_before),
    }
    return {name: value for name, value in facts.items() if value}


def _result(
    args: argparse.Namespace, model: Estimator, runs: Runs, seconds: float, found: Any
) -> dict[str, Any]:
    calibration = model.calibration_
    return {
        "model": model.kind,
        "parameters": model.parameter_count_,
        "rows": len(runs),
        "dropped": list(runs.dropped),
        "features": model.to_dict()["features"],
        "levels": model.levels,
        "complexity": model.complexity,
        "chosen": model.chosen_,
        "cross_validated_error": None if calibration is None else calibration.error,
        "cross_validation": None if found is None else found.to_dict(),
        "noise_floor": runs.floor,
        "train_seconds": seconds,
        "output": args.output,
    }


def _text(args: argparse.Namespace, model: Estimator, runs: Runs, seconds: float) -> list[str]:
    from tilewright.report import units

    lines = [f"{units.plural(len(runs), 'run')} of {args.runs}"]
    dropped = shared.left_out(runs)
    if dropped:
        lines[0] += f"; {dropped}"
    lines.append(f"{shared.describe(model)}, fitted in {units.seconds(seconds)}")
    for name, value in model.chosen_.items():
        if isinstance(value, dict):
            named = {"augmented": "ours"}
            compared = ", ".join(f"{named.get(k, k)} {units.percent(v)}" for k, v in value.items())
            lines.append(f"  {name}: {compared}")
        elif name == "inputs" and isinstance(value, list):
            lines.append(f"  inputs: {', '.join(value)}")
        elif name in ("terms", "hidden", "layers"):
            lines.append(f"  {name}: {value}")
    calibration = model.calibration_
    if calibration is not None:
        lines.append(
            "cross-validated error without the 30% shortest: " + units.percent(calibration.error)
        )
    if runs.floor is not None:
        lines.append(f"noise floor: {units.percent(runs.floor)}")
    return [*lines, ""]


def _ranges(model: Estimator) -> Any:
    from tilewright.report import units
    from tilewright.report.table import Column, table

    rows = [
        (
            name,
            (model.units or {}).get(name, ""),
            units.digits(low, 6),
            units.digits(high, 6),
            ", ".join((model.levels or {}).get(name, ())),
        )
        for name, low, high in zip(model.names_, *model.ranges_.tolist(), strict=True)
    ]
    columns = (
        Column("feature"),
        Column("unit"),
        Column("smallest", "right"),
        Column("largest", "right"),
        Column("words"),
    )
    return table(columns, rows)
