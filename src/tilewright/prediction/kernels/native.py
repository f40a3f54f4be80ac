"""Compiles C++ sources of the library at first use, caches and loads them with ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tilewright.files import scratch_folder
from tilewright.prediction.errors import PredictionError
from tilewright.records import cache_directory

SOURCES = Path(__file__).parent / "source"
FLAGS = ("-std=c++17", "-O3", "-march=native", "-DNDEBUG", "-w", "-shared", "-fPIC")
SYSTEM_INCLUDES = ("/usr/include", "/usr/local/include")
COMPILE_SECONDS = 300


def compiler() -> str | None:
    """Return the C++ compiler: the environment variable CXX, else the first found."""
    named = os.environ.get("CXX")
    names = [named] if named else ["g++", "clang++", "c++"]
    return next((found for name in names if (found := shutil.which(name))), None)


@cache
def eigen_include() -> Path | None:
    """Return the directory with ``Eigen/Dense``: of the wheel ``cmeel-eigen``, or the system's."""
    roots = [sysconfig.get_path("purelib"), site.getusersitepackages(), *sys.path]
    places = [Path(root) / "cmeel.prefix/include/eigen3" for root in roots if root]
    places += [Path(include) / "eigen3" for include in SYSTEM_INCLUDES]
    return next((p for p in places if (p / "Eigen/Dense").is_file()), None)


@cache
def boost_include() -> Path | None:
    """Return the directory with ``boost/numeric/ublas``: of ``boost-headers``, or the system's."""
    spec = importlib.util.find_spec("boost_headers")
    roots = list(spec.submodule_search_locations or []) if spec is not None else []
    places = [*(Path(root) / "include" for root in roots), *map(Path, SYSTEM_INCLUDES)]
    return next((p for p in places if (p / "boost/numeric/ublas/matrix.hpp").is_file()), None)


def built(source: str, flags: Sequence[str], directory: Path | None = None) -> Path:
    """Return the shared library of a source file, compiled unless it is in the cache directory.

    Its name is a hash of the sources, the compiler's version, the flags, and the processor,
    for which it is optimised. Two processes may compile at the same time.

    Raises:
        PredictionError: there is no compiler, or it fails; the message has its first error.
    """
    found = compiler()
    if found is None:
        raise PredictionError("there is no C++ compiler: install g++ or clang++, or set CXX")
    text = b"".join(path.read_bytes() for path in (SOURCES / "dense_sparse.h", SOURCES / source))
    parts = [version(found), *FLAGS, *flags, _processor()]
    key = text + "\0".join(parts).encode()
    command = [found, *FLAGS, *flags]
    return built_from(key, command, SOURCES / source, Path(source).stem, ".so", directory)


def built_from(
    key: bytes, command: Sequence[str], source: Path, name: str, suffix: str, directory: Path | None
) -> Path:
    """Return the output of a compiler's command for a source, from the cache directory if present.

    Args:
        key: everything that the result depends on; its hash is in the file's name.
        command: the compiler with its flags.
        source: the source file.
        name: beginning of the file's name.
        suffix: end of the file's name.
        directory: the cache directory, by default the user's.

    Raises:
        PredictionError: the compiler fails; the message has its first error.
    """
    folder = directory or cache_directory() / "kernels"
    target = folder / f"{name}-{hashlib.sha256(key).hexdigest()[:24]}{suffix}"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder(".draft-", folder) as work:
        made = work / target.name
        run_compiler([*command, "-o", str(made), str(source)], source.name)
        os.replace(made, target)
    return target


def run_compiler(command: Sequence[str], source: str) -> None:
    """Run a compiler; raises PredictionError with its first error if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise PredictionError(f"compiling {source} took over {COMPILE_SECONDS} s") from None
    except OSError as error:
        raise PredictionError(f"{command[0]} cannot be run: {error.strerror or error}") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise PredictionError(f"{Path(command[0]).name} cannot compile {source}: {said}")


@cache
def load(source: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Return the compiled source, loaded; as `built`."""
    return ctypes.CDLL(str(built(source, flags)))


@cache
def version(found: str) -> str:
    """Return the first line of a compiler's version output."""
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    release = next((line for line in lines if "release" in line), lines[0] if lines else found)
    return release.strip()


@cache
def _processor() -> str:
    """Return the meaning of ``-march=native`` here: the processor's model and extensions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(line for line in lines if line.startswith(wanted))
