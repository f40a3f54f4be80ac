"""Pack everything the campaign needs for a machine that has a GPU but no internet.

    python benchmarks/gpu/pack.py --into DIR

makes ``tilewright-gpu-cp312.tar.xz`` (some 50 MB): Halide's wheel without what only C++ and
training need, the other packages, Tilewright, its examples and the benchmarks. With it goes
``run.sh``, which unpacks it and runs the campaign::

    sh run.sh OUT --seconds 500

What ``campaign.py --prepare`` has made goes along with ``--prepared``. NumPy and SciPy are taken
from that machine's Python unless ``--full``. ``--dry-run`` tries the archive out where there is no
GPU but a C compiler.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from gpu.archive import REFERENCES, prepared_files  # noqa: E402

# Of Halide's wheel: headers, tools, samples, static libraries.
UNUSED_FOLDERS = frozenset(["include", "bin", "share", "cmake"])
UNUSED_SUFFIXES = frozenset([".a", ".h", ".hpp"])
# What the machine usually has.
USUALLY_THERE = ("numpy", "scipy")
ALSO = ("halide", "flatbuffers", "lazy-loader", "packaging", "psutil", "threadpoolctl", "rich",
        "markdown-it-py", "mdurl", "pygments")  # fmt: skip
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
# Not carried: other machines' results and pieces, what the campaign has no use for.
LEFT = frozenset([".work", "results", "data", "__pycache__"])


def wanted(name: str) -> bool:
    """Whether a file of a wheel is carried."""
    path = PurePosixPath(name)
    if path.parts[0] != "halide" or name.endswith("/"):
        return not name.endswith("/")
    return path.suffix not in UNUSED_SUFFIXES and path.parts[1] not in UNUSED_FOLDERS


def requirement(package: str) -> str:
    """The version that the project's constraints name, or the one that is installed here."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if re.sub(r"[-_.]+", "-", line.split("==")[0].strip().lower()) == package:
            return line.split(";")[0].strip()
    try:
        return f"{package}=={importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def download(packages: list[str], python: str, folder: Path) -> list[Path]:
    """Their wheels for that version of Python on x86-64 Linux."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={python}", f"--dest={folder}"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    subprocess.run([*command, *map(requirement, packages)], check=True)
    return sorted(folder.glob("*.whl"))


def unpack(wheel: Path, site: Path) -> None:
    """A wheel's files as an installation would have them, less those of no use."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            name = info.filename
            data = re.match(r"[^/]+\.data/(purelib|platlib)/(.*)", name)
            name = data[2] if data else name
            if ".data/" in name or not wanted(name):
                continue
            target = site / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)


def own(folder: Path) -> None:
    """Tilewright, its examples and the benchmarks."""
    ignore = shutil.ignore_patterns(*LEFT)
    shutil.copytree(ROOT / "src" / "tilewright", folder / "site" / "tilewright", ignore=ignore)
    for name in ("examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    version = importlib.metadata.version("tilewright")
    about = folder / "site" / f"tilewright-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tilewright\nVersion: {version}\n"
    )


def pack(into: Path, python: str, packages: list[str], preset: int = 6) -> Path:
    """Make the archive and put ``run.sh`` next to it; gives the archive's path."""
    into.mkdir(parents=True, exist_ok=True)
    archive = into / f"tilewright-gpu-cp{python.replace('.', '')}.tar.xz"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "tilewright-gpu")
        wheels = Path(temporary, "wheels")
        site = folder / "site"
        for made in (wheels, site):
            made.mkdir(parents=True)
        for wheel in download(packages, python, wheels) if packages else []:
            unpack(wheel, site)
        own(folder)
        (folder / "python").write_text(python + "\n")
        partial = archive.with_suffix(".partial")
        with (
            lzma.open(partial, "wb", preset=preset) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as tar,
        ):
            tar.add(folder, folder.name)
        partial.replace(archive)
    shutil.copy(Path(__file__).with_name("run.sh"), into / "run.sh")
    return archive


def pack_prepared(prepared: Path, into: Path, most_bytes: int) -> tuple[int, int]:
    """Put what was prepared into the folder ``prepared``, with as many references as fit.

    Args:
        prepared: the folder that ``campaign.py --prepare`` has made.
        into: where that folder goes.
        most_bytes: of all references together, compressed.

    Returns:
        How many references were packed, and how many left out.
    """
    packed: list[tuple[int, str, bytes]] = []
    for folder in sorted((prepared / REFERENCES).glob("[!.]*")):
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w:xz", preset=6) as tar:
            tar.add(folder, f"{REFERENCES}/{folder.name}")
        packed.append((len(written.getvalue()), folder.name, written.getvalue()))
    target = into / "prepared"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tarfile.open(target / "others.tar.xz", "w:xz", preset=6) as tar:
        for file in prepared_files(prepared):
            tar.add(file, file.name)
    kept, used = 0, 0
    for size, name, data in sorted(packed):
        if used + size > most_bytes:
            break
        (target / f"{name}.tar.xz").write_bytes(data)
        kept, used = kept + 1, used + size
    return kept, len(packed) - kept


def main() -> None:
    """Pack, and say how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, required=True, help="the folder to put it in")
    parser.add_argument("--python", default="3.12", help="that machine's version (3.12)")
    parser.add_argument("--full", action="store_true", help="with NumPy and SciPy")
    parser.add_argument(
        "--prepared", type=Path, help="what campaign.py --prepare has made, to go with it"
    )
    parser.add_argument(
        "--prepared-mib",
        type=float,
        default=20.0,
        help="the most that references may take of the archive, largest left out first (20)",
    )
    args = parser.parse_args()
    packages = [*ALSO, *(USUALLY_THERE if args.full else ())]
    archive = pack(args.into, args.python, packages)
    if args.prepared is not None:
        kept, left = pack_prepared(args.prepared, args.into, int(args.prepared_mib * 2**20))
        print(f"references: {kept} packed, {left} left out (computed there)")
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
