"""Ask and tell over standard input and output: one line of JSON per message, for any language.

The first line opens the session: ``{"space": {"parameters": [...], "constraints": [...]},
"seed": 0}`` (optional: ``"queue"``, ``"objectives"``). Each later line is a request, and each
is answered by one line:

=====================================================  ======================================
request                                                answer
=====================================================  ======================================
``{"ask": 1}``                                         ``{"ask": [{"index": 0,
                                                       "configuration": {...}}]}``, an empty
                                                       list when everything has been asked
``{"tell": {"index": 0, "value": 1.5}}``               ``{"ok": true}``
``{"tell": {"index": 0, "status": "run_failed"}}``     ``{"ok": true}``
``{"best": true}``                                     ``{"best": {"configuration": {...},
                                                       "values": [...]}}`` or null
``{"quit": true}``                                     ``{"ok": true}``, and the end
=====================================================  ======================================

A request that is wrong is answered by ``{"error": "..."}`` and changes nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from tilewright.errors import TilewrightError
from tilewright.tuning.errors import nearest
from tilewright.tuning.space.json import space_from_dict
from tilewright.tuning.trial import plain, unplain
from tilewright.tuning.tuner import Tuner

_VERSION = 1
_FIRST = ("space", "seed", "queue", "objectives")


class Conversation:
    """One session with a client: answers requests, and keeps the tuner once it is created."""

    def __init__(self) -> None:
        self.tuner: Tuner | None = None
        self.open = True

    def answer(self, line: str) -> dict[str, Any]:
        """Return the answer to one line."""
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"not a line of JSON: {error}"}
        if not isinstance(request, dict):
            return {"error": 'a request is a JSON object, such as {"ask": 1}'}
        try:
            return self._answer(request)
        except (TilewrightError, ValueError) as error:
            return {"error": str(error)}
        except (TypeError, KeyError, AttributeError) as error:
            return {"error": f"the request is malformed: {type(error).__name__}: {error}"}

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "quit" in request:
            self.open = False
            return {"ok": True}
        if self.tuner is None:
            return self._begin(request)
        if "ask" in request:
            return {"ask": self._ask(self.tuner, request["ask"])}
        if "tell" in request:
            return self._tell(self.tuner, request["tell"])
        if "best" in request:
            best = self.tuner.best
            if best is None:
                return {"best": None}
            return {
                "best": {"configuration": plain(best.configuration), "values": list(best.values)}
            }
        return {"error": "a request has one of the keys ask, tell, best, quit"}

    def _begin(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "space" not in request:
            return {"error": 'the first line must give the space: {"space": {...}, "seed": 0}'}
        for key in request:
            if key not in _FIRST:
                known = ", ".join(_FIRST)
                return {"error": f"{key!r} is unknown{nearest(key, _FIRST)}; use {known}"}
        if not isinstance(request["space"], dict):
            return {"error": '"space" must be an object: {"parameters": [...]}'}
        space, queue = space_from_dict(request["space"]), request.get("queue", [])
        if not isinstance(queue, list) or not all(isinstance(c, dict) for c in queue):
            return {"error": '"queue" must be a list of configurations'}
        self.tuner = Tuner(
            space,
            seed=request.get("seed", 0),
            queue=[unplain(c) for c in queue],
            objectives=request.get("objectives", 1),
        )
        return {"ok": True, "protocol": _VERSION, "count": space.count}

    def _ask(self, tuner: Tuner, count: Any) -> list[dict[str, Any]]:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError('"ask" takes a whole number from 1')
        asked = []
        for _ in range(count):
            suggestion = tuner.ask()
            if suggestion is None:
                break
            asked.append(
                {"index": suggestion.index, "configuration": plain(suggestion.configuration)}
            )
        return asked

    def _tell(self, tuner: Tuner, outcome: Any) -> dict[str, Any]:
        if not isinstance(outcome, dict) or not isinstance(outcome.get("index"), int):
            raise ValueError(
                '"tell" takes {"index": 0, "value": 1.5}, with an index that was asked'
            )
        index = outcome["index"]
        if index not in tuner.pending:
            raise ValueError(f"index {index!r} was not asked, or its result is known already")
        value = outcome.get("value")
        numbers = value if isinstance(value, list) else [value]
        if value is not None and not all(isinstance(v, int | float) for v in numbers):
            raise ValueError(f"the value {value!r} is not a number")
        status = outcome.get("status", "ok" if value is not None else "run_failed")
        tuner.tell(
            tuner.pending[index],
            value,
            status=status,
            lower_bound=bool(outcome.get("lower_bound", False)),
            message=str(outcome.get("message", "")),
        )
        return {"ok": True}


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer the lines of ``requests`` until they end or one asks to quit."""
    session = Conversation()
    while session.open:
        line = requests.readline()
        if not line:
            return
        if not line.strip():
            continue
        answers.write(json.dumps(session.answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
