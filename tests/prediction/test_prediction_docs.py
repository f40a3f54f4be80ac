"""The examples of docs/prediction.md, one after the other in one program."""

import re
from pathlib import Path

from tilewright.cli import parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")


def commands():
    known = next(a for a in parser()._actions if a.dest == "command").choices["predict"]
    return next(a for a in known._actions if a.dest == "predict_command").choices


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 6
    space: dict[str, object] = {"__name__": "prediction_examples"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"example {number}", "exec"), space)
    said = capsys.readouterr().out
    assert "log(m)" in said
    assert "quick_start" in said
    assert "<html" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_the_options_named_are_the_commands():
    table = PAGE[PAGE.index("| command | options |") : PAGE.index("Without `--target`")]
    for name, command in commands().items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", table, re.MULTILINE)
        named = set(re.findall(r"--?[a-z][a-z-]*", row))
        known = set(command._option_string_actions) - {"-h", "--help", "-q", "--quiet", "--output"}
        assert named == known, name


def test_the_command_lines_of_the_page_are_understood():
    top = parser()
    lines = re.findall(r"^\$ tilewright (predict .*)$", PAGE, re.MULTILINE)
    assert len(lines) >= 8
    for line in lines:
        words = [word.strip('"') for word in line.split()]
        assert top.parse_args(words).predict_command == words[1]
