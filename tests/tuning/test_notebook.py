"""What notebooks show of spaces and tuning results."""

from tilewright.tuning import Categorical, FailedError, Integer, Ordinal, Permutation, Space, tune

SPACE = Space(
    [
        Ordinal("tile", tuple(range(1, 11)), scale="log"),
        Integer("unroll", 1, 9, default=2),
        Categorical("mode", ("a", "<b>"), when="unroll > 3"),
        Permutation("order", ("i", "j")),
    ],
    ["tile % unroll == 0"],
)


def test_a_space_shows_its_parameters_and_constraints():
    html = SPACE._repr_html_()
    assert f"Space of {SPACE.count:,} configurations" in html
    assert "1, 2, 3, 4, 5, 6, 7, 8, … (10)" in html
    assert "1 to 9" in html
    assert "a, &lt;b&gt;" in html
    assert "i, j" in html
    assert "unroll &gt; 3" in html
    assert "constraint: tile % unroll == 0" in html


def test_a_result_shows_the_best_configuration():
    result = tune(lambda c: c["tile"] + c["unroll"], SPACE, budget=12)
    html = result._repr_html_()
    assert f"Best: {result.best.value:.5g}" in html
    assert "12 evaluations, 0 failed; stopped: budget" in html
    assert "Best so far" in html.split("srcdoc=")[1]
    for name, value in result.best.configuration.items():
        shown = " ".join(value) if isinstance(value, tuple) else str(value)
        assert f"<td>{name}</td>" in html
        assert shown.replace("<", "&lt;").split(">")[0] in html


def test_a_result_without_success_says_so():
    def fails(configuration):
        raise FailedError("build_failed")

    html = tune(fails, SPACE, budget=3)._repr_html_()
    assert "No configuration worked" in html
    assert "3 evaluations, 3 failed" in html
    assert "<table" not in html
