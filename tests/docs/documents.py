"""Pages as a reader sees them: code blocks in order, and what a shell or Python makes of them.

A page is one session in one copy of the repository: Python blocks share their names, console
blocks share the folder, in the order of the page. In a console block a line that begins with
``$ `` is a command (the next line too where it ends in a backslash), and others show what is
printed. A ``text`` block right after a Python block shows what that prints. In both, ``...``
stands for anything.

A comment right before a block says what it needs or how it ends::

    <!-- needs: gpu -->
    <!-- exit: 2 -->
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
# What a block may need that a test has not. Everything else runs.
NEEDS = ("gpu", "network", "quiet machine")
# Seconds that a command may take on a machine under load; none takes more than ten of CPU.
LIMIT_SECONDS = 900

# Pages that take long and share no line with others: they run in a file of tests of their own,
# so that another process can take them.
LONG_PAGES = ("docs/learned-scheduler.md", "docs/patterns.md", "docs/prediction.md")
PAGES = (
    "README.md",
    "docs/exit-codes.md",
    "docs/halide.md",
    *LONG_PAGES,
    *sorted(
        str(path.relative_to(ROOT))
        for folder in ("tutorials", "howto")
        for path in (ROOT / "docs" / folder).glob("*.md")
    ),
)

_BLOCK = re.compile(
    r"(?P<notes>(?:<!-- \w+: [^>]*-->\n)*)^```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_NOTE = re.compile(r"<!-- (\w+): ([^>]*?) -->")
_COPIED = ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "constraints.txt")


@dataclass(frozen=True)
class Block:
    """A code block: its first line's number in the page, and what the comments before it say."""

    language: str
    text: str
    line: int
    needs: str | None = None
    exit: int = 0


@dataclass(frozen=True)
class Command:
    """A line for a shell, and what the page says that it prints (empty: nothing is said)."""

    line: str
    shown: str = ""


def blocks(page: str) -> list[Block]:
    """The code blocks of a page in Markdown.

    Raises:
        ValueError: for a note that says nothing known.
    """
    found = []
    for match in _BLOCK.finditer(page):
        notes = dict(_NOTE.findall(match["notes"]))
        unknown = set(notes) - {"needs", "exit"}
        if unknown or notes.get("needs", NEEDS[0]) not in NEEDS:
            raise ValueError(f"unknown note: {match['notes']}")
        line = page.count("\n", 0, match.start("text")) + 1
        code = int(notes.get("exit", 0))
        found.append(Block(match["language"], match["text"], line, notes.get("needs"), code))
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block, each with the lines that it shows after it."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        elif not found:
            raise ValueError(f"line {block.line}: a console block begins with '$ '")
        elif found[-1].line.endswith("\\") and not found[-1].shown:
            found[-1] = Command(f"{found[-1].line}\n{line}")
        else:
            found[-1] = Command(found[-1].line, f"{found[-1].shown}{line}\n")
    return found


def text_of(page: str) -> str:
    """The text of a page by its path in the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def clone(folder: Path) -> Path:
    """A copy of the repository in `folder`, as far as the documents may change it."""
    copy = folder / "tilewright"
    copy.mkdir()
    for name in _COPIED:
        shutil.copy(ROOT / name, copy / name)
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("src", "tests", "benchmarks"):
        (copy / name).symlink_to(ROOT / name)
    return copy


def shell_path(folder: Path) -> str:
    """A `PATH` on which ``tilewright`` and ``python`` are those that run this test."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, arguments in (("tilewright", "-P -m tilewright.cli "), ("python", "")):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        tool.chmod(0o755)
    return os.pathsep.join((str(tools), str(Path(sys.executable).parent), os.environ["PATH"]))


class Session:
    """What pasting a page into a shell and a Python prompt does, block by block.

    A command that several pages give, and that names files of the same contents, runs once in a
    test process where `seen` is shared: the files that the first run wrote are put where the
    second would have written them.

    Args:
        page: path of the page, for messages.
        folder: the copy of the repository, which is also the current directory.
        path: the `PATH` of commands.
        seen: results of commands by their text and the files that they name.
    """

    def __init__(
        self, page: str, folder: Path, path: str, seen: dict[tuple[object, ...], Ran]
    ) -> None:
        self.page = page
        self.folder = folder
        self.path = path
        self.seen = seen
        self.module = ModuleType("example")

    def run(self, page_blocks: list[Block]) -> int:
        """Run all blocks that need nothing special; gives the number of those."""
        count = 0
        printed = ""
        sys.modules[self.module.__name__] = self.module  # where decorators look for names
        for block in page_blocks:
            if block.needs:
                continue
            if block.language == "python":
                printed = self.python(block)
            elif block.language == "console":
                for command in commands(block):
                    self.command(command, block)
            elif block.language == "text" and printed:
                self.compare(block.text, printed, block)
                printed = ""
            count += block.language in ("python", "console")
        return count

    def python(self, block: Block) -> str:
        """Run a Python block, which errors call ``example.py``; gives what it printed."""
        out = io.StringIO()
        script = self.folder / "example.py"
        script.write_text(block.text, encoding="utf-8")
        linecache.checkcache()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(block.text, script.name, "exec"), vars(self.module))
        except Exception as error:
            error.add_note(f"{self.page}, the block at line {block.line}")
            raise
        finally:
            script.unlink()
        return out.getvalue()

    def command(self, command: Command, block: Block) -> None:
        """Run a line in a shell and compare its exit code and what it prints."""
        named = tuple(
            (self.folder / word.split(":")[0]).read_bytes()
            for word in command.line.split()
            if (self.folder / word.split(":")[0]).is_file()
        )
        ran = self.seen.get((command.line, *named)) if named else None
        if ran is None:
            ran = self.seen[command.line, *named] = run(command.line, self.folder, self.path)
        else:
            ran.put(self.folder)
        where = f"{self.page}, line {block.line}: $ {command.line}"
        assert ran.code == block.exit, f"{where}\nexit {ran.code}\n{ran.out}{ran.err}"
        if command.shown:
            # An error goes to another stream than results; a terminal shows both.
            self.compare(command.shown, ran.out if block.exit == 0 else ran.err, block)

    def compare(self, shown: str, printed: str, block: Block) -> None:
        """Check that a page shows what is printed, ``...`` and the width of columns aside."""
        options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted, got = (re.sub("-{3,}", "---", text.strip()) for text in (shown, printed))
        same = doctest.OutputChecker().check_output(wanted, got, options)
        assert same, (
            f"{self.page}, line {block.line} shows\n{shown}\nbut this is printed\n{printed}"
        )


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code, what it printed, the files that it wrote."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]

    def put(self, folder: Path) -> None:
        """Write the files into `folder`."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def run(line: str, folder: Path, path: str) -> Ran:
    """Run a line with bash in `folder`."""
    before = dict(_files(folder))
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    written = {name: stamp for name, stamp in _files(folder) if before.get(name) != stamp}
    contents = {name: (folder / name).read_bytes() for name in written}
    return Ran(done.returncode, done.stdout, done.stderr, contents)


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every file below `folder`, links left out, with its time of change and size."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(place, name)
            stat = path.stat()
            yield str(path.relative_to(folder)), (stat.st_mtime_ns, stat.st_size)
