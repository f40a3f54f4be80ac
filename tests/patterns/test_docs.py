"""The examples of the documentation run, one after the other."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs/patterns.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_examples_run_and_print_what_is_shown(tmp_path, capsys):
    blocks = BLOCK.findall(DOCS.read_text())
    assert len(blocks) >= 6
    known = {}
    for code, shown in blocks:
        script = tmp_path / "example.py"
        script.write_text(code)
        exec(compile(code, str(script), "exec"), known)
        printed = capsys.readouterr().out
        if shown:
            assert printed.replace(f"{tmp_path}/", "") == shown
