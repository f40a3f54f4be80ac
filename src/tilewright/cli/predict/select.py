"""``tilewright predict select``: chooses variants, or ranks candidates, by predicted time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import show, write_file
from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.measure import Measurement
    from tilewright.prediction import (
        Choices,
        Estimator,
        Ranked,
        Ranking,
        Selection,
        Selections,
        Selector,
    )


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    commands.add_parser(
        "select",
        example="tilewright predict select --kernel matmul --query m=512,n=512,k=512",
        help="choose a variant, or rank candidates, by predicted time",
        description="Given several models, one per variant, choose the variant for each query. "
        "Given one model, rank candidates (a CSV file, or a family of Halide schedules) by "
        "predicted time.",
        options={
            "[models [NAME=]MODEL.json ...]": "models of the variants, or one selector written by "
            "tilewright predict train",
            "--kernel NAME": "the variants of this kernel (or file.py:name), trained on this "
            "machine",
            "--query M=512,N=64 ...": "values of the features; repeatable",
            "--queries FILE.csv": "CSV file with one query per row; if it also has a column of "
            "measured times per variant (same names), report the regret",
            "--setting THREADS=1,2,4 ...": "values to choose from for a feature that the queries "
            "do not give; repeatable",
            "--default NAME": "the safe variant, used outside the training range (default: the "
            "first)",
            "--family NAME": "rank schedules of halide_blur, halide_blur_gpu or halide_fft",
            "--size N": "size of the family's pipeline",
            "--candidates N = 2000": "number of the family's schedules to rank",
            "--verify N": "measure the best N on this machine (of a kernel's variants or a "
            "family's schedules)",
            "--top N = 10": "number of candidates that are printed",
            "--seed SEED = 0": "seed of all random choices",
            **options.records(),
            "-o --output FILE.csv": "write all choices, or the complete ranking; - prints them",
            **options.JSON,
            **options.QUIET,
        },
        run=run,
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    found = _found(args)
    show(args, found.to_dict(), *found.text())
    if args.output:
        write_file(args.output, found.to_csv())
    return 0


def _found(args: argparse.Namespace) -> Selections | Choices | Ranking:
    """Return what the command line asks for."""
    from tilewright.prediction import Choices, rank, read_queries

    selector, kernel = _selector(args)
    _refuse_unused(args)
    if args.family:
        return _family(args, selector)
    if args.query:
        return _selections(args, selector, kernel)
    queries, times = read_queries(args.queries, selector)
    if len(selector.models) == 1:
        return _ranking(args, rank(_first_model(selector), queries))
    return Choices.of(selector, queries, times)


def _refuse_unused(args: argparse.Namespace) -> None:
    """Reject options that have no effect in combination with the others.

    Raises:
        TilewrightError: queries are given in several ways or not at all, or an option does not
            apply.
    """
    ways = {"--family": args.family, "--query": args.query, "--queries": args.queries}
    given = [option for option, value in ways.items() if value]
    if len(given) > 1:
        raise TilewrightError(f"give {given[0]} or {given[1]}, not both")
    if not given:
        raise TilewrightError(
            "give --query m=512,n=64, or --queries FILE.csv with one query per row"
        )
    if args.size is not None and not args.family:
        raise TilewrightError("--size is the size of a --family of schedules: give its name, too")
    if args.queries and args.verify:
        raise TilewrightError(
            "--verify measures the variants for a --query, or a family's schedules (--family); "
            "for the rows of a file write the choices with -o and measure those"
        )


def _selector(args: argparse.Namespace) -> tuple[Selector, str | None]:
    """Return the models, and the name of the kernel whose variants they predict, if known."""
    from tilewright.prediction import Modelled, Selector, is_selector, load, selector_path

    if bool(args.kernel) == bool(args.models):
        raise TilewrightError("give models of the variants, or --kernel NAME")
    whole = args.kernel or (len(args.models) == 1 and is_selector(args.models[0]))
    if whole and args.setting:
        raise TilewrightError(
            "--setting is for models of single variants: a selector has its variants' settings"
        )
    if args.kernel:
        path = selector_path(shared.load_kernel(args.kernel).name)
        if not path.exists():
            raise TilewrightError(
                f"kernel {args.kernel} has no models yet: run  tilewright predict train "
                f"{args.kernel}"
            )
        return Selector.load(path, args.default), args.kernel
    if whole:
        found = Selector.load(args.models[0], args.default)
        return found, found.kernel or None
    models = {}
    for text in args.models:
        label, equals, path_text = text.partition("=")
        if not equals or "/" in label:
            label, path_text = Path(text).stem, text
        if label in models:
            raise TilewrightError(
                f"two models are called {label!r}: name them, as in fast={path_text}"
            )
        model = load(path_text)
        own = {name: values for name, values in args.setting if name in model.names_}
        models[label] = Modelled(model, own)
    for name, _ in args.setting:
        if not any(name in modelled.settings for modelled in models.values()):
            raise TilewrightError(f"--setting {name}: no model has a feature of that name")
    return Selector(models, default=args.default), None


def _first_model(selector: Selector) -> Estimator:
    return next(iter(selector.models.values())).model


def _selections(args: argparse.Namespace, selector: Selector, kernel: str | None) -> Selections:
    """Select variants for each of a few queries, and measure the best of them if asked to."""
    from tilewright.prediction import Selections

    if args.verify and kernel is None:
        raise TilewrightError(
            "--verify needs a kernel whose variants can be run: give --kernel, or a selector that "
            "tilewright predict train has written"
        )
    found = [selector.select(query) for query in args.query]
    measured: list[dict[str, Measurement]] = [{} for _ in found]
    if args.verify and kernel is not None:
        measured = [_measured(args, kernel, *one) for one in zip(args.query, found, strict=True)]
    return Selections(args.query, found, measured)


def _measured(
    args: argparse.Namespace, kernel: str, query: Mapping[str, float], selection: Selection
) -> dict[str, Measurement]:
    """Measure the best ``--verify`` variants of a kernel."""
    from tilewright.cli.progress import counted, show_progress
    from tilewright.prediction import verify_variants

    with show_progress(args.quiet) as progress:
        found = verify_variants(
            shared.load_kernel(kernel),
            query,
            selection.choices[: args.verify],
            seed=args.seed,
            on_progress=counted(progress, "measuring"),
        )
    return {choice.variant: measurement for choice, measurement in found}


def _family(args: argparse.Namespace, selector: Selector) -> Ranking:
    """Rank schedules of a family by predicted time, and measure the best of them if asked to."""
    from tilewright.cli.progress import counted, show_progress
    from tilewright.prediction import rank_schedules, schedule_family, verify_schedules
    from tilewright.records import Records

    if len(selector.models) != 1:
        raise TilewrightError("schedules of a family are ranked by one model: give one")
    if args.size is None:
        raise TilewrightError("give the --size of the family's pipeline, such as 1024")
    found = schedule_family(args.family)
    ranked = rank_schedules(_first_model(selector), found, args.size, args.candidates, args.seed)
    if not args.verify:
        return _ranking(args, ranked)
    with Records(args.records) as records, show_progress(args.quiet) as progress:
        shown = counted(progress, "measuring")
        best = verify_schedules(found, args.size, ranked, args.verify, records, on_progress=shown)
    measured = {r.index for r in best}
    return _ranking(args, [*best, *(r for r in ranked if r.index not in measured)])


def _ranking(args: argparse.Namespace, ranked: list[Ranked]) -> Ranking:
    from tilewright.prediction import Ranking

    return Ranking(ranked, max(args.top, sum(r.measurement is not None for r in ranked)))
