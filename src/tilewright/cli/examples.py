"""The examples that come with Tilewright: in a clone a link to ``examples/``, else installed."""

from __future__ import annotations

import ast
from importlib import resources
from pathlib import Path

from tilewright.cli.suggestions import meant
from tilewright.errors import TilewrightError


def folder() -> Path:
    """Where the examples are."""
    return Path(str(resources.files("tilewright"))) / "examples"


def names() -> list[str]:
    """The programs: Python files whose function of the same name builds a pipeline."""
    return sorted(path.stem for path in folder().glob("*.py") if path.stem != "__init__")


def path_of(name: str) -> Path:
    """The file of an example.

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
    """What an example does, in one line."""
    text = ast.get_docstring(ast.parse(path_of(name).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
