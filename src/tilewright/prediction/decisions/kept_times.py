"""Measured times of dispatched calls in the records, for the next process to begin with."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from typing import Any

from tilewright.measure import Measurement, machine_id
from tilewright.records import MeasurementRecord, Records

_PACKAGES = ("tilewright", "numpy")


class KeptTimes:
    """The times of a dispatcher's routes, by signature.

    Only times of this machine, with these versions, are read. Another thread writes, as that waits
    for the disk.

    Args:
        records: where times are kept.
        name: the dispatcher's name; dispatchers of the same name share times.
        routes: the names of the routes.
    """

    def __init__(self, records: Records, name: str, routes: Sequence[str]) -> None:
        self._records, self._problem, self._routes = records, f"dispatch/{name}", tuple(routes)
        self._machine = {"id": machine_id()}
        self._versions = {"python": platform.python_version()}
        self._versions |= {package: metadata.version(package) for package in _PACKAGES}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="tilewright-dispatch")
        self._found: dict[str, dict[int, tuple[float, ...]]] = {}
        own = {"machine": self._machine, "versions": self._versions}
        for record in records.query(self._problem, **own, status="ok", unreadable=[]):
            route, times = record.configuration.get("route"), record.measurement.times
            if route in self._routes and times:
                signature = str(record.configuration.get("signature"))
                at = self._routes.index(str(route))
                self._found.setdefault(signature, {})[at] = times

    def of(self, signature: Any) -> Mapping[int, tuple[float, ...]]:
        """Return the times of a signature, by the place of the route."""
        return self._found.get(repr(signature), {})

    def add(
        self, signature: Any, route: int, query: Mapping[str, Any], times: Sequence[float]
    ) -> None:
        """Keep the times of a route; problems with the file are a warning."""
        configuration = {
            "signature": repr(signature),
            "route": self._routes[route],
            "query": {name: _plain(value) for name, value in query.items()},
        }
        record = MeasurementRecord(
            self._problem,
            configuration,
            self._machine,
            self._versions,
            Measurement("ok", times=tuple(times)),
        )
        self._writer.submit(self._records.add, record).add_done_callback(_warn)

    def flush(self) -> None:
        """Wait until all added times are on the disk."""
        self._writer.submit(int).result()


def _plain(value: Any) -> float | str:
    return value if isinstance(value, str) else float(value)


def _warn(future: Future[int]) -> None:
    error = future.exception()
    if error is not None:
        warnings.warn(f"times of dispatched calls are not kept: {error}", stacklevel=2)
