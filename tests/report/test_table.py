"""Tables: headings that align their columns, and CSV."""

import csv
import math

from tilewright.report.table import Column, cell, columns, table, to_csv, to_text


def test_headings_say_how_their_columns_are_aligned():
    assert columns("a | >b c|~d") == (
        Column("a"),
        Column("b c", "right"),
        Column("d", wrap=True),
    )
    assert table("x", [("1",)]).columns == columns("x")


def test_empty_columns_are_left_out_except_the_first():
    found = table("a | >b | c | >d", [("", "1", "", "–"), ("", "22", "", "")])
    assert found.columns == (Column("a"), Column("b", "right"))
    assert found.rows == (("", "1"), ("", "22"))
    assert to_text(found).splitlines()[2:] == ["    1", "   22"]


def test_csv_has_empty_cells_for_what_is_unknown():
    text = to_csv(["name", "time_s"], [["a,b", cell(0.123456789)], ["c", cell(None)], ["d", None]])
    assert text == 'name,time_s\n"a,b",0.123457\nc,\nd,\n'
    assert list(csv.reader(text.splitlines()))[1] == ["a,b", "0.123457"]
    assert cell(math.nan) == ""
