"""Where records are kept by default."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TILEWRIGHT_RECORDS"


def cache_directory() -> Path:
    """Return ``$XDG_CACHE_HOME/tilewright`` or ``~/.cache/tilewright``; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "tilewright"


def default_path() -> Path:
    """Return the file named by ``TILEWRIGHT_RECORDS``, else the one in the cache directory."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else cache_directory() / "records.sqlite"


def calibration_path(processor: str) -> Path:
    """Return the calibration file of a processor (`machines.processor_key`)."""
    return cache_directory() / "calibration" / f"{processor}.json"
