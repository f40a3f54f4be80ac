"""Faults of the command line: commands killed, their streams closed or full, odd targets.

Commands run on small programs in folders of their own. Each signal (SIGKILL, SIGTERM, SIGINT,
SIGHUP) ends each command ten times, at moments drawn from the seed. Output goes to a pipe whose
reader has left, to a closed stream, to a full device, or through ASCII. Files are written to
impossible or unusual places. The figures are

- ``rows_lost``: measurements that were finished or on the disk before, and are not there after;
- ``tracebacks``: outputs with Python's own words about an error;
- ``leftovers``: processes and files that stay, after SIGKILL those that the next run leaves;
- ``wrong_exit_codes``: exit codes and files that contradict the outcome of the run.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import common
from support.faults import Ended, Killer, World, rows

KILLS = 10  # of every command by every signal
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
FIGURES = ("rows_lost", "tracebacks", "leftovers", "wrong_exit_codes")
# A command that has ended before the signal came gets another, earlier one; one that Python had not
# begun yet gets another.
ATTEMPTS = 5
RECORDS = "records.sqlite"

PIPELINE = """import halide as hl

def blur():
    x, y = hl.vars("x y")
    image, across, out = hl.ImageParam(hl.UInt(16), 2, "image"), hl.Func("across"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 2, y]
    out[x, y] = across[x, y] + across[x, y + 2]
    out.set_estimates([(0, 256), (0, 128)])
    return out
"""
PROBLEM = """name = "step"
[objective]
command = ["./step", "{n}"]
value = "json"
json = "value"
[search]
budget = 20
[[parameters]]
name = "n"
type = "integer"
low = 1
high = 1000
"""
# Says when it has run, so that the records can be compared with what has happened.
STEP = """#!/bin/sh
echo "$1" >> "$STEP_LOG"
echo "{\\"value\\": $1}"
"""
FUNCTION = "def total(n):\n    return sum(range(int(n)))\n"


@dataclass(frozen=True)
class Tool:
    """A command of the command line, and the options that name files that it writes."""

    name: str
    words: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]

    def line(self, records: str = RECORDS, **files: str) -> list[str]:
        """Its arguments, with the outputs that have to be there or are given by option."""
        named = {option: f"out{suffix}" for option, suffix in self.outputs} | files
        return [*self.words, "--records", records] + [w for pair in named.items() for w in pair]


TOOLS = (
    Tool(
        "schedule",
        ("schedule", "blur.py", "--verify"),
        (("-o", ".json"), ("--report", ".html")),
    ),
    Tool(
        "compare",
        ("compare", "blur.py", "--k", "1", "--time-limit", "8s"),
        (("--report", ".html"),),
    ),
    Tool("tune", ("tune", "problem.toml"), (("--report", ".html"), ("--export", ".t4.json"))),
    Tool(
        "collect",
        (
            *("predict", "collect", "fun.py:total", "--range", "n=1:1000", "--complexity", "n"),
            *("--count", "40", "--rounds", "1"),
        ),
        (("-o", ".csv"),),
    ),
)


class Findings:
    """What was wrong, by figure."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(FIGURES, 0)
        self.details: list[str] = []
        self.cases = 0

    def add(self, figure: str, where: str, what: str, count: int = 1) -> None:
        """Count something wrong."""
        self.counts[figure] += count
        self.details.append(f"{figure}: {where}: {what}")
        print(f"  {self.details[-1]}", flush=True)

    def look(self, where: str, ended: Ended, codes: tuple[int, ...]) -> None:
        """Look at how a command has ended; `codes` are right."""
        self.cases += 1
        if ended.code not in codes:
            said = (ended.errors or ended.output).strip().splitlines()[-1:]
            self.add("wrong_exit_codes", where, f"{ended.code}, not {codes}: {said}")
        if ended.traceback:
            self.add("tracebacks", where, (ended.errors or ended.output)[-600:])
        if ended.survivors:
            self.add("leftovers", where, f"{ended.survivors} processes", ended.survivors)

    def row(self, tool: str, fault: str) -> dict[str, Any]:
        """As a row of the result."""
        return {
            "command": tool,
            "fault": fault,
            "cases": self.cases,
            **self.counts,
            "details": self.details,
        }


def world_of(folder: Path) -> World:
    """A world with the small programs."""
    world = World(folder)
    for name, text in {
        "blur.py": PIPELINE,
        "problem.toml": PROBLEM,
        "step": STEP,
        "fun.py": FUNCTION,
    }.items():
        (world.work / name).write_text(text)
    (world.work / "step").chmod(0o755)
    outputs = {f"out{suffix}" for tool in TOOLS for _, suffix in tool.outputs}
    world.kept |= {RECORDS, "out.json", *outputs}  # `collect` describes out.csv in out.json
    world.keep()
    return world


def killed(tool: Tool, name: str, seed: int, folder: Path) -> dict[str, Any]:
    """End a command by a signal at random moments; after that it must run to its end."""
    choose, found = random.Random(f"{seed} {tool.name} {name}"), Findings()
    world, number = world_of(folder), signal.Signals[name]
    records = world.work / RECORDS
    wall = world.run(tool.line()).seconds
    if left := world.leftovers():
        found.add("leftovers", "without a fault", ", ".join(left), len(left))
    right = (-9,) if name == "SIGKILL" else (128 + number, -number)
    for kill in range(KILLS):
        longest = wall
        for _ in range(ATTEMPTS):
            _fresh(world)
            killer = Killer(number, choose.uniform(0, longest), records)
            ended = world.run(tool.line(), disturb=killer)
            if killer.landed and not ended.before_the_program:
                break
            if not killer.landed:
                longest = ended.seconds / 2
        else:
            continue
        where = f"{tool.name}, {name} {kill}"
        found.look(where, ended, right)
        _count_rows(found, where, world, killer.safe)
        if name != "SIGKILL" and (left := world.leftovers()):
            found.add("leftovers", where, ", ".join(left), len(left))
    where = f"{tool.name}, after {name}"
    before = rows(records)
    found.look(where, world.run(tool.line()), (0,))
    _count_rows(found, where, world, before)
    if left := world.leftovers():
        found.add("leftovers", where, ", ".join(left), len(left))
    return found.row(tool.name, name)


def _fresh(world: World) -> None:
    """Without records and outputs of the run before; the cache stays."""
    for path in world.work.iterdir():
        if path.name.startswith((RECORDS, "out.")):
            path.unlink()
    (world.folder / "steps").unlink(missing_ok=True)


def _count_rows(found: Findings, where: str, world: World, safe: int) -> None:
    """Compare the records with what was in them before, and with what has been run."""
    try:
        there = rows(world.work / RECORDS)
    except sqlite3.DatabaseError as error:
        found.add("rows_lost", where, f"the records are damaged: {error}", max(safe, 1))
        return
    log = world.folder / "steps"
    # The command that has just run may be under way to the records.
    run = len(log.read_text().splitlines()) - 1 if log.exists() else 0
    if (lost := max(safe, run) - there) > 0:
        found.add("rows_lost", where, f"{there} of {max(safe, run)} rows", lost)


# Name, script around the command, environment, exit code.
STREAMS: tuple[tuple[str, str, dict[str, str], int], ...] = (
    ("output to a reader that leaves", '"$@" | head -1; exit ${PIPESTATUS[0]}', {}, 0),
    ("all to a reader that leaves", '"$@" 2>&1 | head -1; exit ${PIPESTATUS[0]}', {}, 0),
    ("output closed", 'exec "$@" >&-', {}, 0),
    ("errors closed", 'exec "$@" 2>&-', {}, 0),
    ("both closed", 'exec "$@" >&- 2>&-', {}, 0),
    ("input, output and errors closed", 'exec "$@" <&- >&- 2>&-', {}, 0),
    ("output full", 'exec "$@" > /dev/full', {}, 2),
    ("errors full", 'exec "$@" 2> /dev/full', {}, 0),
    ("both full", 'exec "$@" > /dev/full 2>&1', {}, 2),
    (
        "not UTF-8",
        'exec "$@"',
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        0,
    ),
)


def streamed(tool: Tool, folder: Path) -> dict[str, Any]:
    """Run a command with streams that do not work; its files must be there all the same."""
    found, world = Findings(), world_of(folder)
    for name, shell, env, code in STREAMS:
        for _, suffix in tool.outputs:
            (world.work / f"out{suffix}").unlink(missing_ok=True)
        where = f"{tool.name}, {name}"
        found.look(where, world.run(tool.line(), shell=shell, env=env), (code,))
        for option, suffix in tool.outputs:
            path = world.work / f"out{suffix}"
            if not path.is_file() or not path.stat().st_size:
                found.add("wrong_exit_codes", where, f"{option} {path.name} was not written")
        if left := world.leftovers():
            found.add("leftovers", where, ", ".join(left), len(left))
    return found.row(tool.name, "streams")


def _read_only(path: Path) -> None:
    path.write_text("mine")
    path.chmod(0o444)


def _device(number: int) -> Callable[[Path], None]:
    """A link to a device of our own: the system's must survive a command that is wrong."""

    def make(path: Path) -> None:
        device = path.with_name(f"device{number}")
        if not device.exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        path.symlink_to(device)

    return make


def _sealed(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o555)


def _link(path: Path) -> None:
    path.with_name("linked").write_text("before")
    path.symlink_to(path.with_name("linked"))


# Name, how it is made at a path, name of the file, exit code, whether it is written to.
TARGETS: tuple[tuple[str, Callable[[Path], object], str, int, bool], ...] = (
    ("read-only", _read_only, "target", 2, False),
    ("folder", Path.mkdir, "target", 2, False),
    ("null device", _device(3), "target", 0, False),
    ("full device", _device(7), "target", 2, False),
    ("link", _link, "target", 0, True),
    ("dangling link", lambda p: p.symlink_to(p.with_name("linked")), "target", 0, True),
    ("missing folder", lambda path: None, "missing/target", 2, False),
    ("read-only folder", _sealed, "sealed/target", 2, False),
    ("odd name", lambda path: None, "caf\udce9 'x'\n$(x)", 0, True),
    ("long name", lambda path: None, "語" * 80, 0, True),
)
# A link leads to standard output, which is a pipe or a file; words of what is written there.
OPEN_FILES = (("pipe", '"$@" | cat; exit ${PIPESTATUS[0]}'), ("file", 'exec "$@"'))
WORDS = {".html": "</html>", ".json": '"schema"', ".t4.json": "schema_version", ".csv": "time_s"}
# The page goes to a command, as a shell's >(command) has it.
SUBSTITUTED = '"$@" --report >(cat > substituted.html); code=$?; wait $!; exit $code'
# What is no place for records.
NO_RECORDS = ("read-only", "folder", "full device")


def targeted(tool: Tool, folder: Path) -> dict[str, Any]:
    """Have a command write to odd places; what is no place must be refused before the work."""
    found = Findings()
    home = world_of(folder / "home")
    home.run(tool.line())
    for option, suffix in (*tool.outputs, ("--records", ".sqlite")):
        for name, make, stem, code, written in TARGETS:
            if option == "--records" and name not in NO_RECORDS:
                continue
            world = World(home.folder, kept=set(home.kept))
            path = world.work / f"{stem}{suffix}"
            make(path)
            world.keep()
            world.kept |= {os.path.relpath(path, world.work), "linked", "device3", "device7"}
            before = _state(path)
            fresh = code == 2 and name != "full device"
            given = "fresh.sqlite" if fresh else RECORDS
            if option == "--records":
                line = tool.line(str(path))
            else:
                line = tool.line(given, **{option: str(path)})
            where = f"{tool.name} {option}, {name}"
            found.look(where, world.run(line), (code,))
            if not written and _state(path) != before:
                found.add("wrong_exit_codes", where, f"{before} became {_state(path)}")
            if written and not (path.is_file() and path.stat().st_size > len("before")):
                found.add("wrong_exit_codes", where, "nothing was written")
            if fresh and option != "--records" and rows(world.work / "fresh.sqlite"):
                found.add("wrong_exit_codes", where, "it was refused after the work")
            world.kept |= {"fresh.sqlite", *_sidecar(option, path, world.work)}
            if left := world.leftovers():
                found.add("leftovers", where, ", ".join(left), len(left))
            _clear(home)
    _to_open_files(tool, home, found)
    return found.row(tool.name, "targets")


def _to_open_files(tool: Tool, home: World, found: Findings) -> None:
    """Have a command write to what is open already: it must neither fail nor be replaced."""
    world = World(home.folder, kept=set(home.kept))
    printed = world.run(tool.line()).output.split()[0]
    for option, suffix in tool.outputs:
        path = world.work / f"open{suffix}"
        path.symlink_to("/dev/stdout")
        world.kept |= {path.name, *_sidecar(option, path, world.work)}
        for name, shell in OPEN_FILES:
            where = f"{tool.name} {option}, standard output is a {name}"
            ended = world.run(tool.line(**{option: str(path)}), shell=shell)
            found.look(where, ended, (0,))
            missing = [word for word in (printed, WORDS[suffix]) if word not in ended.output]
            if missing or not path.is_symlink():
                found.add("wrong_exit_codes", where, f"{missing} is not on standard output")
    if "--report" in dict(tool.outputs):
        where, page = f"{tool.name} --report, >(command)", world.work / "substituted.html"
        world.kept.add(page.name)
        found.look(where, world.run(tool.line(), shell=SUBSTITUTED), (0,))
        if not page.is_file() or not page.read_text().rstrip().endswith("</html>"):
            found.add("wrong_exit_codes", where, "the page is not there")
    if left := world.leftovers():
        found.add("leftovers", f"{tool.name}, open files", ", ".join(left), len(left))
    _clear(home)


def _sidecar(option: str, path: Path, work: Path) -> set[str]:
    """The description that `collect` writes next to its CSV file."""
    beside = path.with_suffix(".json")
    return {os.path.relpath(beside, work)} if path.suffix == ".csv" else set()


def _clear(home: World) -> None:
    for path in home.work.iterdir():
        if path.name not in home.kept and not path.name.startswith(RECORDS):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _state(path: Path) -> tuple[Any, ...]:
    """What is there: kind and mode, of links those of the end; content where it is a file."""
    if not path.exists():
        return ("nothing",)
    found = path.stat()
    text = path.read_text() if stat.S_ISREG(found.st_mode) else ""
    return (oct(found.st_mode), found.st_rdev, path.is_symlink(), text)


def main() -> None:
    """Disturb, look, write."""
    names = [tool.name for tool in TOOLS]
    parser = common.arguments(__doc__.splitlines()[0], names)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wanted = common.chosen(args, names)
    pieces = common.Pieces(args.work, "cli_faults", args.fresh)
    found = [row for tool in TOOLS if tool.name in wanted for row in of_tool(tool, pieces, args)]
    summary = {
        "cases": sum(row["cases"] for row in found),
        **{name: sum(row[name] for row in found) for name in FIGURES},
    }
    common.write(args, "cli_faults", found, summary, seed=args.seed, kills=KILLS)


def of_tool(tool: Tool, pieces: common.Pieces, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a command."""

    def piece(fault: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        def made() -> dict[str, Any]:
            with tempfile.TemporaryDirectory(prefix="faults") as folder:
                return make(Path(folder))

        row: dict[str, Any] = pieces.get(f"{tool.name}-{fault}-{args.seed}", made)
        print(tool.name, {k: v for k, v in row.items() if k != "details"}, flush=True)
        return row

    return [
        piece("streams", lambda folder: streamed(tool, folder)),
        piece("targets", lambda folder: targeted(tool, folder)),
        *(piece(s, partial(killed, tool, s, args.seed)) for s in SIGNALS),
    ]


if __name__ == "__main__":
    main()
