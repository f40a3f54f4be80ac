"""``tilewright schedule``: finds, verifies, measures and explains a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.cli import arguments
from tilewright.cli.halide_errors import with_flags
from tilewright.cli.provenance import with_provenance
from tilewright.cli.signals import interrupted
from tilewright.errors import TilewrightError

_WRITERS = {".json": "to_json", ".py": "to_python", ".h": "to_cpp"}


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "schedule",
        example="tilewright schedule --example harris --mode top -o harris_schedule.py",
        help="find a schedule for a Halide pipeline",
        description="Find a schedule for a Halide pipeline, and say how fast it is and why.",
    )
    arguments.add_pipeline(parser)
    _add_search(parser)
    arguments.add_scheduled(parser).add_argument(
        "--improve",
        action="store_true",
        help="like --discard-schedule, but make the present schedule a candidate of top and "
        "tune: the result is never slower",
    )
    parser.add_argument(
        "--exact-sizes",
        action="store_true",
        help="make a schedule for the estimated sizes only, which may fail at others (default: "
        "correct at every size that the pipeline allows)",
    )
    arguments.add_budget(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the schedule: .json, .py (Python) or .h (C++); - prints JSON",
    )
    parser.add_argument(
        "--runtime-checks",
        action="store_true",
        help="add a function to the written .py or .h that checks, at run time, whether outputs "
        "have the sizes that the schedule requires",
    )
    arguments.add_output(parser)
    parser.set_defaults(run=run)


def _add_search(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the search."""
    parser.add_argument(
        "--mode",
        choices=("oneshot", "top", "tune", "given"),
        help="oneshot: the model's best, not compiled; top: build, verify and measure the best "
        "few and keep the fastest; tune: top, then tune tile sizes, vector widths and unrolls; "
        "given: no search, the schedule that the pipeline came with (default: oneshot; with "
        "--improve, top)",
    )
    parser.add_argument(
        "--k", type=arguments.positive, help="schedules that top and tune plan (default: 5)"
    )
    parser.add_argument(
        "--evaluations",
        type=arguments.positive,
        help="additional schedules measured by --mode tune (default: 60)",
    )
    parser.add_argument(
        "--fusion",
        choices=("none", "overlapped", "nested"),
        default="nested",
        help="how Funcs may be computed inside others' tiles (default: %(default)s)",
    )
    parser.add_argument(
        "--verify", action="store_true", help="compile and check the schedule of oneshot"
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="skip the check that Halide can lower the schedule of oneshot",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    writer = _writer(args.output)
    if args.runtime_checks and writer == "to_json":
        raise TilewrightError("--runtime-checks is for schedules written with -o FILE.py or .h")
    arguments.check_outputs(args)
    options = arguments.common(args)

    import json

    from tilewright.cli.output import print_report, write_file
    from tilewright.cli.pipeline import load_pipeline
    from tilewright.cli.progress import show_progress

    if args.evaluations is not None:
        options["evaluations"] = args.evaluations
    pipeline = load_pipeline(arguments.pipeline_of(args), dict(args.arguments))
    from tilewright.halide import schedule

    with show_progress(args.quiet) as progress, with_flags():
        result = schedule(
            pipeline.pipeline,
            name=pipeline.name,
            mode=args.mode or ("top" if args.improve else "oneshot"),
            fusion=args.fusion,
            verify=args.verify,
            check=not args.no_check,
            keep_schedule=args.keep,
            discard_schedule=args.discard_schedule,
            exact_sizes=args.exact_sizes,
            improve=args.improve,
            on_progress=progress,
            **options,
        )
    report = result.report()
    # Printed first, so that an error while writing the files loses no result.
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif arguments.prints_text(args):
        print_report(report, args.quiet)
    if interrupted() and report.verified is not True:
        raise TilewrightError("interrupted before a schedule was verified: no file is written")
    if args.output:
        checks = {"runtime_checks": True} if args.runtime_checks else {}
        write_file(args.output, getattr(result, writer)(**checks))
    if args.report:
        from tilewright.cli.page import write_page

        made = with_provenance(report, args.words, args.seed, args.load_before)
        write_page(args.report, made, "schedule", result, args.records)
    return 1 if report.verified is False else 0


def _writer(output: str | None) -> str:
    if output is None or output == "-":
        return "to_json"
    try:
        return _WRITERS[Path(output).suffix]
    except KeyError:
        raise TilewrightError(
            f"cannot tell from {output!r} how to write the schedule: name a .json, .py or .h file"
        ) from None
