"""Files written for a user: completely or not at all, and never over a device, pipe or link.

The name of a temporary file or folder shows its purpose, and its lock (``flock``) ends with the
process. The next process that makes the same kind of file removes those whose process has ended, so
that a killed process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from tilewright.errors import TilewrightError

_NAME_KEPT = 100  # bytes of the target's name in that of its draft; names may have 255
_LARGEST_EDITED = 2**26  # bytes; the largest page of the gallery has under a megabyte
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
# An open file of a process, as in /dev/stdout and in the paths that shells make for >(command).
_DESCRIPTOR = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd/(\d+)")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Reject a path that `write_text` could not write to, before hours of work depend on it.

    Raises:
        TilewrightError: the path is a folder, is read-only, or its folder is missing or read-only.
    """
    if os.path.isdir(path):
        raise TilewrightError(f"{path} is a folder: name a file to write")
    if os.path.exists(path) and not _may_write(path, os.W_OK):
        raise TilewrightError(f"{path} is read-only: allow writing to it, or name another file")
    if is_stream(path):
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise TilewrightError(f"cannot write {path}: there is no folder {Path(path).parent}")
    if not _may_write(folder, os.W_OK | os.X_OK):
        raise TilewrightError(
            f"cannot write {path}: the folder {folder} is read-only; name another file"
        )


def _may_write(path: str | os.PathLike[str], access: int) -> bool:
    """Return whether the file is writable; the superuser respects the owner's protection, too."""
    return os.access(path, access) and bool(os.stat(path).st_mode & _WRITABLE)


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is written to in place: a device, a pipe, or an open file.

    An open file is one that is named by its descriptor, as ``/dev/stdout``. It could not be
    replaced, as those who have it open would not see the new file.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return True
    except OSError:
        return False
    return _descriptor(path) is not None


def _descriptor(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """Return the process and number of the descriptor that an existing path leads to, if any."""
    step = os.path.join(os.getcwd(), path)
    while True:
        # The last link is read by hand: the kernel's links to descriptors are not paths.
        step = os.path.join(os.path.realpath(os.path.dirname(step)), os.path.basename(step))
        if found := _DESCRIPTOR.fullmatch(step):
            return int(found[1]), int(found[2])
        if not os.path.islink(step):
            return None
        step = os.path.join(os.path.dirname(step), os.readlink(step))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8, as `write_bytes` does.

    Lone surrogates, which stand for the bytes of file names that are not UTF-8, become escapes.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file, completely or not at all.

    A link is followed, an existing file keeps its mode, and a stream (`is_stream`) is written to
    instead of being replaced, after what has been printed.

    Raises:
        TilewrightError: the file cannot be written; an existing file stays unchanged.
    """
    check_writable(path)
    try:
        if is_stream(path):
            with _opened(path) as file:
                file.write(data)
            return
        _replace(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {error.strerror or error}") from error


def edit_text(path: str | os.PathLike[str], edit: Callable[[str], str | None]) -> bool:
    """Change a text file that this user has written before, completely or not at all.

    The path may lead elsewhere by now. So a symbolic link, a device, a pipe, a read-only file and
    another user's file are left alone, and so is a file that changes during the edit.

    Args:
        path: the file, in UTF-8.
        edit: returns the new text from the present one, None to leave the file alone.

    Returns:
        Whether the file has the text that `edit` returns.
    """
    target = Path(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(target, flags), "rb") as file:
            found = os.fstat(file.fileno())
            if not _may_edit(found):
                return False
            old = file.read().decode()
        new = edit(old)
        if new is None:
            return False
        if new != old:
            check_writable(target)
            _replace(target, new.encode(), found)
    except (OSError, UnicodeError, TilewrightError):
        return False
    return True


def _may_edit(found: os.stat_result) -> bool:
    """Return whether a file is a regular file of this user, not larger than any page."""
    mine = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return mine and found.st_size <= _LARGEST_EDITED


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a stream; a descriptor of this process at the place up to which it is written."""
    process, number = _descriptor(path) or (0, 0)
    if process == os.getpid():
        if sys.stdout is not None:  # Python has none where the process began without
            sys.stdout.flush()
        return os.fdopen(os.dup(number), "wb")
    return open(path, "wb")


def _replace(target: Path, data: bytes, expected: os.stat_result | None = None) -> None:
    """Replace or create a file; raise OSError if the file is not the `expected` one any more."""
    # The name of the target may be as long as names can be, and end within a character.
    name = os.fsencode(target.name)[:_NAME_KEPT].decode(errors="ignore")
    prefix, suffix = f".{name}.", ".partial"
    remove_abandoned(target.parent, prefix, suffix)
    descriptor, partial = _new_file(target.parent, prefix, suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if target.exists():
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            if expected is not None and _version(os.lstat(target)) != _version(expected):
                raise OSError(f"{target} has been changed")
            partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _version(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _new_file(folder: Path, prefix: str, suffix: str) -> tuple[int, Path]:
    """Create a file for this process alone; return its locked descriptor and its path."""
    for number in itertools.count():
        path = folder / f"{prefix}{os.getpid()}-{number}{suffix}"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        if _lock(descriptor, path):
            return descriptor, path
    raise AssertionError("counting never ends")


def _lock(descriptor: int, path: Path) -> bool:
    """Lock a new file or folder; return False if another process has already removed it."""
    with contextlib.suppress(OSError):  # a file system without locks: nothing is removed there
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if path.exists():
        return True
    os.close(descriptor)
    return False


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a temporary folder, which is removed at the end of the block.

    If the process is killed, the next block with the same prefix removes the folder.

    Args:
        prefix: the beginning of the folder's name, used for this purpose only.
        parent: the folder to make it in, by default the system's for temporary files.

    Yields:
        The path of the folder.
    """
    within = parent or Path(tempfile.gettempdir())
    remove_abandoned(within, prefix)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if _lock(descriptor, path):
            break
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def remove_abandoned(folder: Path, prefix: str, suffix: str = "") -> None:
    """Remove this user's temporary files and folders whose process has ended.

    Args:
        folder: the folder to search.
        prefix: how their names begin, a prefix that nothing else uses.
        suffix: how their names end.
    """
    try:
        names = [n for n in os.listdir(folder) if n.startswith(prefix) and n.endswith(suffix)]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):  # in use, or another process was quicker
            _remove_unlocked(folder / name)


def _remove_unlocked(path: Path) -> None:
    """Remove a file or folder; raise OSError if its process is alive."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(found.st_mode):
            path.unlink()
    finally:
        os.close(descriptor)
