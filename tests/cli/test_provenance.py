"""What a page says of how it was made."""

from tilewright import __version__
from tilewright.cli import main
from tilewright.cli.provenance import with_provenance
from tilewright.report import ScheduleReport


def test_the_page_says_how_it_was_made(tmp_path, capsys):
    page = tmp_path / "a page.html"
    line = ["schedule", "--example", "blur", "--no-check", "-q", "--report", str(page)]
    assert main(line) == 0
    text = page.read_text()
    assert "tilewright schedule --example blur" in text
    assert f"tilewright {__version__}" in text
    for word in ("date", "seed", "computer", "load", "search"):
        assert f">{word}<" in text


def test_facts_of_the_report_stay():
    report = ScheduleReport("blur", "host", facts={"search": "1 s"})
    made = with_provenance(report, ["schedule", "my file.py"], 3, 0.25)
    assert made.facts["search"] == "1 s"
    assert made.facts["command"] == "tilewright schedule 'my file.py'"
    assert made.facts["seed"] == "3"
    assert made.facts["load"].startswith("0.2 ")
