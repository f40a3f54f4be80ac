"""What one shot chooses stays as it is kept, unless someone means to change it."""

import difflib

import pytest
from golden_schedules import FOLDER, MACHINES, PROGRAMS, QUICK, chosen, place


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("program", QUICK)
def test_the_schedule_is_the_one_kept(program, target):
    kept = place(program, target).read_text(encoding="utf-8").splitlines()
    now = chosen(program, target).splitlines()
    changed = list(difflib.unified_diff(kept, now, "kept", "now", lineterm=""))
    assert changed == [], "if this is meant, keep it: make golden"


def test_every_program_has_a_schedule_for_every_machine():
    kept = {place(program, target) for program in PROGRAMS for target in MACHINES}
    assert kept == set(FOLDER.iterdir())
