"""The examples that come with Tilewright: installed, or a link to ``examples/`` in a clone."""

from __future__ import annotations

import ast
from importlib import resources
from pathlib import Path

from tilewright.cli.suggestions import meant
from tilewright.errors import TilewrightError


def folder() -> Path:
    """Return the folder of the examples."""
    return Path(str(resources.files("tilewright"))) / "examples"


def names() -> list[str]:
    """Return the names of the programs: files with a function of the same name."""
    return sorted(path.stem for path in folder().glob("*.py") if path.stem != "__init__")


def path_of(name: str) -> Path:
    """Return the file of an example.

    Raises:
        TilewrightError: no example has this name.
    """
    known = names()
    if name not in known:
        raise TilewrightError(
            f"{name!r} is not an example{meant(name, known)}; the examples are {', '.join(known)}"
        )
    return folder() / f"{name}.py"


def summary(name: str) -> str:
    """Return the description of an example, in one line."""
    text = ast.get_docstring(ast.parse(path_of(name).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
