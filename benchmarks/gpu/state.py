"""What a campaign has done so far: a file to which a line is added for every piece."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# A piece that failed so often is left.
MOST_TRIES = 2


class State:
    """The file ``pieces.jsonl``; a line that a kill cut short is passed over."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / "pieces.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Every run of every piece, oldest first."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def add(self, name: str, status: str, seconds: float, result: Any, message: str = "") -> None:
        """Write down that a piece ended; it is on the disk when this returns."""
        line = {"piece": name, "status": status, "seconds": seconds, "message": message}
        with self.path.open("a") as file:
            # What a kill left of an earlier line ends here.
            if self.path.stat().st_size and not self._ends_whole():
                file.write("\n")
            file.write(json.dumps({**line, "result": result}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def done(self) -> dict[str, Any]:
        """The results of the pieces that ended well, by name; the newest counts."""
        return {line["piece"]: line["result"] for line in self.lines() if line["status"] == "ok"}

    def tries(self, name: str) -> int:
        """How often a piece has failed."""
        return sum(line["piece"] == name and line["status"] != "ok" for line in self.lines())

    def wanted(self, name: str) -> bool:
        """Whether a piece is still to be run."""
        return name not in self.done() and self.tries(name) < MOST_TRIES
