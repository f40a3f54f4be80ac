"""The answers kept on disk: how much, and what other processes do to them meanwhile."""

import os
from pathlib import Path

from tilewright.halide.execution import reference


def test_the_least_recently_used_go_first_and_what_is_gone_does_not_count(tmp_path, monkeypatch):
    for when, name in enumerate(("old", "gone", "new", "kept", ".draft-x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npy").write_bytes(bytes(100))
        os.utime(tmp_path / name, (when, when))
    listing = Path.iterdir

    def iterdir(path):
        if path.name == "gone":  # another process has just removed it
            raise FileNotFoundError(path)
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    monkeypatch.setattr(reference, "_KEPT_BYTES", 350)
    reference._trim(tmp_path, tmp_path / "kept")
    names = sorted(os.listdir(tmp_path))
    assert names == [".draft-x", "gone", "kept", "new"]  # and nothing half removed
    monkeypatch.setattr(reference, "_KEPT_BYTES", 0)
    reference._trim(tmp_path, tmp_path / "kept")
    assert sorted(os.listdir(tmp_path)) == [".draft-x", "gone", "kept"]


def test_references_in_use_by_another_process_stay(tmp_path, monkeypatch):
    for name in ("used", "unused"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npy").write_bytes(bytes(100))
        os.utime(tmp_path / name, (1, 1))
    made = reference.scratch_folder

    def while_removing(prefix, parent):
        os.utime(tmp_path / "used")
        return made(prefix, parent)

    monkeypatch.setattr(reference, "_KEPT_BYTES", 0)
    monkeypatch.setattr(reference, "scratch_folder", while_removing)
    reference._trim(tmp_path, tmp_path / "kept")
    assert os.listdir(tmp_path) == ["used"]
