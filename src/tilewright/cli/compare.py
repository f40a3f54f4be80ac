"""``tilewright compare``: our schedule compared with others of the same pipeline."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from tilewright.cli import arguments, options
from tilewright.cli.halide_errors import with_flags
from tilewright.cli.provenance import with_provenance


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "compare",
        example="tilewright compare --example harris --report harris.html",
        help="compare schedules of Tilewright and of Halide's autoschedulers",
        description="Measure the naive schedule, those of the autoschedulers that come with "
        "Halide, a hand-written one if the pipeline has one, and that of Tilewright, in one "
        "interleaved run.",
        options={
            **options.PIPELINE,
            "--k N = 5": "number of schedules that Tilewright plans",
            "--hand FILE": "the same algorithm, serialised with a hand-written schedule (.hlpipe), "
            "to compare with (default: function hand of the pipeline's Python file)",
            "--peer-time TIME = 120s": "limit of CPU time per autoscheduler",
            "--peer-memory SIZE = 8G": "memory limit per autoscheduler",
        },
        run=run,
    )
    options.add_options(parser.add_mutually_exclusive_group(), options.SCHEDULED)
    options.add_options(
        parser,
        {
            **options.budget(),
            **options.REPORT,
            **options.RESULT,
        },
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    arguments.check_outputs(args)
    given = arguments.common(args)

    from tilewright.cli.output import present
    from tilewright.cli.pipeline import load_pipeline
    from tilewright.cli.progress import show_progress

    pipeline = load_pipeline(arguments.pipeline_of(args), dict(args.arg))
    from tilewright.halide import compare

    with show_progress(args.quiet) as progress, with_flags():
        result = compare(
            pipeline.pipeline,
            name=pipeline.name,
            hand=args.hand or (pipeline.hand and partial(pipeline.hand, **dict(args.arg))),
            peer_time=args.peer_time,
            peer_memory=args.peer_memory,
            keep_schedule=args.keep,
            discard_schedule=args.discard_schedule,
            on_progress=progress,
            **given,
        )
    report = result.report()
    present(args, report.to_dict(), report)
    if args.report:
        from tilewright.cli.page import write_page

        made = with_provenance(report, args.words, args.seed, args.load_before)
        write_page(args.report, made, "compare", result.result, args.records)
    return 1 if report.all_failed else 0
