"""Finds the OpenCL platform that Tilewright uses: the first that works.

An installed platform does not necessarily work: a driver may be older than the processor and fail,
crash or hang when it compiles the first kernel. Each platform is therefore tried once, in a
separate process (`tilewright.machines.opencl_trial`), before any process loads it. The result holds
for this process and, through an environment variable, for all processes that it starts.

The platforms of the system come first (the ICD loader ``libOpenCL.so.1`` and what
``/etc/OpenCL/vendors`` lists), then PoCL from the wheels of the ``opencl`` extra.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError

# Holds the platform found, as JSON, for this process and those that it starts.
VARIABLE = "TILEWRIGHT_OPENCL"
# Halide's runtime takes the first platform whose name contains this variable's text.
_HALIDE_PLATFORM = "HL_OCL_PLATFORM_NAME"
_SYSTEM_LOADER = "libOpenCL.so.1"
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_TRIAL = Path(__file__).with_name("opencl_trial.py")
# Compiling a kernel takes a second; much more than that on a machine that is busy.
_TRIAL_SECONDS = 120.0
_CURE = (
    "on Debian or Ubuntu `apt-get install pocl-opencl-icd` installs one that runs on CPUs, and "
    "`apt-get install oclgrind` one that runs everywhere, slowly"
)


class OpenclError(TilewrightError):
    """No OpenCL platform works here."""


@dataclass(frozen=True)
class OpenClLoader:
    """A loader of platforms: its library and the environment that it needs."""

    what: str
    loader: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenclPlatform:
    """A platform that built and ran a kernel with the right answer.

    `loader` is the library to load and `environment` the variables to set before. `devices` are
    facts of its devices as JSON data (see `tilewright.machines.opencl_trial.describe`).
    """

    name: str
    loader: str
    environment: Mapping[str, str]
    devices: tuple[Mapping[str, Any], ...]


def opencl_platform() -> OpenclPlatform:
    """Return the platform to use; it is looked for once per process tree.

    Raises `OpenclError`, with the cause and the cure in one sentence, if none works.
    """
    known = os.environ.get(VARIABLE)
    if known is None:
        found = find_platform(drivers(), os.environ.get(_HALIDE_PLATFORM, ""))
        known = json.dumps(found if isinstance(found, str) else asdict(found))
        os.environ[VARIABLE] = known
    data = json.loads(known)
    if isinstance(data, str):
        raise OpenclError(data)
    return OpenclPlatform(**{**data, "devices": tuple(data["devices"])})


def opencl_failure() -> str | None:
    """Return why there is no OpenCL here, in one sentence with the cure; None if there is."""
    try:
        opencl_platform()
    except OpenclError as error:
        return str(error)
    return None


def load_opencl() -> OpenclPlatform:
    """Let Halide and pyopencl use the working platform in this process.

    Call it before Halide runs anything for an OpenCL target: Halide's runtime looks for OpenCL in
    the process before it looks for a system library.

    Raises `OpenclError` if no platform works.
    """
    platform = opencl_platform()
    os.environ.update(platform.environment)
    try:
        ctypes.CDLL(platform.loader, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise OpenclError(f"the OpenCL loader {platform.loader} is gone: {error}") from None
    return platform


def drivers() -> list[OpenClLoader]:
    """Return the loaders to try: the system's, then those of the ``opencl`` extra."""
    found = []
    package = _pyopencl()
    libraries = package / ".libs" if package else None
    # The wheel's loader crashes where PYOPENCL_HOME is not set.
    home = {"PYOPENCL_HOME": str(package)}
    own_loaders = sorted(libraries.glob("libOpenCL*.so*")) if libraries else []
    try:
        ctypes.CDLL(_SYSTEM_LOADER)
    except OSError:
        if own_loaders and any(_SYSTEM_VENDORS.glob("*.icd")):
            environment = {**home, "OCL_ICD_VENDORS": str(_SYSTEM_VENDORS)}
            found.append(OpenClLoader("the system", str(own_loaders[0]), environment))
    else:
        found.append(OpenClLoader("the system", _SYSTEM_LOADER))
    if libraries and own_loaders:
        # The loader takes a driver's library instead of a folder of drivers.
        for pocl in sorted(libraries.glob("libpocl*.so*")):
            environment = {**home, "OCL_ICD_VENDORS": str(pocl)}
            found.append(
                OpenClLoader(
                    "the package pocl-binary-distribution", str(own_loaders[0]), environment
                )
            )
    return found


def find_platform(candidates: Iterable[OpenClLoader], wanted: str = "") -> OpenclPlatform | str:
    """Return the first platform that passes its trial, or one sentence that says why there is none.

    Only platforms whose names contain `wanted` are tried.
    """
    failures = []
    for driver in candidates:
        listed = trial(driver, None)
        if "failure" in listed:
            failures.append(f"the loader of {driver.what} does not work ({listed['failure']})")
        for index, name in enumerate(listed.get("platforms", [])):
            if wanted not in name:
                continue
            tried = trial(driver, index)
            if "failure" not in tried:
                environment = {_HALIDE_PLATFORM: name, **driver.environment}
                return OpenclPlatform(name, driver.loader, environment, tuple(tried["devices"]))
            failures.append(
                f"{name} of {driver.what} does not run a trivial kernel on this machine "
                f"({tried['failure']})"
            )
    named = f" called {wanted!r}" if wanted else ""
    cause = ", and ".join(failures) or f"there is no platform{named}"
    return f"no OpenCL platform works here: {cause}; {_CURE}"


def trial(driver: OpenClLoader, platform: int | None) -> dict[str, Any]:
    """Run the trial process; return its answer, or a ``failure`` if it crashes or hangs."""
    # A kernel from PoCL's cache would not test its compiler.
    environment = {**os.environ, "POCL_KERNEL_CACHE": "0", **driver.environment}
    asked = json.dumps({"loader": driver.loader, "platform": platform})
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_TRIAL), asked],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"it does not end in {_TRIAL_SECONDS:g} s"}
    if done.returncode < 0:
        return {"failure": f"it crashes, {signal.Signals(-done.returncode).name}"}
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {"failure": f"it ends with exit code {done.returncode}"}
    return dict(answer)


def _pyopencl() -> Path | None:
    """Return the folder of pyopencl, which is looked for, not imported."""
    spec = importlib.util.find_spec("pyopencl")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
