"""The package as a whole: what importing it costs, what it offers."""

import subprocess
import sys

import pytest

import tilewright


def test_importing_it_imports_nothing_heavy():
    code = (
        "import sys, tilewright; dir(tilewright); "
        "print([m for m in ('halide', 'numpy', 'scipy', 'rich', 'sqlite3') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_found():
    from tilewright.halide.autoschedule import schedule

    assert tilewright.schedule is schedule
    assert set(vars(tilewright)["__all__"]) <= set(dir(tilewright))
    wrong = "shedule"
    with pytest.raises(AttributeError, match=wrong):
        getattr(tilewright, wrong)
