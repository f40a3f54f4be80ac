"""Pages that mkdocs makes when it builds the site: API, constants, decisions, the README.

A room's public names are those of its stub, ``__init__.pyi``, in the order in which data flows;
each is documented by its docstring where it is defined.
"""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tilewright"
# In the order in which data flows through them.
ROOMS = [
    alias.name
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module is None
    for alias in node.names
]
# Pages that are files of the repository's root.
FROM_ROOT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
}
# What `benchmarks/make_gallery.py` writes for each program.
GALLERY = ROOT / "out" / "gallery"
CONSTANTS = PACKAGE / "halide" / "schedulers" / "analytic"
# Where names lie deeper than in the room's own stub.
INNER = {"halide": ("ir",), "report": ("charts", "pages")}


def on_config(config: Any) -> Any:
    """Add to the navigation the pages that are not listed by hand."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    config.nav.append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    config.nav.append({"API": [{room: f"api/{room}.md"} for room in ROOMS]})
    config.nav.append({"Project": ["contributing.md", "changes.md"]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the API of each room, the cost models' constants, the root's pages, the gallery's."""
    for room in ROOMS:
        files.append(File.generated(config, f"api/{room}.md", content=api_page(room)))
    files.append(File.generated(config, "constants.md", content=constants_page()))
    for name, page in FROM_ROOT.items():
        text = relinked((ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    for path in sorted(GALLERY.glob("*.html")):
        files.append(File.generated(config, f"gallery-pages/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link the programs of the gallery to their pages, where these have been written."""
    if page.file.src_uri != "gallery.md":
        return markdown
    for path in sorted(GALLERY.glob("*.html")):
        name, machine = path.stem.rsplit("-", 1)
        link = f"\\g<0>\n\n[Its page, {machine}](gallery-pages/{path.name})"
        markdown = re.sub(rf"^## {name}$", link, markdown, flags=re.MULTILINE)
    return markdown


def relinked(text: str) -> str:
    """Links of a page of the repository's root as those of a page of the site."""
    text = text.replace("](docs/decisions)", "](decisions/layout.md)").replace("](docs/", "](")
    for name, page in FROM_ROOT.items():
        text = text.replace(f"]({name})", f"]({page})")
    return text


def constants_page() -> str:
    """Tables of every number of the cost models, from where they are defined."""
    parts = [
        "# The cost models' numbers",
        "Every number with its unit and source, from `constants.py` of the two schedulers. How "
        "they were chosen: [the decision](decisions/scheduler-constants.md).",
    ]
    for device in ("cpu", "gpu"):
        tree = ast.parse((CONSTANTS / device / "constants.py").read_text(encoding="utf-8"))
        words = {
            target.id: ast.unparse(value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target, value in _pairs(node)
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                rows = [row for row in (_constant(field, words) for field in node.body) if row]
                head = ["| name | value | unit | source |", "|---|--:|---|---|"]
                parts += [f"## {device.upper()}: {node.name}", "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"


def _pairs(node: ast.Assign) -> list[tuple[ast.Name, ast.expr]]:
    """Names that an assignment gives values, also several at once."""
    target = node.targets[0]
    if isinstance(target, ast.Name):
        return [(target, node.value)]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return [
            (name, value)
            for name, value in zip(target.elts, node.value.elts, strict=True)
            if isinstance(name, ast.Name)
        ]
    return []


def _constant(node: ast.stmt, words: dict[str, str]) -> str:
    """A row for a field that is defined by `constant(value, unit, source)`."""
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
        return ""
    value, unit, source = (words.get(text, text) for text in map(ast.unparse, node.value.args))
    texts = (ast.literal_eval(words.get(text, text)) for text in (unit, source))
    return f"| `{ast.unparse(node.target)}` | {value} | {' | '.join(texts)} |"


def api_page(room: str) -> str:
    """The page of a room: its docstring, then each public name."""
    summary = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text())) or ""
    parts = [f"# tilewright.{room}", summary]
    for inner in (room, *(f"{room}/{name}" for name in INNER.get(room, ()))):
        if inner != room:
            parts.append(f"# tilewright.{inner.replace('/', '.')}")
        parts += [f"::: {name}" for name in public_names(inner)]
    return "\n\n".join(parts) + "\n"


def public_names(folder: str) -> list[str]:
    """What a room re-exports, as the paths where it is defined.

    Modules are left out, and names that only stand for another name.
    """
    package = f"tilewright.{folder.replace('/', '.')}"
    stub = PACKAGE / folder / "__init__.pyi"
    source = stub if stub.exists() else stub.with_suffix(".py")
    found: dict[str, None] = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            module = f"{package}.{node.module}" if node.level else node.module
            places = (definition(module, alias.name) for alias in node.names)
            found |= {place: None for place in places if place.startswith(f"{package}.")}
    return list(found)


def definition(module: str, name: str) -> str:
    """Where a module's name is defined; an empty text if it only stands for another name."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    if (path / name).is_dir() or (path / name).with_suffix(".py").exists():
        return ""
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if name in {alias.asname or alias.name for alias in node.names}:
                return definition(node.module, name)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return f"{module}.{name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return "" if isinstance(node.value, ast.Name) else f"{module}.{name}"
    return ""
