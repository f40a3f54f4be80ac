"""The package as a whole: what importing it costs, what it offers."""

import importlib
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


def test_what_it_offers_is_found_by_name():
    from tilewright.halide.autoschedule import schedule

    assert tilewright.schedule is schedule
    assert set(tilewright.__all__) <= set(dir(tilewright))
    with pytest.raises(AttributeError, match="shedule"):
        tilewright.shedule  # noqa: B018


EARLIER_NAMES = {
    "machines": {"Limits": "CapabilityLimits"},
    "mapping": {"Plan": "MappingPlan", "Step": "PlanStep", "Task": "GraphTask"},
    "measure": {"Interval": "ConfidenceInterval", "Limits": "RunLimits"},
    "patterns": {
        "Kernel": "CompiledPattern",
        "Launch": "ThreadGrid",
        "MappingError": "LoweringError",
        "nodes.Level": "MapLevel",
        "rewriting.Settings": "ExplorationSettings",
    },
    "prediction": {"Variant": "KernelVariant", "kernels.Variant": "KernelVariant"},
    "records": {
        "Outcome": "TrialOutcome",
        "Record": "MeasurementRecord",
        "Trial": "CandidateTrial",
    },
    "report": {"Node": "GraphNode"},
    "tuning": {"Result": "TuningResult"},
}


@pytest.mark.parametrize("room", EARLIER_NAMES)
def test_earlier_names_go_on_working(room):
    for earlier, name in EARLIER_NAMES[room].items():
        *folder, leaf = earlier.split(".")
        module = importlib.import_module(".".join(["tilewright", room, *folder]))
        assert getattr(module, leaf) is getattr(module, name)
