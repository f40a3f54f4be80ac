"""What the benchmarks of the Halide room share: programs, pieces kept between runs, results."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
RESULTS = HERE / "results"

# Section 9's programs, in the order of the tables; FFT is not part of the timings.
PROGRAMS = (
    "bilateral_grid camera_pipe harris histogram iir_blur interpolate local_laplacian max_filter "
    "unsharp nl_means stencil_chain lens_blur matmul conv_layer bgu depthwise_conv demosaic blur"
).split()
# CPU seconds that an autoscheduler may take.
PEER_SECONDS = 120.0
ALL_PROGRAMS = [*PROGRAMS, "fft"]


def load_module(path: Path, name: str | None = None) -> ModuleType:
    """A Python file (or a package's ``__init__.py``) as a module."""
    name = name or path.stem
    folder = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def example(name: str) -> ModuleType:
    """An example's module; ``example(name).NAME()`` is its pipeline."""
    return load_module(EXAMPLES / f"{name}.py")


def build(name: str, small: bool = False) -> Any:
    """An example's unscheduled pipeline, at full size or at its reduced one."""
    module = example(name)
    return getattr(module, name)(**(module.SMALL if small else {}))


def hand_written(module: ModuleType, device: str) -> bool:
    """Whether its schedule by hand makes the choices of one of Halide's own applications."""
    return "v21.0.0" in (module.HAND_SOURCE.get(device) or "")


def arguments(description: str, programs: Sequence[str]) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(programs)}")
    parser.add_argument("--fresh", action="store_true", help="ignore pieces of an earlier run")
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where pieces are kept between runs"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the result is written")
    return parser


def chosen(args: argparse.Namespace, programs: Sequence[str]) -> list[str]:
    """The programs that ``--only`` names, by default all."""
    if not args.only:
        return list(programs)
    names = [name.strip() for name in args.only.split(",")]
    unknown = [name for name in names if name not in programs]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(programs)}")
    return names


@functools.cache
def code_hash() -> str:
    """Of all that the results depend on in this repository."""
    hashed = hashlib.sha256()
    for folder in (HERE.parent / "src" / "tilewright", EXAMPLES, HERE):
        for path in sorted(folder.rglob("*.py")):
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:12]


class Pieces:
    """Finished pieces of a benchmark, a JSON file each, so that a run can be interrupted.

    Those that other code of ours has made are not taken, unless it had no part in them.
    """

    def __init__(self, work: Path, name: str, fresh: bool, *, ours: bool = True) -> None:
        self._folder = work / name / (code_hash() if ours else "")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fresh = fresh
        self._made: set[str] = set()

    def has(self, key: str) -> bool:
        """Whether there is a piece that will be taken."""
        return (self._folder / f"{key}.json").exists() and (not self._fresh or key in self._made)

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The piece of an earlier run, or else what `make` gives, kept for the next."""
        path = self._folder / f"{key}.json"
        if self.has(key):
            return json.loads(path.read_text())
        self._made.add(key)
        piece = make()
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(piece))
        partial.replace(path)
        return piece


def peer_schedules(
    pieces: Pieces,
    task: Any,
    inputs: Any,
    cpu_seconds: float = PEER_SECONDS,
    only: Container[str] | None = None,
    published: bool = False,
) -> dict[str, Any]:
    """What Halide's autoschedulers make of a pipeline, by name: `PeerSchedule` each.

    `only` names those that are wanted, by default all; with `published`, Anderson2021 runs with the
    settings of its paper as well.
    """
    from tilewright.halide.schedulers.halide_autoschedulers import PeerSchedule, peers, run_peers

    found = {}
    for peer in peers(task.target, task.machine, published=published):
        if only is not None and peer.name not in only:
            continue
        told: list[Any] = [task.target, sorted(peer.parameters.items()), task.algorithm.digest]
        if cpu_seconds != PEER_SECONDS:
            told.append(cpu_seconds)
        key = hashlib.sha256(repr(tuple(told)).encode()).hexdigest()[:12]

        def search(peer: Any = peer) -> dict[str, Any]:
            # Each alone on the machine, so that its CPU time is its own.
            (schedule,) = run_peers(
                task.algorithm, inputs, [peer], target=task.target, cpu_seconds=cpu_seconds
            )
            data = {**dataclasses.asdict(schedule), "peer": None}
            if schedule.serialized is not None:
                data["serialized"] = base64.b64encode(schedule.serialized).decode()
            return data

        data = pieces.get(f"{task.name}-{slug(peer.name)}-{key}", search)
        if data["serialized"] is not None:
            data["serialized"] = base64.b64decode(data["serialized"])
        found[peer.name] = PeerSchedule(**{**data, "peer": peer})
    return found


def add_prepare(parser: argparse.ArgumentParser) -> None:
    """The option that makes the peers' schedules and ends."""
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="only search the autoschedulers' schedules, kept for a later run: nothing is timed, "
        "so the machine may be busy",
    )


def prepare_peers(
    pieces: Pieces, program: Any, name: str, cpu_seconds: float, contents: Any = None
) -> None:
    """Search and keep what Halide's autoschedulers make of a program for the host."""
    from tilewright.halide.execution.session import make_inputs
    from tilewright.halide.schedulers.task import make_task

    task = make_task(program, target="host", name=name)
    inputs = make_inputs(task.algorithm, contents=contents)
    found = peer_schedules(pieces, task, inputs, cpu_seconds)
    print(f"{name:24} {', '.join(f'{p}: {s.status}' for p, s in found.items())}", flush=True)


def cpu_seconds() -> float:
    """Return the CPU seconds used by this process and by its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def slug(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Of positive numbers; None for none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def write(
    args: argparse.Namespace,
    name: str,
    rows: Sequence[dict[str, Any]],
    summary: dict[str, Any],
    **more: Any,
) -> Path:
    """Write ``NAME.json`` and say so. A run of some programs only gets a name of its own."""
    from tilewright.measure import machine_id

    result = {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": machine_id().split(", ", 1)[1],
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            **{p: importlib.metadata.version(p) for p in ("tilewright", "halide", "numpy")},
        },
        **more,
        "rows": list(rows),
        "summary": summary,
    }
    args.results.mkdir(parents=True, exist_ok=True)
    path: Path = args.results / f"{name}{'-partial' if args.only else ''}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print("\n" + "\n".join(f"{key}: {shown(value)}" for key, value in summary.items()))
    print(f"written to {path}")
    return path


def shown(value: Any) -> str:
    """A figure for a table: three significant digits."""
    if isinstance(value, bool) or value is None:
        return "-" if value is None else str(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns on standard output."""
    cells = [tuple(headings), *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings))]
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
