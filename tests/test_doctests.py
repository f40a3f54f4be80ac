"""The examples in docstrings print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import tilewright

SOURCE = Path(tilewright.__file__).parent
WITH_EXAMPLES = sorted(
    path.relative_to(SOURCE.parent).with_suffix("")
    for path in SOURCE.rglob("*.py")
    if "examples" not in path.parts and ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", [".".join(path.parts) for path in WITH_EXAMPLES])
def test_examples_in_docstrings_print_what_they_say(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    imported = importlib.import_module(module.removesuffix(".__init__"))
    failed, tried = doctest.testmod(imported)
    assert tried
    assert not failed
