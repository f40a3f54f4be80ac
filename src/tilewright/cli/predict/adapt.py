"""``tilewright predict adapt``: adapts models of other machines to this one by a few runs."""

from __future__ import annotations

import argparse
from typing import Any

from tilewright.cli import arguments, options
from tilewright.cli.predict import shared
from tilewright.cli.predict.fit import fitted
from tilewright.errors import TilewrightError


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "adapt",
        example="tilewright predict adapt model.json few_runs.csv -o here.json",
        help="adapt models of other machines to this one by a few runs",
        description="Adapt models of other machines to this one. The few runs show how much faster "
        "or slower it is, how far to trust each model, and where all of them are wrong. Twenty "
        "runs are "
        "enough where the machines are alike.",
        options={
            "models MODEL.json ...": "models of the same kernel on other machines, written by "
            "tilewright predict fit",
            "runs RUNS.csv": "runs on this machine, one per row",
            **shared.TARGET,
            "--seed SEED = 0": "seed of the cross-validation",
            "-o --output MODEL.json": "the file to write the adapted model to; - prints it",
            **shared.REPORT,
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    from tilewright.prediction import Adapted, load

    sources = [load(path) for path in args.models]
    features = tuple(dict.fromkeys(name for source in sources for name in source.names_))
    levels: dict[str, list[str]] = {}
    units: dict[str, str] = {}
    for path, source in zip(args.models, sources, strict=True):
        for name, words in (source.levels or {}).items():
            if levels.setdefault(name, list(words)) != list(words):
                raise TilewrightError(
                    f"{path} and {args.models[0]} number the words of {name} differently: fit both "
                    f"models to runs with the same words"
                )
        units |= source.units or {}
    runs = shared.read_runs(args, features, levels=levels, units=units)
    complexity = next((source.complexity for source in sources if source.complexity), None)
    model = Adapted(
        features=features,
        complexity=complexity,
        units=units or None,
        levels=levels or None,
        seed=args.seed,
        sources=sources,
    )
    return fitted(args, model, runs)
