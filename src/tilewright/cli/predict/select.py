"""``tilewright predict select``: chooses variants, or ranks candidates, by predicted time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments
from tilewright.cli.predict import shared
from tilewright.errors import TilewrightError
from tilewright.shapes import read_json

if TYPE_CHECKING:
    from tilewright.prediction import Ranked, Selector


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of ``tilewright predict``."""
    parser = commands.add_parser(
        "select",
        example="tilewright predict select --kernel matmul --query m=512,n=512,k=512",
        help="choose a variant, or rank candidates, by predicted time",
        description="Given several models, one per variant, choose the variant for each query. "
        "Given one model, rank candidates (a CSV file, or a family of Halide schedules) by "
        "predicted time.",
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="[NAME=]MODEL.json",
        help="models of the variants, or one selector written by tilewright predict train",
    )
    parser.add_argument(
        "--kernel",
        metavar="NAME",
        help="the variants of this kernel (or file.py:name), trained on this machine",
    )
    parser.add_argument(
        "--query",
        type=shared.query,
        action="append",
        default=[],
        metavar="M=512,N=64",
        help="values of the features; repeatable",
    )
    parser.add_argument(
        "--queries",
        metavar="FILE.csv",
        help="CSV file with one query per row; if it also has a column of measured times per "
        "variant (same names), report the regret",
    )
    parser.add_argument(
        "--setting",
        type=_setting,
        action="append",
        default=[],
        metavar="THREADS=1,2,4",
        help="values to choose from for a feature that the queries do not give; repeatable",
    )
    parser.add_argument(
        "--default",
        metavar="NAME",
        help="the safe variant, used outside the training range (default: the first)",
    )
    _add_family(parser)
    parser.add_argument(
        "--verify",
        type=arguments.positive,
        metavar="K",
        help="measure the best K on this machine (of a kernel's variants or a family's schedules)",
    )
    parser.add_argument(
        "--top", type=arguments.positive, default=10, metavar="N", help="rows shown (default: 10)"
    )
    arguments.add_seed(parser)
    arguments.add_records(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.csv", help="write all choices, or the complete ranking"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments.add_quiet(parser)
    parser.set_defaults(run=run)


def _add_family(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which schedules are ranked."""
    parser.add_argument(
        "--family",
        metavar="NAME",
        help="rank schedules of halide_blur, halide_blur_gpu or halide_fft",
    )
    parser.add_argument("--size", type=arguments.positive, help="size of the family's pipeline")
    parser.add_argument(
        "--candidates",
        type=arguments.positive,
        default=2000,
        metavar="N",
        help="schedules of the family to rank (default: 2000)",
    )


def _setting(text: str) -> tuple[str, tuple[float, ...]]:
    name, _, values = text.partition("=")
    try:
        return name.strip(), tuple(float(value) for value in values.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a setting with its values such as threads=1,2,4"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    selector, name = _selector(args)
    if args.family:
        return _family(args, selector)
    if args.queries and args.query:
        raise TilewrightError("give --query or --queries, not both")
    if args.queries:
        if len(selector.models) == 1:
            return _candidates(args, selector)
        return _many(args, selector)
    if not args.query:
        raise TilewrightError(
            "give --query m=512,n=64, or --queries FILE.csv with one query per row"
        )
    return _few(args, selector, name)


def _selector(args: argparse.Namespace) -> tuple[Selector, str | None]:
    """Return the models, and the name of the kernel whose variants they predict, if known."""
    from tilewright.prediction import Modelled, Selector, selector_path

    if bool(args.kernel) == bool(args.models):
        raise TilewrightError("give models of the variants, or --kernel NAME")
    if args.kernel:
        path = selector_path(shared.load_kernel(args.kernel).name)
        if not path.exists():
            raise TilewrightError(
                f"kernel {args.kernel} has no models yet: run  tilewright predict train "
                f"{args.kernel}"
            )
        found = Selector.load(path)
        return _with_default(found, args.default), args.kernel
    if len(args.models) == 1 and _is_selector(args.models[0]):
        found = Selector.load(args.models[0])
        return _with_default(found, args.default), found.kernel or None
    models = {}
    for text in args.models:
        label, equals, path_text = text.partition("=")
        if not equals or "/" in label:
            label, path_text = Path(text).stem, text
        if label in models:
            raise TilewrightError(
                f"two models are called {label!r}: name them, as in fast={path_text}"
            )
        model = shared.load_model(path_text)
        own = {name: values for name, values in args.setting if name in model.names_}
        models[label] = Modelled(model, own)
    return Selector(models, default=args.default), None


def _is_selector(path: str) -> bool:
    from tilewright.prediction import SELECTOR_FORMAT

    try:
        data = read_json(path, TilewrightError)
    except TilewrightError:
        return False  # loading it as a model raises the error
    return isinstance(data, dict) and data.get("format") == SELECTOR_FORMAT


def _with_default(found: Selector, default: str | None) -> Selector:
    if default is None:
        return found
    from tilewright.prediction import Selector

    return Selector(
        found.models, default=default, kernel=found.kernel, conversions=found.conversions
    )


def _few(args: argparse.Namespace, selector: Selector, kernel: str | None) -> int:
    """Show all variants for each of a few queries."""
    from tilewright.cli.output import print_table, write_file
    from tilewright.cli.predict import choices

    selections = [selector.select(query) for query in args.query]
    measured = [
        choices.measured(args, kernel, *pair) for pair in zip(args.query, selections, strict=True)
    ]
    rows = [
        choices.to_dict(query, selection, times)
        for query, selection, times in zip(args.query, selections, measured, strict=True)
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
    elif arguments.prints_text(args):
        for query, selection, times in zip(args.query, selections, measured, strict=True):
            if len(args.query) > 1:
                print(", ".join(f"{k}={v}" for k, v in query.items()))
            print_table(choices.variant_table(selection, times))
            if len(selector.models) > 1:
                print(choices.verdict(selection))
    if args.output:
        write_file(args.output, choices.to_csv(rows))
    return 0


def _many(args: argparse.Namespace, selector: Selector) -> int:
    """Choose the variant for each row of a file; show the regret if it has measured times."""
    from tilewright.cli.output import print_table, write_file
    from tilewright.cli.predict import choices

    queries = choices.read_queries(args.queries, selector)
    chosen, seconds, outside = choices.decide(selector, queries)
    regret, unmeasured = choices.regret_of(selector, queries, chosen)
    if args.json:
        result = {
            "queries": len(chosen),
            "chosen": {name: chosen.count(name) for name in selector.models},
            "outside_training_range": outside,
            "regret": None if regret is None else regret.to_dict(),
            "not_measured": unmeasured,
            "choices": chosen,
        }
        print(json.dumps(result, indent=2))
    elif arguments.prints_text(args):
        print_table(choices.summary_table(selector, chosen, seconds))
        if outside:
            print(
                f"{outside} of {len(chosen)} queries lie outside the training range: there the "
                f"default, {selector.default}, is used"
            )
        if regret is not None:
            print("\n".join(choices.regret_text(regret, len(chosen), unmeasured)))
    if args.output:
        write_file(args.output, choices.chosen_csv(queries, chosen, seconds))
    return 0


def _candidates(args: argparse.Namespace, selector: Selector) -> int:
    """Rank the rows of a file by predicted time."""
    from tilewright.cli.predict import choices
    from tilewright.prediction import rank

    if args.verify:
        raise TilewrightError(
            "--verify measures a kernel's variants (--kernel) or a family's schedules (--family); "
            "for rows of a file write them with -o and measure the first"
        )
    model = next(iter(selector.models.values())).model
    queries = choices.read_queries(args.queries, selector)
    return _show_ranking(args, rank(model, queries.rows))


def _family(args: argparse.Namespace, selector: Selector) -> int:
    """Rank schedules of a family by predicted time, and measure the best of them if asked to."""
    from tilewright.cli.progress import show_progress
    from tilewright.prediction import rank_schedules, schedule_family, verify_schedules
    from tilewright.records import Records
    from tilewright.report import Progress

    if len(selector.models) != 1:
        raise TilewrightError("schedules of a family are ranked by one model: give one")
    if args.size is None:
        raise TilewrightError("give the --size of the family's pipeline, such as 1024")
    model = next(iter(selector.models.values())).model
    found = schedule_family(args.family)
    ranked = rank_schedules(model, found, args.size, args.candidates, args.seed)
    if not args.verify:
        return _show_ranking(args, ranked)
    with Records(args.records) as records, show_progress(args.quiet) as show:

        def on_progress(done: int, total: int) -> None:
            show(Progress("measuring", done, total))

        best = verify_schedules(
            found, args.size, ranked, args.verify, records, on_progress=on_progress
        )
    measured = {r.index for r in best}
    return _show_ranking(args, [*best, *(r for r in ranked if r.index not in measured)])


def _show_ranking(args: argparse.Namespace, ranked: list[Ranked]) -> int:
    from tilewright.cli.output import print_table, write_file
    from tilewright.cli.predict import choices

    shown = ranked[: max(args.top, sum(r.measurement is not None for r in ranked))]
    if args.json:
        print(json.dumps([choices.ranked_dict(r) for r in shown], indent=2))
    elif arguments.prints_text(args):
        print(f"{len(ranked)} candidates, the fastest first")
        print_table(choices.ranking_table(shown))
        away = sum(r.outside for r in shown)
        if away:
            print(f"{away} of those shown lie outside the model's training range")
    if args.output:
        write_file(args.output, choices.ranking_csv(ranked))
    return 0
