"""Markdown answers: coordinates out, tables rebuilt, HTML disarmed, nothing else touched."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.parse.markdown import plain_text, split_fences
from host_pipeline.result import rectangle
from host_pipeline.tasks import task

TICKS = "`" * 3


def read(raw, name="doc_parse", **options):
    return parse_answer(task(name), raw, to_page=lambda p: p * 2, page_size=(2000, 2000), **options)


def codes(answer):
    return {notice.code for notice in answer.warnings}


def test_points_at_the_end_of_a_line_are_a_region_not_text():
    answer = read(
        "# 报告\n\n数据来源于地图(39,337),(512,900)\n(147,90),(925,415)\n\n正文 (1,2) 完。"
    )
    assert answer.markdown == "# 报告\n\n数据来源于地图\n\n正文 (1,2) 完。"
    assert [(line.text, line.kind, line.quad) for line in answer.lines] == [
        ("数据来源于地图", "text", rectangle(78, 674, 1024, 1800)),
        ("", "figure", rectangle(294, 180, 1850, 830)),
    ]
    assert answer.warnings == ()


def test_an_answer_of_points_alone_is_flagged():
    answer = read("(156,68),(783,758)")
    assert codes(answer) == {"only_coordinates"} and answer.text == ""
    assert answer.lines[0].quad == rectangle(312, 136, 1566, 1516)


@pytest.mark.parametrize(
    "kept",
    [
        "$A=(1,2),(3,4)$",
        "\\[ (1,2),(3,4) \\]",
        f"{TICKS}\nf(1,2),(3,4)\n{TICKS}",
        "from (1,2),(3,4) on",
        "see (12345,2),(3,4)",
    ],
)
def test_points_in_formulas_code_and_prose_stay(kept):
    answer = read(f"text\n\n{kept}")
    assert kept in answer.markdown and answer.lines == ()


def test_a_table_is_rebuilt_where_it_stands_with_its_caption_before_it():
    answer = read("前文\n<table><caption>表1</caption><tr><td>a(1,2),(3,4)<td>b</tr></table>\n后文")
    assert answer.markdown == (
        "前文\n\n表1\n\n<table><tr><td>a(1,2),(3,4)</td><td>b</td></tr></table>\n\n后文"
    )
    assert "<caption>表1</caption>" in answer.tables[0].html
    assert answer.text == "前文\n\n表1\na(1,2),(3,4)\tb\n后文"


def test_a_blank_line_in_a_cell_does_not_end_the_table():
    answer = read("<table><tr><td>a\n\nb</td></tr></table>")
    assert "\n\n" not in answer.markdown


def test_displayed_formulas_are_balanced_and_inline_ones_left_alone():
    answer = read("$$ \\left( \\frac{a}{b} $$\n\nso $x_{1$ and $$ & = 2 $$")
    assert "\\left( \\frac{a}{b}\\right." in answer.markdown
    assert "$x_{1$" in answer.markdown and "$$= 2 $$" in answer.markdown
    assert codes(answer) == {"latex_repaired"}


@pytest.mark.parametrize(
    "attack",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<SCRIPT\n>alert(1)</SCRIPT>",
        "`a\n\n# <script>alert(1)</script>`",
        "``<script>alert(1)</script>`",
        "$<script>alert(1)</script>$",
        "$$\n<iframe src=javascript:alert(1)>\n$$",
        f"~~~\n{TICKS}\n~~~\n<script>alert(1)</script>\n{TICKS}",
        f"<table><tr><td>\n{TICKS}\n<script>alert(1)</script>\n{TICKS}",
        "<table><tr><td><caption><script>alert(1)</script></caption></table>",
        "<!-- --><svg onload=alert(1)>",
        "<sub onclick=alert(1)>x</sub>",
        "![x](http://example.com/x.png)",
        "[x](javascript:alert(1))",
    ],
)
def test_no_answer_can_run_anything(attack):
    """The worst case: a renderer that lets every HTML tag through, and our own."""
    from markdown_it import MarkdownIt

    from host_pipeline.render import markdown_to_html

    answer = read(f"text\n\n{attack}\n\nmore")
    loose = MarkdownIt("commonmark", {"html": True}).disable("image").render(answer.markdown)
    for rendered in (loose, markdown_to_html(answer.markdown), markdown_to_html(attack)):
        code_free = re.sub(r"<code.*?</code>", "", rendered, flags=re.DOTALL)
        tags = set(re.findall(r"<\s*([a-zA-Z!?][\w]*)", code_free))
        assert tags <= set("p h1 pre code blockquote table tr td caption sub a".split())
        assert not re.search(r"<[^>]*\b(?:on\w+\s*=|javascript:)", code_free), rendered


def test_signs_that_only_look_like_tags_are_still_read():
    answer = read("a<b and c>d, x &lt; y, H<sub>2</sub>O<br>end")
    assert answer.text == "a<b and c>d, x < y, H2O\nend"
    assert "H<sub>2</sub>O<br>end" in answer.markdown


def test_a_fence_that_was_cut_is_closed():
    answer = read(f"{TICKS}python\nprint('<a>')")
    assert answer.markdown == f"{TICKS}python\nprint('<a>')\n{TICKS}"
    assert answer.text == "print('<a>')"


def test_pipe_tables_are_tables_too():
    answer = read("| a | b |\n|---|---|\n| 1 | 2 |", "trans_other2en")
    assert [t.html for t in answer.tables] == [
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    ]


def test_plain_text_has_no_markup():
    assert plain_text("## **Bold** title\n\ntext __x__ a*b\n") == "Bold title\n\ntext x a*b"


def test_fences_are_split_as_commonmark_does():
    text = f"a\n{TICKS}`x\nb\n{TICKS}\n{TICKS}`\nc\n    {TICKS}\nd"
    assert list(split_fences(text)) == [
        ("prose", "a"),
        ("code", f"{TICKS}`x\nb\n{TICKS}\n{TICKS}`"),
        ("prose", f"c\n    {TICKS}\nd"),
    ]


@given(st.text("#*|-`~$()[]\\{}<>/ \nab中1,2.", max_size=80))
def test_no_letter_is_lost_whatever_the_markdown(raw):
    answer = read(raw)
    kept = (answer.markdown or "") + "".join(answer.unparsed)
    for letter in "中":
        assert kept.count(letter) == raw.count(letter)
