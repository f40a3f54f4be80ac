"""README, tutorials and how-to pages run from top to bottom, as a reader would paste them.

Those that take long are in test_long_documents.py.
"""

import re
import shlex
from collections import Counter

import pytest
from documents import (
    LONG_PAGES,
    NEEDS,
    PAGES,
    Block,
    Ran,
    Session,
    blocks,
    clone,
    commands,
    shell_path,
    text_of,
)

from tilewright.cli import parser

SHORT_PAGES = [page for page in PAGES if page not in LONG_PAGES]
# Blocks that need what a test has not; a page may not grow more of them unseen.
LEFT_OUT = {"gpu": 1, "network": 2, "quiet machine": 2}

# What identical lines of several pages did: they share the cache directory, too.
SEEN: dict[tuple[object, ...], Ran] = {}


@pytest.mark.parametrize("page", SHORT_PAGES)
def test_page_runs_as_pasted(page, tmp_path, monkeypatch):
    folder = clone(tmp_path)
    monkeypatch.chdir(folder)
    found = blocks(text_of(page))
    assert Session(page, folder, shell_path(tmp_path), SEEN).run(found) >= 1


def test_width_of_columns_does_not_matter(tmp_path):
    command = "printf 'name  time\\n----  ------\\nx     1.25 s\\n'"
    page = f"```console\n$ {command}\nname  time\n---- ---\nx ...\n```\n"
    Session("page", tmp_path, shell_path(tmp_path), {}).run(blocks(page))


def test_few_blocks_are_left_out():
    needs = Counter(b.needs for page in PAGES for b in blocks(text_of(page)) if b.needs)
    assert {need: needs[need] for need in NEEDS} == LEFT_OUT


@pytest.mark.parametrize("page", PAGES)
def test_lines_that_are_left_out_are_understood(page):
    """Options of commands exist, and so do the targets of make."""
    targets = set(re.findall(r"^(\w+):", text_of("Makefile"), re.MULTILINE))
    for block in blocks(text_of(page)):
        if block.needs is None or block.language != "console":
            continue
        for command in commands(block):
            words = shlex.split(command.line, comments=True)
            if words[0] == "tilewright":
                assert parser().parse_args(words[1:]).command == words[1]
            elif words[0] == "make":
                assert words[1] in targets


def test_blocks_are_read_with_their_notes():
    page = "one\n<!-- needs: gpu -->\n```console\n$ a \\\n    b\nsays\nthis\n$ c\n```\n"
    (block,) = blocks(page)
    assert block == Block("console", "$ a \\\n    b\nsays\nthis\n$ c\n", 4, "gpu", 0)
    first, second = commands(block)
    assert (first.line, first.shown) == ("a \\\n    b", "says\nthis\n")
    assert (second.line, second.shown) == ("c", "")
    with pytest.raises(ValueError):
        blocks(page.replace("gpu", "patience"))


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ exit 3\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nnothing\n```\n",
    ],
)
def test_a_page_that_does_not_hold_is_found(page, tmp_path):
    with pytest.raises((AssertionError, NameError)):
        Session("page", tmp_path, shell_path(tmp_path), {}).run(blocks(page))


def test_a_line_of_two_pages_runs_once_where_its_files_are_the_same(tmp_path):
    page = blocks("```console\n$ cat given >> out/file; echo said\nsaid\n```\n")
    seen: dict[tuple[object, ...], Ran] = {}
    for name, given in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name / "out").mkdir(parents=True)
        (tmp_path / name / "given").write_text(given)
        Session(name, tmp_path / name, shell_path(tmp_path), seen).run(page)
        assert (tmp_path / name / "out" / "file").read_text() == given
    assert len(seen) == 2
