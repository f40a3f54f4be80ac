"""Files written for a user: whole or not at all, and never in the place of something else."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from tilewright.errors import TilewrightError


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a place that `write_text` could not write to, before hours of work depend on it.

    Raises:
        TilewrightError: it is a folder, it or its folder is read-only, or there is no folder.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise TilewrightError(f"{path} is a folder: name a file to write")
    if not target.parent.is_dir():
        raise TilewrightError(f"cannot write {path}: there is no folder {Path(path).parent}")
    if target.exists():
        # The superuser may write to a file that its owner has protected; here it does not.
        mode = target.stat().st_mode
        if not os.access(target, os.W_OK) or not mode & (
            stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
        ):
            raise TilewrightError(f"{path} is read-only: allow writing to it, or name another file")
        if not stat.S_ISREG(mode):
            return
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise TilewrightError(
            f"cannot write {path}: the folder {target.parent} is read-only; name another file"
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8, whole or not at all.

    A link is followed, an existing file keeps its mode, and a device or pipe is written to
    instead of being replaced.

    Raises:
        TilewrightError: the file cannot be written; what was there before stays.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        partial.write_text(text, encoding="utf-8")
        if target.exists():
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        partial.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise TilewrightError(f"cannot write {path}: {error.strerror or error}") from error
