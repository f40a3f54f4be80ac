import argparse
import json

import pytest

from tilewright.cli.arguments import check_outputs, named_machine, sizes_of
from tilewright.cli.values import assignment, duration, estimate, memory, positive, seed
from tilewright.errors import TilewrightError
from tilewright.machines import detect_cpu, gpu, machine_to_dict


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (duration, "90", 90.0),
        (duration, "1.5m", 90.0),
        (duration, "2 min", 120.0),
        (duration, "300ms", 0.3),
        (duration, "2h", 7200.0),
        (memory, "8G", 8 << 30),
        (memory, "512MiB", 512 << 20),
        (memory, "1.5k", 1536),
        (memory, "100", 100),
        (positive, "5", 5),
        (seed, "0", 0),
        (seed, "4294967295", 2**32 - 1),
        (estimate, "out=1536x2560x3", ("out", ((0, 1536), (0, 2560), (0, 3)))),
        (estimate, "in=-3:100, 7:20", ("in", ((-3, 100), (7, 20)))),
        (assignment, "levels=8", ("levels", 8)),
        (assignment, "r_sigma=0.1", ("r_sigma", 0.1)),
        (assignment, "e=1e-3", ("e", 0.001)),
        (assignment, "name=a=b", ("name", "a=b")),
        (assignment, "flag=False", ("flag", False)),
    ],
)
def test_texts_are_read(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (duration, "0"),
        (duration, "-3s"),
        (duration, "soon"),
        (duration, ""),
        (duration, "9" * 400),
        (duration, "600h"),
        (memory, "0"),
        (memory, "8T"),
        (memory, "much"),
        (memory, "9" * 400),
        (memory, "99999999999G"),
        (positive, "0"),
        (positive, "-1"),
        (positive, "²"),
        (seed, "-1"),
        (seed, "4294967296"),
        (seed, "1.5"),
        (positive, "x"),
        (estimate, "1536x2560"),
        (estimate, "out="),
        (estimate, "out=axb"),
        (estimate, "=3x4"),
        (estimate, "out=3x-4"),
        (assignment, "levels"),
        (assignment, "=3"),
    ],
)
def test_wrong_texts_are_refused_by_quoting_them(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not"):
        read(text)


def test_machines_by_name_and_from_files(tmp_path):
    assert named_machine(None) is None
    assert named_machine("h100") == gpu("h100")
    one = tmp_path / "one.json"
    one.write_text(json.dumps(machine_to_dict(gpu("v100"))))
    assert named_machine(str(one)) == gpu("v100")
    here = tmp_path / "here.json"
    here.write_text(json.dumps({"cpu": machine_to_dict(detect_cpu()), "gpus": []}))
    assert named_machine(str(here)) == detect_cpu()


def test_machines_that_are_not_there(tmp_path):
    with pytest.raises(TilewrightError, match="cannot read"):
        named_machine(str(tmp_path / "none.json"))
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(TilewrightError, match="not JSON"):
        named_machine(str(broken))


def test_outputs_that_cannot_be_written_are_refused_early(tmp_path):
    for option in ("output", "report"):
        for path in (str(tmp_path / "new.html"), "-", None):
            check_outputs(argparse.Namespace(**{option: path}))
    for wrong, said in (
        ({"output": str(tmp_path)}, "is a folder"),
        ({"report": str(tmp_path / "no" / "page.html")}, "there is no folder"),
        ({"export": [str(tmp_path)]}, "is a folder"),
        ({"output": "-", "json": True}, "one document"),
        ({"output": "-", "report": "-"}, "one document"),
        ({"report": "-", "json": True}, "one document"),
    ):
        with pytest.raises(TilewrightError, match=said):
            check_outputs(argparse.Namespace(**wrong))


def test_a_name_given_again_begins_another_size():
    small, large, scale = estimate("out=640x480"), estimate("out=1536x2560"), estimate("in=9")
    assert sizes_of([small, scale], {"s": 1}) == {"out": small[1], "in": ((0, 9),), "s": 1}
    assert sizes_of([small, scale, large], {"s": 1}) == [
        {"out": small[1], "in": ((0, 9),), "s": 1},
        {"out": large[1], "in": ((0, 9),), "s": 1},
    ]
    assert sizes_of([], {}) == {}
    with pytest.raises(TilewrightError, match="out has 3 estimates and in 2"):
        sizes_of([small, large, scale, scale, small], {})
