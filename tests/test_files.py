"""Files for users: links, devices, modes, and places that cannot be written."""

import os
import stat
import threading

import pytest

from tilewright.errors import TilewrightError
from tilewright.files import check_writable, write_text


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


def test_what_cannot_be_written_is_refused_beforehand(tmp_path):
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
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\udc00")
    assert path.read_text() == "before"
