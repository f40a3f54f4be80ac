"""References to functions by which another process can import them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError


def reference_to(
    function: Callable[..., Any], error: type[TilewrightError] = TilewrightError
) -> str:
    """Return the reference for `load_builder`: ``module:name`` or ``file.py:name``.

    Args:
        function: the function.
        error: the class of the error.

    Raises:
        TilewrightError: of the class `error`; the function is not at the top level of a module, or
            of a script that does its work when it is imported.
    """
    name, module = getattr(function, "__qualname__", ""), inspect.getmodule(function)
    if not name.isidentifier() or module is None or getattr(module, name, None) is not function:
        raise error(
            f"{function!r} cannot be called in another process: define it at the top level of a "
            "module"
        )
    if module.__package__:
        return f"{module.__name__}:{name}"
    # A function typed at a prompt belongs to a module without a file.
    source = inspect.getsourcefile(module) if getattr(module, "__file__", None) else None
    if source is None or not Path(source).is_file():
        raise error(
            f"{name} is not defined in a file, so no worker can import it: write it to a module, "
            f"and import it from there"
        )
    text = Path(source).read_text(encoding="utf-8", errors="replace")
    guarded = re.search(r"^if\s+__name__\s*==", text, re.MULTILINE)
    if module is sys.modules.get("__main__") and not guarded:
        raise error(
            f"{source} would run again in every worker: put what it does under "
            'if __name__ == "__main__":'
        )
    return f"{Path(source).resolve()}:{name}"
