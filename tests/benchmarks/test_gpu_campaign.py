"""The GPU campaign: its pieces, what is kept between goes, and one dry piece on PoCL."""

import gzip
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CAMPAIGN = BENCHMARKS / "gpu" / "campaign.py"


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_the_path():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def campaign(out, *options):
    argv = [sys.executable, str(CAMPAIGN), "--out", str(out), "--only", "blur", *options]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(argv, capture_output=True, text=True, timeout=500, check=False, env=env)


def setting(tmp_path, **more):
    from gpu.pieces import Setting
    from tilewright.machines import gpu

    given = {"programs": ("blur", "harris"), "samples": 3, "small": True, **more}
    return Setting(
        out=tmp_path,
        target="cuda",
        machine=gpu("a100"),
        peer_seconds=1.0,
        rounds_seconds=1.0,
        **given,
    )


def test_every_piece_is_listed_once_and_takes_less_than_nine_minutes(tmp_path):
    from gpu.pieces import all_pieces

    pieces = all_pieces(setting(tmp_path))
    assert [piece.name for piece in pieces] == [
        "device",
        "halide peers",
        "halide blur",
        "halide harris",
        "halide samples blur",
        "halide samples harris",
    ]
    assert all(piece.seconds < 540 for piece in pieces)
    assert len(all_pieces(setting(tmp_path, samples=0))) == 4


def test_another_room_adds_its_pieces(tmp_path, monkeypatch):
    import types

    from gpu.pieces import Piece, all_pieces, all_results

    room = types.ModuleType("a_room")
    room.pieces = lambda setting: [Piece("mine", 10.0, lambda setting: {"seconds": 1.0})]
    room.results = lambda setting, done: {"mine": ([done["mine"]], {"n": 1})}
    monkeypatch.setitem(sys.modules, "a_room", room)
    rooms = ("gpu.device", "a_room")
    assert [p.name for p in all_pieces(setting(tmp_path), rooms)] == ["device", "mine"]
    assert all_results(setting(tmp_path), {"mine": {"seconds": 1.0}}, rooms) == {
        "mine": ([{"seconds": 1.0}], {"n": 1})
    }
    with pytest.raises(ValueError, match="mine"):
        all_pieces(setting(tmp_path), ("a_room", "a_room"))


def test_state_survives_a_line_that_was_cut_short(tmp_path):
    from gpu.state import MOST_TRIES, State

    state = State(tmp_path)
    state.add("a", "ok", 1.0, {"x": 1})
    with (tmp_path / "pieces.jsonl").open("a") as file:
        file.write('{"piece": "b", "sta')
    again = State(tmp_path)
    assert again.done() == {"a": {"x": 1}}
    again.add("b", "ok", 1.0, {"y": 2})
    assert again.done() == {"a": {"x": 1}, "b": {"y": 2}}
    assert not again.wanted("a")
    for _ in range(MOST_TRIES):
        assert again.wanted("c")
        again.add("c", "failed", 1.0, None, "no")
    assert not again.wanted("c")


def row(top, best, mismatches=0, failure=""):
    entries = {
        name: {"status": "ok", "seconds": seconds}
        for name, seconds in (("one shot", top), ("top 5", top), ("Li2018", best))
    }
    entries["Anderson2021"] = {"status": "timeout"}
    return {
        "entries": entries,
        "oneshot_vs_best_peer": best / top,
        "top_vs_best_peer": best / top,
        "top_vs_hand": None,
        "of_roofline": 0.5,
        "launches": {"one shot": {"mismatches": mismatches, "failure": failure}},
        "work": {"bytes": 1e6, "operations": 1e6},
    }


def test_the_summary_counts_speedups_failures_and_mismatches():
    from gpu.halide_compare import summary

    found = summary([row(1.0, 4.0), row(1.0, 1.0, 2), row(1.0, 2.0, 7, "crashed")], None)
    assert found["top_vs_best_peer"] == pytest.approx(2.0)
    assert found["top_vs_best_peer_min"] == 1.0
    assert (found["hand_written"], found["top_vs_hand"]) == (0, None)
    assert (found["peer_failures"], found["our_failures"]) == (3, 0)
    assert found["launch_mismatches"] == 2


def test_samples_of_a_writer_that_was_killed_are_kept_and_more_are_added(tmp_path):
    from gpu.halide_samples import repair

    path = tmp_path / "training.jsonl.gz"
    repair(path)
    assert not path.exists()
    lines = [json.dumps({"index": i, "text": "x" * i}) + "\n" for i in range(300)]
    with gzip.open(path, "wt") as file:
        for line in lines:
            file.write(line)
            file.flush()
    whole = path.read_bytes()
    repair(path)
    assert path.read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2])
    repair(path)
    with gzip.open(path, "at") as file:
        file.write("added\n")
    with gzip.open(path, "rt") as file:
        kept = file.readlines()
    assert kept[-1] == "added\n"
    assert kept[:-1] == lines[: len(kept) - 1]
    assert len(kept) > 100


def test_the_least_work_of_the_blur():
    import common
    from gpu.roofline import bound, least_work
    from tilewright.halide.frontend.source import load

    work = least_work(load(common.build("blur", True)))
    assert work["bytes"] == 2 * (135 * 73 + 133 * 71)
    # Two sums and a division by a literal, for blur_x and for blur_y.
    assert work["operations"] == 3 * (133 * 73 + 133 * 71)
    device = {"bytes_per_second": 1e9, "flops_per_second": 1e12}
    assert bound(work, device) == work["bytes"] / 1e9
    assert bound(work, None) is None


def test_what_is_launched_is_compared_with_what_was_foretold():
    from gpu.halide_compare import launches
    from tilewright.halide.execution.launches import Launched
    from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
    from tilewright.halide.ir.schedule import Schedule

    groups = (
        GroupReport(("f",), "f", threads=(32, 8, 1), shared_bytes=64),
        GroupReport(("g",), "g", threads=(32, 1, 1)),
    )
    planned = PlannedSchedule(Schedule("", "cuda", ()), groups, 1.0)
    f = Launched("_kernel_f_s0_y", (1, 1, 1), (32, 8, 1), 64, 1e-3)
    g = Launched("_kernel_g_s0_y", (1, 1, 1), (32, 2, 1), 0, 1e-3)
    assert launches(planned, [f, g], "")["mismatches"] == 1
    found = launches(planned, [f], "")
    assert found["mismatches"] == 1
    assert [group["measured_seconds"] for group in found["groups"]] == [1e-3, None]


def test_without_a_gpu_the_campaign_says_so(tmp_path):
    done = campaign(tmp_path)
    assert done.returncode != 0
    assert "--dry-run" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.opencl
def test_a_dry_campaign_runs_and_is_resumed(tmp_path):
    options = ("--dry-run", "--peer-time", "1", "--samples", "2", "--rounds", "0.5")
    # As after a go that ended before the comparison: without peers they count as absent.
    first = campaign(tmp_path, *options, "--piece", "device", "--seconds", "120")
    assert "device: ok" in first.stdout, first.stdout + first.stderr
    second = campaign(tmp_path, *options, "--piece", "halide blur", "--seconds", "400")
    assert "halide blur: ok" in second.stdout, second.stdout + second.stderr
    (path,) = tmp_path.glob("gpu_halide-dry-*.json")
    data = json.loads(path.read_text())
    (found,) = data["rows"]
    assert found["entries"]["one shot"]["status"] == "ok"
    assert found["entries"]["hand-written"]["seconds"] > 0
    assert found["launches"]["one shot"]["failure"] == ""
    assert found["launches"]["one shot"]["mismatches"] == 0
    assert data["summary"]["launch_mismatches"] == 0
    assert found["of_roofline"] > 0
    listed = campaign(tmp_path, *options, "--list").stdout.splitlines()
    statuses = {" ".join(line.split()[1:-3]): line.split()[-2] for line in listed[1:]}
    assert next(line for line in listed if "device" in line).split()[-2] == "ok", statuses


def test_the_packed_tree_leaves_out_what_only_others_need(tmp_path):
    from gpu import pack

    assert not pack.wanted("halide/include/Halide.h")
    assert not pack.wanted("halide/lib64/libHalide_GenGen.a")
    assert not pack.wanted("halide/bin/featurization_to_sample")
    assert pack.wanted("halide/lib64/libHalide.so")
    assert pack.wanted("halide/__init__.py")
    assert pack.wanted("halide-21.0.0.dist-info/METADATA")
    archive = pack.pack(tmp_path, "3.12", [], preset=0)
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    assert "tilewright-gpu/site/tilewright/__init__.py" in names
    assert "tilewright-gpu/benchmarks/gpu/campaign.py" in names
    assert "tilewright-gpu/examples/blur.py" in names
    assert not [name for name in names if "/results" in name or "/.work" in name]
    assert (tmp_path / "run.sh").exists()
