import json
import subprocess
import sys
from pathlib import Path

import pytest

# Stencils, a data-dependent grid, reductions in registers, scans, scatters.
PROGRAMS = ["harris:nested", "bilateral_grid:overlapped", "conv_layer:nested", "iir_blur:none",
            "histogram:nested"]  # fmt: skip


@pytest.fixture(scope="module")
def results():
    script = Path(__file__).with_name("launched.py")
    done = subprocess.run(
        [sys.executable, str(script), *PROGRAMS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_launches_are_as_predicted(results, program):
    ((predicted, launched),) = [r[2:] for r in results if f"{r[0]}:{r[1]}" == program]
    assert launched
    assert predicted == launched
