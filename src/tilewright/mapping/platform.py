"""The devices of a machine and the cost of moving data between them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.mapping.graph import MappingError


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU, a share of its cores, or a GPU; `cores` are those that its worker is pinned to."""

    name: str
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """Moving b bytes takes ``latency + b / bandwidth`` seconds (bandwidth in bytes per second)."""

    latency: float = 0.0
    bandwidth: float = float("inf")

    def seconds(self, size: float) -> float:
        """Return the seconds to move `size` bytes; 0 for none."""
        return self.latency + size / self.bandwidth if size > 0 else 0.0


@dataclass(frozen=True)
class Platform:
    """Devices, and a link for each ordered pair; `link` is the default.

    `home` is the device whose memory has the user's inputs and results, by default the first.

    Raises:
        MappingError: no devices, a repeated name, or a link between unknown devices.
    """

    devices: tuple[Device, ...]
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    link: Link = field(default_factory=Link)
    home: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        names = self.names
        if not names:
            raise MappingError("a machine has at least one device")
        if len(set(names)) < len(names):
            raise MappingError(f"two devices have one name: {', '.join(names)}")
        for pair in self.links:
            for name in pair:
                if name not in names:
                    raise MappingError(f"a link names {name!r}; there are {', '.join(names)}")
        object.__setattr__(self, "home", self.home or names[0])
        if self.home not in names:
            raise MappingError(f"home is {self.home!r}; there are {', '.join(names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names."""
        return tuple(d.name for d in self.devices)

    def transfer(self, source: str, target: str, size: float) -> float:
        """Return seconds to move `size` bytes; none within a device."""
        if source == target:
            return 0.0
        return self.links.get((source, target), self.link).seconds(size)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; `platform_from_dict` reads it back."""
        return {
            "devices": [{"name": d.name, "cores": list(d.cores)} for d in self.devices],
            "links": [
                {"from": a, "to": b, **_link_dict(link)} for (a, b), link in self.links.items()
            ],
            "link": _link_dict(self.link),
            "home": self.home,
        }


def platform_from_dict(data: Any) -> Platform:
    """Read a machine from plain data.

    ``{"devices": [{"name": "cpu", "cores": [0]}, {"name": "gpu"}],
    "link": {"latency": 1e-5, "bandwidth": 1.2e10}}``; ``links`` with ``from`` and ``to`` where
    pairs differ.

    Raises:
        MappingError: data of another form.
    """
    try:
        devices = [Device(d["name"], tuple(d.get("cores", ()))) for d in data["devices"]]
        links = {(e["from"], e["to"]): _link(e) for e in data.get("links", [])}
        return Platform(tuple(devices), links, _link(data.get("link", {})), data.get("home", ""))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MappingError(f"not a machine's devices and links: {error!r}") from None


def cores_as_devices(cores: Sequence[int] | None = None, link: Link | None = None) -> Platform:
    """Return each of the cores (default: all that this process may use) as a device of its own."""
    chosen = sorted(os.sched_getaffinity(0)) if cores is None else list(cores)
    return Platform(tuple(Device(f"core {c}", (c,)) for c in chosen), link=link or Link())


def _link_dict(link: Link) -> dict[str, float]:
    data = {"latency": link.latency}
    if link.bandwidth != float("inf"):
        data["bandwidth"] = link.bandwidth
    return data


def _link(data: Mapping[str, Any]) -> Link:
    bandwidth = float(data.get("bandwidth", "inf"))
    latency = float(data.get("latency", 0.0))
    if not bandwidth > 0 or latency < 0:
        raise ValueError(f"latency {latency} s, bandwidth {bandwidth} bytes/s")
    return Link(latency, bandwidth)
