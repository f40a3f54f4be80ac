"""What the tuning benchmarks share: the machine, the result files, seeds and medians."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

# one thread: the times of every tool are CPU times summed over its threads
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("tilewright", "numpy", "scipy")


def write(name: str, rows: list[dict[str, Any]], summary: dict[str, Any], **more: Any) -> Path:
    """Write ``results/NAME.json`` in the form that every benchmark has."""
    from tilewright.measure import machine_id

    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    data = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine_id(),
        "versions": {"python": platform.python_version()}
        | {p: metadata.version(p) for p in PACKAGES},
        **more,
        "rows": rows,
        "summary": summary,
    }
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"wrote {path}")
    for key, value in summary.items():
        print(f"  {key} = {value}")
    return path
