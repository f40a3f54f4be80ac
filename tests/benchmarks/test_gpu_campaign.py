"""The GPU campaign: its pieces, what is kept between goes, and one piece without a GPU."""

import functools
import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CAMPAIGN = BENCHMARKS / "gpu" / "campaign.py"


def campaign(out, *options):
    argv = [sys.executable, str(CAMPAIGN), "--out", str(out), "--only", "blur", *options]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)


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


def test_pieces_are_short_and_ordered_by_worth(tmp_path):
    from gpu import halide_peers
    from gpu.pieces import all_pieces

    given = setting(tmp_path, programs=("max_filter", "harris"), samples=30)
    halide_peers.path_of(given).write_text(
        json.dumps({"key": "harris/Li2018/…", "schedule": {"serialized": "AA=="}}) + "\n"
    )
    pieces = all_pieces(given)
    assert [piece.name for piece in pieces] == [
        "device",
        "halide references",
        "halide plans",
        "halide tuned harris",  # one of the peers has a schedule for it
        "halide tuned max_filter",
        "halide harris",
        "halide max_filter",
        "halide samples 1.1",
        "halide samples 2.1",
        "halide peers",
        "patterns cuda stencil2d",
        "patterns opencl stencil2d",
    ]
    assert [piece.name for piece in pieces if piece.essential] == ["device"]
    assert all(piece.seconds <= 100 for piece in pieces if piece.name != "halide peers")
    assert len(all_pieces(setting(tmp_path, samples=0))) == 10


def test_models_rank_what_was_measured_of_patterns(tmp_path):
    """Kernels that touch fewer cache lines are faster here; all models say so of the other."""
    import numpy as np

    from gpu import patterns_room
    from tilewright.patterns.ranking import FEATURES

    rng = np.random.default_rng(0)
    done = {}
    for name in ("jacobi5", "hotspot"):
        table = np.ones((60, len(FEATURES)))
        table[:, FEATURES.index("lines_per_access")] = rng.uniform(1, 32, 60)
        for feature in ("global_loads", "global_size_0", "local_size_0"):
            table[:, FEATURES.index(feature)] = 128
        seconds = 1e-6 * table[:, FEATURES.index("lines_per_access")]
        done[f"patterns cuda {name}"] = {
            "features": table.tolist(),
            "seconds": seconds.tolist(),
            "failed": {"wrong": 1, "refused": 2},
        }
    given = setting(tmp_path, small=False)
    assert len(patterns_room.pieces(given)) == 16
    found = patterns_room.results(given, done)
    rows, summary = found["patterns_cuda"]
    assert {row["model"] for row in rows} == {"estimate", "paper", "trend"}
    assert all(row["correlation"] > 0.9 for row in rows)
    assert (summary["kernels"], summary["failed"], summary["wrong"]) == (120, 6, 2)
    assert "patterns_opencl" not in found


def test_every_round_of_samples_has_every_program(tmp_path):
    import common
    from gpu.pieces import all_pieces

    given = setting(tmp_path, programs=tuple(common.PROGRAMS), samples=100)
    rounds: dict = {}
    for piece in all_pieces(given):
        if piece.name.startswith("halide samples"):
            assert isinstance(piece.run, functools.partial)
            names, number = piece.run.args
            rounds.setdefault(number, []).extend(names)
    assert sorted(rounds) == [0, 1, 2, 3]
    assert all(sorted(names) == sorted(common.PROGRAMS) for names in rounds.values())


def test_another_room_adds_its_pieces(tmp_path, monkeypatch):
    import types

    from gpu.pieces import Piece, all_pieces, all_results

    room = types.ModuleType("a_room")
    vars(room).update(
        pieces=lambda setting: [Piece("mine", 10.0, lambda setting: {"seconds": 1.0})],
        results=lambda setting, done: {"mine": ([done["mine"]], {"n": 1})},
    )
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


def going(tmp_path, monkeypatch, *runs, **options):
    """Go through pieces whose processes would do what `runs` do; gives the pieces run."""
    from gpu import campaign as module
    from gpu.pieces import Piece

    ran = []

    def run(args, state, piece, seconds):
        ran.append(piece.name)
        status = piece.run(None)
        state.add(piece.name, status, 1.0, {})
        return status

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "write_results", lambda *_: None)
    args = module.options().parse_args(["--out", str(tmp_path)])
    for name, value in options.items():
        setattr(args, name, value)
    pieces = [
        Piece(f"p{i}", 10.0, functools.partial(lambda status, _: status, status), essential=i == 0)
        for i, status in enumerate(runs)
    ]
    module.go(args, setting(tmp_path), pieces)
    return ran


def test_the_campaign_stops_where_the_device_does_not_work(tmp_path, monkeypatch):
    from tilewright.errors import TilewrightError

    assert going(tmp_path / "a", monkeypatch, "ok", "failed", "ok") == ["p0", "p1", "p2"]
    assert going(tmp_path / "b", monkeypatch, "failed", "ok") == ["p0"]
    assert going(tmp_path / "b", monkeypatch, "failed", "ok") == ["p0"]
    with pytest.raises(TilewrightError, match="p0 has failed 2 times"):
        going(tmp_path / "b", monkeypatch, "failed", "ok")


def test_a_campaign_goes_on_from_its_archive(tmp_path, monkeypatch):
    from gpu import archive

    file = tmp_path / "out" / "results.tar.gz"
    ran = going(tmp_path / "here", monkeypatch, "ok", "ok", archive=file)
    assert ran == ["p0", "p1"]
    (tmp_path / "here" / "references").mkdir()
    archive.begin(tmp_path / "there", file, None)
    assert going(tmp_path / "there", monkeypatch, "ok", "ok", "ok") == ["p2"]
    assert not (tmp_path / "there" / "references").exists()


def test_a_damaged_archive_is_an_error_with_a_cure(tmp_path):
    from gpu import archive
    from tilewright.errors import TilewrightError

    file = tmp_path / "results.tar.gz"
    file.write_bytes(b"no archive")
    with pytest.raises(TilewrightError, match="remove it to begin again"):
        archive.begin(tmp_path / "out", file, None)


def test_prepared_pieces_are_taken_along(tmp_path):
    from gpu import archive, pack

    prepared = tmp_path / "prepared"
    for name, size in (("small", 100), ("large", 5000)):
        folder = prepared / "references" / name
        folder.mkdir(parents=True)
        (folder / "0.npy").write_bytes(os.urandom(size))
    (prepared / "peers.jsonl").write_text("{}\n")
    assert pack.pack_prepared(prepared, tmp_path / "packed", 2000) == (1, 1)
    packed = tmp_path / "packed" / "prepared"
    assert sorted(p.name for p in packed.iterdir()) == ["others.tar.xz", "small.tar.xz"]
    unpacked = tmp_path / "unpacked"
    for file in packed.iterdir():
        with tarfile.open(file) as tar:
            tar.extractall(unpacked)
    assert (unpacked / "references" / "small" / "0.npy").exists()
    archive.begin(tmp_path / "out", None, unpacked)
    assert (tmp_path / "out" / "peers.jsonl").read_text() == "{}\n"


def test_plans_are_kept_for_their_constants(tmp_path, monkeypatch):
    from gpu import halide_plans
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants

    given = setting(tmp_path, programs=("blur",))
    assert halide_plans.plan_all(given) == {"planned": ["blur"], "failed": {}}
    kept = halide_plans.plans("blur", given)
    assert kept.probed is None
    assert kept.learned is not None
    assert len(kept.ours) == halide_plans.K
    asked = []
    monkeypatch.setattr(halide_plans, "made", lambda name, setting: asked.append(name))
    assert halide_plans.plans("blur", given) == kept
    assert not asked
    halide_plans.plans("blur", replace(given, constants=GpuConstants()))
    assert asked == ["blur"]


def test_random_schedules_are_drawn_before_or_when_they_are_needed(tmp_path):
    from gpu import archive, halide_samples

    given = setting(tmp_path / "prepared", programs=("blur",))
    given.out.mkdir()

    def drawn(given):
        # The features hold NaN.
        return [each.planned.schedule for each in halide_samples.draws("blur", 0, given)]

    now = drawn(given)
    assert halide_samples.draw_all(given) == halide_samples.PREPARED_ROUNDS
    assert halide_samples.draw_all(given) == 0
    assert drawn(given) == now
    archive.begin(tmp_path / "out", None, given.out)
    fewer = setting(tmp_path / "out", programs=("blur",), samples=2)
    assert drawn(fewer) == now[:2]


@pytest.mark.thorough
def test_a_comparison_without_any_time_is_not_a_result(tmp_path, monkeypatch):
    from gpu import halide_compare
    from tilewright.machines import gpu

    # There is no GPU: every schedule fails at its first launch.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    given = setting(tmp_path, programs=("blur",))
    assert given.machine == gpu("a100")
    with pytest.raises(RuntimeError, match="no schedule of ours of blur ran"):
        halide_compare.compare("blur", given)


def test_a_comparison_without_a_time_of_ours_is_no_result():
    from gpu.halide_compare import require_ours

    failed = {"status": "run_failed", "message": "too many resources"}
    others = {name: {"status": "ok", "seconds": 1.0} for name in ("naive", "Li2018")}
    with pytest.raises(RuntimeError, match="of ours of blur ran: run_failed: too many"):
        require_ours("blur", {**others, "one shot": failed})
    require_ours("blur", {"one shot": failed, "planned 2": {"seconds": 1.0}})


def test_a_sample_has_its_cost_and_its_predicted_seconds():
    from gpu.halide_samples import line
    from support.gpu_sample import Sample
    from tilewright.halide.execution.session import Measured, Variant
    from tilewright.halide.ir.plan import PlannedSchedule
    from tilewright.halide.ir.schedule import Schedule
    from tilewright.measure import Measurement

    planned = PlannedSchedule(Schedule("", "cuda", ()), (), 7e9, seconds=2e-3)
    done = Measured(Variant(planned.schedule), Measurement("ok"))
    found = line("blur", 1, Sample(planned, [], 0, 0.0, 0.0), done)
    assert (found["cost"], found["predicted"]) == (7e9, 2e-3)


def test_constants_follow_from_the_times_of_probes(tmp_path):
    from gpu import device, probes
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.machines import gpu

    machine = gpu("a100")
    chosen = device.all_probes(machine, small=False)
    # Places visited once are not in the second cache when the next run visits them.
    chase = chosen["chase"].arguments
    assert machine.l2_bytes < device.LINE_BYTES * chase["steps"] <= 4 * chase["size"]
    clock, launch, memory = machine.clock_hz, 4e-6, 1.5e12
    steps = device.STEPS
    l2 = chosen["second_cache"].arguments
    seconds = {
        "copy": launch + 8 * chosen["copy"].arguments["size"] / memory,
        "chain": 1e-3,
        "launches": device.LAUNCHES * launch,
        "dependent": launch + 4.0 * steps / clock,
        "chase": launch + 500.0 * chosen["chase"].arguments["steps"] / clock,
        "shared_chase": launch + 25.0 * steps / clock,
        "shared_reads": launch
        + 4.0 * probes.TABLE * chosen["shared_reads"].arguments["size"] / 100 / machine.sms / clock,
        "additions": launch + chosen["additions"].arguments["size"] / 12 / clock,
        "second_cache": launch + 4.0 * l2["size"] * l2["passes"] / (2.5 * memory),
    }
    found = device.fit(seconds, chosen, machine)
    assert found == pytest.approx(
        {
            "launch_seconds": 4e-6,
            "launch_cost": 4e6,
            "arithmetic_latency": 2.0,
            "memory_latency": 500.0,
            "global_cost": 250.0,
            "store_cost": 25.0,
            "alone_cost": 250.0,
            "shared_latency": 25.0,
            "cache_bytes_per_cycle": 100.0,
            "sector_cycles": 0.32,
            "atomics_per_cycle": 12.0,
            "l2_factor": 2.5,
        },
        rel=0.02,
    )
    GpuConstants(**found)
    del seconds["launches"], seconds["chase"]
    assert not {"launch_seconds", "global_cost"} & set(device.fit(seconds, chosen, machine))


def test_links_visit_every_place():
    from gpu import device

    links, place, seen = device.cycle(64), 0, set()
    for _ in range(64):
        place = int(links[place])
        seen.add(place)
    assert (len(seen), place) == (64, 0)


@pytest.mark.thorough
def test_every_probe_is_the_kernels_that_it_says():
    import halide as hl

    from gpu import device, probes
    from tilewright.halide.execution.cuda_kernels import device_code, entries, launches
    from tilewright.machines import gpu

    machine = gpu("a100")
    target = hl.Target(machine.halide_target)
    chosen = device.all_probes(machine, small=True)
    assert set(device.NEEDED) <= set(chosen)
    for name, probe in chosen.items():
        pipeline = getattr(probes, f"{name}_by_hand")(target, **probe.arguments)
        ptx, statement = device_code(pipeline, target)
        assert len(entries(ptx)) == {"launches": device.SMALL_LAUNCHES, "additions": 2}.get(name, 1)
        table = 4 * probes.TABLE if name.startswith("shared") else 0
        assert {k.shared_bytes for k in launches(statement)} == {table}, name
        assert bool(re.search(r"\b(atom|red)\.", ptx)) == (name == "additions")


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
    assert (found["peer_failures"], found["our_failures"]) == (6, 0)
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


def test_launches_are_compared_with_predictions():
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
    # A kernel that is launched in rounds counts once.
    assert launches(planned, [f, f, f, g], "")["mismatches"] == 1
    found = launches(planned, [f], "")
    assert found["mismatches"] == 1
    assert [group["measured_seconds"] for group in found["groups"]] == [1e-3, None]


def test_without_a_gpu_the_campaign_says_so(tmp_path):
    done = campaign(tmp_path)
    assert done.returncode != 0
    assert "--dry-run" in done.stderr
    assert "Traceback" not in done.stderr


DRY = ("--dry-run", "--peer-time", "1", "--samples", "2", "--rounds", "0.5")


@pytest.mark.thorough
def test_a_dry_campaign_measures_its_device(tmp_path):
    done = campaign(tmp_path, *DRY, "--piece", "device", "--seconds", "9000")
    assert "device: ok" in done.stdout, done.stdout + done.stderr


def test_a_dry_campaign_runs_and_is_resumed(tmp_path):
    # Without peers, as after a go that ended before their search, they count as absent.
    done = campaign(tmp_path, *DRY, "--piece", "halide blur", "--seconds", "9000")
    assert "halide blur: ok" in done.stdout, done.stdout + done.stderr
    (path,) = tmp_path.glob("gpu_halide-dry-*.json")
    data = json.loads(path.read_text())
    (found,) = data["rows"]
    assert found["entries"]["one shot"]["status"] == "ok"
    assert found["entries"]["hand-written"]["seconds"] > 0
    assert found["launches"]["one shot"]["failure"] == ""
    assert found["launches"]["one shot"]["mismatches"] == 0
    assert data["summary"]["launch_mismatches"] == 0
    listed = campaign(tmp_path, *DRY, "--list").stdout.splitlines()
    statuses = {" ".join(line.split()[1:-3]): line.split()[-2] for line in listed[1:]}
    assert statuses["halide blur"] == "ok", statuses


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
