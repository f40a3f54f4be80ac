"""Everything worth measuring on a GPU, in pieces that can be run one at a time.

    python benchmarks/gpu/campaign.py --prepare --machine h100 --out PREPARED
    python benchmarks/gpu/campaign.py --prepared PREPARED --out DIR --seconds 500

The first command makes what needs no GPU. The second runs the pieces that are not done yet,
one after the other, until the time is up; run it again to go on. With ``--archive FILE``
everything in DIR is in that one file too, after every piece: take it along to go on elsewhere.
The commands for a machine without internet are in README.md.
``--piece NAME`` (or its number in ``--list``) runs just that one. With ``--dry-run`` the same
code runs at small sizes where there is no GPU: a CUDA driver that computes nothing stands in
(``support/recording_cuda.c``), so that answers are not checked and times mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import common
from gpu import archive, halide_peers, halide_references, halide_samples, halide_tuned
from gpu.pieces import Piece, Setting, all_pieces, all_results
from gpu.state import State
from support import recording_cuda
from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.machines import GpuMachine, detect_cuda
from tilewright.machines import gpu as known_gpu

# Between a piece's own deadline and the end of its process.
GRACE = 20.0
# Kept for writing the results.
RESERVE = 10.0
# The GPU that the recording driver says it is.
DRY_GPU = "a100"


def options() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the campaign's folder")
    parser.add_argument("--seconds", type=float, default=500.0, help="for this go (500)")
    parser.add_argument("--piece", action="append", default=[], help="a name or number: only this")
    parser.add_argument("--list", action="store_true", help="what there is, and what is done")
    parser.add_argument("--prepare", action="store_true", help="whatever can be made without a GPU")
    parser.add_argument(
        "--machine", metavar="NAME", help="the GPU to --prepare for (see tilewright machine --list)"
    )
    parser.add_argument("--prepared", type=Path, help="a folder that --prepare has made")
    parser.add_argument("--archive", type=Path, help="a file to keep everything in (.tar.gz)")
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(common.PROGRAMS)}")
    parser.add_argument("--dry-run", action="store_true", help="with no GPU, at small sizes")
    parser.add_argument("--peer-time", type=float, default=120.0, help="CPU seconds of a peer")
    parser.add_argument("--samples", type=int, default=150, help="random schedules a program")
    parser.add_argument(
        "--planned", type=int, default=5, help="our best schedules in a comparison (5)"
    )
    parser.add_argument(
        "--longer", type=float, default=1.0, help="multiply the time of every piece (1.0)"
    )
    parser.add_argument("--rounds", type=float, default=6.0, help="seconds of rounds a program")
    parser.add_argument(
        "--results", type=Path, help="where the results are written too (benchmarks/results)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


def setting_of(args: argparse.Namespace) -> Setting:
    """The arguments of the pieces. Raises `TilewrightError` where there is no device."""
    if args.prepare and not args.machine:
        raise TilewrightError("--prepare needs the GPU to prepare for: --machine h100, say")
    present: list[GpuMachine]
    if args.prepare:
        present = [known_gpu(args.machine)]
    else:
        present = [known_gpu(DRY_GPU)] if args.dry_run else detect_cuda()
    if not present:
        raise TilewrightError("there is no CUDA GPU here: try the code out with --dry-run")
    return Setting(
        out=args.out.resolve(),
        target=present[0].halide_target,
        machine=present[0],
        small=args.dry_run,
        programs=tuple(common.chosen(args, common.PROGRAMS)),
        peer_seconds=args.peer_time,
        samples=args.samples,
        rounds_seconds=args.rounds,
        planned=args.planned,
        references=references_of(args),
    )


def references_of(args: argparse.Namespace) -> Path | None:
    """The prepared references, where there are any."""
    if args.prepared is None or not (args.prepared / archive.REFERENCES).exists():
        return None
    return Path(args.prepared.resolve() / archive.REFERENCES)


def load_recording_driver(folder: Path) -> None:
    """Have the processes that this one starts use the driver that computes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["LD_PRELOAD"] = str(recording_cuda.build(folder.resolve()))


def named(pieces: list[Piece], wanted: list[str]) -> list[Piece]:
    """The pieces of the given names or numbers (from 1)."""
    found = []
    for text in wanted:
        by_name = [p for i, p in enumerate(pieces, 1) if text in (p.name, str(i))]
        if not by_name:
            raise TilewrightError(f"there is no piece {text!r}: see --list")
        found += by_name
    return found


def go(args: argparse.Namespace, setting: Setting, pieces: list[Piece]) -> None:
    """Run what is wanted until the time is up."""
    began = time.monotonic()
    state = State(setting.out)
    chosen = named(pieces, args.piece) or [p for p in pieces if state.wanted(p.name)]
    for piece in [] if args.piece else pieces:
        if piece.essential and piece not in chosen and piece.name not in state.done():
            raise TilewrightError(
                f"{piece.name} has failed {state.tries(piece.name)} times, and nothing can be "
                f"measured without it: see {state.path}; --piece {piece.name} tries again"
            )
    for piece in chosen:
        left = args.seconds - RESERVE - (time.monotonic() - began)
        first = piece is chosen[0]
        allowed = args.longer * piece.seconds
        if left < (30.0 if first else min(allowed, 60.0)):
            print(f"{piece.name}: for the next go", flush=True)
            break
        # What a piece takes at most is of a machine with a GPU that does nothing else.
        most = left if args.dry_run else allowed
        status = run(args, state, piece, min(most, left - GRACE))
        keep(args, setting)
        if piece.essential and status != "ok":
            print(f"stopped: nothing can be measured without {piece.name}", flush=True)
            break
    write_results(args, setting, state)
    keep(args, setting)


def keep(args: argparse.Namespace, setting: Setting) -> None:
    """Bring the archive up to date, if there is one."""
    if args.archive is not None:
        archive.write(setting.out, args.archive)


def prepare(setting: Setting) -> None:
    """Make what needs no GPU: references, random schedules, our searches, then the peers'.

    A kill loses what was under way; run it again to go on.
    """
    setting.out.mkdir(parents=True, exist_ok=True)
    print(f"references: {halide_references.compute_all(setting)}", flush=True)
    print(f"draws: {halide_samples.draw_all(setting)} new", flush=True)
    print(f"searches: {halide_tuned.search_all(setting)} new", flush=True)
    for line in halide_peers.search_all(setting)["searched"]:
        print(line)


def run(args: argparse.Namespace, state: State, piece: Piece, seconds: float) -> str:
    """One piece in a process of its own, which ends with all its children; gives its status."""
    began = time.monotonic()
    own = [a for a in sys.argv[1:] if a != "--list"]
    argv = [sys.executable, __file__, *own, "--child", piece.name, "--seconds", f"{seconds:.0f}"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=seconds + GRACE)
        status = "ok" if process.returncode == 0 else "failed"
    except subprocess.TimeoutExpired:
        status = "timeout"
        out, errors = "", f"not done in {seconds + GRACE:.0f} seconds"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    result = None
    if status == "ok":
        try:
            result = json.loads(out.splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            status = "failed"
    message = "" if status == "ok" else errors[-2000:]
    took = time.monotonic() - began
    state.add(piece.name, status, took, result, message)
    last = message.strip().splitlines()[-1:] or [""]
    print(f"{piece.name}: {status} in {took:.0f} s {last[0][:200]}".rstrip(), flush=True)
    return status


def child(args: argparse.Namespace, setting: Setting, pieces: list[Piece]) -> None:
    """Inside the process of a piece: run it, print its result."""
    (piece,) = named(pieces, [args.child])
    kept = os.dup(1)
    os.dup2(2, 1)  # what anything else prints is no result
    fitted = (State(setting.out).done().get("device") or {}).get("constants")
    constants = GpuConstants(**fitted) if fitted and not args.dry_run else None
    deadline = time.monotonic() + args.seconds
    result = piece.run(replace(setting, deadline=deadline, constants=constants))
    sys.stdout.flush()
    with os.fdopen(kept, "w") as file:
        file.write(json.dumps(result) + "\n")


def write_results(args: argparse.Namespace, setting: Setting, state: State) -> None:
    """What the pieces done so far amount to, a file a result."""
    from tilewright.measure import machine_id

    device = re.sub(r"[^a-z0-9]+", "-", setting.machine.name.lower()).strip("-")
    if setting.small:
        device = f"dry-{device}"
    try:
        results = all_results(setting, state.done())
    except Exception:
        # What has been measured is kept whatever becomes of its digest.
        traceback.print_exc()
        return
    for name, (rows, summary) in results.items():
        data = {
            "name": f"gpu_{name}",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": {
                "gpu": setting.machine.name,
                "device": asdict(setting.machine),
                "processor": machine_id().split(", ", 1)[1],
                "system": platform.platform(),
            },
            "versions": {
                "python": platform.python_version(),
                **{p: _version(p) for p in ("tilewright", "halide", "numpy")},
            },
            "small": setting.small,
            "rows": rows,
            "summary": summary,
        }
        text = json.dumps(data, indent=1) + "\n"
        for folder in filter(None, (setting.out, args.results)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"gpu_{name}-{device}.json").write_text(text)
        print(f"\ngpu_{name}:")
        for key, value in summary.items():
            print(f"  {key}: {common.shown(value)}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unpacked"


def show(pieces: list[Piece], state: State) -> None:
    """The list of all pieces with what became of them."""
    last = {line["piece"]: line for line in state.lines()}
    rows = []
    for i, piece in enumerate(pieces, 1):
        line = last.get(piece.name)
        status = line["status"] if line else "to do"
        rows.append([f"{i:3} {piece.name}", piece.seconds, status, line and line["seconds"]])
    common.print_table(["piece", "at most s", "status", "took s"], rows)


def main() -> None:
    """Run pieces, list them, or be the process of one."""
    args = options().parse_args()
    try:
        setting = setting_of(args)
        if args.prepare:
            prepare(setting)
            return
        if not args.child:
            archive.begin(setting.out, args.archive, args.prepared)
        pieces = all_pieces(setting)
        if args.dry_run and not (args.child or args.list):
            load_recording_driver(setting.out / "driver")
        if args.child:
            child(args, setting, pieces)
        elif args.list:
            show(pieces, State(setting.out))
        else:
            go(args, setting, pieces)
    except TilewrightError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
