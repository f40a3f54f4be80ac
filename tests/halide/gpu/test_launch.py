import json
import subprocess
import sys
from pathlib import Path

import pytest

# Stencils, reductions in registers, scans.
PROGRAMS = ["harris:nested", "conv_layer:nested", "iir_blur:none"]
# A data-dependent grid, scatters.
OTHERS = ["bilateral_grid:overlapped", "histogram:nested"]


def results(programs):
    script = Path(__file__).with_name("launched.py")
    done = subprocess.run(
        [sys.executable, str(script), *programs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(programs):
    found = results(programs)
    assert [f"{name}:{mode}" for name, mode, *_ in found] == list(programs)
    for program, (_, _, predicted, launched) in zip(programs, found, strict=True):
        assert launched, program
        assert predicted == launched, program


def test_launches_are_as_predicted():
    check(PROGRAMS)


@pytest.mark.thorough
def test_launches_of_other_kinds_are_as_predicted():
    check(OTHERS)
