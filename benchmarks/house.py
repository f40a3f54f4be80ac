"""How the code is laid out: what imports what, how long and how branched things are.

    python benchmarks/house.py

reads the syntax trees of ``src``, prints what breaks the limits of sizes (``--lint`` does no more,
and fails if there is anything) and writes ``benchmarks/results/house.json``. Rows are the
offenders; the summary counts them:

- ``upward_imports``: a room that imports one above it (`ORDER`, and `INSIDE` for a room's
  folders). Imports inside functions count too.
- ``file_cycles``: groups of files that import each other in a circle when they run.
- ``deep_imports_between_rooms``: imports of another room's insides instead of the names that
  its ``__init__.pyi`` offers.
- ``duplicate_public_names``: public classes of the same name in several files, and public names
  that only stand for a class of another name.
- ``largest_file`` (lines), ``functions_over_60_lines``, ``worst_complexity`` (cyclomatic: one
  and the number of branches), ``lines_src``, which the rows of kind ``room`` split.
- ``lines_kept``: lines of the definitions (functions, classes, names of modules) that the package
  had at `BASELINE` already, by their names; ``lines_kept_then`` is what they and those that have
  gone took then. Lines of `NEW_ROOMS` count as new whatever their names, and so does a helper that
  an old function was split into. Missing where Git's history is.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "tilewright"
LONGEST_FUNCTION = 60
# The most lines of a file, the most lines of a function without its docstring, and the most
# branches of a function.
FILE_LINES = {"src": 500, "tests": 600, "benchmarks": 600}
CODE_LINES = 60
MOST_BRANCHES = 20
# Lines of the functions that are longer. Nothing is added: a function that is shortened takes its
# number down with it, or leaves.
LONGER = {"compare": 62}
# Tokens that no code is made of, and nodes that may have a docstring.
NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Rooms from the ground floor upwards; rooms of one line do not know each other.
ORDER = (
    ("errors",),
    ("files", "shapes"),
    ("machines", "arith"),
    ("measure", "report"),
    ("records",),
    ("tuning",),
    ("halide", "patterns", "sparse"),
    ("prediction",),
    ("mapping",),
    ("testing",),
    ("cli",),
)
# Folders of a room likewise.
INSIDE = {
    "halide": (
        ("ir",),
        ("analysis",),
        ("frontend",),
        ("legality",),
        ("emit",),
        ("execution",),
        ("schedulers",),
        ("search", "report"),
    ),
}
# The state that `lines_kept` compares with: the last before new rooms were asked for, 2026-11-21.
BASELINE = "2ca3fc5a9e95c2d7d18d69172db59b742eed8dff"
NEW_ROOMS = ("patterns", "testing")
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension,
            ast.Assert, ast.match_case)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A file of the package with its dotted name and syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        """The first folder below the package, or the file's own name there."""
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""

    @property
    def folder(self) -> str:
        """The folder inside the room; empty for its own files."""
        parts = self.name.split(".")
        inside = parts[2:] if self.path.name == "__init__.py" else parts[2:-1]
        return inside[0] if inside else ""


def modules(source: Path = ROOT / "src") -> dict[str, Module]:
    """Every file of the package by its dotted name."""
    found = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def for_types(module: Module) -> set[ast.AST]:
    """What stands under ``if TYPE_CHECKING:``, which Python never runs."""
    return {
        part
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for part in ast.walk(node)
    }


def imports(
    module: Module, known: dict[str, Module], *, running: bool = False
) -> Iterator[tuple[str, str]]:
    """The modules and names that a file imports of the package, at any place in it.

    With `running` those for type checkers are left out.
    """
    left = for_types(module) if running else set()
    for node in ast.walk(module.tree):
        if node in left:
            continue
        if isinstance(node, ast.Import):
            yield from ((a.name, "") for a in node.names if a.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                own = module.name.split(".")
                if module.path.name != "__init__.py":
                    own.pop()
                own = own[: len(own) - node.level + 1]
                base = ".".join([*own, *([node.module] if node.module else [])])
            if base.split(".")[0] != PACKAGE:
                continue
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield (whole, "") if whole in known else (base, alias.name)


def offered(known: dict[str, Module]) -> set[tuple[str, str]]:
    """The public names of the rooms: (package, name).

    They are what a package's stub imports, or its ``__init__.py`` where it has no stub.
    """
    found = set()
    for module in known.values():
        if module.path.name != "__init__.py":
            continue
        stub = module.path.with_suffix(".pyi")
        tree = ast.parse(stub.read_text(encoding="utf-8")) if stub.exists() else module.tree
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                found |= {(module.name, alias.name) for alias in node.names}
    return found


def is_public(target: str, name: str, public: set[tuple[str, str]]) -> bool:
    """Whether a room offers this module, or this name of it."""
    package, _, leaf = target.rpartition(".")
    if target.count(".") == 1:  # a room itself
        return not name or (target, name) in public
    if (package, leaf) not in public:
        return False
    listed = {n for home, n in public if home == target}
    return not listed or not name or name in listed


def is_plain(module: Module | None, name: str) -> bool:
    """Whether it is a public name of a file that belongs to no room, such as ``errors``."""
    if module is None or module.name.count(".") != 1:
        return False
    return module.path.name != "__init__.py" and not name.startswith("_")


def place(order: tuple[tuple[str, ...], ...], name: str) -> int | None:
    """The level of a room or folder; None where it has none."""
    return next((i for i, level in enumerate(order) if name in level), None)


def upward(known: dict[str, Module]) -> list[tuple[str, str]]:
    """Imports against the order of rooms, or of the folders inside one."""
    found = []
    for module in known.values():
        for target, _ in imports(module, known):
            other = known.get(target)
            if other is None or module.room in ("", "__main__") or not other.room:
                continue
            order: tuple[tuple[str, ...], ...] = ORDER
            mine, theirs = module.room, other.room
            if mine == theirs:
                order, mine, theirs = INSIDE.get(mine, ()), module.folder, other.folder
            here, there = place(order, mine), place(order, theirs)
            if mine != theirs and here is not None and there is not None and there >= here:
                found.append((module.name, target))
    return found


def deep(known: dict[str, Module]) -> list[tuple[str, str]]:
    """Imports of another room's insides."""
    public = offered(known)
    return [
        (module.name, f"{target}.{name}".rstrip("."))
        for module in known.values()
        for target, name in imports(module, known)
        if module.room not in ("", target.split(".")[1] if "." in target else "")
        and place(ORDER, target.split(".")[1] if "." in target else "") is not None
        and not is_public(target, name, public)
        and not is_plain(known.get(target), name)
    ]


def cycles(known: dict[str, Module]) -> list[list[str]]:
    """Groups of files each of which reaches the others by imports (Tarjan 1972).

    A package's ``__init__`` imports nothing before a name is used, so it closes no circle.
    """
    graph = {
        name: {t for t, _ in imports(module, known, running=True) if t in known and t != name}
        for name, module in known.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def duplicates(known: dict[str, Module]) -> dict[str, list[str]]:
    """Public classes that several files define."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in known.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {name: files for name, files in sorted(homes.items()) if len(files) > 1}


def aliases(known: dict[str, Module]) -> dict[str, list[str]]:
    """Public names that only stand for a class: ``Plan = MappingPlan``, ``import A as B``."""
    parts = [part for module in known.values() for part in module.tree.body]
    classes = {part.name for part in parts if isinstance(part, ast.ClassDef)}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in known.values():
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value) in classes:
                for name in map(ast.unparse, node.targets):
                    found[name].append(module.name)
        stub = module.path.with_suffix(".pyi")
        body = ast.parse(stub.read_text(encoding="utf-8")).body if stub.exists() else []
        for node in body:
            for alias in node.names if isinstance(node, ast.ImportFrom) else []:
                if alias.asname not in (None, alias.name):
                    found[str(alias.asname)].append(module.name)
    return dict(sorted(found.items()))


def functions(known: dict[str, Module]) -> Iterator[tuple[str, int, int]]:
    """Every function with its lines and its cyclomatic complexity."""
    for module in known.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                parts = list(ast.walk(node))
                branches = sum(isinstance(part, BRANCHES) for part in parts)
                boolean = sum(len(p.values) - 1 for p in parts if isinstance(p, ast.BoolOp))
                yield f"{module.name}.{node.name}", lines, 1 + branches + boolean


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's definition, its docstring left out."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def rooms(known: dict[str, Module]) -> dict[str, tuple[int, int]]:
    """Lines of each room, and of these the lines of code: no docstrings, comments, empty lines."""
    found: dict[str, tuple[int, int]] = {}
    for module in known.values():
        parts = module.name.split(".")
        name = parts[1] if len(parts) > 1 else module.name
        text = module.path.read_text(encoding="utf-8")
        written = {
            line
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        for node in ast.walk(module.tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
                first = node.body[0]
                written -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        lines, code = found.get(name, (0, 0))
        found[name] = lines + len(text.splitlines()), code + len(written)
    return dict(sorted(found.items()))


def definitions(text: str) -> Iterator[tuple[str, int]]:
    """Every function, class and assigned name of a file's top level, with its lines."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield node.name, (node.end_lineno or start) - start + 1
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target), (node.end_lineno or node.lineno) - node.lineno + 1


def kept(known: dict[str, Module]) -> dict[str, int]:
    """Lines of the definitions that `BASELINE` had, then and now; empty without its history."""
    archive = subprocess.run(
        ["git", "archive", BASELINE, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode != 0:
        return {}
    names: set[str] = set()
    then = now = 0
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        for member in files.getmembers():
            file = files.extractfile(member) if member.name.endswith(".py") else None
            for name, lines in definitions(file.read().decode()) if file else ():
                names.add(name)
                then += lines
    for module in known.values():
        if not set(module.name.split(".")) & {*NEW_ROOMS}:
            text = module.path.read_text(encoding="utf-8")
            now += sum(lines for name, lines in definitions(text) if name in names)
    return {"lines_kept": now, "lines_kept_then": then}


def over_limits(root: Path = ROOT) -> list[str]:
    """Files that are too long, and functions of the package that are too long or branched."""
    found = []
    for folder, most in FILE_LINES.items():
        for path in sorted((root / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > most:
                found.append(f"{path.relative_to(root)} has {lines} lines, at most {most}")
    known = modules(root / "src")
    for module in known.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines, most = code_lines(node), LONGER.get(node.name, CODE_LINES)
                if lines > most:
                    found.append(f"{module.name}.{node.name} has {lines} lines, at most {most}")
    found += [
        f"{name} has {branches} branches, at most {MOST_BRANCHES}"
        for name, _, branches in functions(known)
        if branches > MOST_BRANCHES
    ]
    return found


def main() -> None:
    """Count, print, write."""
    if sys.argv[1:] == ["--lint"]:
        sys.exit("\n".join(over_limits()) or None)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import common

    args = common.arguments(__doc__.splitlines()[0], []).parse_args()
    known = modules()
    sizes = {name: len(m.path.read_text().splitlines()) for name, m in known.items()}
    measured = list(functions(known))
    rows: list[dict[str, Any]] = []
    rows += [{"kind": "upward import", "from": a, "to": b} for a, b in upward(known)]
    rows += [{"kind": "deep import", "from": a, "to": b} for a, b in deep(known)]
    rows += [{"kind": "cycle", "files": group} for group in cycles(known)]
    twice = [*duplicates(known).items(), *aliases(known).items()]
    rows += [{"kind": "name", "name": n, "files": f} for n, f in twice]
    rows += [
        {"kind": "long function", "name": name, "lines": lines}
        for name, lines, _ in measured
        if lines > LONGEST_FUNCTION
    ]
    rows += [
        {"kind": "room", "name": name, "lines": lines, "lines_of_code": code}
        for name, (lines, code) in rooms(known).items()
    ]
    summary = {
        "upward_imports": len(upward(known)),
        "file_cycles": len(cycles(known)),
        "deep_imports_between_rooms": len(deep(known)),
        "duplicate_public_names": len(twice),
        "largest_file": max(sizes.values()),
        "functions_over_60_lines": sum(lines > LONGEST_FUNCTION for _, lines, _ in measured),
        "worst_complexity": max(complexity for _, _, complexity in measured),
        "lines_src": sum(sizes.values()),
        **kept(known),
    }
    for row in [*rows, *over_limits()]:
        print(row)
    common.write(args, "house", rows, summary)


if __name__ == "__main__":
    main()
