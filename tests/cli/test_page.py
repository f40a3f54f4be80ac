"""Pages of schedules and of comparisons link to each other."""

import re
from urllib.parse import unquote

import halide as hl
import pytest

import tilewright
from tilewright.cli import main
from tilewright.cli.examples import path_of
from tilewright.cli.page import write_page
from tilewright.halide import Comparison, Planning

LINK = re.compile(r'<a href="([^"]*)">([^<]*)</a>')


def result_of(factor):
    x = hl.Var("x")
    f = hl.Func("f")
    f[x] = x * factor
    f.set_estimates([(0, 1024)])
    return tilewright.schedule(f, name="f", planning=Planning(check=False))


@pytest.fixture(scope="module")
def results():
    return [result_of(2), result_of(3)]


def links(path):
    return LINK.findall(path.read_text(encoding="utf-8"))


def test_a_new_page_links_to_the_last_one_of_the_other_kind(tmp_path, results):
    ours, other = results
    records = str(tmp_path / "records.sqlite")
    (tmp_path / "deep er").mkdir()
    schedule, compare = tmp_path / "a.html", tmp_path / "deep er" / "b & c.html"

    def write(path, kind, result=ours):
        write_page(str(path), result.report(), kind, result, records)
        return links(path)

    assert write(schedule, "schedule") == []
    ((address, words),) = write(compare, "compare")
    assert (compare.parent / unquote(address)).resolve() == schedule
    assert words == "Schedule of this pipeline"
    ((address, words),) = write(schedule, "schedule")
    assert (schedule.parent / unquote(address)).resolve() == compare
    assert words == "Comparison with other schedules of this pipeline"
    # Another algorithm is another subject, also where its page has replaced one of ours.
    assert write(compare, "compare", other) == []
    assert write(schedule, "schedule") == []
    # The later of two pages counts, as long as it is there.
    write(tmp_path / "old.html", "compare")
    write(tmp_path / "new.html", "compare")
    assert [address for address, _ in write(schedule, "schedule")] == ["new.html"]
    (tmp_path / "new.html").unlink()
    assert write(schedule, "schedule") == []


def test_a_later_page_adds_its_link_to_the_earlier_one(tmp_path, results):
    ours, other = results
    records = str(tmp_path / "records.sqlite")
    (tmp_path / "deep er").mkdir()
    first = tmp_path / "a.html"

    def write(path, kind, result=ours):
        write_page(str(path), result.report(), kind, result, records)

    write(first, "schedule")
    before = first.read_text(encoding="utf-8")
    assert links(first) == []
    write(tmp_path / "deep er" / "b & c.html", "compare")
    words = "Comparison with other schedules of this pipeline"
    assert links(first) == [("deep%20er/b%20%26%20c.html", words)]
    # Nothing else changes on the page, and a still later comparison replaces the link.
    assert LINK.sub("", first.read_text(encoding="utf-8")).replace("<p></p>", "") == before
    write(tmp_path / "new.html", "compare")
    assert links(first) == [("new.html", words)]
    write(tmp_path / "foreign.html", "compare", other)
    assert links(first) == [("new.html", words)]
    # The same the other way round.
    write(tmp_path / "next.html", "schedule")
    assert links(tmp_path / "new.html") == [("next.html", "Schedule of this pipeline")]


def test_a_file_that_is_not_the_page_any_more_is_left_alone(tmp_path, results):
    ours, other = results
    first, second = tmp_path / "a.html", tmp_path / "b.html"

    def page_of(path, kind="schedule", result=ours):
        write_page(str(path), result.report(), kind, result, str(tmp_path / "none.sqlite"))
        return path.read_bytes()

    def replaced(change):
        records = tmp_path / "records.sqlite"
        records.unlink(missing_ok=True)
        first.unlink(missing_ok=True)
        write_page(str(first), ours.report(), "schedule", ours, str(records))
        change()
        write_page(str(second), ours.report(), "compare", ours, str(records))
        assert [address for address, _ in links(second)] == ["a.html"]

    def linked():
        elsewhere.write_bytes(page)
        first.unlink()
        first.symlink_to(elsewhere)

    elsewhere = tmp_path / "elsewhere.html"
    page = page_of(elsewhere)
    replaced(linked)
    assert elsewhere.read_bytes() == page
    assert first.is_symlink()
    foreign = page_of(tmp_path / "foreign.html", result=other)
    for content in (b"", b"notes of mine", page[:-40] + b"\xff\xfe", foreign):
        replaced(lambda content=content: first.write_bytes(content))
        assert first.read_bytes() == content
    replaced(lambda: first.chmod(0o444))
    assert first.read_bytes() == page
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_page_that_replaces_the_other_does_not_link_to_itself(tmp_path, results):
    records = str(tmp_path / "records.sqlite")
    page = tmp_path / "page.html"
    for kind in ("schedule", "compare", "schedule"):
        write_page(str(page), results[0].report(), kind, results[0], records)
        assert links(page) == []


def test_without_records_there_is_a_page_without_a_link(tmp_path, results):
    (tmp_path / "records.sqlite").write_text("this is no database, and long enough to be read")
    page = tmp_path / "page.html"
    for kind in ("schedule", "compare"):
        records = str(tmp_path / "records.sqlite")
        write_page(str(page), results[0].report(), kind, results[0], records)
        assert "<svg" in page.read_text(encoding="utf-8")


def test_the_commands_link_their_pages(tmp_path, results, monkeypatch):
    given = ["--example", "blur", "-q", "--records", str(tmp_path / "records.sqlite")]
    schedule, compare = tmp_path / "schedule.html", tmp_path / "compare.html"
    assert main(["schedule", *given, "--no-check", "--report", str(schedule)]) == 0
    assert links(schedule) == []
    # What is compared does not matter here.
    blur = tilewright.schedule(f"{path_of('blur')}:blur", planning=Planning(check=False))
    monkeypatch.setattr(tilewright.halide, "compare", lambda *_, **__: Comparison(blur, ()))
    assert main(["compare", *given, "--report", str(compare)]) == 0
    assert [address for address, _ in links(compare)] == ["schedule.html"]
    assert [address for address, _ in links(schedule)] == ["compare.html"]
    assert main(["schedule", *given, "--no-check", "--report", str(schedule)]) == 0
    assert [address for address, _ in links(schedule)] == ["compare.html"]
