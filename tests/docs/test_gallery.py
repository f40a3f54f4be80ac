"""The gallery lists the programs as they are; schedules are not made for it."""

import ast
import re

import pytest
from documents import ROOT

import make_gallery

GALLERY = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
PROGRAMS = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def section(name):
    """What the page says of a program."""
    return re.split(r"^## .*$", GALLERY.partition(f"\n## {name}\n")[2], flags=re.MULTILINE)[0]


def test_every_example_is_there():
    assert re.findall(r"^## (.*)$", GALLERY, re.MULTILINE) == PROGRAMS
    assert GALLERY.startswith(make_gallery.INTRODUCTION)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_described_as_in_its_file(name):
    tree = ast.parse((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"))
    text = section(name)
    assert text.strip().startswith((ast.get_docstring(tree) or "").split("\n\n")[0])
    (command,) = re.findall(r"^`tilewright schedule (.*)`$", text, re.MULTILINE)
    path, _, function = command.partition(":")
    assert (ROOT / path).is_file()
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    machines = re.findall(r"^(.*): predicted time (?!unknown)", text, re.MULTILINE)
    assert machines == [make_gallery.CPU.name, "NVIDIA H100 SXM5"]
