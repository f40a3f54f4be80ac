"""Generated kernels in Oclgrind: no races, nothing out of bounds, nothing read before written."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("opencl_programs.py")
OCLGRIND = shutil.which("oclgrind")
pytestmark = [
    pytest.mark.opencl,
    pytest.mark.skipif(OCLGRIND is None, reason="no oclgrind: apt-get install oclgrind"),
]


def simulated(tmp_path, *words):
    """What Oclgrind says of a kernel."""
    log = tmp_path / "log"
    command = [OCLGRIND, "--data-races", "--uninitialized", "--log", str(log)]
    command += [sys.executable, str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("ran ")
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("name", ["jacobi5", "hotspot", "dot"])
@pytest.mark.parametrize("number", [0, -1])
def test_kernels_run_without_alarms(tmp_path, name, number):
    assert simulated(tmp_path, name, str(number)).strip() == ""


def test_a_missing_barrier_is_an_alarm(tmp_path):
    assert "data race" in simulated(tmp_path, "jacobi5", "0", "--no-barriers")
