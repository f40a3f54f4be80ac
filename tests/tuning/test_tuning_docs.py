"""The examples of docs/tuning.md, one after the other in one program."""

import argparse
import re
from pathlib import Path

from tilewright.cli import parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 7
    space: dict[str, object] = {"__name__": "tuning_examples"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"example {number}", "exec"), space)
    said = capsys.readouterr().out
    assert "'tile': 32, 'unroll': 4" in said
    assert "\nTrue\n" in said
    assert said.rstrip().endswith("seconds")
    assert "<html" in (tmp_path / "tuning.html").read_text(encoding="utf-8")


def test_the_options_named_are_the_commands():
    page = PAGE.read_text(encoding="utf-8")
    tune = page[page.index("## On the command line") : page.index("## Halide schedules")]
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    known = commands.choices["tune"]
    named = set(re.findall(r"--[a-z][a-z-]+", tune))
    assert named <= set(known._option_string_actions)
    assert len(named) >= 10
