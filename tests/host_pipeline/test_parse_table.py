"""Tables: closed, sanitised, with every character of every cell."""

import html
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.parse.table import (
    pipe_tables,
    rebuild_table,
    table_from_rows,
    table_rows,
    table_spans,
)
from host_pipeline.tasks import task


def read(raw, **options):
    return parse_answer(task("table"), raw, to_page=lambda p: p, **options)


CASES = {
    "as it should be": (
        '<table><thead><tr><th colspan="2">A</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr>'
        "</tbody></table>",
        None,
        [["A"], ["1", "2"]],
    ),
    "cut in a cell": ("<table><tr><td>a</td><td>b", "unclosed tags", [["a", "b"]]),
    "cut in a tag": ("<table><tr><td>a</td><td", "text between cells", [["a", "<td"]]),
    "cells between rows": (
        "<table><tr><td>a</td></tr><td>stray</td><tr><td>b</td></tr></table>",
        "cells outside a row",
        [["a"], ["stray"], ["b"]],
    ),
    "text between rows": (
        "<table><tr><td>a</td></tr>stray<tr><td>b</td></tr></table>",
        "text between cells",
        [["a"], ["stray"], ["b"]],
    ),
    "closing tags left out": ("<table><tr><td>a<td>b<tr><td>c</table>", None, [["a", "b"], ["c"]]),
    "closing tags too many": (
        "<table><tr><td>a</td></td></tr></tr></table>",
        "stray closing tags",
        [["a"]],
    ),
    "upper case and attributes": (
        '<TABLE border=1 style="x"><TR><TD onclick="evil()" ROWSPAN=2>a</TD></TR></TABLE>',
        None,
        [["a"]],
    ),
    "script in a cell": (
        "<table><tr><td>x<script>alert(1)</script></td><td>y</td></tr></table>",
        None,
        [["x<script>alert(1)</script>", "y"]],
    ),
    "unclosed script": (
        "<table><tr><td><script>alert(1)</td><td>y</td></tr></table>",
        None,
        [["<script>alert(1)", "y"]],
    ),
    "entities": (
        "<table><tr><td>a &amp; b &lt; c < d</td></tr></table>",
        None,
        [["a & b < c < d"]],
    ),
    "rows without a table": ("<tr><td>a</td></tr>", "rows outside a table", [["a"]]),
    "wrappers": (
        "<html><body><table><tr><td><p>a</p></td></tr></table></body></html>",
        "page formatting left out",
        [["a"]],
    ),
    "a comment": ("<table><tr><td>a<!-- b --></td></tr></table>", None, [["a<!-- b -->"]]),
    "line break": ("<table><tr><td>a<br/>b<sup>2</sup></td></tr></table>", None, [["a b2"]]),
}


@pytest.mark.parametrize(("raw", "repair", "rows"), CASES.values(), ids=CASES)
def test_a_table_is_rebuilt_with_all_its_cells(raw, repair, rows):
    table, notices = rebuild_table(raw)
    assert table_rows(table) == rows
    assert_well_formed(table)
    if repair is None:
        assert notices == ()
    else:
        assert notices[0].code == "table_repaired" and repair in notices[0].text


@pytest.mark.parametrize(
    ("given_span", "kept"),
    [('rowspan="2"', ' rowspan="2"'), ("colspan=99999", ' colspan="1000"'), ("rowspan=0", "")],
)
def test_spans_are_kept_within_limits(given_span, kept):
    table, notices = rebuild_table(f"<table><tr><td {given_span}>a</td></tr></table>")
    assert table == f"<table><tr><td{kept}>a</td></tr></table>"
    assert bool(notices) == (kept != f" {given_span}")


def test_a_nested_table_stays_inside_its_cell():
    raw = "<table><tr><td><table><tr><td>in</td></tr></table></td><td>out</td></tr></table>"
    assert rebuild_table(raw) == (raw, ())
    assert table_spans("x" + raw + "y") == [(1, 1 + len(raw))]


def test_tables_nested_without_end_are_bounded():
    table, notices = rebuild_table("<table><tr><td>" * 5000)
    assert table.count("<table>") == 4 and notices[0].code == "table_repaired"
    assert_well_formed(table)


def test_a_table_that_was_cut_does_not_swallow_the_next():
    text = "<table><tr><td>a</td></tr>\nbetween\n<table><tr><td>b</td></tr></table> after"
    spans = table_spans(text)
    assert len(spans) == 2 and text[spans[1][1] :] == " after"


def test_the_task_gives_the_table_the_text_around_it_and_the_plain_rows():
    answer = read("表1 价格\n<table><tr><td>茶</td><td>12</td></tr></table>\n单位:元")
    assert [t.html for t in answer.tables] == ["<table><tr><td>茶</td><td>12</td></tr></table>"]
    assert answer.text == "表1 价格\n茶\t12\n单位:元"
    assert answer.warnings == ()


def test_an_answer_without_a_table_says_so_and_keeps_the_text():
    answer = read("茶 12")
    assert answer.tables == () and answer.text == "茶 12"
    assert [notice.code for notice in answer.warnings] == ["no_table"]


def test_pipe_tables_become_html():
    markdown = "before\n\n| a | b |\n|---|:-:|\n| 1 | 2 \\| 3 |\n| <b> |  |\n\nafter | not"
    assert pipe_tables(markdown) == [
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2 | 3</td></tr>"
        "<tr><td>&lt;b&gt;</td><td></td></tr></table>"
    ]


def test_a_table_of_rows_is_escaped():
    assert (
        table_from_rows([["<i>", "a&b"]])
        == "<table><tr><td>&lt;i&gt;</td><td>a&amp;b</td></tr></table>"
    )


PIECES = """<table> </table> <tr> </tr> <td> </td> <th> </th> <td <b> </b> <caption> </caption> <br>
<thead> </thead> <tbody> </tbody> <script> </script> <!-- --> a &lt; & ' " > < 文 <p>""".split()
MARKUP = st.lists(
    st.sampled_from(
        [*PIECES, " ", "\n", '<td colspan="3" onclick="x">', "<img src=x onerror=a()>"]
    ),
    max_size=40,
).map("".join)


@given(MARKUP)
def test_any_markup_gives_a_well_formed_table_that_lost_nothing_and_runs_nothing(raw):
    table, _ = rebuild_table(raw)
    assert_well_formed(table)
    assert rebuild_table(table) == (table, ())  # nothing is left to mend
    known = r"</?(?:table|thead|tbody|tr|td|th|b|br|caption|p)(?:\s[^<>]*)?/?>"
    visible = re.sub(r"\s", "", html.unescape(re.sub(known, "", raw)))
    assert re.sub(r"\s", "", html.unescape(re.sub(r"</?[a-z]+[^<>]*>", "", table))) == visible


def assert_well_formed(table):
    class Checker(HTMLParser):
        open: list[str]

        def handle_starttag(self, tag, attrs):
            parents = {
                "table": {None, "td", "th", "caption"},
                "tr": {"table", "thead", "tbody", "tfoot"},
                "td": {"tr"},
                "th": {"tr"},
                "thead": {"table"},
                "tbody": {"table"},
            }
            inside = [t for t in self.open if t not in ("b", "i", "sub", "sup")]
            if tag in parents:
                assert (inside[-1] if inside else None) in parents[tag], (tag, self.open)
            assert tag in {*parents, "caption", "br", "b", "sup", "sub"}
            assert {name for name, _ in attrs} <= {"rowspan", "colspan"}
            if tag != "br":
                self.open.append(tag)

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    checker = Checker()
    checker.open = []
    checker.feed(table)
    checker.close()
    assert checker.open == []
