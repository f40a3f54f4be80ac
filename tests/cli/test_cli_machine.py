import json

import pytest

from tilewright.cli import main
from tilewright.machines import gpu, gpu_names, machine_from_dict


def test_this_machine(capsys):
    assert main(["machine"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("CPU  ")
    assert "cores usable" in out
    assert "L1 cache" in out


def test_this_machine_as_json(capsys):
    assert main(["machine", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert machine_from_dict(data["cpu"]).cores >= 1
    for entry in data["gpus"]:
        machine_from_dict(entry)


def test_a_gpu_by_name(capsys):
    assert main(["machine", "--gpu", "H100"]) == 0
    out = capsys.readouterr().out
    for expected in ("NVIDIA H100 SXM5", "132", "48 KiB (opt-in 227 KiB)", "cuda_capability_86"):
        assert expected in out


def test_a_gpu_as_json(capsys):
    assert main(["machine", "--gpu", "rtx 2080 ti", "--json"]) == 0
    assert machine_from_dict(json.loads(capsys.readouterr().out)) == gpu("rtx2080ti")


def test_the_list(capsys):
    assert main(["machine", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(gpu_names())
    assert main(["machine", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gpu_names()


@pytest.mark.parametrize("option", ["--list", "--calibrate"])
def test_outputs_that_would_not_be_written_are_refused(tmp_path, capsys, option):
    assert main(["machine", option, "-o", str(tmp_path / "m.json")]) == 2
    assert "leave it out with --list and --calibrate" in capsys.readouterr().err


def test_an_unknown_gpu(capsys):
    assert main(["machine", "--gpu", "h20O"]) == 2
    assert "Did you mean" in capsys.readouterr().err
