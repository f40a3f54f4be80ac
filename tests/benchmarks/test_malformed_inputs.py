"""Damaged files of every kind are taken or refused; a few of each, the benchmark has 20,000."""

from __future__ import annotations

import random
import sys

import pytest

import malformed_inputs
from support.damage import damaged_bytes, damaged_json, damaged_text

EACH = 25


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return malformed_inputs.kinds(tmp_path_factory.mktemp("kinds"))


def test_good_files_are_taken(kinds, tmp_path):
    assert len({kind.name for kind in kinds}) == len(kinds)
    assert [list(malformed_inputs.sound(kind, tmp_path)) for kind in kinds] == [[]] * len(kinds)


def test_damaged_files_are_taken_or_refused(kinds):
    found = {
        (kind.name, number, what, said)
        for kind in kinds
        for number, what, said in malformed_inputs.outcomes(kind, 1, EACH)
        if what not in ("taken", "refused")
    }
    assert found == set()


def test_failures_are_counted_by_kind():
    def use(path):
        text = path.read_bytes()
        if b"die" in text:
            sys.exit(3)
        if b"eat" in text:
            return bytearray(malformed_inputs.MEMORY * 2)
        raise ZeroDivisionError(text)

    for word, expected in ((b"die", "crashes"), (b"eat", "over_500_mb"), (b"fall", "uncaught")):
        kind = malformed_inputs.Kind(word.decode(), (word,), lambda data, choose: data, use)
        assert [what for _, what, _ in malformed_inputs.outcomes(kind, 0, 2)] == [expected] * 2


def test_the_same_seed_damages_alike():
    for damage, good in (
        (damaged_json, '{"a": [1, 2, {"b": "c"}]}'),
        (damaged_text, "a = 1\nb = 2\n"),
        (damaged_bytes, b"0123456789"),
    ):
        some = [[damage(good, random.Random(seed)) for seed in range(30)] for _ in range(2)]
        assert some[0] == some[1]
        assert len(set(some[0])) > 10
