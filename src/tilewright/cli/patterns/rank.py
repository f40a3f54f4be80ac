"""``tilewright patterns rank``: derived kernels, best first, before any is run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import present
from tilewright.cli.patterns import shared
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.patterns.features import Features
    from tilewright.patterns.ranking import MeasuredProgram, PerformanceModel

_DEFAULT_GPU = "a100"
MODEL = {
    "--launches N = 10": "maximum number of launches of each derived program",
    "--measured FILE.json ...": "measured kernels to learn from, as "
    "tilewright.patterns.ranking.write_measured writes them; repeatable",
    "--model knn|boosted|gp": "the model that learns: nearest neighbours as in the paper, "
    "a trend and boosted trees, or a Gaussian process (default: knn)",
    "--machine NAME": "the GPU of the estimate by name (default: a100; tilewright machine --list)",
    "--seed SEED = 0": "seed of the choice of launches",
}


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright patterns``."""
    commands.add_parser(
        "rank",
        example="tilewright patterns rank --example jacobi5 --sizes N=1024,M=1024",
        help="rank the GPU kernels of a program before any is run",
        description="Derive programs, each with several launches, and rank their GPU kernels by "
        "features alone; nothing is compiled or run. With --measured, a model learns from measured "
        "kernels. Without, an estimate for a GPU counts memory transactions, instructions and "
        "waves of groups; it has not been compared with measurements.",
        options={
            **shared.PROGRAM,
            **MODEL,
            **shared.EXPLORATION,
            **options.RESULT,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if no derived program can run on a GPU."""
    arguments.check_outputs(args)
    model, called = model_of(args)
    program = shared.load_program(args)
    from tilewright.cli.progress import counted, show_progress
    from tilewright.patterns.ranking import candidates, rank
    from tilewright.report import units
    from tilewright.report.table import table

    sizes = shared.all_sizes(program, args)
    with show_progress(args.quiet) as progress:
        found = candidates(
            program,
            sizes,
            shared.settings(args, "gpu"),
            args.launches,
            args.seed,
            counted(progress, "deriving"),
        )
    ranked = rank(found, model)
    shown = list(enumerate(ranked[: args.top], 1))
    entries = [
        {
            **shared.entry(number, c.derivation, c.launch),
            "predicted": value,
            "features": asdict(c.features),
        }
        for number, (value, c) in shown
    ]
    result = {
        **shared.document(args, "gpu", entries),
        "model": called,
        "count": len(found),
        "expressions": len({c.derivation.program for c in found}),
    }
    if not found:
        present(args, result, "no derived program can run on a grid of threads: give more --tiles")
        return 1
    estimated = not args.measured
    rows = [
        (
            str(number),
            units.seconds(1 / value) if estimated and value else units.percent(value),
            shared.product(_groups(c.features)),
            shared.product(_threads(c.features)),
            ", ".join(str(rule) for rule, _ in c.derivation.steps),
        )
        for number, (value, c) in shown
    ]
    head = (
        f"{units.plural(len(found), 'kernel')} of {result['expressions']} programs, ranked by "
        f"{called}; none was run"
    )
    columns = f">number | >{'estimate' if estimated else 'of best'} | >groups | >threads | ~steps"
    present(args, result, *([] if args.quiet else [head]), table(columns, rows))
    return 0


def model_of(args: argparse.Namespace) -> tuple[PerformanceModel, str]:
    """Return the model that the options name, fitted, and what it is called.

    Raises:
        TilewrightError: options contradict each other, or a file cannot be read.
    """
    from tilewright.patterns import ranking

    if not args.measured:
        if args.model is not None:
            raise TilewrightError(f"--model {args.model} learns: give --measured FILE.json, too")
        machine = arguments.named_machine(args.machine or _DEFAULT_GPU)
        if not hasattr(machine, "sms"):
            raise TilewrightError(f"--machine {args.machine} is a CPU: name a GPU, such as h100")
        return ranking.StaticEstimate(machine), f"an estimate for {machine.name}"
    if args.machine is not None:
        raise TilewrightError("--machine is for the estimate: leave it out with --measured")
    programs = [p for path in args.measured for p in ranking.read_measured(path)]
    return learnt(args, programs)


def learnt(
    args: argparse.Namespace, programs: Sequence[MeasuredProgram]
) -> tuple[PerformanceModel, str]:
    """Return the model that the options name, which has learnt from programs, and its name.

    Raises:
        TilewrightError: there are no programs.
    """
    if not programs:
        raise TilewrightError(f"{args.measured[0]} has no programs: measure some")
    from tilewright.patterns.ranking import fitted

    model = fitted(_learner(args.model or "knn"), programs)
    points = sum(len(p.seconds) for p in programs)
    return model, f"{args.model or 'knn'} from {points} measured kernels"


def _learner(name: str) -> PerformanceModel:
    from tilewright.patterns.ranking import FromRunTimes, NearestNeighbours, TrendAndTrees

    if name == "knn":
        return NearestNeighbours()
    if name == "boosted":
        return TrendAndTrees()
    from tilewright.prediction import GaussianProcess

    return FromRunTimes(GaussianProcess(folds=0))


def _threads(f: Features) -> list[int]:
    return [int(v) for v in (f.local_size_0, f.local_size_1, f.local_size_2)]


def _groups(f: Features) -> list[int]:
    total = (f.global_size_0, f.global_size_1, f.global_size_2)
    return [int(g) // t for g, t in zip(total, _threads(f), strict=True)]
