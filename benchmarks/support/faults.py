"""Commands run in a world of their own, disturbed, and looked at: what is left, lost or said."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

# What a run may leave behind, by the folder that it is in; the rest is a leftover.
_KEPT = {
    "tmp": r"tilewright-timing-\d+\.lock",
    "cache": r"tilewright(/references(/[0-9a-f]{32}(/\d+\.npy)?)?|/kernels(/[^./][^/]*)?)?",
}
# Next to a records file; SQLite removes the first two when the last process closes the file.
_BESIDE_RECORDS = ("-wal", "-shm", ".lock")
_MARK = "TILEWRIGHT_FAULTS"
# A process that has not ended this long after a signal, or after its reader left, hangs.
PATIENCE_SECONDS = 300.0
# What a command has started may take so long to end after it.
SURVIVAL_SECONDS = 60.0
_POLL_SECONDS = 0.02
_PF_EXITING = 0x4  # flag of a process: include/linux/sched.h
# Files of the program in a traceback; its first one only says what there is.
_OWN_FILES = re.compile(r"tilewright/(?!__init__\.py)")


@dataclass
class Ended:
    """How a command has ended: exit code (minus a signal's number), output, wall seconds."""

    code: int | None
    output: str
    errors: str
    seconds: float
    survivors: int = 0

    @property
    def traceback(self) -> bool:
        """Whether Python's machinery shows."""
        said = self.output + self.errors
        return "Traceback (most recent call last)" in said or "Exception ignored in" in said

    @property
    def before_the_program(self) -> bool:
        """Whether an interruption met Python's own start, which shows it, and not the program.

        Python imports what the ``.pth`` files of an environment name, then looks for the program.
        """
        own_start = "<frozen site>" in self.errors or not _OWN_FILES.search(self.errors)
        return self.errors.rstrip().endswith("KeyboardInterrupt") and own_start


@dataclass
class World:
    """Folders that a command takes for the user's: work, temporary files and cache.

    Args:
        folder: where they are made.
        program: what is run, before the arguments.
    """

    folder: Path
    program: Sequence[str] = (sys.executable, "-m", "tilewright")
    kept: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in ("work", "tmp", "cache", "home", "output"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.mark = uuid.uuid4().hex

    @property
    def work(self) -> Path:
        """The folder in which commands are run."""
        return self.folder / "work"

    def environment(self) -> dict[str, str]:
        """Of the commands: as here, but with the folders of this world."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TILEWRIGHT")}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "STEP_LOG": str(self.folder / "steps"),
            "PYTHONDONTWRITEBYTECODE": "1",
            _MARK: self.mark,
        }

    def run(
        self,
        words: Sequence[str | bytes],
        *,
        shell: str = "",
        env: dict[str, str] | None = None,
        disturb: Callable[[subprocess.Popen[bytes]], object] | None = None,
    ) -> Ended:
        """Run a command to its end.

        Args:
            words: its arguments.
            shell: a script for bash, in which ``"$@"`` is the command.
            env: more of the environment.
            disturb: called once it runs.
        """
        command: list[str | bytes] = [*self.program, *words]
        if shell:
            command = ["bash", "-c", shell, "faults", *command]
        paths = [self.folder / "output" / name for name in ("stdout", "stderr")]
        began = time.monotonic()
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=self.work,
                env={**self.environment(), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_plain_signals,
            )
            try:
                if disturb is not None:
                    disturb(process)
                code: int | None = process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
                process.kill()
                process.wait()
        seconds = time.monotonic() - began
        survivors = self._survivors()
        said = [path.read_text(errors="replace") for path in paths]
        return Ended(code, said[0], said[1], seconds, survivors)

    def _survivors(self) -> int:
        """Processes of the last command that do not end by themselves; they are killed."""
        deadline = time.monotonic() + SURVIVAL_SECONDS
        while (found := self._processes()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while self._processes():
            time.sleep(_POLL_SECONDS)
        return len(found)

    def _processes(self) -> list[int]:
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def keep(self) -> None:
        """Take what is in the work folder now for the user's own."""
        self.kept |= {str(p.relative_to(self.work)) for p in self.work.rglob("*")}

    def leftovers(self) -> list[str]:
        """Files in the folder that the command should not have left."""
        found = []
        for place, allowed in _KEPT.items():
            root = self.folder / place
            names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
            found += [f"{place}/{n}" for n in names if not re.fullmatch(allowed, n)]
        for path in sorted(self.work.rglob("*")):
            name = str(path.relative_to(self.work))
            stem = next((name.removesuffix(s) for s in _BESIDE_RECORDS if name.endswith(s)), name)
            if name not in self.kept and stem not in self.kept:
                found.append(f"work/{name}")
        return [name.encode(errors="backslashreplace").decode() for name in found]


def _plain_signals() -> None:
    """Signals as in a terminal: a shell's background jobs ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def rows(records: Path) -> int:
    """Measurements in a records file; 0 where there is none.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    if not records.exists():
        return 0
    with closing(sqlite3.connect(f"file:{records}?mode=ro", uri=True)) as db:
        (sound,) = db.execute("PRAGMA integrity_check").fetchone()
        if sound != "ok":
            raise sqlite3.DatabaseError(sound)
        tables = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'measurements'")
        if not tables.fetchone()[0]:
            return 0
        return int(db.execute("SELECT count(*) FROM measurements").fetchone()[0])


def ending(pid: int) -> bool:
    """Whether a process has ended, or its exit code is settled while the system clears it away."""
    try:
        status = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return True
    # After the name in brackets come the state and, as the seventh word, the flags.
    words = status.rpartition(")")[2].split()
    return words[0] in "ZX" or bool(int(words[6]) & _PF_EXITING)


class Killer:
    """Sends a signal after a while, and counts the rows that were safe just before.

    `landed` says whether the command still ran then.
    """

    def __init__(self, number: int, after: float, records: Path) -> None:
        self._number, self._after, self._records = number, after, records
        self.landed = False
        self.safe = 0

    def __call__(self, process: subprocess.Popen[bytes]) -> None:
        """Wait, look, and send it."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(self._after)
            return
        with suppress(sqlite3.OperationalError):  # the file is being made
            self.safe = rows(self._records)
        self.landed = process.poll() is None and not ending(process.pid)
        if self.landed:
            process.send_signal(self._number)
