"""Fields: each asked key once, typed, null where it is not on the page, never invented."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import parse_answer
from host_pipeline.tasks import TaskError, task

TICKS = "`" * 3
KEYS = ["发票号码", "总金额", "日期"]


def read(raw, fields=KEYS, **options):
    return parse_answer(task("fields"), raw, to_page=lambda p: p, fields=fields, **options)


def values(answer):
    return {field.name: field.value for field in answer.fields}


def codes(answer):
    return [notice.code for notice in answer.warnings]


def test_an_answer_fills_the_asked_keys_in_the_asked_order():
    answer = read(
        f'{TICKS}json\n{{"总金额": "12.00", "发票号码": "03287445", "日期": ""}}\n{TICKS}'
    )
    assert list(values(answer).items()) == [
        ("发票号码", "03287445"),
        ("总金额", "12.00"),
        ("日期", None),
    ]
    assert answer.warnings == () and answer.unparsed == ()


def test_a_key_that_is_not_there_is_null_not_guessed():
    answer = read('{"总金额": "12.00"}')
    assert values(answer) == {"发票号码": None, "总金额": "12.00", "日期": None}
    assert answer.fields[0].raw is None


def test_what_was_not_asked_for_is_kept_apart():
    answer = read('{"总金额": "12.00", "税额": "1.00"}')
    assert answer.unparsed == ('{"税额": "1.00"}',) and codes(answer) == ["unparsed"]


def test_types_come_from_a_schema_and_the_text_is_kept():
    schema = {
        "type": "object",
        "properties": {
            "total": {"type": "number"},
            "date": {"type": "string", "format": "date"},
            "count": {"type": "integer"},
        },
    }
    answer = read('{"total": "￥1,234.50", "date": "3/4/2024", "count": 2}', schema)
    assert values(answer) == {"total": 1234.5, "date": None, "count": 2}
    assert [field.raw for field in answer.fields] == ["￥1,234.50", "3/4/2024", "2"]
    assert codes(answer) == ["value_converted", "value_refused"]


def test_a_key_written_a_little_differently_is_found_and_reported():
    answer = read('{"invoice no": "7", "Total:": "1"}', ["Invoice_No.", "total"])
    assert values(answer) == {"Invoice_No.": "7", "total": "1"}
    assert codes(answer) == ["key_matched", "key_matched"]


def test_two_keys_that_look_alike_are_not_confused():
    answer = read('{"TOTAL": "1", "total": "2"}', ["Total"])
    assert values(answer) == {"Total": None} and len(answer.unparsed) == 2


def test_the_value_that_the_limit_cut_off_is_null():
    answer = read('{"发票号码": "03287445", "总金额": "12', finish_reason="length")
    assert values(answer) == {"发票号码": "03287445", "总金额": None, "日期": None}
    assert answer.unparsed == ('{"总金额": "12"}',)
    assert {"value_cut", "answer_cut"} <= set(codes(answer))


def test_one_object_for_each_key_is_merged():
    answer = read('[{"发票号码": "1"}, {"总金额": "2"}, {"总金额": "3"}]')
    assert values(answer) == {"发票号码": "1", "总金额": "2", "日期": None}
    assert answer.unparsed == ('{"总金额": "3"}',)


@pytest.mark.parametrize("raw", ["03287445", "[1, 2]", "我不知道", '"text"'])
def test_an_answer_without_an_object_leaves_every_field_null(raw):
    answer = read(raw)
    assert set(values(answer).values()) == {None}
    assert answer.unparsed == (raw,) and "not_json" in codes(answer)


def test_an_empty_answer_still_names_every_field():
    assert values(read("{}")) == values(read("")) == dict.fromkeys(KEYS)
    assert list(values(read("图片中没有文字。"))) == KEYS


def test_latex_and_backticks_in_a_value_survive():
    answer = read('{"发票号码": "\\frac{1}{2}", "总金额": "a```b"}')
    assert values(answer)["发票号码"] == "\\frac{1}{2}" and values(answer)["总金额"] == "a```b"


def test_fields_must_be_named():
    with pytest.raises(TaskError, match="--fields"):
        read("{}", [])


@given(st.dictionaries(st.sampled_from(KEYS), st.text("ab中0\"'{}\\", min_size=1), max_size=3))
def test_every_value_of_valid_json_arrives(value):
    answer = read(json.dumps(value, ensure_ascii=False) if value else '{"x": 1}')
    assert values(answer) == {key: value.get(key) for key in KEYS}
