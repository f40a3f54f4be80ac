"""The documents as a whole: links lead somewhere, and the site lists every page and is built."""

import re
import subprocess
import sys

import pytest
import yaml
from documents import ROOT

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Pages that the site makes when it is built (docs/_site/hooks.py).
MADE = {"docs/constants.md"}


def code_left_out(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(path):
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in LINK.findall(code_left_out(page.read_text(encoding="utf-8"))):
        if re.match(r"\w+://", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.is_relative_to(ROOT) or str(path.relative_to(ROOT)) in MADE:
            continue
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def listed(entries):
    """The pages of a navigation, also of its folders."""
    for entry in entries:
        parts = entry.values() if isinstance(entry, dict) else [entry]
        for part in parts:
            yield from listed(part) if isinstance(part, list) else [part]


def test_every_page_is_in_the_navigation():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    by_hand = {page for page in pages if not page.startswith("decisions/")}
    assert set(listed(nav)) == by_hand | {"index.md", "constants.md"}


def test_nothing_is_loaded_from_elsewhere():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & set(settings)


@pytest.mark.thorough
def test_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs builds the site: make test installs it")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings builds the site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "api" / "tuning.html").read_text(encoding="utf-8")
    assert "tilewright.tuning.space.space.Space" in api
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img)[^>]+src=\"(https?:[^\"]+)", page.read_text("utf-8"))
        assert loaded == [], page
