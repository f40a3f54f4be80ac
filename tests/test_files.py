"""Files for users: links, devices, modes, and places that cannot be written."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from tilewright import files
from tilewright.errors import TilewrightError
from tilewright.files import (
    check_writable,
    edit_text,
    remove_abandoned,
    scratch_folder,
    write_bytes,
    write_text,
)


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "one")
    path.chmod(0o640)
    write_text(path, "zwölf")
    assert path.read_text(encoding="utf-8") == "zwölf"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(tmp_path, exists):
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_text("before")
    link.symlink_to(target)
    write_text(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_a_device_stays_a_device():
    before = os.stat("/dev/null")
    write_text("/dev/null", "text")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.stat("/dev/null").st_ino == before.st_ino


def test_a_pipe_gets_the_text(tmp_path):
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_text()))
    reader.start()
    write_text(path, "text")
    reader.join()
    assert got == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_pipe_without_a_name_gets_the_text():
    """A shell's ``>(command)`` is such a path."""
    read, write = os.pipe()
    check_writable(f"/dev/fd/{write}")
    write_text(f"/dev/fd/{write}", "text")
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "text"


@pytest.mark.parametrize("link", [False, True])
def test_an_open_file_is_continued_and_not_replaced(tmp_path, link):
    path, place = tmp_path / "printed", tmp_path / "link"
    with path.open("w") as file:
        file.write("printed, ")
        file.flush()
        name = f"/dev/fd/{file.fileno()}"
        place.symlink_to(name)
        check_writable(place if link else name)
        write_text(place if link else name, "written")
        file.write(", printed")
    assert path.read_text() == "printed, written, printed"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "printed"]


def test_printed_text_comes_before_files_written_to_standard_output():
    code = "from tilewright.files import write_text; print(1); write_text('/dev/stdout', '2')"
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=buffered, capture_output=True, check=True
    )
    assert done.stdout == b"1\n2"


def test_file_names_that_are_not_utf_8(tmp_path):
    path = tmp_path / "caf\udce9.txt"
    write_text(path, path.name)
    assert path.read_text() == "caf\\udce9.txt"


@pytest.mark.parametrize("name", ["é" * 120, "語" * 80])
def test_a_name_may_be_as_long_as_names_can_be(tmp_path, name):
    write_text(tmp_path / name, "text")
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_the_superuser_keeps_to_the_protection_of_a_folder(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(TilewrightError, match=r"the folder .* is read-only"):
        write_text(tmp_path / "file", "text")
    tmp_path.chmod(0o755)


def test_unwritable_paths_are_refused_beforehand(tmp_path):
    protected = tmp_path / "protected"
    protected.write_text("mine")
    protected.chmod(0o444)
    for path, said in (
        (protected, "read-only"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "file", "no folder"),
    ):
        with pytest.raises(TilewrightError, match=said):
            check_writable(path)
        with pytest.raises(TilewrightError, match=said):
            write_text(path, "text")
    assert protected.read_text() == "mine"


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(TypeError):
        write_bytes(path, "text")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tilewright import files
from tilewright.errors import TilewrightError
folder = Path(sys.argv[1])
with files.scratch_folder("tilewright-test-", folder) as made:
    (made / "file").write_text("text")
    files._new_file(folder, ".page.html.", ".partial")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_edit_changes_a_plain_file_and_keeps_its_mode(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("one\r\n", newline="")
    path.chmod(0o600)
    assert edit_text(path, str.upper)
    assert path.read_bytes() == b"ONE\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not edit_text(path, lambda _: None)
    assert path.read_bytes() == b"ONE\r\n"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("mode", [0o444, 0o555])
def test_an_edit_leaves_other_files_alone(tmp_path, mode):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"one")
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path, tmp_path / "none", tmp_path / "none" / "none", "/dev/null"):
        assert not edit_text(path, lambda _: "two")
    protected = tmp_path if mode & stat.S_IXUSR else target
    protected.chmod(mode)
    assert not edit_text(target, lambda _: "two")
    tmp_path.chmod(0o755)
    assert target.read_bytes() == b"one"
    assert link.is_symlink()
    target.chmod(0o644)
    target.write_bytes(b"\xff")
    assert not edit_text(target, lambda _: "two")
    os.truncate(target, 2**26 + 1)
    assert not edit_text(target, lambda _: "two")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "target"]


@pytest.mark.parametrize("becomes", ["text", "link"])
def test_an_edit_keeps_what_another_process_writes_meanwhile(tmp_path, becomes):
    path, other = tmp_path / "page.html", tmp_path / "other"
    path.write_text("one")
    other.write_text("other")

    def edit(text):
        if becomes == "link":
            path.unlink()
            path.symlink_to(other)
        else:
            write_text(path, "another")
        return text + "!"

    assert not edit_text(path, edit)
    assert path.read_text() == ("other" if becomes == "link" else "another")
    assert path.is_symlink() == (becomes == "link")
    assert other.read_text() == "other"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "page.html"]


def test_the_next_process_removes_what_a_killed_one_has_left(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    write_text(tmp_path / "page.html", "text")
    with scratch_folder("tilewright-test-", tmp_path) as folder:
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            "page.html",
            folder.name,
        ]
        # What is in use stays.
        with scratch_folder("tilewright-test-", tmp_path) as other:
            assert folder.is_dir()
            assert other != folder
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_nothing_is_removed_that_is_not_a_plain_file_or_folder(tmp_path):
    kept, link = tmp_path / "kept", tmp_path / "x-link"
    kept.mkdir()
    link.symlink_to(kept)
    os.mkfifo(tmp_path / "x-pipe")
    (tmp_path / "x-file").touch()
    remove_abandoned(tmp_path, "x-")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "x-link", "x-pipe"]
    remove_abandoned(tmp_path / "missing", "x-")


def test_a_draft_that_another_process_takes_away_is_made_again(tmp_path, monkeypatch):
    """Between making a folder and locking it there is a moment in which it looks abandoned."""
    lock = files._lock
    taken: list = []

    def late(descriptor, path):
        if not taken:
            taken.append(path)
            path.rmdir()
        return lock(descriptor, path)

    monkeypatch.setattr(files, "_lock", late)
    with scratch_folder("x-", tmp_path) as folder:
        assert folder.is_dir()
        assert folder != taken[0]
