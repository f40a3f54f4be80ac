"""Searches with a user's regular expression in another process, which can be stopped.

Python's ``re`` takes time exponential in the text for some expressions, and no other thread runs
meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys

# Python itself starts in a fraction of a second; a reasonable expression takes less.
REGEX_SECONDS = 20.0
# Reads [pattern, text] and writes the last match's group, or null.
_SEARCH = (
    "import json, re, sys; pattern, text = json.load(sys.stdin); found = re.findall(pattern, text);"
    "json.dump(found[-1] if found else None, sys.stdout)"
)


class SlowRegexError(Exception):
    """The search has taken more than `REGEX_SECONDS`."""


def last_match(pattern: str, text: str, seconds: float = REGEX_SECONDS) -> str | None:
    """Return the one group of the last match, None if nothing matches.

    Raises:
        SlowRegexError: the search takes more than `seconds`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SEARCH],
            input=json.dumps([pattern, text]),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise SlowRegexError(
            f"objective.regex took more than {seconds:g} s: make it simpler, without "
            "repetitions inside repetitions"
        ) from None
    found: str | None = json.loads(done.stdout)
    return found
