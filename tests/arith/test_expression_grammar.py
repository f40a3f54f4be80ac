"""What the expressions that users write may consist of, in every room alike."""

import pytest

from tilewright.arith import ExpressionError, Grammar, parse_expression
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.complexity import Complexity
from tilewright.tuning.errors import ConstraintError
from tilewright.tuning.space.expressions import parse

GRAMMAR = Grammar(("tile", "width"), noun="parameters")


@pytest.mark.parametrize("text", ["tile", "-tile ** 2 % 3", "max(tile, width, 4) // log2(8)", "1"])
def test_arithmetic_on_the_names_is_allowed(text):
    assert GRAMMAR.mistake(parse_expression(text)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tiel", "the name 'tiel' is unknown (did you mean 'tile'?); the parameters are tile, wid"),
        ("tile @ 2", "the operator in 'tile @ 2' is not allowed; use +, -, *, /, //, %, **"),
        ("~tile", "'~tile' is not allowed; use + or -"),
        ("open('x')", "the function 'open' is unknown; use min, max, abs"),
        ("tile.__class__", "'tile.__class__' is not allowed; use arithmetic on the parameters"),
        ("min(tile)", "'min(tile)' has the wrong number of arguments"),
        ("abs(x=tile)", "'abs(x=tile)' is not allowed; give plain arguments"),
        ("abs(*tile)", "'abs(*tile)' is not allowed; give plain arguments"),
        ("1e999", "the constant inf is not allowed; use a finite number"),
        ("'x'", "the constant 'x' is not allowed; use a finite number"),
        ("True", "the constant True is not allowed; use a finite number"),
        ("1" + " + 1" * 600, "the expression is too long; use at most 1000 operations"),
        ("max(tile, wide)", "the name 'wide' is unknown"),
    ],
)
def test_a_mistake_names_the_part_and_the_cure(text, said):
    assert str(GRAMMAR.mistake(parse_expression(text))).startswith(said)


def test_words_are_constants_where_they_are_wanted():
    words = Grammar((), words=True)
    assert words.mistake(parse_expression("'x'")) is None
    assert words.mistake(parse_expression("b'x'")) is not None


@pytest.mark.parametrize("text", ["", "tile +", "(" * 300 + ")" * 300, "a\0b", "x = 1"])
def test_text_that_is_not_an_expression_is_refused(text):
    with pytest.raises(ExpressionError, match=r"^is not an expression"):
        parse_expression(text)


@pytest.mark.parametrize("text", ["tiel", "tile @ 2", "open(tile)", "abs(tile, 1)"])
def test_rooms_say_the_same_of_the_same_mistake(text):
    with pytest.raises(PredictionError) as complexity:
        Complexity(text, ("tile",))
    with pytest.raises(ConstraintError) as constraint:
        parse(text, {"tile": None})
    ours, theirs = str(complexity.value), str(constraint.value)
    assert ours.split(": ")[1].split(";")[0] == theirs.split(": ")[1].split(";")[0]
