"""A campaign's folder as one file, and where a campaign begins from.

A machine may hand back only a few files, so everything goes into one. The references are left
out: they are large and can be computed again.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tilewright.errors import TilewrightError

REFERENCES = "references"
PEERS = "peers.jsonl"
MADE = ("draws-*.pickle", "searched-*.pickle")
# Of the records' database, these are only there while a process has it open.
LEFT = ("-wal", "-shm", ".partial")


def write(folder: Path, path: Path) -> None:
    """Pack a campaign's files into `path`; an interrupted call leaves the old archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with tarfile.open(partial, "w:gz", compresslevel=6) as tar:
        for file in sorted(folder.iterdir()):
            inside = path.resolve() == file.resolve()
            if file.is_file() and not inside and not file.name.endswith(LEFT):
                tar.add(file, file.name)
    partial.replace(path)


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Take the plain files out of an archive, none of them outside of `folder`.

    Python before 3.11.4 has no filters for that.
    """
    for member in tar.getmembers():
        name = Path(member.name)
        if member.isfile() and not name.is_absolute() and ".." not in name.parts:
            tar.extract(member, folder)


def begin(folder: Path, path: Path | None, prepared: Path | None) -> None:
    """Fill an empty folder from an earlier archive, and add what was prepared.

    Args:
        folder: the campaign's.
        path: an archive that `write` made elsewhere; one that does not exist is ignored.
        prepared: what ``--prepare`` made. Its peers' schedules are taken where the campaign
            has none of its own, and other schedules likewise.

    Raises:
        TilewrightError: the archive cannot be read, or there is nothing at `prepared`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if path is not None and path.exists() and not any(folder.glob("*.jsonl")):
        try:
            with tarfile.open(path) as tar:
                _extract(tar, folder)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise TilewrightError(
                f"{path} is damaged ({error}): remove it to begin again, or copy it again"
            ) from error
    if prepared is None:
        return
    if not prepared.is_dir():
        raise TilewrightError(f"there is no folder {prepared}: make it with --prepare")
    for source in prepared_files(prepared):
        if not (folder / source.name).exists():
            shutil.copyfile(source, folder / source.name)


def prepared_files(prepared: Path) -> list[Path]:
    """What ``--prepare`` has made, without the references."""
    peers = prepared / PEERS
    made = [file for pattern in MADE for file in sorted(prepared.glob(pattern))]
    return [*([peers] if peers.exists() else []), *made]
