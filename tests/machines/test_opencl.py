"""Only a platform that has run a kernel is used, and what is wrong with the others is said."""

import ctypes
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import detect_opencl, load_opencl, opencl, opencl_failure

SOURCE = Path(__file__).with_name("fake_opencl.c")


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    library = tmp_path_factory.mktemp("opencl") / "libFakeOpenCL.so"
    compiler = sysconfig.get_config_var("CC").split()[0]
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return str(library)


@pytest.fixture
def fake(loader, monkeypatch):
    """Makes the fake loader, with platforms of the given kinds, all that there is here."""

    def present(kinds):
        driver = opencl.OpenClLoader("the test", loader, {"FAKE_OPENCL": kinds})
        monkeypatch.setattr(opencl, "drivers", lambda: [driver])
        return driver

    # Set first, so that the process has its own values again afterwards, or none.
    for variable in (opencl.VARIABLE, "HL_OCL_PLATFORM_NAME", "FAKE_OPENCL"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    return present


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("b", "Fake b of the test does not run a trivial kernel on this machine (clBuildProgram"),
        ("c", "it crashes, SIGSEGV"),
        ("w", "its answer is wrong"),
        ("x", "it ends with exit code 3"),
        ("", "there is no platform"),
    ],
)
def test_a_platform_that_does_not_work_is_named_with_the_cure(fake, capfd, kind, cause):
    fake(kind)
    said = opencl_failure()
    assert said.startswith("no OpenCL platform works here: ")
    assert cause in said
    assert "pocl-opencl-icd" in said
    assert "oclgrind" in said
    assert "\n" not in said
    # A compiler's text is for nobody but its makers.
    assert "unknown target CPU" not in said + "".join(capfd.readouterr())
    assert detect_opencl() == []
    with pytest.raises(TilewrightError, match="no OpenCL platform works here"):
        load_opencl()


def test_a_platform_that_hangs_is_given_up(fake, monkeypatch):
    monkeypatch.setattr(opencl, "_TRIAL_SECONDS", 0.5)
    driver = fake("h")
    assert "does not end" in opencl.trial(driver, 0)["failure"]


def test_a_loader_that_cannot_be_loaded_is_named():
    driver = opencl.OpenClLoader("nowhere", "/nowhere/libOpenCL.so")
    assert "the loader of nowhere does not work" in opencl.find_platform([driver])


def test_the_first_that_works_is_used_and_described(fake):
    fake("cbgw")
    platform = load_opencl()
    assert platform.name == "Fake g"
    assert os.environ["HL_OCL_PLATFORM_NAME"] == "Fake g"
    (machine,) = detect_opencl()
    assert machine.name == "Fake device (Fake g)"
    assert machine.api == "opencl"
    assert (machine.sms, machine.max_threads_per_block, machine.shared_per_block) == (64, 64, 64)
    assert machine.features == ("cl_doubles",)


def test_a_loader_given_by_name_is_the_only_one_tried(fake, monkeypatch):
    fake("gbg")
    monkeypatch.setenv("HL_OCL_PLATFORM_NAME", "Fake b")
    assert "Fake b of the test" in opencl_failure()
    assert "Fake g" not in opencl_failure()


def test_processes_that_are_started_use_what_was_found(fake, monkeypatch):
    fake("g")
    assert opencl_failure() is None
    monkeypatch.setattr(opencl, "trial", None)  # nothing is tried again, here
    assert load_opencl().name == "Fake g"
    code = (
        "from tilewright.machines import load_opencl, opencl\n"
        "opencl.drivers = opencl.trial = None\n"
        "print(load_opencl().name)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "Fake g\n"
    monkeypatch.setenv(opencl.VARIABLE, json.dumps("nothing works"))
    assert opencl_failure() == "nothing works"


def test_the_systems_platforms_come_before_the_wheels(monkeypatch, tmp_path):
    (tmp_path / "pyopencl" / ".libs").mkdir(parents=True)
    for name in ("libOpenCL-5.so.1.0.0", "libpocl-2.so"):
        (tmp_path / "pyopencl" / ".libs" / name).touch()
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    monkeypatch.setattr(opencl, "_pyopencl", lambda: tmp_path / "pyopencl")
    monkeypatch.setattr(opencl, "_SYSTEM_VENDORS", vendors)

    def systems(works):
        def library(name, mode=0):
            if not works:
                raise OSError(name)

        monkeypatch.setattr(ctypes, "CDLL", library)
        return [driver.what for driver in opencl.drivers()]

    wheel = "the package pocl-binary-distribution"
    assert systems(works=True) == ["the system", wheel]
    assert systems(works=False) == [wheel]
    (vendors / "pocl.icd").touch()
    assert systems(works=False) == ["the system", wheel]
    monkeypatch.setattr(opencl, "_pyopencl", lambda: None)
    assert systems(works=False) == []


@pytest.mark.opencl
def test_the_platform_of_this_machine_is_described():
    (machine, *_) = detect_opencl()
    assert machine.halide_target.startswith("host-opencl")
    assert machine.max_threads_per_block >= 1
    assert machine.shared_per_block > 0
