"""Real problems of which every configuration was measured once, kept as tables and replayed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.files import write_bytes
from tilewright.shapes import damaged, parse_json
from tilewright.tuning.errors import SpaceError
from tilewright.tuning.interop.replay import Replay
from tilewright.tuning.space.json import space_from_dict, space_to_dict
from tilewright.tuning.space.space import Space

FOLDER = Path(__file__).parent / "recorded"


def recorded(folder: str | Path = FOLDER) -> list[Replay]:
    """Return the recorded problems of a folder, by default those that come with the package."""
    return [read_recording(path) for path in sorted(Path(folder).glob("*.json.gz"))]


def read_recording(path: str | Path) -> Replay:
    """Return a problem that `write_recording` wrote.

    Raises:
        SpaceError: the file is not a recording.
    """
    path = Path(path)
    try:
        text = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise SpaceError(f"{path} is not a recording: {error}") from None
    data = parse_json(text, str(path), SpaceError)
    with damaged(f"{path} is not a recording", SpaceError):
        space = space_from_dict(data["space"])
        names = [p.name for p in space.parameters]
        values = {}
        for *row, outcome in data["results"]:
            configuration = dict(zip(names, row, strict=True))
            found = float(outcome) if isinstance(outcome, int | float) else str(outcome)
            values[space.key(space.encode(configuration))] = found
    return Replay(path.name.removesuffix(".json.gz"), space, values)


def write_recording(
    path: str | Path,
    space: Space,
    outcomes: Mapping[bytes, float | str],
    about: Mapping[str, Any],
) -> None:
    """Write a recording.

    Args:
        path: the file, ``NAME.json.gz``.
        space: the space, all of its parameters discrete.
        outcomes: the objective or the failing status of each configuration, by its key.
        about: where and how it was measured.
    """
    results = []
    for configuration in configurations(space):
        outcome = outcomes.get(space.key(space.encode(configuration)))
        if outcome is not None:
            row = [list(v) if isinstance(v, tuple) else v for v in configuration.values()]
            results.append([*row, outcome])
    data = {"about": dict(about), "space": space_to_dict(space), "results": results}
    # no time stamp in the header: the same table gives the same file
    write_bytes(path, gzip.compress(json.dumps(data).encode(), mtime=0))


def configurations(space: Space) -> Iterator[dict[str, Any]]:
    """Yield every feasible configuration of a small space, in the order of its values."""
    import itertools

    import numpy as np

    sizes = [variable.size for variable in space.feasible.variables]
    codes = np.array(list(itertools.product(*map(range, sizes))), dtype=float)
    for code in codes[space.contains(codes)]:
        yield space.decode(code)
