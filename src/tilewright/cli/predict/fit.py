"""``tilewright predict fit``: fits a model of run time to a CSV file of past runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import prints_text, show, warn, write_file
from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.prediction import Estimator, Evaluation, Runs
    from tilewright.report.table import Table

# With fewer runs, a model and its intervals are little more than guesses.
FEW = 30
# With more runs, Auto takes too long to be tried for comparison.
TRIED = 5000
# Auto is recommended if it reduces the error to at most this share.
BETTER = 0.9
# With more runs, the paper's networks take very long, as every training step uses all runs.
MANY = 10_000


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "fit",
        example="tilewright predict fit runs.csv --complexity 'm*n*k' -o model.json",
        help="fit a model to past runs",
        description="Fit a model of run time to a CSV file with one row per run: a column of times "
        "and columns of the features that they depend on. Headings may give units in brackets, as "
        "in 'size [bytes]'. Rows with missing values are omitted and listed.",
        options={
            "runs RUNS.csv": "the past runs, one per row",
            **shared.TARGET,
            "--features A,B": "the columns of features (default: all other columns)",
            "--complexity EXPRESSION": "the number of operations, such as 'm*n*k' or 'n*log2(n)' "
            "(default: that of the description next to the runs, if there is one)",
            f"--model {'|'.join(shared.MODELS)} = ours": "ours: at most 75 fitted numbers; "
            "boosted: gradient boosting; gp: a Gaussian process; auto: these three, weighted by "
            "cross-validation; nnc: NN+C of Srivastava et al. 2020; nn, c, lrc, nlrc: the "
            "baselines of that paper",
            "--max-parameters N": "maximum number of fitted parameters (default: 75 for ours, nn "
            "and nnc; no limit for auto)",
            "--threads A,B": "the columns that are numbers of threads (default: those called "
            "threads)",
            "--work EXPRESSION ...": "a further expression of the work done, such as 'd*m*n' for "
            "the number of non-zeros; repeatable",
            "--seed SEED = 0": "seed of all random choices",
            "-o --output MODEL.json": "the file to write the model to; - prints it",
            **shared.REPORT,
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    _spare_the_description(args)
    runs = shared.read_runs(args, args.features)
    if args.model in ("nn", "nnc") and len(runs) > MANY:
        warn(
            f"{args.model} goes through all {len(runs)} runs thousands of times, which may take "
            "hours; the paper has 250"
        )
    model = _model(args, runs)
    if len(runs) < FEW:
        warn(f"{args.runs} has only {len(runs)} runs; a few hundred make a good model")
    return fitted(args, model, runs)


def fitted(args: argparse.Namespace, model: Estimator, runs: Runs) -> int:
    """Fit a model to runs, show it, and write the files that the arguments ask for."""
    from tilewright.cli.progress import counted, show_progress
    from tilewright.prediction import cross_validate, fit_censored, prediction_report
    from tilewright.report import Progress

    tables = shared.read_tables(args.tables)
    with show_progress(args.quiet) as progress:
        progress(Progress(f"fitting {shared.name_of(model)} to {len(runs)} runs"))
        began = time.perf_counter()
        stopped = runs.censored
        if stopped is None:
            model.fit(runs.table, runs.times)
        else:
            fit_censored(model, runs.table, runs.times, stopped)
        seconds = time.perf_counter() - began
        auto = None
        if model.kind == "augmented" and stopped is None and FEW <= len(runs) <= TRIED:
            progress(Progress("comparing with auto"))
            auto = _auto_error(model, runs)
        found = None
        if args.report:
            found = cross_validate(
                model,
                runs.table,
                runs.times,
                retimes=runs.retimes,
                censored=stopped,
                on_progress=counted(progress, "cross-validating"),
            )
    show(
        args,
        {**_result(args, model, runs, seconds, found), "auto_error": auto},
        *_text(args, model, runs, seconds, found),
        *_advice(model, auto),
    )
    if args.output:
        write_file(args.output, json.dumps(model.to_dict(), indent=1) + "\n")
    if found is not None:
        report = prediction_report(
            model,
            runs.ended(),
            found,
            title=f"Run times of {args.runs}",
            model=shared.describe(model),
            how="predictions held out by 5-fold cross-validation",
            results=tables,
        )
        shared.write_page(args, model, report, _facts(args, model, runs, seconds))
    if args.output and prints_text(args) and not args.quiet:
        print(f"wrote {args.output}")
    return 0


def _advice(model: Estimator, auto: float | None) -> Iterator[str]:
    """Yield a recommendation of `Auto` if its error `auto` is clearly lower."""
    from tilewright.report import units

    own = shared.error_of(model)
    if auto is not None and own is not None and auto < BETTER * own:
        yield (
            f"Without a limit on fitted numbers the error would be {units.percent(auto)}: give "
            f"--model auto."
        )


def _auto_error(model: Estimator, runs: Runs) -> float | None:
    """Return the cross-validated error of `Auto`; None without scikit-learn."""
    from tilewright.prediction import Augmented, Auto, PredictionError

    assert isinstance(model, Augmented)
    auto = Auto(complexity=model.complexity, seed=model.seed, levels=model.levels)
    try:
        return shared.error_of(auto.fit_around(model, runs.table, runs.times))
    except PredictionError:
        return None


def _spare_the_description(args: argparse.Namespace) -> None:
    """Refuse to overwrite the description of the runs, a file next to them, with the model."""
    from tilewright.prediction import sidecar_of

    if args.output in (None, "-"):
        return
    description = Path(args.runs).with_suffix(".json")
    if Path(args.output).resolve() == description.resolve() and sidecar_of(args.runs):
        raise TilewrightError(
            f"{args.output} describes {args.runs}: give the model another name, such as "
            f"{description.stem}_model.json"
        )


def _model(args: argparse.Namespace, runs: Runs) -> Estimator:
    """Return the model that the arguments name, not fitted yet."""
    import tilewright.prediction

    kind = getattr(tilewright.prediction, shared.MODELS[args.model])
    known = {field.name for field in dataclasses.fields(kind)}
    settings: dict[str, Any] = {
        "features": runs.names,
        "units": {name: unit for name, unit in runs.features.items() if unit != "1"},
        "levels": runs.facts.get("levels"),
        "complexity": args.complexity or runs.facts.get("complexity"),
        "seed": args.seed,
    }
    for name in ("max_parameters", "threads", "work"):
        if not (value := getattr(args, name)):
            continue
        if name not in known:
            option = f"--{name.replace('_', '-')}"
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

    return {
        "runs": f"{args.runs}, {len(runs)} rows",
        "complexity": str(model.complexity or ""),
        "time to train": units.seconds(seconds),
        "kernel": " by ".join(str(runs.facts[k]) for k in ("kernel", "variant") if k in runs.facts),
        "versions": ", ".join(f"{k} {v}" for k, v in dict(runs.facts.get("versions", {})).items()),
        "measured": str(runs.facts.get("date", "")),
    }


def _result(
    args: argparse.Namespace,
    model: Estimator,
    runs: Runs,
    seconds: float,
    found: Evaluation | None,
) -> dict[str, Any]:
    return {
        "model": model.kind,
        "parameters": model.parameter_count_,
        "rows": len(runs),
        "dropped": list(runs.dropped),
        "stopped": 0 if runs.censored is None else int(runs.censored.sum()),
        "features": model.to_dict()["features"],
        "levels": model.levels,
        "complexity": model.complexity,
        "chosen": model.chosen_,
        "cross_validated_error": shared.error_of(model),
        "cross_validation": None if found is None else found.to_dict(),
        "noise_floor": runs.floor,
        "train_seconds": seconds,
        "output": args.output,
    }


def _text(
    args: argparse.Namespace,
    model: Estimator,
    runs: Runs,
    seconds: float,
    found: Evaluation | None,
) -> Iterator[str | Table]:
    """Yield the printed summary of a fitted model, and of its cross-validation if there is one."""
    from tilewright.prediction import evaluation_table, feature_ranges
    from tilewright.report import units
    from tilewright.report.table import table

    read = f"{units.plural(len(runs), 'run')} of {args.runs}"
    stopped = 0 if runs.censored is None else int(runs.censored.sum())
    completed = f"{stopped} of them stopped, their times completed" if stopped else ""
    yield "; ".join(filter(None, [read, completed, shared.left_out(runs)]))
    yield f"{shared.describe(model)}, fitted in {units.seconds(seconds)}"
    for name, value in model.chosen_.items():
        if isinstance(value, dict):
            named = {"augmented": "ours"}
            compared = ", ".join(f"{named.get(k, k)} {units.percent(v)}" for k, v in value.items())
            yield f"  {name}: {compared}"
        elif name == "inputs" and isinstance(value, list):
            yield f"  inputs: {', '.join(value)}"
        elif name in ("terms", "hidden", "layers"):
            yield f"  {name}: {value}"
    if (error := shared.error_of(model)) is not None:
        yield f"cross-validated error without the 30% shortest: {units.percent(error)}"
    if runs.floor is not None:
        yield f"noise floor: {units.percent(runs.floor)}"
    rows = [
        (
            name,
            unit,
            units.digits(low, 6),
            units.digits(high, 6),
            ", ".join((model.levels or {}).get(name, ())),
        )
        for name, unit, low, high in feature_ranges(model)
    ]
    yield ""
    yield table("feature | unit | >smallest | >largest | words", rows)
    if found is not None:
        yield "\nCross-validated:"
        yield evaluation_table(found)
    if not args.output and not args.quiet:
        yield "\nThe model was not saved: give -o MODEL.json to save it."
