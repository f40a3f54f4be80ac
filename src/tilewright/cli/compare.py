"""``tilewright compare``: our schedule compared with others of the same pipeline."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tilewright.cli import arguments
from tilewright.cli.halide_errors import with_flags
from tilewright.cli.provenance import with_provenance


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "compare",
        example="tilewright compare --example harris --report harris.html",
        help="compare our schedule with those of Halide's autoschedulers",
        description="Measure the naive schedule, those of the autoschedulers that come with "
        "Halide, a hand-written one if the pipeline has one, and ours, in one interleaved run.",
    )
    arguments.add_pipeline(parser)
    parser.add_argument(
        "--k", type=arguments.positive, default=5, help="schedules that we plan (default: 5)"
    )
    parser.add_argument(
        "--hand",
        metavar="FILE",
        help="the same algorithm, serialised with a hand-written schedule (.hlpipe), to compare "
        "with (default: function hand of the pipeline's Python file)",
    )
    parser.add_argument(
        "--peer-time",
        type=arguments.duration,
        default=120.0,
        metavar="TIME",
        help="limit of CPU time per autoscheduler (default: 120s)",
    )
    parser.add_argument(
        "--peer-memory",
        type=arguments.memory,
        default=8 << 30,
        metavar="SIZE",
        help="memory limit per autoscheduler (default: 8G)",
    )
    arguments.add_scheduled(parser)
    arguments.add_budget(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.json", help="write the result as JSON; - prints it"
    )
    arguments.add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    options = arguments.common(args)

    import json

    from tilewright.cli.output import print_report, write_file
    from tilewright.cli.pipeline import load_pipeline
    from tilewright.cli.progress import show_progress

    pipeline = load_pipeline(arguments.pipeline_of(args), dict(args.arguments))
    from tilewright.halide import compare

    with show_progress(args.quiet) as progress, with_flags():
        result = compare(
            pipeline.pipeline,
            name=pipeline.name,
            hand=args.hand or (pipeline.hand and partial(pipeline.hand, **dict(args.arguments))),
            peer_time=args.peer_time,
            peer_memory=args.peer_memory,
            keep_schedule=args.keep,
            discard_schedule=args.discard_schedule,
            on_progress=progress,
            **options,
        )
    report = result.report()
    # Printed first, so that an error while writing the page loses no result.
    text = json.dumps(report.to_dict(), indent=2)
    if args.json:
        print(text)
    elif arguments.prints_text(args):
        print_report(report, args.quiet)
    if args.output:
        write_file(args.output, text)
    if args.report:
        from tilewright.cli.page import write_page

        made = with_provenance(report, args.words, args.seed, args.load_before)
        write_page(args.report, made, "compare", result.result, args.records)
    return 1 if report.verified is False else 0
