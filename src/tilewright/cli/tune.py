"""``tilewright tune``: finds a good configuration of a problem file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import present, write_file
from tilewright.cli.provenance import provenance
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.records import Records
    from tilewright.tuning import CommandProblem, RecordsJournal, Trial, TuningResult, WarmStart


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "tune",
        example="tilewright tune --init && tilewright tune problem.toml",
        help="tune the parameters of any command",
        description="Find a good configuration of a problem file (see --init): parameters, "
        "constraints, and a command that is run for each configuration. With a scenario file of "
        "BaCO or HyperMapper in client-server mode, talk to the client on standard input and "
        "output.",
        options={
            "[problem PROBLEM.toml]": "the problem file, or a scenario file of BaCO or "
            "HyperMapper (.json)",
            "--init": "write a commented problem file, PROBLEM.toml (default: problem.toml; "
            "- prints it)",
            "--budget N": "maximum number of evaluations (default: 60)",
            "--seed SEED": "seed of all random choices (default: 0)",
            "--jobs N": "number of evaluations at the same time (default: 1)",
            **options.TIME_LIMIT,
        },
        run=run,
    )
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="continue from the records of the same problem and seed (default: yes; for a "
        "scenario file: no)",
    )
    parser.add_argument(
        "--warm-start",
        nargs="?",
        const="",
        metavar="NAME",
        help="begin from the recorded evaluations of the problem NAME, of any size and on any "
        "machine (NAME left out: the same name); without this option from those of the same "
        "parameters and values on other inputs and machines, if there are any",
    )
    parser.add_argument(
        "--no-warm-start",
        dest="warm_start",
        action="store_false",
        default=None,
        help="begin without earlier evaluations",
    )
    options.add_options(
        parser,
        {
            **options.records(),
            **options.REPORT,
            **options.SERVE,
            "--export FILE ...": "write the evaluations as a T4 results file (FILE.json, "
            "FILE.json.gz) or as a Kernel Tuner cache (FILE.cache.json); repeatable",
            **options.RESULT,
        },
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when no configuration worked, 130 when interrupted."""
    from tilewright.tuning import PROBLEM_TEMPLATE, load_problem

    if args.init:
        path = Path(args.problem or "problem.toml")
        if args.problem == "-":
            write_file(args.problem, PROBLEM_TEMPLATE)
            return 0
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(PROBLEM_TEMPLATE)
        except FileExistsError:
            raise TilewrightError(f"{path} exists: give another name") from None
        except OSError as error:
            raise TilewrightError(f"{path}: {error.strerror or error}") from None
        if not args.quiet:
            print(f"wrote {path}: edit it, then run  tilewright tune {path}")
        return 0
    if args.problem is None:
        raise TilewrightError("give a problem file, or --init to write one")
    arguments.check_outputs(args)
    if args.export:
        from tilewright.tuning import check_t4_name

        for path in args.export:
            check_t4_name(path)
    if args.problem.endswith(".json"):
        return _answer(args)
    problem = load_problem(args.problem, runnable=True)
    result = _tune(args, problem)
    present(args, _result(result, problem), _text(result, problem))
    if args.report:
        facts = provenance(args.words, result.tuner.seed, args.load_before)
        write_file(args.report, _page(problem, result.trials, **facts))
    for path in args.export:
        from tilewright.tuning import export_t4

        export_t4(path, result.trials, problem.space, problem.name)
    if result.stopped == "interrupted":
        return 130
    return 0 if result.best is not None else 1


def _page(problem: CommandProblem, trials: Sequence[Trial], **facts: str) -> str:
    """Return the report of trials, with facts on how it was made."""
    from tilewright.tuning import tuning_page

    unit = "s" if problem.timed else ""
    negated = problem.maximised
    return tuning_page(
        [trials], problem.space, problem.name, unit=unit, negated=negated, facts=facts
    )


def _answer(args: argparse.Namespace) -> int:
    """Run a scenario file with the client at the other end of standard input and output."""
    from tilewright.records import Records
    from tilewright.tuning import RecordsJournal, load_scenario, problem_key, serve_hypermapper

    given = [option for option, value in _of_problems(args).items() if value not in (None, False)]
    if given:
        raise TilewrightError(
            f"{args.problem} is a scenario, which itself defines how it is run and what is "
            f"written: leave out {' and '.join(given)}"
        )
    scenario = load_scenario(args.problem)
    if scenario.mode != "client-server":
        raise TilewrightError(
            f"{args.problem} is in mode {scenario.mode!r}, which needs a Python function: use "
            "tilewright.tuning.optimize, or set its mode to client-server"
        )
    seed = args.seed or 0
    key = problem_key(scenario.name, scenario.space, list(scenario.objectives))
    with Records(args.records) as records:
        journal = RecordsJournal(records, key, seed, resume=bool(args.resume))
        found = serve_hypermapper(scenario, sys.stdin, sys.stdout, seed=seed, journal=journal)
    return 0 if found.best is not None else 1


def _of_problems(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that only a problem file takes, with their values."""
    return {
        "-o": args.output,
        "--report": args.report,
        "--serve": args.serve,
        "--export": args.export or None,
        "--json": args.json,
        "--budget": args.budget,
        "--jobs": args.jobs,
        "--time-limit": args.time_limit,
        "--warm-start": args.warm_start,
    }


def _tune(args: argparse.Namespace, problem: CommandProblem) -> TuningResult:
    from tilewright.cli.live import live_page
    from tilewright.cli.progress import show_progress
    from tilewright.records import Records
    from tilewright.report import Progress
    from tilewright.tuning import RecordsJournal, Tuner, confirming, problem_key, tune

    def setting(name: str, default: Any) -> Any:
        given = getattr(args, name)
        return problem.search.get(name, default) if given is None else given

    budget, seed = setting("budget", 60), setting("seed", 0)
    key = problem_key(problem.name, problem.space, problem.objective)
    timed = problem.timed
    with (
        Records(args.records) as records,
        live_page(args.serve) as page,
        show_progress(args.quiet) as show,
    ):
        journal = RecordsJournal(records, key, seed, resume=args.resume is not False)
        failed: dict[str, int] = {}

        def on_trial(trial: Trial, tuner: Tuner) -> None:
            if not trial.ok:
                failed[trial.status] = failed.get(trial.status, 0) + 1
            best = tuner.best
            text = "" if best is None or timed else f"best {problem.shown(best.value):.6g}"
            value = best.value if best is not None and timed else None
            again = confirming(tuner.trials)
            phase = "confirming the best" if again else "tuning"
            done = len(tuner.trials) - again
            show(Progress(phase, done, budget, dict(failed), value, text))
            if page:
                page.show(lambda: _page(problem, tuner.trials))

        return tune(
            problem,
            problem.space,
            budget,
            seed=seed,
            queue=problem.queue,
            objectives=problem.objectives,
            prior=problem.prior,
            warm=_warm(args, records, problem, journal),
            jobs=setting("jobs", 1),
            journal=journal,
            time_limit=setting("time_limit", None),
            converge=problem.search.get("converge"),
            confirm=problem.confirm,
            cutoff=problem.cutoff,
            on_trial=on_trial,
        )


def _warm(
    args: argparse.Namespace, records: Records, problem: CommandProblem, journal: RecordsJournal
) -> Sequence[WarmStart] | None:
    """Return the warm starts; None to use the records of the same space."""
    if args.warm_start is None:
        return None
    if args.warm_start is False:
        return ()
    from tilewright.tuning import warm_start

    name = args.warm_start or problem.name
    found = warm_start(records, name, but=journal)
    if not found:
        raise TilewrightError(
            f"the records {records.path} have no earlier evaluations of {name!r}: leave out "
            "--warm-start, or name another problem"
        )
    if not any(len(each.codes(problem.space)[0]) for each in found):
        raise TilewrightError(
            f"of the earlier evaluations of {name!r} none has the parameters and values of "
            f"{args.problem}: leave out --warm-start, or name another problem"
        )
    return found


def _result(result: TuningResult, problem: CommandProblem) -> dict[str, Any]:
    """Return the result as JSON data."""
    from tilewright.tuning import confirming

    def data(trial: Trial) -> dict[str, Any]:
        return trial.to_json() | {"values": [problem.shown(v) for v in trial.values]}

    best, again = result.best, confirming(result.trials)
    return {
        "best": None if best is None else data(best),
        "pareto": [data(t) for t in result.pareto] if result.tuner.objectives > 1 else None,
        "evaluations": len(result.trials) - again,
        "confirmations": again,
        "failed": sum(not t.ok for t in result.trials),
        "stopped": result.stopped,
    }


def _text(result: TuningResult, problem: CommandProblem) -> str:
    from tilewright.report import units
    from tilewright.tuning import counted, plain

    lines = [f"{counted(result.trials)}; stopped: {result.stopped}"]
    tuner = result.tuner
    if earlier := sum(len(each.codes(tuner.space)[0]) for each in tuner.warm):
        known = units.plural(earlier, "configuration")
        lines.append(f"begun with {known} measured earlier (--no-warm-start: without)")
    if result.best is None:
        if result.trials:
            last = result.trials[-1]
            lines.append("no configuration worked; the last failure was:")
            lines.append(f"  {last.status}: {last.message}")
        return "\n".join(lines)
    shown = result.pareto if result.tuner.objectives > 1 else [result.best]
    for trial in shown:
        own = [problem.shown(value) for value in trial.values]
        values = (units.seconds(v) if problem.timed else f"{v:.6g}" for v in own)
        lines.append("best " + ", ".join(values))
        lines += [f"  {k} = {json.dumps(v)}" for k, v in plain(trial.configuration).items()]
    return "\n".join(lines)
