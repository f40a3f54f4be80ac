"""How fast, and in how much memory, the constrained spaces are counted and ready to sample.

Each space is built in a fresh process, several times; the CPU time is the median, the memory
the growth of the largest resident size over an interpreter that has imported NumPy and the
package. With --peers PYTHON (see peers/tuning_requirements.txt), pyATF and Kernel Tuner build
the same spaces as well, within the same limits of time and memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import tuning_common

OURS = """
import json, resource, sys, time
import numpy as np
from tilewright.tuning import space_from_dict
data = json.load(open(sys.argv[1]))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
start = time.process_time()
space = space_from_dict(data)
codes = space.sample(np.random.default_rng(0), 1)
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "memory_mb": (peak() - before) / 1024, "count": space.count,
                  "nodes": sum(t.nodes for t in space.feasible.trees)}))
"""


def space_files() -> list[Path]:
    """The bundled spaces of the paper's compilers."""
    folder = Path(str(resources.files("tilewright.tuning.problems"))) / "spaces"
    return sorted(folder.glob("*.json"))


def run(command: list[str], limit_s: float, limit_mb: int) -> dict[str, Any]:
    """What a process printed last as JSON, or how it failed."""
    guard = f'ulimit -v {limit_mb * 1024}; exec "$@"'
    try:
        done = subprocess.run(
            ["bash", "-c", guard, "guard", *command],
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "limit_s": limit_s}
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        status = "out_of_memory" if "MemoryError" in done.stderr else "run_failed"
        return {"status": status, "message": said[-1][:200] if said else f"rc {done.returncode}"}
    return {"status": "ok", **json.loads(done.stdout.strip().splitlines()[-1])}


def peer_problem(data: dict[str, Any], path: Path) -> None:
    """The space as the peers' script reads it: values and constraints as Python."""
    import itertools

    parameters: dict[str, Any] = {}
    for p in data["parameters"]:
        if p["type"] == "permutation":
            parameters[p["name"]] = list(itertools.permutations(range(p["length"])))
        elif p["type"] == "integer":
            parameters[p["name"]] = list(range(p["low"], p["high"] + 1))
        else:
            parameters[p["name"]] = p["values"]
    path.write_text(json.dumps({"parameters": parameters, "constraints": data["constraints"]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="the Python of the peers' environment")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peer-limit", type=float, default=120.0, help="seconds")
    parser.add_argument("--peer-memory", type=int, default=8192, help="MB")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path in space_files():
        data = json.loads(path.read_text())
        runs = [run([sys.executable, "-c", OURS, str(path)], 60, 4096) for _ in range(args.repeats)]
        row = {
            "space": data["name"],
            "tool": "tilewright",
            "dense": data["dense"],
            "published": data.get("feasible"),
            "count": runs[0].get("count"),
            "nodes": runs[0].get("nodes"),
            "status": runs[0]["status"],
        }
        if all(r["status"] == "ok" for r in runs):
            row["seconds"] = statistics.median(r["seconds"] for r in runs)
            row["memory_mb"] = statistics.median(r["memory_mb"] for r in runs)
        rows.append(row)
        print(row, flush=True)
        if args.peers:
            with tempfile.TemporaryDirectory() as folder:
                problem = Path(folder) / "problem.json"
                peer_problem(data, problem)
                script = str(Path(__file__).parent / "peers" / "tuning_space_peer.py")
                for tool in ("pyatf", "kernel_tuner"):
                    found = run(
                        [args.peers, script, tool, str(problem)], args.peer_limit, args.peer_memory
                    )
                    rows.append({"space": data["name"], "tool": tool, **found})
                    print(rows[-1], flush=True)
    ours = {r["space"]: r for r in rows if r["tool"] == "tilewright"}
    big = ours.pop("rise_mm_gpu")
    summary = {
        "mm_gpu_count": big["count"],
        "mm_gpu_exact": big["count"] == 154_888_140,
        "mm_gpu_seconds": big["seconds"],
        "mm_gpu_memory_mb": big["memory_mb"],
        "max_seconds_other": max(r["seconds"] for r in ours.values()),
        "counts_agree": all(r["published"] in (None, r["count"]) for r in ours.values()),
    }
    tuning_common.write("tuning_spaces", rows, summary)


if __name__ == "__main__":
    main()
