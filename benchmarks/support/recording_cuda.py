"""What a CUDA schedule launches, recorded without a GPU (see ``recording_cuda.c``)."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".c")


def build(folder: Path) -> Path:
    """Compile the recording driver into `folder`."""
    library = folder / "librecording_cuda.so"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True
    )
    return library


class Recorder:
    """Loads the recording driver into this process and reads back what it wrote.

    Make one before anything of Halide runs for CUDA; there is one driver a process.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="recording_cuda")
        folder = Path(self._folder.name)
        self.log = folder / "launches"
        self.log.touch()
        os.environ["RECORDING_CUDA_FILE"] = str(self.log)
        os.environ["RECORDING_CUDA_PTX"] = str(folder)
        ctypes.CDLL(str(build(folder)), mode=ctypes.RTLD_GLOBAL)

    def launches(self) -> list[dict[str, Any]]:
        """Every launch since the last call."""
        lines = self.log.read_text().splitlines()
        os.truncate(self.log, 0)
        return [json.loads(line) for line in lines]

    def modules(self) -> list[Path]:
        """The PTX modules loaded so far."""
        return sorted(Path(self._folder.name).glob("*.ptx"))
