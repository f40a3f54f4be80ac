"""Errors name the user's line, also where equal patterns of several programs share one node."""

import re
from typing import Any

import numpy as np
import pytest

import tilewright.patterns as tp
from tilewright.cli import main

HEAD = """
from tilewright.patterns import *
N, M = sizes("N M")
x = array("x", f32[N])
grid = array("x", f32[N, M])
f = fun(lambda v: v + v, "f")
"""


def programs(tmp_path, text, name="programs.py"):
    """The names of a file of patterns, and the file."""
    path = tmp_path / name
    path.write_text(HEAD + text)
    found: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), found)
    return found, path


def named(tmp_path, error, name="programs.py"):
    """The code that an error shows, and its line number."""
    found = re.search(rf"\n  at {re.escape(str(tmp_path / name))}:(\d+)(?:: (.*))?$", str(error))
    assert found, str(error)
    return found[2]


# Of each: a file, and by program the line that its error names.
FILES = {
    "a part of a later program": (
        """
partial = map(f)
mapin = x >> map(map(f))
""",
        {"partial": "partial = map(f)", "mapin": "mapin = x >> map(map(f))"},
    ),
    "a part of a later call": (
        """
partial = map(f)
other = map2(f)
""",
        {"partial": "partial = map(f)", "other": "other = map2(f)"},
    ),
    "the first stages of a later program": (
        """
short = x >> join
long = x >> join >> map(f)
""",
        {"short": "short = x >> join", "long": "long = x >> join >> map(f)"},
    ),
    "equal stages of programs": (
        """
one = (
    x
    >> map(f)
    >> join
)
two = (
    x
    >> map(f)
    >> map(f)
    >> map(map(f))
)
three = x >> map(f) >> transpose >> map(f)
four = x >> pad(1, 1, 0) >> map(map(f))
""",
        {
            "one": "x",
            "two": ">> map(map(f))",
            "three": "three = x >> map(f) >> transpose >> map(f)",
            "four": "four = x >> pad(1, 1, 0) >> map(map(f))",
        },
    ),
    "a stage that two programs share": (
        """
rows = map(map(f))
first = x >> rows
second = x >> map(f) >> rows
right = grid >> map(map(f))
""",
        {"first": "rows = map(map(f))", "second": "rows = map(map(f))"},
    ),
    "a pipe that a program takes": (
        """
step = map(f) >> map(map(f))
single = map(map(f))
taken = x >> step
after = grid >> map(map(f))
""",
        {"taken": "step = map(f) >> map(map(f))"},
    ),
    "functions": (
        """
def rows():
    return map(map(f))
def first():
    return x >> rows()
def second():
    return x >> crop(1) >> rows()
made = first()
other = second()
later = grid >> map(map(f)) >> map(map(f))
""",
        {"made": "return map(map(f))", "other": "return map(map(f))"},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_programs_of_one_file_keep_their_lines(tmp_path, name):
    text, lines = FILES[name]
    found, _ = programs(tmp_path, text)
    for program, line in lines.items():
        with pytest.raises(tp.PatternTypeError) as caught:
            tp.type_of(found[program])
        assert named(tmp_path, caught.value) == line, program


def test_more_programs_than_a_few_keep_their_lines(tmp_path):
    many = [f"p{i} = x >> crop({i + 1}) >> map(map(f))" for i in range(40)]
    found, _ = programs(tmp_path, "\n".join(many))
    for i, line in enumerate(many):
        with pytest.raises(tp.PatternTypeError) as caught:
            tp.type_of(found[f"p{i}"])
        assert named(tmp_path, caught.value) == line


def test_programs_of_two_files_keep_their_lines(tmp_path):
    first, _ = programs(tmp_path, "\np = x >> crop(1) >> map(map(f))\n", "one.py")
    second, _ = programs(tmp_path, "\n\n\np = x >> crop(2) >> map(map(f))\n", "two.py")
    for found, name, crop in ((first, "one.py", 1), (second, "two.py", 2)):
        with pytest.raises(tp.PatternTypeError) as caught:
            tp.type_of(found["p"])
        assert named(tmp_path, caught.value, name) == f"p = x >> crop({crop}) >> map(map(f))"


def test_sizes_that_do_not_fit_are_named_in_the_program(tmp_path):
    found, _ = programs(
        tmp_path,
        """
p = x >> map(f) >> split(4) >> join
q = x >> split(4) >> map(map(f)) >> join
""",
    )
    for program, line in (("p", "p = x >> map(f) >> split(4) >> join"), ("q", "q = x >> ")):
        for run in (
            lambda p: tp.with_sizes(p, {"N": 6}),
            lambda p: tp.interpret(p, np.zeros(6, np.float32)),
            lambda p: tp.compile(p)(np.zeros(6, np.float32)),
        ):
            with pytest.raises(tp.SizeError, match="not a whole number") as caught:
                run(found[program])
            assert named(tmp_path, caught.value).startswith(line)


# Of each: a program, options, what is said.
REFUSED = {
    "inside another": (
        "wrong = grid >> map_glb(map_glb(f))",
        ("--target", "opencl"),
        "map_glb of dimension 0 inside another",
    ),
    "inside another, with sizes": (
        "wrong = grid >> map_glb(map_glb(f))",
        ("--target", "cuda", "--sizes", "N=8,M=8"),
        "map_glb of dimension 0 inside another",
    ),
    "outside of groups": (
        "wrong = x >> map_lcl(f)",
        ("--target", "cuda", "--sizes", "N=8"),
        "map_lcl of dimension 0 outside of map_wrg",
    ),
    "equal names": (
        'wrong = zip(x, array("x", i32[N])) >> map(get(0))',
        ("--sizes", "N=8"),
        "two inputs are called x",
    ),
    "a size that is not there": (
        "wrong = x >> map(map(f))",
        ("--sizes", "M=8"),
        "takes an array, but gets f32",
    ),
    "equal names and a size that is not there": (
        'wrong = zip(x, array("x", i32[N])) >> map(get(0))',
        ("--sizes", "M=8"),
        "two inputs are called x",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_commands_refuse_a_program_at_its_line(tmp_path, capsys, name):
    line, options, said = REFUSED[name]
    _, path = programs(tmp_path, f"\n{line}\n")
    assert main(["patterns", "compile", f"{path}:wrong", *options]) != 0
    error = capsys.readouterr().err.rstrip()
    assert said in error
    assert named(tmp_path, error) == line


@pytest.mark.parametrize("command", ["derive", "tune", "rank"])
def test_every_command_checks_the_program_before_its_sizes(tmp_path, capsys, command):
    _, path = programs(tmp_path, "\nwrong = x >> map(map(f))\n")
    assert main(["patterns", command, f"{path}:wrong", "--sizes", "M=8"]) != 0
    assert "takes an array, but gets f32" in capsys.readouterr().err


def test_kernels_refuse_two_inputs_of_one_name_at_the_line_of_the_second(tmp_path):
    found, _ = programs(tmp_path, '\ny = array("x", i32[N])\np = zip(x, y) >> map(get(0))\n')
    for run in (tp.source, lambda p: tp.interpret(p, [1.0], [1]), lambda p: tp.source(p, "cuda")):
        with pytest.raises(tp.PatternError, match="two inputs are called x") as caught:
            run(found["p"])
        assert named(tmp_path, caught.value) == 'y = array("x", i32[N])'
