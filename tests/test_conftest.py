"""How all tests run, checked in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SESSION = """
import tempfile, types
from multiprocessing import util
import conftest

config = types.SimpleNamespace()
conftest.pytest_configure(config)
print(util.get_temp_dir())
print(tempfile.mkdtemp())
conftest.pytest_unconfigure(config)
"""


def test_temporary_folders_are_removed_in_any_order(tmp_path):
    """Also where the folder of the process that started this one is gone already."""
    outer, shared = tmp_path / "outer", tmp_path / "shared"
    outer.mkdir()
    shared.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", f"{SESSION}import os; os.rmdir({str(outer)!r})"],
        cwd=Path(__file__).parent,
        env={**os.environ, "TMPDIR": str(outer), "PYTEST_DEBUG_TEMPROOT": str(shared)},
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    made = [Path(line) for line in ended.stdout.split()]
    assert len(made) == 2
    assert not any(path.exists() for path in made)
    assert not list(shared.iterdir())
