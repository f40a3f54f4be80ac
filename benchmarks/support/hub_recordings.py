"""Collect more recorded search spaces for the tuning benchmarks' ``--data`` folder.

    python benchmarks/support/hub_recordings.py HUB FOLDER

HUB is a clone of the Auto-Tuning Association's benchmark hub (MIT licence):
https://github.com/AutoTuningAssociation/benchmark_hub. The files are read at `COMMIT`. FOLDER
gets the older convolution on four GPUs and the matrix product of CLBlast (gemm) on three, as Kernel
Tuner caches with a T1 description that gives the known constraints. The hub's recording of gemm on
the RTX 3060 has only 10000 of the 17956 configurations and is left out. The hub does not describe
gemm in this space; its constraints are those of the hub's description of CLBlast's kernel in a
wider space, without the one that excludes large tiles: with these, the feasible configurations are
exactly the recorded ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COMMIT = "8eeb99e7179e6838af95d392ac6c60cebfd8c434"
UNUSED = "currently_unused"
CACHES = {
    "convolution": ("RTX_2080_Ti", "RTX_3060_laptop", "RTX_3090", "RTX_Titan"),
    "gemm": ("RTX_2080_Ti", "RTX_3090", "RTX_Titan"),
}


def read(hub: str, path: str) -> bytes:
    """Return a file of the hub."""
    done = subprocess.run(["git", "-C", hub, "show", f"{COMMIT}:{path}"], capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    return done.stdout


def gemm(hub: str) -> bytes:
    """Return the description of gemm: CLBlast's constraints that hold in this space."""
    described = json.loads(read(hub, "kernels/gemm_milo.json"))
    space = described["ConfigurationSpace"]
    space["Conditions"] = [c for c in space["Conditions"] if "not" not in c["Expression"]]
    return json.dumps(described, indent=1).encode()


def main() -> None:
    """Write the folder."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    hub, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "convolution": read(hub, f"{UNUSED}/kernels/convolution.json"),
        "gemm": gemm(hub),
    }
    for kernel, devices in CACHES.items():
        (folder / f"{kernel}.T1.json").write_bytes(described[kernel])
        for device in devices:
            path = f"{UNUSED}/cachefiles/KernelTuner data/{kernel}/{device}.json.gz"
            (folder / f"{kernel}_{device}_cache.json.gz").write_bytes(read(hub, path))
            print(folder / f"{kernel}_{device}_cache.json.gz")


if __name__ == "__main__":
    main()
