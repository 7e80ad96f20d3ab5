"""Results as text, Markdown, HTML and hOCR: complete, escaped, written page by page."""

import dataclasses
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from host_pipeline.parse.table import table_from_rows
from host_pipeline.render import (
    markdown_to_html,
    page_markdown,
    page_text,
    render_hocr,
    render_html,
    render_markdown,
    render_text,
)
from host_pipeline.result import Field, Line, Model, Notice, Result, rectangle

PAGE = Result(
    source="票 <1>.png", page_index=0, page_count=2, page_width=640, page_height=480, rotation=0,
    task="text", model=Model("m"), engine="torch",
    lines=(Line("收据 & <b>", rectangle(10.4, 20, 300, 40.2), 0.987), Line("# 1. *x*")),
    text="收据 & <b>\n# 1. *x*",
)  # fmt: skip
FIELDS = dataclasses.replace(
    PAGE,
    page_index=1,
    fields=(Field("总额", 12.5), Field("a|b", None), Field("items", [{"x": "y"}])),
)


def test_pages_of_text_are_parted_by_form_feeds():
    assert "".join(render_text([PAGE, FIELDS])) == (
        '收据 & <b>\n# 1. *x*\n\f总额: 12.5\na|b: \nitems: [{"x": "y"}]\n'
    )


def test_pages_of_markdown_are_parted_by_a_break_and_fields_are_a_table():
    pieces = list(render_markdown([PAGE, FIELDS]))
    assert len(pieces) == 2 and pieces[1].startswith("\n---\n")
    assert "| 总额 | 12.5 |" in pieces[1] and "| a\\|b |  |" in pieces[1]


def test_a_models_own_markdown_is_given_as_it_is():
    assert page_markdown(dataclasses.replace(PAGE, markdown="# T\n\n$x$")) == "# T\n\n$x$"


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zs", "Zl", "Zp", "Cn"))
    | st.sampled_from("#*_-+=>`~[]()!|<&$\\1. "),
    min_size=1,
    max_size=20,
)


MARKUP = """#,# a,- a,+,1. a,2),===,=,--,- - -,|-|,:-:,    code,> a,&amp;,&lt;b>,a  b\\,[a](b),
![a](b),<b>,`a`,~~~,```,**a**,a_b_"""


@pytest.mark.parametrize("line", MARKUP.replace("\n", "").split(","))
def test_a_line_that_is_markup_elsewhere_is_text_here(line):
    assert shown_rows(["x", line, "y"]) == ["x", " ".join(line.split()), "y"]


@given(st.lists(TEXT.map(str.strip).filter(bool), min_size=1, max_size=3))
def test_text_that_looks_like_markdown_is_shown_as_it_is(lines):
    assert shown_rows(lines) == [" ".join(line.split()) for line in lines]


def shown_rows(lines):
    page = dataclasses.replace(PAGE, text="\n".join(lines), lines=())
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(page_markdown(page))
    return [" ".join(row.split()) for row in visible(rendered)]


def visible(markup):
    """The rows that a browser shows, for markup of paragraphs and line breaks only."""

    class Reader(HTMLParser):
        rows: list[str]

        def handle_starttag(self, tag, attrs):
            assert tag in ("p", "br"), (tag, markup)
            self.rows.append("")

        def handle_data(self, data):
            if self.rows:
                self.rows[-1] += data

    reader = Reader()
    reader.rows = []
    reader.feed(markup)
    reader.close()
    return [row for row in reader.rows if row.strip()]


def test_the_html_document_is_whole_and_shows_everything():
    table = table_from_rows([["<i>", "1"]])
    page = dataclasses.replace(
        PAGE,
        markdown=f"# 标题\n\n{table}\n\n| a |\n|---|\n| b |\n\n```mermaid\ngraph TD\n```",
        warnings=(Notice("answer_cut", "cut <here>"),),
        unparsed=("<rest>",),
        finish_reason="length",
        emulated=True,
    )
    text = "".join(render_html([page, FIELDS], title="<t>"))
    for shown in (
        "<title>&lt;t&gt;</title>", "票 &lt;1&gt;.png, page 1 of 2", "<h1>标题</h1>", table,
        "<td>b</td>", "graph TD", "answer_cut: cut &lt;here&gt;", "<pre>&lt;rest&gt;</pre>",
        "finish_reason: length", "torch (emulated)", "<td>12.5</td>",
    ):  # fmt: skip
        assert shown in text
    assert text.count("<section>") == text.count("</section>") == 2
    assert text.endswith("</body></html>\n")


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("a <img src=x> b", "a &lt;img src=x&gt; b"),
        ("H<sub>2</sub>O", "H<sub>2</sub>O"),
        ("<table><tr><td onclick=x>a</td></tr></table>", "<table><tr><td>a</td></tr></table>"),
        ("[x](javascript:y)", "[x](javascript:y)"),
    ],
)
def test_html_in_markdown_is_disarmed(markdown, shown):
    assert shown in markdown_to_html(markdown)


def test_writers_take_one_page_at_a_time():
    def endless():
        while True:
            yield PAGE

    for render in (render_text, render_markdown, render_html, render_hocr):
        writer = render(endless())
        assert all(isinstance(next(writer), str) for _ in range(5))


def test_hocr_is_xml_with_boxes_scores_and_the_text():
    turned = Line("turned", ((50, 10), (50, 110), (30, 110), (30, 10)), 0.5)
    page = dataclasses.replace(PAGE, source='a"b.png', lines=(*PAGE.lines, turned, Line("\x01")))
    root = ElementTree.fromstring("".join(render_hocr([page])))
    lines = [e for e in root.iter() if e.get("class") == "ocr_line"]
    assert [e.get("title") for e in lines] == [
        "bbox 10 20 300 41; x_wconf 99",
        "bbox 30 10 50 110; textangle -90.0; x_wconf 50",
    ]
    assert lines[0].text == "收据 & <b>"
    pages = [e for e in root.iter() if e.get("class") == "ocr_page"]
    assert pages[0].get("title") == 'image "a\'b.png"; bbox 0 0 640 480; ppageno 0'
    assert "2 lines without a position" in "".join(render_hocr([page]))


def test_the_text_of_a_page_without_fields_is_its_text():
    assert page_text(PAGE) == PAGE.text
