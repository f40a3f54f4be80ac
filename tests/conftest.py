"""Tests marked ``opencl`` run where an OpenCL driver is at hand; else their number is said."""

import pytest
from hypothesis import settings

from tilewright.halide.execution.opencl import load_pocl

# How long an example takes depends on who else uses the machine.
settings.register_profile("tilewright", deadline=None, derandomize=True)
settings.load_profile("tilewright")

NOT_RUN = pytest.StashKey[int]()


def pytest_collection_modifyitems(config, items):
    marked = [item for item in items if item.get_closest_marker("opencl")]
    if marked and not load_pocl():
        items[:] = [item for item in items if item not in marked]
        config.hook.pytest_deselected(items=marked)
        config.stash[NOT_RUN] = len(marked)


def pytest_terminal_summary(terminalreporter, config):
    count = config.stash.get(NOT_RUN, 0)
    if count:
        terminalreporter.write_line(
            f"{count} tests were not run: they need an OpenCL driver (pip install '.[opencl]')"
        )
