"""Spotting answers in all four wire forms, hand-made and as the vendor's own parsers break them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.result import rectangle
from host_pipeline.tasks import task


def read(raw, width=1000, height=1000, **options):
    scale = np.array([width / 1000, height / 1000])
    return parse_answer(
        task("spotting"),
        raw,
        to_page=lambda points: points * scale,
        page_size=(width, height),
        **options,
    )


def codes(answer):
    return {notice.code for notice in answer.warnings}


FORMS = {
    "points": "收据(100,50),(400,90)Total (USD)(100,500),(300,532)",
    "points with spaces": "收据 (100, 50), (400, 90)\nTotal (USD) (100, 500), (300, 532)\n",
    "ref": "<ref>收据</ref><quad>(100,50),(400,90)</quad>"
    "<ref>Total (USD)</ref><quad>(100,500),(300,532)</quad>",
    "pos": "<quad><pos_100><pos_50><pos_400><pos_90></quad><ref>收据</ref>\n"
    "<quad><pos_x_100><pos_y_500><pos_x_300><pos_y_532></quad><ref>Total (USD)</ref>",
    "json": '[{"box": [100, 50, 400, 90], "text": "收据"},\n'
    '{"bbox": [100, 500, 300, 532], "text": "Total (USD)"}]',
    "fenced json": '```json\n[{"box":[100,50,400,90],"text":"收据"},'
    '{"box":[100,500,300,532],"text":"Total (USD)"}]\n```',
    "four points": "收据(100,50),(400,50),(400,90),(100,90)"
    "Total (USD)(100,500),(300,500),(300,532),(100,532)",
}


@pytest.mark.parametrize("raw", FORMS.values(), ids=FORMS)
def test_every_wire_form_gives_the_same_lines(raw):
    answer = read(raw, 2000, 500)
    assert [line.text for line in answer.lines] == ["收据", "Total (USD)"]
    assert answer.lines[0].quad == rectangle(200, 25, 800, 45)
    assert answer.lines[1].quad == rectangle(200, 250, 600, 266)
    assert answer.text == "收据\nTotal (USD)"
    assert answer.warnings == () and answer.unparsed == ()


def test_a_repeated_box_moves_no_other():
    """The vendor's denormalisation by text replacement gives A the box of B's half."""
    answer = read("A(0,0),(500,500)B(0,0),(250,250)", 500, 500)
    assert [line.quad for line in answer.lines] == [
        rectangle(0, 0, 250, 250),
        rectangle(0, 0, 125, 125),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ATLANTA (AP)",
        "金额(小写)",
        "Total (USD)",
        "(1)",
        "f(x)=(a,b)",
        "at (3,4) o'clock",
        "a)(",
        "5(6,7)",
    ],
)
def test_text_with_parentheses_stays_whole(text):
    answer = read(f"{text}(10,20),(30,40)next(50,60),(70,80)")
    assert [line.text for line in answer.lines] == [text, "next"]
    assert answer.unparsed == ()


def test_a_point_right_before_the_box_belongs_to_the_text():
    answer = read("f(1,2),(10,20),(30,40)")
    assert answer.lines[0].text == "f(1,2)"
    assert answer.lines[0].quad == rectangle(10, 20, 30, 40)


def test_equal_lines_at_different_places_all_stay():
    raw = "".join(f"0.00({i},{i}),({i + 5},{i + 5})" for i in range(40))
    answer = read(raw)
    assert len(answer.lines) == 40 and answer.warnings == ()


def test_swapped_corners_are_put_in_order_and_reported():
    answer = read("A(300,400),(100,200)")
    assert answer.lines[0].quad == rectangle(100, 200, 300, 400)
    assert codes(answer) == {"box_corners_swapped"}


def test_coordinates_outside_the_canvas_are_clamped_and_reported():
    answer = read("A(-5,20),(1200,99999999999999999999)", 640, 480)
    assert answer.lines[0].quad == rectangle(0, 9.6, 640, 480)
    assert codes(answer) == {"box_out_of_range"}


def test_a_quad_in_a_letterbox_bar_ends_at_the_page():
    answer = parse_answer(
        task("spotting"), "A(0,0),(1000,1000)", to_page=lambda p: p * 2, page_size=(1990, 1500)
    )
    assert answer.lines[0].quad == rectangle(0, 0, 1990, 1500)


def test_a_counter_clockwise_quad_is_turned_round():
    answer = read("A(10,10),(10,50),(90,50),(90,10)")
    assert answer.lines[0].quad == rectangle(10, 10, 90, 50)
    assert codes(answer) == {"box_reordered"}


def test_a_turned_quad_keeps_its_own_top_left():
    answer = read("A(90,10),(90,50),(10,50),(10,10)")
    assert answer.lines[0].quad[0] == (90, 10)


def test_a_cut_last_item_stands_in_unparsed():
    answer = read("收据(100,50),(400,90)合计(100,5", finish_reason="length")
    assert [line.text for line in answer.lines] == ["收据"]
    assert answer.unparsed == ("合计(100,5",)
    assert codes(answer) == {"answer_cut", "unparsed"} and answer.finish_reason == "length"


@pytest.mark.parametrize("tail", ["合计(", "合计(100,5),(", "合计(1,5),(30,40", "合计(1"])
def test_an_answer_that_is_one_cut_item_gives_no_line(tail):
    answer = read(tail, finish_reason="length")
    assert answer.lines == () and answer.unparsed == (tail,)


def test_a_cut_json_item_stands_in_unparsed():
    answer = read(
        '[{"box":[1,2,3,4],"text":"a"},{"box":[5,6,7,8],"text":"12', finish_reason="length"
    )
    assert [line.text for line in answer.lines] == ["a"]
    assert answer.unparsed == ('{"box":[5,6,7,8],"text":"12',)


def test_a_box_without_text_is_no_line():
    answer = read("A(1,2),(3,4)(5,6),(7,8)")
    assert len(answer.lines) == 1 and answer.unparsed == ("(5,6),(7,8)",)


def test_text_without_any_box_keeps_its_lines_without_a_position():
    answer = read("Hello\nworld (2024)")
    assert [(line.text, line.quad) for line in answer.lines] == [
        ("Hello", None),
        ("world (2024)", None),
    ]
    assert codes(answer) == {"no_coordinates"}


@pytest.mark.parametrize("raw", ["图片中没有文字。", "图片中没有文字", " 图中没有文字。\n"])
def test_the_words_for_an_empty_picture_are_not_text(raw):
    answer = read(raw)
    assert answer.lines == () and answer.text == "" and codes(answer) == {"no_text"}


def test_an_empty_answer_says_so():
    assert codes(read("  \n")) == {"empty_answer"}


def test_one_broken_json_item_costs_no_other():
    raw = (
        '[{"box":[1,2,3,4],"text":"a"},{"box":[1,2],"text":"no box"},'
        '{"box":[5,6,7,8],"text":"5" pipe"},{"box":[9,9,10,10],"text":"\\frac{1}{2} \\_"}]'
    )
    answer = read(raw)
    assert [line.text for line in answer.lines] == ["a", "no box", '5" pipe', "\\frac{1}{2} \\_"]
    assert answer.lines[1].quad is None
    assert [json.loads(text) for text in answer.unparsed] == [{"box": [1, 2]}]
    assert "json_repaired" in codes(answer)


def test_keys_beside_box_and_text_are_not_lost():
    answer = read('[{"box":[1,2,3,4],"text":"a","lang":"fr"}]')
    assert json.loads(answer.unparsed[0]) == {"lang": "fr"}


def test_words_around_the_json_are_not_lost():
    answer = read('Here it is:\n[{"box":[1,2,3,4],"text":"a"}]\nDone.')
    assert answer.unparsed == ("Here it is:", "Done.")


def test_a_missing_tag_shifts_no_other_pair():
    raw = (
        "<ref>a</ref><quad>(1,2),(3,4)</quad><quad>(5,6),(7,8)</quad>"
        "<ref>c</ref><ref>b</ref><quad>(9,9),(20,20)</quad>"
    )
    answer = read(raw)
    assert [(line.text, line.quad[0]) for line in answer.lines] == [("a", (1, 2)), ("b", (9, 9))]
    assert answer.unparsed == ("<quad>(5,6),(7,8)</quad>", "<ref>c</ref>")


LINES = st.lists(
    st.tuples(
        st.text(
            st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")),
            min_size=1,
            max_size=12,
        ).filter(lambda t: not set(t) <= set("(), ") and "(" not in t[-4:] and "<" not in t),
        st.tuples(*[st.integers(0, 1000)] * 4),
    ),
    min_size=1,
    max_size=8,
)


@given(LINES)
def test_what_is_written_in_the_models_form_is_read_back(lines):
    """Round trip, whatever the texts hold but a point right before the box."""
    raw = "".join(f"{text}({x0},{y0}),({x1},{y1})" for text, (x0, y0, x1, y1) in lines)
    answer = read(raw)
    if [line.text for line in answer.lines] != [text for text, _ in lines]:
        # A text may itself hold points; then its characters are still all there.
        kept = "".join(line.text for line in answer.lines) + "".join(answer.unparsed)
        for text, _ in lines:
            assert not set(text) - set(kept) - set("0123456789(),.-")
    else:
        for line, (_, (x0, y0, x1, y1)) in zip(answer.lines, lines, strict=True):
            expected = rectangle(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            assert line.quad == expected


@given(LINES)
def test_json_lines_are_read_back(lines):
    raw = json.dumps([{"box": box, "text": text} for text, box in lines], ensure_ascii=False)
    answer = read(raw)
    assert [line.text for line in answer.lines] == [text.strip() for text, _ in lines]


# No letters: the words of tags and keys are markup, not text.
NOISE = st.text("()[]{},.:;\"'`\\ \n中收0123456789-é&", max_size=80)


@given(NOISE, st.sampled_from(["stop", "length"]))
def test_no_visible_character_is_lost_whatever_the_answer(raw, finish):
    answer = read(raw, finish_reason=finish)
    kept = "".join(line.text for line in answer.lines) + "".join(answer.unparsed)
    lost = [c for c in raw if not c.isspace() and kept.count(c) < raw.count(c)]
    assert set(lost) <= set("0123456789(),.-")  # the signs of coordinates
