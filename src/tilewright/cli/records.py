"""``tilewright records``: lists, shows, exports, merges and prunes recorded measurements."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.records import MeasurementRecord

# Characters of a configuration in a table.
_SHOWN = 60


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "records",
        help="list, show, export, merge or prune recorded measurements",
        description="Manage the file in which every measurement is recorded.",
        example="tilewright records merge colleague.sqlite",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    _add_actions(actions)


def _add_actions(actions: Any) -> None:
    file = options.records("the records file")
    common, printed = {**file, **options.QUIET}, {**file, **options.RESULT}
    some = {"[problem PROBLEM]": "only problems whose name begins with this"}
    actions.add_parser(
        "list",
        help="list the problems with their best times",
        description="List the problems of a records file: how many measurements each has, and the "
        "best time.",
        example="tilewright records list",
        options=printed,
        run=run_list,
    )
    actions.add_parser(
        "show",
        help="show every measurement of a problem",
        description="Show every measurement of the problems whose name begins with PROBLEM.",
        example="tilewright records show harris",
        options={
            "problem PROBLEM": "the beginning of the problem's name, as list prints it",
            **printed,
        },
        run=run_show,
    )
    actions.add_parser(
        "export",
        help="write records as lines of JSON",
        description="Write records as lines of JSON, which merge reads.",
        example="tilewright records export harris -o harris.jsonl",
        options={**some, "-o --output FILE = -": "the file to write; - prints them", **common},
        run=run_export,
    )
    actions.add_parser(
        "merge",
        help="add the records of other files",
        description="Add the records of other files to a records file; those that it has already "
        "are left out.",
        example="tilewright records merge colleague.sqlite",
        options={"files FILE ...": "a records file, or a file written by export", **common},
        run=run_merge,
    )
    actions.add_parser(
        "prune",
        help="remove records for good",
        description="Remove records for good. Say which, and add --yes.",
        example="tilewright records prune --before 2026-01-31 --status timeout",
        options={
            **some,
            "--before DATE": "only records older than this date",
            "--status STATUS": "only records with this status, such as timeout",
            "--unreadable": "only damaged records, which list counts",
            "--yes": "remove the records (without it, only count them)",
            **common,
        },
        run=run_prune,
    )


def run_list(args: argparse.Namespace) -> int:
    """List the problems."""
    from tilewright.cli.output import present
    from tilewright.records import Records
    from tilewright.report import units
    from tilewright.report.table import table

    arguments.check_outputs(args)
    problems: dict[str, list[MeasurementRecord]] = {}
    unreadable: list[int] = []
    with Records(args.records, read_only=True) as records:
        path = records.path
        for record in records.query(unreadable=unreadable):
            problems.setdefault(record.problem, []).append(record)
    listed: list[dict[str, Any]] = [
        {
            "problem": problem,
            "records": len(found),
            "ok": sum(record.measurement.ok for record in found),
            "best": _best(found),
            "last": found[-1].time,
        }
        for problem, found in problems.items()
    ]
    rows = [
        (
            problem["problem"],
            str(problem["records"]),
            str(problem["ok"]),
            units.seconds(problem["best"]),
            problem["last"][:16],
        )
        for problem in listed
    ]
    found = table("problem | >records | >ok | >best | last", rows)
    present(args, listed, found if rows else f"{path} has no measurements yet")
    _warn_of(unreadable)
    return 0


def _warn_of(unreadable: list[int]) -> None:
    """Print the number of damaged records, if any, on standard error."""
    from tilewright.cli.output import warn
    from tilewright.report import units

    if unreadable:
        warn(
            f"{units.plural(len(unreadable), 'damaged record')} left out; to remove what is "
            "damaged, use  tilewright records prune --unreadable"
        )


def _best(found: list[MeasurementRecord]) -> float | None:
    times = [
        record.measurement.median
        for record in found
        if record.measurement.ok and record.measurement.times and not record.measurement.lower_bound
    ]
    return min(times, default=None)


def run_show(args: argparse.Namespace) -> int:
    """Show the measurements of one problem."""
    import json

    from tilewright.cli.output import present
    from tilewright.records import Records, chosen
    from tilewright.report import units
    from tilewright.report.table import table

    arguments.check_outputs(args)
    unreadable: list[int] = []
    with Records(args.records, read_only=True) as records:
        found = chosen(records, problem=args.problem, unreadable=unreadable)
    _warn_of(unreadable)
    if not found:
        raise TilewrightError(
            f"no problem begins with {args.problem!r}: see tilewright records list"
        )
    shown: list[dict[str, Any]] = [
        {
            "id": record.id,
            "problem": record.problem,
            "time": record.time,
            "status": record.measurement.status,
            "median": record.measurement.median if record.measurement.times else None,
            "message": record.measurement.message,
            "configuration": record.configuration,
        }
        for record in found
    ]
    rows = []
    for one in shown:
        text = json.dumps(one["configuration"], ensure_ascii=False)
        rows.append(
            (
                str(one["id"]),
                one["time"][:19],
                one["status"],
                units.seconds(one["median"]),
                text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…",
            )
        )
    present(args, shown, table(">id | time | status | >median | configuration", rows))
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Write records as lines of JSON."""
    from tilewright.cli.output import write_file
    from tilewright.records import Records, chosen, to_line

    arguments.check_outputs(args)
    unreadable: list[int] = []
    with Records(args.records, read_only=True) as records:
        found = chosen(records, problem=args.problem, unreadable=unreadable)
    _warn_of(unreadable)
    write_file(args.output, "".join(f"{to_line(record)}\n" for record in found))
    return 0


def run_merge(args: argparse.Namespace) -> int:
    """Add the records of other files; of a damaged file, those before the damage."""
    from tilewright.records import Records, merge, read

    with Records(args.records) as records:
        for path in args.files:
            unreadable: list[int] = []
            done = merge(records, read(path, unreadable))
            damaged = f", {len(unreadable)} damaged" if unreadable else ""
            print(f"{path}: {done.added} added, {done.known} known already{damaged}")
    return 0


def run_prune(args: argparse.Namespace) -> int:
    """Remove records, or count those that would be removed."""
    from tilewright.measure import STATUSES
    from tilewright.records import Records, matching

    given = args.problem, args.before, args.status
    if given == (None, None, None) and not args.unreadable:
        raise TilewrightError(
            "say what to remove: a problem, --before DATE, --status STATUS or --unreadable"
        )
    if args.status is not None and args.status not in STATUSES:
        raise TilewrightError(f"status {args.status!r}: it is one of {', '.join(STATUSES)}")
    with Records(args.records, read_only=not args.yes) as records:
        found = matching(records, problem=args.problem, before=args.before, status=args.status)
        if args.unreadable:
            unreadable: list[int] = []
            for _ in records.query(unreadable=unreadable):
                pass
            found = sorted(set(found).intersection(unreadable))
        if not args.yes:
            print(f"{len(found)} of {len(records)} records would be removed: add --yes")
            return 0
        print(f"{records.remove(found)} records removed")
    return 0
