"""What the campaign is made of: pieces, each of a few minutes, and the rooms they come from.

A room with something to measure on a GPU adds a module to `ROOMS`. The module has
``pieces(setting) -> list[Piece]`` in the order in which they are to be run, and
``results(setting, done) -> dict[str, (rows, summary)]``: what is written to
``benchmarks/results/gpu_NAME-DEVICE.json`` from the results of the pieces that are done.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.machines import GpuMachine

# Modules of this package, in the order of their pieces.
ROOMS: tuple[str, ...] = ("gpu.device", "gpu.halide_room", "gpu.patterns_room")


@dataclass(frozen=True)
class Setting:
    """The arguments of every piece.

    `out` is the folder of the campaign's files, `target` and `machine` what is measured on.
    A `small` campaign takes every program at its reduced size and checks no answers (to try the
    code out where there is no GPU). `programs` are those wanted, `peer_seconds` the CPU seconds of
    an autoscheduler, `samples` the random schedules of a program, `rounds_seconds` the time for
    interleaved rounds of a program, and `planned` how many of our best schedules take part in them.
    `deadline` is of `time.monotonic`, when the piece must end.
    `references` is the folder of the answers that schedules are verified against, None for
    ``references`` in `out`. `constants` are the GPU model's as the device piece fitted them,
    None before it ran.
    """

    out: Path
    target: str
    machine: GpuMachine
    small: bool
    programs: tuple[str, ...]
    peer_seconds: float
    samples: int
    rounds_seconds: float
    planned: int = 5
    deadline: float = float("inf")
    references: Path | None = None
    constants: GpuConstants | None = None

    @property
    def reference_folder(self) -> Path:
        """Where the answers are."""
        return self.references or self.out / "references"


@dataclass(frozen=True)
class Piece:
    """A part of the campaign that runs by itself, in a process of its own.

    `seconds` is what it takes at most on the machines it is made for; `run` gives JSON data
    and raises where it has nothing to show. Without an `essential` piece the others mean
    nothing: the campaign stops when it fails. Any other piece may fail without harm to those
    that follow.
    """

    name: str
    seconds: float
    run: Callable[[Setting], Any]
    essential: bool = False


def all_pieces(setting: Setting, rooms: Sequence[str] = ROOMS) -> list[Piece]:
    """The pieces of all rooms, in order; names must differ."""
    found = [piece for room in rooms for piece in importlib.import_module(room).pieces(setting)]
    names = [piece.name for piece in found]
    double = {name for name in names if names.count(name) > 1}
    if double:
        raise ValueError(f"several pieces are called {', '.join(sorted(double))}")
    return found


def all_results(
    setting: Setting, done: dict[str, Any], rooms: Sequence[str] = ROOMS
) -> dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The results of all rooms, by name."""
    found: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {}
    for room in rooms:
        found.update(importlib.import_module(room).results(setting, done))
    return found
