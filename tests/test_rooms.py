"""Rooms know those below them, by their public names."""

import importlib
import subprocess
import sys
from types import ModuleType

import pytest

import house


@pytest.fixture(scope="module")
def known():
    """Every file of the package, parsed."""
    return house.modules()


def test_rooms_use_the_public_names_of_others(known):
    assert house.deep(known) == []


def test_no_files_import_each_other_in_a_circle(known):
    assert house.cycles(known) == []


def test_no_room_imports_one_above_it(known):
    assert house.upward(known) == []


def test_no_two_files_define_a_class_of_one_name(known):
    assert house.duplicates(known) == {}


def test_a_class_has_one_public_name(known):
    assert house.aliases(known) == {}


def test_every_public_name_is_there(known):
    for package, name in sorted(house.offered(known)):
        if name != "__version__":
            assert getattr(importlib.import_module(package), name) is not None


def test_importing_the_package_imports_nothing_else():
    code = "import sys, tilewright; print([m for m in sys.modules if m.startswith('tilewright.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("code", ["tilewright.tuning.Space", "tilewright.halide.schedule"])
def test_rooms_are_attributes_of_the_package(code):
    line = f"import tilewright; print({code}.__name__)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == code.split(".")[-1]


def made(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / "tilewright" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.modules(tmp_path)


def test_checks_find_forbidden_imports(tmp_path):
    room = tmp_path / "tilewright" / "tuning"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "__init__.pyi").write_text("from .c import A as Space\n")
    known = made(
        tmp_path,
        halide__a="from tilewright.tuning.insides import x\nfrom tilewright.cli import y\n",
        tuning__insides="from tilewright.tuning.other import z\n",
        tuning__other="def f():\n    from tilewright.tuning import insides\n",
        cli__b="class A: ...\n",
        tuning__c="class A: ...\n",
        tuning__d="class TuningResult: ...\nResult = TuningResult\n",
    )
    assert house.deep(known) == [
        ("tilewright.halide.a", "tilewright.tuning.insides.x"),
        ("tilewright.halide.a", "tilewright.cli.y"),
    ]
    assert house.cycles(known) == [["tilewright.tuning.insides", "tilewright.tuning.other"]]
    assert list(house.duplicates(known)) == ["A"]
    assert house.aliases(known) == {
        "Result": ["tilewright.tuning.d"],
        "Space": ["tilewright.tuning"],
    }


def test_no_public_name_is_that_of_another_module(known):
    # Importing the module would put it in the place of the name.
    for package, name in house.offered(known):
        module = known.get(f"{package}.{name}")
        if module is not None:
            offered = getattr(importlib.import_module(package), name)
            home = offered.__name__ if isinstance(offered, ModuleType) else offered.__module__
            assert home == module.name, (package, name)
