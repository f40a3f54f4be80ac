"""Places for values in commands: one dialect for tuning and collecting."""

import pytest

from tilewright.measure import filled, names_in


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--tile={tile}", "--tile=8"),
        ("{tile}x{tile:03d}", "8x008"),
        ("{order}", "i,j"),
        ("{absent}", ""),
        ("{{tile}}", "{tile}"),
        ('{"a": {"b": [1]}}', '{"a": {"b": [1]}}'),
        ("{} {0} }{ { tile }", "{} {0} }{ { tile }"),
    ],
)
def test_values_are_put_in_their_places(word, text):
    assert filled([word], {"tile": 8, "order": ("i", "j")}) == [text]


def test_names_are_found_once_in_their_order():
    assert names_in(["{b}{a}", "{b:2}", "{{c}}", "{ d }"]) == ["b", "a"]


def test_a_format_that_does_not_suit_is_an_error():
    with pytest.raises(ValueError, match="format"):
        filled(["{tile:zz}"], {"tile": 8})
