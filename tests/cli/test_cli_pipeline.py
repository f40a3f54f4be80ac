import numpy as np
import pytest

from tilewright.cli.pipeline import load_inputs, load_pipeline
from tilewright.errors import TilewrightError
from tilewright.halide import load

PIPELINES = """
import halide as hl
import helper

def blur(width=64, radius=1):
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = x + width * radius + helper.ZERO
    return f

def nothing():
    pass

def fails():
    raise ValueError("no luck")

def stops():
    raise SystemExit(3)

def hand(target):
    return blur()

@hl.generator("gen_of_cli_test")
class Gen(hl.Generator):
    factor = hl.GeneratorParam(2)
    kind = hl.GeneratorParam("add")
    negated = hl.GeneratorParam(False)
    scale = hl.GeneratorParam(1.0)
    source = hl.InputBuffer(None, 1)
    out = hl.OutputBuffer(None, 1)

    def generate(self):
        x = hl.Var("x")
        value = self.source[x]
        value = value * self.factor if self.kind == "mul" else value + self.factor
        self.out[x] = -value if self.negated else value
        self.out.set_estimates([(0, 64)])

data = 3
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "helper.py").write_text("ZERO = 0\n")
    path = tmp_path / "blur.py"
    path.write_text(PIPELINES)
    return path


def test_a_function_of_a_file(file):
    loaded = load_pipeline(f"{file}:blur")
    assert type(loaded.pipeline).__name__ == "Func"
    assert (loaded.name, loaded.function) == ("blur", "blur")
    assert loaded.hand.__name__ == "hand"


def test_a_file_alone_means_the_function_called_like_it(file):
    assert load_pipeline(str(file)).function == "blur"


def test_arguments_are_passed(file):
    load_pipeline(f"{file}:blur", {"width": 3, "radius": 2})


def test_a_generator_is_given_as_the_class_it_is(file):
    assert load_pipeline(f"{file}:Gen").pipeline.__name__ == "Gen"


def test_a_serialised_pipeline(tmp_path):
    path = tmp_path / "p.hlpipe"
    path.write_bytes(b"HLPP bytes")
    loaded = load_pipeline(str(path))
    assert (loaded.name, loaded.pipeline, loaded.hand) == ("p", b"HLPP bytes", None)
    with pytest.raises(TilewrightError, match="use --set"):
        load_pipeline(str(path), {"x": 1})


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("blurr", {}, "has no function 'blurr'; it has: blur, nothing, fails, stops, hand, Gen"),
        ("data", {}, "has no function 'data'"),
        ("blur", {"hight": 3}, "unexpected keyword argument 'hight'.*--arg"),
        ("nothing", {}, "returned nothing"),
        ("fails", {}, r"blur\.py, line 15: ValueError: no luck"),
        ("stops", {}, r"called sys\.exit\(3\)"),
        ("Gen", {"size": 3}, "Gen has no parameter 'size'; it has factor, kind, negated, scale"),
        ("Gen", {"generate": 3}, "Gen has no parameter 'generate'"),
        ("Gen", {"source": 3}, "Gen has no parameter 'source'"),
        ("Gen", {"factor": 2.5}, "Gen wants a value of type int for 'factor', not 2.5"),
        ("Gen", {"factor": True}, "Gen wants a value of type int for 'factor', not True"),
        ("Gen", {"negated": 1}, "Gen wants a value of type bool for 'negated', not 1"),
        ("Gen", {"scale": "x"}, "Gen wants a value of type float for 'scale', not 'x'"),
    ],
)
def test_unusable_pipelines_are_named(file, function, arguments, message):
    with pytest.raises(TilewrightError, match=message):
        load_pipeline(f"{file}:{function}", arguments)


def test_a_file_that_does_not_run(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ny = (\n")
    with pytest.raises(TilewrightError, match=r"broken\.py, line 2: SyntaxError"):
        load_pipeline(str(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TilewrightError, match="does not exist"):
        load_pipeline(str(tmp_path / "none.py") + ":f")
    with pytest.raises(TilewrightError, match="is a folder"):
        load_pipeline(str(tmp_path))


def test_inputs(tmp_path, file):
    assert load_inputs(None) is None
    saved = tmp_path / "in.npz"
    np.savez(saved, a=np.arange(3), b=np.ones((2, 2)))
    loaded = load_inputs(str(saved))
    assert loaded is not None
    assert sorted(loaded) == ["a", "b"]
    assert loaded["a"].tolist() == [0, 1, 2]
    made = tmp_path / "make.py"
    made.write_text("def inputs():\n    return {'a': 3}\ndef wrong():\n    return [1]\n")
    assert load_inputs(f"{made}:inputs") == {"a": 3}
    with pytest.raises(TilewrightError, match="return a dict"):
        load_inputs(f"{made}:wrong")
    with pytest.raises(TilewrightError, match="has no function"):
        load_inputs(f"{made}:none")


def test_inputs_that_are_none(tmp_path):
    with pytest.raises(TilewrightError, match="there is no file"):
        load_inputs(str(tmp_path / "none.npz"))
    junk = tmp_path / "junk.npz"
    junk.write_bytes(b"junk")
    with pytest.raises(TilewrightError, match=r"not an \.npz file"):
        load_inputs(str(junk))


def test_arguments_are_parameters_of_a_generator(file):
    types = {"source.type": "int32", "out.type": "int32"}

    def digest(**arguments):
        return load(load_pipeline(f"{file}:Gen", {**types, **arguments}).pipeline).digest

    assert digest() == digest(factor=2, kind="add", negated=False)
    others = [{"factor": 3}, {"kind": "mul"}, {"negated": True}, {"kind": "mul", "factor": 3}]
    assert len({digest(), *(digest(**other) for other in others)}) == 5
    assert digest(factor=3) == digest(factor=3)
