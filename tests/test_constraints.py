"""The pinned versions install on the oldest Python that the project supports."""

from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

OLDEST = "3.11.0"
PINS = Path(__file__).parents[1] / "constraints.txt"


def test_every_pinned_version_supports_the_oldest_python():
    pinned = {
        canonicalize_name(name)
        for name, found, _ in (line.partition("==") for line in PINS.read_text().splitlines())
        if found
    }
    wanted = {
        canonicalize_name(each.name): each.metadata.get_all("Requires-Python", [""])[0]
        for each in distributions()
    }
    assert len(pinned & set(wanted)) > len(pinned) / 2  # others are for other systems or versions
    refused = {name: wanted[name] for name in pinned & set(wanted)}
    assert {n: spec for n, spec in refused.items() if OLDEST not in SpecifierSet(spec)} == {}
