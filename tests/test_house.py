"""What is longer or more branched than it may be is found; ``make lint`` looks for it."""

import house


def function(name, lines, docstring=0):
    """A function of so many lines of code, with a docstring of further lines."""
    text = [f"def {name}(a):"]
    if docstring:
        text += ['    """What it does.', *["    More."] * (docstring - 2), '    """']
    return "\n".join(text + ["    a += 1"] * (lines - 1)) + "\n"


def test_long_files_and_functions_are_found(tmp_path):
    files = {
        "src/tilewright/whole.py": "a = 1\n" * 500,
        "src/tilewright/long.py": "a = 1\n" * 501,
        "tests/test_whole.py": "a = 1\n" * 600,
        "benchmarks/deep/long.py": "a = 1\n" * 601,
        "src/tilewright/functions.py": "".join(
            [function("right", 60, docstring=9), function("long", 61), function("compare", 62)]
        ),
        "src/tilewright/longer.py": function("compare", 63),
        "src/tilewright/branches.py": "def branched(a):\n" + "    a = a or 0\n" * 20,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert sorted(house.over_limits(tmp_path)) == [
        "benchmarks/deep/long.py has 601 lines, at most 600",
        "src/tilewright/long.py has 501 lines, at most 500",
        "tilewright.branches.branched has 21 branches, at most 20",
        "tilewright.functions.long has 61 lines, at most 60",
        "tilewright.longer.compare has 63 lines, at most 62",
    ]


def test_definitions_have_the_lines_from_their_decorators_to_their_end():
    text = (
        "import a\n\n@a.b\n@a.c\ndef one():\n    return 1\n\n"
        "TWO: int = (\n    2\n)\nclass Three:\n    x = 1\n"
    )
    assert list(house.definitions(text)) == [("one", 4), ("TWO", 3), ("Three", 2)]
