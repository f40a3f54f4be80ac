"""Candidates are named by what sets them apart from the first."""

from dataclasses import replace

import pytest

from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import INLINE, ROOT, FuncSchedule, Schedule
from tilewright.halide.report.distinctions import distinctions

BLUR = GroupReport(("across$1", "blur"), "blur", tile=(64, 48), parallel_tasks=8, vector_width=16)
GRAY = GroupReport(("gray",), "gray", tile=(128,), parallel_tasks=4, vector_width=16)


def plan(*groups, compute=ROOT):
    schedule = Schedule("0" * 64, "host", (FuncSchedule(0, compute, compute),))
    return PlannedSchedule(schedule, groups, 1.0)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ((replace(BLUR, tile=(32, 48)), GRAY), "blur in tiles of 32x48"),
        ((replace(BLUR, tile=()), GRAY), "blur in tiles of one piece"),
        ((replace(BLUR, funcs=("blur",)), GRAY), "across inlined"),
        ((BLUR, replace(GRAY, funcs=("light", "gray"))), "light stored"),
        ((replace(BLUR, funcs=("gray", "across$1", "blur")),), "gray in the group of blur"),
        ((BLUR, GRAY, replace(GRAY, output="across$1")), "across in a separate group"),
        ((replace(BLUR, vector_width=0), GRAY), "blur in vectors of 1"),
        ((replace(BLUR, parallel_tasks=1), GRAY), "blur in 1 task"),
        ((replace(BLUR, threads=(32, 4)), GRAY), "blur in blocks of 32x4 threads"),
        # Twice as many tasks follow from smaller tiles.
        ((replace(BLUR, tile=(32, 48), parallel_tasks=16), GRAY), "blur in tiles of 32x48"),
        (
            (replace(BLUR, tile=(32, 8), vector_width=8), replace(GRAY, tile=(8,))),
            "blur in tiles of 32x8; gray in tiles of 8; 1 more",
        ),
    ],
)
def test_a_candidate_is_named_by_what_differs(groups, said):
    assert distinctions([plan(BLUR, GRAY), plan(*groups, compute=INLINE)]) == ("", said)


def test_differences_outside_groups_are_described_in_general():
    first = plan(BLUR)
    assert distinctions([first, first, plan(BLUR, compute=INLINE)]) == (
        "",
        "",
        "other loop orders or store levels",
    )
    assert distinctions([]) == ()
