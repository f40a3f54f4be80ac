"""Pipelines from everywhere a user may have them."""

from __future__ import annotations

import sys

import halide as hl
import pytest
from halide_constructs import define, image, output, x, y
from scheduled_pipelines import unnumbered

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.source import ScheduledError, load


def blur():
    im = image(hl.UInt(16))
    g = define("g_source", (x, y), im[x, y] + im[x + 1, y])
    return output(define("f_source", (x, y), g[x, y] + g[x, y + 1]), 8, 6)


@hl.generator("source_test")
class Blur(hl.Generator):
    taps = hl.GeneratorParam(2)
    im = hl.InputBuffer(hl.UInt(16), 2)
    gain = hl.InputScalar(hl.UInt(16))
    out = hl.OutputBuffer(hl.UInt(16), 2)

    def generate(self):
        total = self.im[x, y]
        for i in range(1, self.taps):
            total = total + self.im[x + i, y]
        self.out[x, y] = total * self.gain
        self.out.set_estimates([(0, 8), (0, 6)])
        self.gain.set_estimate(3)


def test_funcs_pipelines_and_bytes_are_one_computation():
    serialized = bytes(hl.serialize_pipeline(hl.Pipeline(blur())))
    things = [blur(), [blur()], (blur(),), hl.Pipeline(blur()), serialized, bytearray(serialized)]
    assert len({load(thing).digest for thing in things}) == 1


def test_several_funcs_are_several_outputs():
    a, b = blur(), blur()
    assert load([a, b]).outputs == (a.name(), b.name())


def test_a_generator_class_is_built_with_its_defaults():
    algorithm = load(Blur)
    assert [unnumbered(name) for name in algorithm.outputs] == ["out"]
    assert {p.name for p in algorithm.parameters} == {"im", "gain"}
    assert algorithm.scalars == {"gain": 3}


def test_a_generator_instance_keeps_its_parameters():
    def instance(taps):
        with hl.GeneratorContext(hl.get_jit_target_from_environment()):
            return Blur({"taps": taps})

    assert load(instance(2)).digest == load(Blur).digest != load(instance(3)).digest
    built = instance(3)
    built._build_pipeline()
    assert load(built).digest == load(instance(3)).digest


def test_files_are_read(tmp_path):
    path = tmp_path / "blur.hlpipe"
    hl.serialize_pipeline(hl.Pipeline(blur()), str(path))
    expected = load(blur()).digest
    assert load(path).digest == load(str(path)).digest == expected


PROGRAM = """
import halide as hl
from helper_of_source_test import WIDTH

x = hl.Var("x")

def line():
    f = hl.Func("line")
    f[x] = x * 2
    f.set_estimates([(0, WIDTH)])
    return f

def needs(argument):
    return line()

def fails():
    raise KeyError("inside")

def nothing():
    return 3

ready = line()

@hl.generator("line_of_source_test")
class Line(hl.Generator):
    out = hl.OutputBuffer(hl.Int(32), 1)
    def generate(self):
        self.out[x] = x * 2
        self.out.set_estimates([(0, WIDTH)])
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "helper_of_source_test.py").write_text("WIDTH = 12\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    yield str(path)
    sys.modules.pop("helper_of_source_test", None)


def test_functions_generators_and_funcs_in_a_file(program):
    before = list(sys.path), list(sys.modules)
    names = ["line", "ready", "Line", "Line"]
    assert len({load(f"{program}:{name}").digest for name in names}) == 1
    assert (list(sys.path), [m for m in sys.modules if m != "helper_of_source_test"]) == before


def test_estimates_reach_pipelines_in_files(program):
    algorithm = load(f"{program}:line", estimates={"line": [(3, 5)]})
    assert algorithm.by_name[algorithm.outputs[0]].estimates["x"].min == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":absent", "has no 'absent'; it has line, needs, fails, nothing, Line"),
        ("", "needs the name of a pipeline"),
        (":needs", "a function without required arguments"),
        (":fails", "KeyError"),
        (":nothing", "int is not a pipeline"),
    ],
)
def test_missing_functions_of_a_file_are_named(program, name, message):
    with pytest.raises(TilewrightError, match=message):
        load(program + name)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "broken.py").write_text("this is no Python")
    (tmp_path / "text.hlpipe").write_text("this is no pipeline at all")
    for name, message in [
        ("absent.hlpipe", "there is no file"),
        ("absent.py:f", "there is no file"),
        ("broken.py:f", "SyntaxError"),
        ("text.hlpipe", "not a pipeline"),
        ("", "there is no file"),
    ]:
        with pytest.raises(TilewrightError, match=message):
            load(str(tmp_path / name))


@pytest.mark.parametrize("thing", [3, None, [], [1], "", hl.Var("x"), object, {"a": 1}])
def test_other_things_are_refused(thing):
    with pytest.raises(TilewrightError):
        load(thing)


def test_undefined_funcs_are_named():
    with pytest.raises(TilewrightError, match=r"nowhere(\$\d+)? has no definition"):
        load(hl.Func("nowhere"))
    with pytest.raises(TilewrightError, match="could not serialise"):
        load(hl.Pipeline(hl.Func("nowhere")))


def test_scheduled_funcs_are_refused_unless_they_are_to_be_kept():
    f = blur()
    f.vectorize(x, 4)
    with pytest.raises(
        ScheduledError, match=r"f_source.*discard_sch.*keep_schedule=True"
    ) as caught:
        load(f)
    assert caught.value.funcs == (f.name(),)
    kept = load(f, keep_schedule=True)
    assert [func.name for func in kept.funcs if func.scheduled] == [f.name()]
    assert [loop.name for loop in kept.by_name[f.name()].stages[0].loops] == ["x", "y"]


@hl.generator("failing_of_source_test")
class Failing(hl.Generator):
    out = hl.OutputBuffer(hl.Int(32), 1)

    def generate(self):
        raise ZeroDivisionError("by nothing")


@hl.generator("leaving_of_source_test")
class Leaving(hl.Generator):
    out = hl.OutputBuffer(hl.Int(32), 1)

    def generate(self):
        sys.exit("leaves")


class Unregistered(hl.Generator):
    out = hl.OutputBuffer(hl.Int(32), 1)

    def generate(self):
        self.out[x] = x


def failing_instance():
    with hl.GeneratorContext(hl.get_jit_target_from_environment()):
        return Failing()


@pytest.mark.parametrize("make", [lambda: Failing, failing_instance])
def test_errors_in_a_generator_are_shown_with_their_place(make):
    line = Failing.generate.__code__.co_firstlineno + 1
    expected = rf"Failing failed in line {line} of .*: ZeroDivisionError: by nothing"
    with pytest.raises(TilewrightError, match=expected):
        load(make())


def test_what_leaves_the_process_is_an_error_and_does_not(tmp_path):
    with pytest.raises(TilewrightError, match=r"Leaving failed in line .*: SystemExit: leaves"):
        load(Leaving)
    path = tmp_path / "leaving.py"
    path.write_text("import sys\ndef late():\n    sys.exit(3)\n")
    with pytest.raises(TilewrightError, match="SystemExit: 3"):
        load(f"{path}:late")
    path.write_text("import sys\nsys.exit(4)\n")
    with pytest.raises(TilewrightError, match="SystemExit: 4"):
        load(f"{path}:late")


def test_a_generator_that_is_not_registered_is_an_error_with_the_cure():
    with pytest.raises(TilewrightError, match=r"put @hl\.generator\('unregistered'\) before"):
        load(Unregistered)
