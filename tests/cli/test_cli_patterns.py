"""``tilewright patterns``: programs of a user's file derived, ranked and compiled."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright.patterns as tp
from tilewright.cli import main
from tilewright.cli.patterns.shared import FORMAT, VERSION
from tilewright.patterns.features import TABLE_1
from tilewright.patterns.ranking import FEATURES, MeasuredProgram, write_measured

PROGRAM = """
from tilewright import patterns as tp

N, M = tp.sizes("N M")
mean = tp.fun(lambda w: (w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1]) / 4, "mean")
stencil = tp.array("A", tp.f32[N, M]) >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(mean)


def chunks(k=4):
    return tp.array("x", tp.f32[N]) >> tp.split(k) >> tp.map2(tp.fun(lambda v: v + v)) >> tp.join


def nothing():
    return None


def wrong():
    return tp.array("A", tp.f32[N, 6]) >> tp.map(tp.split(4) >> tp.join)


def broken():
    return [].missing


number = 3


def shuffled():
    return tp.array("x", tp.f32[N]) >> tp.map(tp.copy) >> tp.scatter(lambda i, n: 2 * i % n)


def branching():
    return tp.array("x", tp.f32[N]) >> tp.map(tp.fun(lambda x: x if x > 0 else -x))


def unread():
    return tp.array("x", tp.f32[N]) >> tp.scatter(lambda i, n: n - 1 - i) >> tp.map(tp.copy)
"""
SMALL = ["--tiles", "4,8", "--limit", "30"]
SIZES = ["--sizes", "N=16,M=32"]


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "stencil.py"
    made.write_text(PROGRAM)
    return str(made)


def run(capsys, *words):
    code = main(["patterns", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("target", ["gpu", "c"])
def test_derived_programs_are_listed_and_written(path, tmp_path, capsys, target):
    out = tmp_path / "derived.json"
    words = ["derive", path, *SIZES, *SMALL, "--target", target, "--top", 4, "-o", out]
    code, text, _ = run(capsys, *words)
    assert code == 0
    assert "30 programs of type f32[16, 32]" in text
    assert "lower_nest(" in text
    data = json.loads(out.read_text())
    assert (data["count"], data["target"], len(data["derived"])) == (30, target, 4)
    a = np.random.default_rng(0).random((16, 32), np.float32)
    for item in data["derived"]:
        p = tp.from_json(item["program"])
        assert str(p) == item["text"]
        assert np.array_equal(tp.interpret(p, a), tp.interpret(start(path), a))


def start(path):
    found: dict = {}
    exec(Path(path).read_text(), found)
    return found["stencil"]


def test_a_derivation_is_shown_step_by_step(path, capsys):
    code, text, _ = run(capsys, "derive", path, *SMALL, "--number", 2)
    assert code == 0
    assert "= { tiling2(" in text or "= { lower_nest(" in text
    code, _, error = run(capsys, "derive", path, *SMALL, "--number", 99)
    assert code == 2
    assert "there are 30 derived programs" in error


def test_kernels_are_ranked_by_an_estimate(path, tmp_path, capsys):
    out = tmp_path / "ranked.json"
    words = ["rank", path, *SIZES, *SMALL, "--launches", 3, "--top", 5, "-o", out]
    code, text, _ = run(capsys, *words)
    assert code == 0
    assert "an estimate for NVIDIA A100" in text
    data = json.loads(out.read_text())
    predicted = [item["predicted"] for item in data["derived"]]
    assert len(predicted) == 5
    assert predicted == sorted(predicted, reverse=True)
    assert set(data["derived"][0]["features"]) == set(FEATURES)
    assert data["count"] > 2 * data["expressions"]
    code, quiet, _ = run(capsys, *words, "-q")
    assert quiet.strip() == text.strip().partition("\n")[2].strip()
    code, other, _ = run(capsys, *words, "--json")
    assert json.loads(other)["derived"] == data["derived"]


@pytest.mark.parametrize("model", ["knn", "boosted", "gp"])
def test_kernels_are_ranked_by_what_was_measured(path, tmp_path, capsys, model):
    rng = np.random.default_rng(0)
    features = rng.uniform(1, 100, (40, len(FEATURES)))
    features[:, TABLE_1:] = rng.integers(0, 10, (40, len(FEATURES) - TABLE_1))  # may be none
    features[:, FEATURES.index("lines_per_access")] = rng.uniform(1, 32, 40)
    seconds = 1e-6 * features[:, FEATURES.index("lines_per_access")] ** 2
    file = tmp_path / "measured.json"
    write_measured(file, [MeasuredProgram("other", {"N": 1}, features, seconds)])
    words = ["rank", path, *SIZES, *SMALL, "--launches", 2, "--measured", file, "--json"]
    code, text, _ = run(capsys, *words, "--model", model)
    assert code == 0
    data = json.loads(text)
    assert data["model"] == f"{model} from 40 measured kernels"
    best, worst = data["derived"][0], data["derived"][-1]
    assert 0 < worst["predicted"] <= best["predicted"]
    lines = [item["features"]["lines_per_access"] for item in (best, worst)]
    # The measured kernels lie too far from these for their neighbours to tell.
    assert model == "knn" or lines[0] <= lines[1]


needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") or shutil.which("clang")), reason="no C compiler"
)


@needs_compiler
def test_a_program_is_compiled_and_verified(path, tmp_path, capsys):
    out = tmp_path / "stencil.c"
    code, text, _ = run(capsys, "compile", path, *SIZES, "--verify", "--name", "mean", "-o", out)
    assert code == 0
    assert "verified: relative error" in text
    assert f"wrote {out}" in text
    assert " mean(" in out.read_text()
    compiler = shutil.which("gcc") or shutil.which("clang") or ""
    subprocess.run([compiler, "-fopenmp", "-c", str(out), "-o", str(tmp_path / "o")], check=True)


@needs_compiler
def test_a_wrong_kernel_is_found_and_not_written(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tp, "interpret", lambda p, *arrays: np.zeros((16, 32)))
    out = tmp_path / "stencil.c"
    code, text, _ = run(capsys, "compile", path, *SIZES, "--verify", "-o", out)
    assert code == 1
    assert "WRONG" in text
    assert not out.exists()


def test_ranked_kernels_are_compiled_by_their_number(path, tmp_path, capsys):
    out = tmp_path / "ranked.json"
    run(capsys, "rank", path, *SIZES, *SMALL, "--launches", 3, "-q", "-o", out)
    code, text, said = run(capsys, "compile", out)
    assert code == 0
    assert "get_" in text  # OpenCL: the position of a thread
    assert "groups of" in said
    assert run(capsys, "compile", out, "-q") == (0, text, "")
    code, text, _ = run(capsys, "compile", out, "--number", 3, "--target", "cuda", "--json")
    data = json.loads(text)
    assert "__global__" in data["source"]
    ranked = json.loads(out.read_text())["derived"][2]["features"]
    (launch,) = data["launches"].values()
    assert launch["threads"] == [ranked[f"local_size_{d}"] for d in range(3)]
    total = [g * t for g, t in zip(launch["groups"], launch["threads"], strict=True)]
    assert total == [ranked[f"global_size_{d}"] for d in range(3)]
    code, _, error = run(capsys, "compile", out, "--number", 30)
    assert (code, "has no program 30" in error) == (2, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"format": FORMAT}, "is not written by"),
        ([FORMAT], "is not written by"),
        ({"format": FORMAT, "version": VERSION, "derived": 3}, "program 1 cannot be read"),
        ({"format": FORMAT, "version": VERSION, "derived": [{}]}, "'number' is missing"),
        (
            {"format": FORMAT, "version": VERSION, "derived": [{"number": 1, "launch": [1]}]},
            "program 1 cannot be read",
        ),
    ],
)
def test_other_files_of_programs_are_refused(tmp_path, capsys, content, said):
    path = tmp_path / "other.json"
    path.write_text(json.dumps(content))
    code, _, error = run(capsys, "compile", path)
    assert (code, said in error) == (2, True), error


def test_files_to_keep_are_written(path, tmp_path, capsys):
    kept, declared = tmp_path / "kept.c", tmp_path / "kept.h"
    words = ["--host", kept, "--header", declared, "--name", "mean4"]
    code, text, _ = run(capsys, "compile", path, "--target", "opencl", *words)
    assert code == 0
    # Launches are in the program's sizes, where these are open.
    groups = "mean4_0: ((M + 31) // 32)x((N + 3) // 4) groups of 32x4 threads"
    assert text.splitlines() == [groups, f"wrote {kept}", f"wrote {declared}"]
    assert "clEnqueueNDRangeKernel" in kept.read_text()
    assert "int mean4_run(" in declared.read_text()
    code, _, error = run(capsys, "compile", path, "--host", tmp_path / "none" / "x.c")
    assert (code, "none" in error) == (2, True)


def test_functions_take_arguments(path, capsys):
    code, text, _ = run(capsys, "compile", f"{path}:chunks", "--arg", "k=8", "--json")
    assert code == 0
    assert "8" in json.loads(text)["source"]
    code, _, error = run(capsys, "compile", f"{path}:chunks", "--arg", "j=8")
    assert code == 2
    assert "--arg NAME=VALUE" in error


def test_examples_of_the_package_are_programs(capsys):
    for name in ("jacobi5", "matmul"):
        code, text, _ = run(capsys, "compile", "--example", name)
        assert code == 0
        assert "kernel(" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["derive"], "name a program as file.py:name"),
        (["derive", "{path}", "--example", "dot"], "not both"),
        (["derive", "--example", "jacobi"], "did you mean 'jacobi"),
        (["derive", "missing.py:p"], "missing.py does not exist"),
        (["derive", "{path}:stencl"], "did you mean 'stencil'"),
        (["derive", "{path}:number"], "is a value of type int, not a pattern"),
        (["derive", "{path}:nothing"], "returned nothing, not a pattern"),
        (["derive", "{path}:broken"], "line 22: AttributeError"),
        (["derive", "{path}:wrong"], "stencil.py:18"),
        (["derive", "{path}", "--arg", "k=3"], "takes no --arg"),
        (["derive", "{path}", "--sizes", "K=3"], "no size K; it has M, N"),
        (["derive", "{path}", "--tiles", "4,0"], "'0' is not a whole number from 1"),
        (
            ["rank", "{path}", "--sizes", "N=64"],
            "no value for M: give it, as in --sizes M=1024,N=64",
        ),
        (["rank", "{path}:chunks", "--sizes", "N=6"], "N / 4 is 6/4"),
        (["derive", "{path}:chunks", "--sizes", "N=6"], "stencil.py:10"),
        (["tune", "{path}:chunks", "--sizes", "N=6"], "stencil.py:10"),
        (["derive", "{path}:shuffled", "--sizes", "N=8"], "stencil.py:29"),
        (["compile", "{path}:shuffled", "--sizes", "N=8"], "some index occurs twice"),
        (["derive", "{path}:branching"], "line 33: a user function cannot branch"),
        (["tune", "{path}:unread", "--sizes", "N=8", "--limit", "3"], "stencil.py:37"),
        (["rank", "{path}:unread", "--sizes", "N=8", "--limit", "3"], "stencil.py:37"),
        (["rank", "{path}", "--model", "knn"], "give --measured"),
        (["rank", "{path}", "--measured", "x", "--machine", "h100"], "leave it out"),
        (["rank", "{path}", "--measured", "missing.json"], "missing.json"),
        (["rank", "{path}", "--machine", "h1000"], "h100"),
        (["compile", "{path}", "--verify"], "no value for M, N"),
        (["compile", "{path}", "--number", "2"], "--number is for a .json file"),
        (["compile", "{path}", "--name", "a b"], "'a b'"),
        (["compile", "pyproject.json"], "pyproject.json"),
    ],
)
def test_mistakes_name_their_cause_and_cure(path, capsys, words, said):
    code, out, error = run(capsys, *(word.replace("{path}", path) for word in words))
    assert (code, out) == (2, "")
    assert said in error
    assert "Traceback" not in error


def test_tuned_programs_are_written_and_shown(path, tmp_path, capsys):
    out, page = tmp_path / "tuned.json", tmp_path / "page.html"
    words = [f"{path}:stencil", *SIZES, *SMALL, "--top", "2", "--records", tmp_path / "r.db"]
    code, shown, _ = run(capsys, "tune", *words, "-o", out, "--report", page)
    assert code == 0
    # Where other work disturbs the machine, the two may not have been timed in turn.
    assert "number 1 " in shown
    assert "the program as it is written" in shown
    assert "wrote " in shown
    document = json.loads(out.read_text())
    assert len(document["derived"]) == 2
    assert document["derived"][0]["measurement"]["status"] == "ok"
    assert "derivation of the fastest" in page.read_text()
    assert "tilewright patterns tune" in page.read_text()  # how it was made
    assert run(capsys, "compile", out, "--verify", "-q")[0] == 0


def test_tuning_refuses_options_without_effect(path, capsys):
    code, _, error = run(capsys, "tune", f"{path}:stencil", *SIZES, "--machine", "a100")
    assert code == 2
    assert "--machine is for --target opencl" in error
    words = ["--target", "opencl", "--threads", "2"]
    assert "--threads is for C" in run(capsys, "tune", f"{path}:stencil", *SIZES, *words)[2]
