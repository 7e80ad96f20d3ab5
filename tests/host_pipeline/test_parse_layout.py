"""Layout answers in both wire forms: regions with their labels, texts and quads."""

import pytest

from host_pipeline.parse import parse_answer
from host_pipeline.result import rectangle
from host_pipeline.tasks import task

META = (
    "# 年报<hy-meta><layout>title</layout><quad>(50,20),(950,20),(950,90),(50,90)</quad></hy-meta>"
    "\n正文 (a)<hy-meta><layout>paragraph</layout><poly>[[50,120],[950,120],[950,280],[50,280]]"
    "</poly></hy-meta><hy-meta><layout>figure</layout><quad>(1,2),(30,40)</quad></hy-meta>"
)
JSON = (
    '[{"layout_type":"title","bbox":"(50,20),(950,20),(950,90),(50,90)","text":"# 年报"},'
    '{"layout_type":"paragraph","bbox":[[50,120],[950,120],[950,280],[50,280]],"text":"正文 (a)"},'
    '{"layout_type":"figure","bbox":[1,2,30,40]}]'
)


def read(raw, **options):
    return parse_answer(task("layout_parse"), raw, to_page=lambda p: p, **options)


@pytest.mark.parametrize("raw", [META, JSON], ids=["hy-meta", "json"])
def test_both_forms_give_the_same_regions(raw):
    answer = read(raw)
    assert [(line.kind, line.text, line.quad) for line in answer.lines] == [
        ("title", "# 年报", rectangle(50, 20, 950, 90)),
        ("paragraph", "正文 (a)", rectangle(50, 120, 950, 280)),
        ("figure", "", rectangle(1, 2, 30, 40)),
    ]
    assert answer.markdown == "# 年报\n\n正文 (a)" and answer.text == "年报\n\n正文 (a)"
    assert answer.warnings == () and answer.unparsed == ()


def test_a_region_cut_off_stands_in_unparsed():
    answer = read(META[:-30], finish_reason="length")
    assert len(answer.lines) == 2
    assert answer.unparsed == (META[:-30][META.rindex("<hy-meta>") :],)
    answer = read(JSON[:-20], finish_reason="length")
    assert len(answer.lines) == 2 and answer.unparsed == ('{"layout_type":"figure"',)


def test_a_region_with_a_bad_box_keeps_its_text_and_shows_the_box():
    answer = read('[{"layout_type":"title","bbox":"(5,","text":"a"}]')
    assert answer.lines[0].quad is None and answer.lines[0].text == "a"
    assert answer.unparsed == ('{"bbox": "(5,"}',)
    answer = read("a<hy-meta><layout>title</layout><quad>(5,</quad></hy-meta>")
    assert answer.lines[0].quad is None and "<quad>(5,</quad>" in answer.unparsed[0]


def test_a_table_region_is_sanitised():
    answer = read('[{"layout_type":"table","bbox":[1,2,3,4],"text":"<table><tr><td>a<script>"}]')
    assert answer.tables[0].html == "<table><tr><td>a&lt;script&gt;</td></tr></table>"


def test_plain_markdown_in_place_of_regions_is_kept_and_flagged():
    answer = read("# 年报\n\n正文")
    assert answer.markdown == "# 年报\n\n正文"
    assert [notice.code for notice in answer.warnings] == ["no_coordinates"]
