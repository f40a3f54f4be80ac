"""Printed schedules, as Python and as C++, lower to what applying them lowers to."""

import re
import subprocess
import sys
from pathlib import Path

import halide as hl
import pytest
from schedule_cases import all_cases
from scheduled_pipelines import BUILDERS, imported, lowered, normalised, unnumbered

import tilewright
from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp, to_python
from tilewright.halide.ir.json import to_json
from tilewright.halide.legality.check import check

CASES = all_cases()

MAIN = """
#include <sys/wait.h>
#include <unistd.h>
#define CASE(name, target) \\
    if (fork() == 0) { \\
        Halide::Pipeline pipeline = Halide::deserialize_pipeline(#name ".hlpipe", {}); \\
        name(pipeline); \\
        pipeline.compile_to_lowered_stmt( \\
            #name ".cpp.stmt", pipeline.infer_arguments(), Halide::Text, Halide::Target(target)); \\
        _exit(0); \\
    } \\
    wait(nullptr);
"""


# Automatic names, on whose spelling the order of some code depends, start over in it as they do
# in the C++ program.
FRESH = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from scheduled_pipelines import lowered
from tilewright.halide.emit.apply import apply
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.json import from_json
for name in sys.argv[2:]:
    algorithm = import_pipeline(pathlib.Path(name + ".hlpipe").read_bytes())
    schedule = from_json(pathlib.Path(name + ".json").read_text(), algorithm)
    text = lowered(
        algorithm,
        lambda p: apply(schedule, algorithm, p, same_bytes=True),
        pathlib.Path("stmt"),
        schedule.target,
    )
    pathlib.Path(name + ".python.stmt").write_text(text)
"""


def printed(schedule, algorithm):
    space: dict = {}
    exec(to_python(schedule, algorithm), space)
    return space["schedule"]


def applied(name, path):
    algorithm, schedule = CASES[name]
    return lowered(
        algorithm, lambda p: apply(schedule, algorithm, p, same_bytes=True), path, schedule.target
    )


@pytest.mark.parametrize("name", CASES)
def test_the_cases_are_legal(name):
    algorithm, schedule = CASES[name]
    assert check(schedule, algorithm) == []


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(6)
def test_python_lowers_to_the_same_code(name, tmp_path):
    algorithm, schedule = CASES[name]
    path = tmp_path / "stmt"
    again = lowered(algorithm, printed(schedule, algorithm), path, schedule.target)
    assert again == applied(name, path)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.few(5)
def test_a_pipeline_built_again_with_other_automatic_names(name, tmp_path):
    algorithm, schedule = CASES[name]
    build = next(b for b in BUILDERS.values() if imported(b()).digest == algorithm.digest)
    path = tmp_path / "stmt"

    def rebuilt():
        return [build() for _ in range(12)][-1]

    live = lowered(rebuilt, lambda p: apply(schedule, algorithm, p), path, schedule.target)
    again = lowered(rebuilt, printed(schedule, algorithm), path, schedule.target)
    # Importing the live pipeline makes no names, so the two are equal to the letter.
    assert again == live
    assert loops(live) == loops(applied(name, path))


def loops(text):
    """The loops in order, without what Halide numbers."""
    found = re.findall(r"(for|gpu_\w+|parallel\w*)\S* \((\S+),", text)
    return [(kind, re.sub(r"[_$]\d+(?=_intm)|\$?\d+", "", name)) for kind, name in found]


def test_cpp_lowers_to_the_same_code(tmp_path):
    wheel = Path(hl.__file__).parent
    source = [f'#include "{name}.h"' for name in CASES] + [MAIN, "int main() {"]
    for name, (algorithm, schedule) in CASES.items():
        (tmp_path / f"{name}.hlpipe").write_bytes(algorithm.serialized)
        (tmp_path / f"{name}.json").write_text(to_json(schedule))
        (tmp_path / f"{name}.h").write_text(to_cpp(schedule, algorithm, name))
        target = "host" if schedule.target == "host" else f"host-{schedule.target}"
        source.append(f'    CASE({name}, "{target}-no_runtime")')
    (tmp_path / "main.cpp").write_text("\n".join([*source, "}"]))
    library = wheel / "lib64"
    options = f"-std=c++17 -O0 -Wall -Werror main.cpp -o main -L{library} -lHalide"
    paths = [f"-isystem{wheel / 'include'}", f"-Wl,-rpath,{library}"]
    subprocess.run(["g++", *options.split(), *paths], cwd=tmp_path, check=True)
    subprocess.run(["./main"], cwd=tmp_path, check=True)
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", FRESH, here, *CASES], cwd=tmp_path, check=True)
    for name in CASES:
        texts = [(tmp_path / f"{name}.{kind}.stmt").read_text() for kind in ("cpp", "python")]
        assert normalised(texts[0]) == normalised(texts[1])


def test_printed_code_uses_the_users_names():
    algorithm, schedule = CASES["sliding_window"]
    text = unnumbered(to_python(schedule, algorithm))
    assert ".split(y, y_o, y_i, 32, hl.TailStrategy.GuardWithIf)" in text
    assert "across.compute_at(blurred, y_i)" in text
    assert "# across: computed at loop y_i of blurred, stored at loop y_o of blurred" in text


def narrow():
    """A blur whose schedule, made for its estimates alone, wants outputs of some size."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image_n")
    across, down = hl.Func("across_n"), hl.Func("down_n")
    across[x, y] = image[x, y] + image[x + 1, y]
    down[x, y] = across[x, y] + across[x, y + 1]
    return down.set_estimates([(0, 1536), (0, 1024)])


def test_printed_schedules_state_what_they_require_and_check_it_when_asked():
    result = tilewright.schedule(narrow(), exact_sizes=True)
    needs = [need for need in result.requirements if need.on == "output"]
    assert needs
    assert "\n    Requires: " in result.to_python()
    assert "\n// Requires: " in result.to_cpp()
    assert "_refuses" not in result.to_python() + result.to_cpp()
    space: dict = {}
    exec(result.to_python("fast", runtime_checks=True), space)
    name = result.task.algorithm.outputs[0]
    assert space["fast_refuses"](**{name: (1536, 1024)}) is None
    for need in needs:
        extents = [1536, 1024]
        extents[need.dimension] = need.minimum - 1
        assert space["fast_refuses"](**{name: extents}) == str(need)


def test_checks_in_cpp_say_the_same(tmp_path):
    result = tilewright.schedule(narrow(), exact_sizes=True)
    need = next(need for need in result.requirements if need.on == "output")
    header = result.to_cpp("fast", runtime_checks=True)
    assert f'return "{need}";' in header
    (tmp_path / "checked.h").write_text(header)
    main = f"""
        #include "checked.h"
        #include <cstdio>
        int main() {{
            halide_dimension_t dims[] = {{{{0, 1536, 1}}, {{0, 1024, 1536}}}};
            halide_buffer_t output = {{}};
            output.dim = dims;
            if (fast_refuses(&output)) return 1;
            dims[{need.dimension}].extent = {need.minimum - 1};
            puts(fast_refuses(&output));
        }}"""
    (tmp_path / "main.cpp").write_text(main)
    wheel = Path(hl.__file__).parent
    options = ["-std=c++17", "-O0", "-Wall", "-Werror", f"-isystem{wheel / 'include'}"]
    options += [f"-L{wheel / 'lib64'}", "-lHalide", f"-Wl,-rpath,{wheel / 'lib64'}"]
    subprocess.run(["g++", "main.cpp", "-o", "main", *options], cwd=tmp_path, check=True)
    said = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout == f"{need}\n"
