"""A value is converted where nothing is guessed, and refused with its reason elsewhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_pipeline.parse import FieldSpec, SchemaError, check_value, field_specs
from host_pipeline.tasks import TaskError

GOOD = [
    ("string", " 张三 ", "张三"),
    ("string", 12.5, "12.5"),
    ("string", True, "true"),
    ("number", "1,234.50", 1234.5),
    ("number", "￥1,234", 1234),
    ("number", "RM 9.00", 9.0),
    ("number", "-12.00 元", -12.0),
    ("number", "１２．５", 12.5),
    ("number", 3, 3),
    ("integer", "12.00", 12),
    ("integer", 12.0, 12),
    ("boolean", "是", True),
    ("boolean", "No", False),
    ("date", "2024-01-31", "2024-01-31"),
    ("date", "2024年1月31日", "2024-01-31"),
    ("date", "20240131", "2024-01-31"),
    ("date", "31/12/2024", "2024-12-31"),
    ("date", "12/31/2024", "2024-12-31"),
    ("date", "05.05.2024", "2024-05-05"),
    ("date", "15 JAN 2018", "2018-01-15"),
    ("date", "Sept 3, 2018", "2018-09-03"),
    ("date", "25/12/2018 8:13:39 PM", "2018-12-25"),
    ("array", ["a", 1], ["a", 1]),
    ("array", "a", ["a"]),
    ("object", {"a": 1}, {"a": 1}),
]

BAD = [
    ("string", ["a"]),
    ("number", "12a"),
    ("number", "8.5%"),
    ("number", "12,34"),
    ("number", "1.2亿"),
    ("number", "12 34"),
    ("number", True),
    ("number", float("nan")),
    ("number", "9" * 5000),
    ("integer", "12.50"),
    ("boolean", "maybe"),
    ("boolean", 1),
    ("date", "03/04/2024"),
    ("date", "31/12/24"),
    ("date", "2024-02-30"),
    ("date", "15 Mai 2018"),
    ("date", "tomorrow"),
    ("date", 20240131),
    ("array", {"a": 1}),
    ("object", "a"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), GOOD)
def test_a_value_is_read_exactly(kind, value, expected):
    found, notice = check_value(FieldSpec("x", kind), value)
    assert found == expected and type(found) is type(expected)
    changed = found != (value.strip() if isinstance(value, str) else value)
    assert (notice is not None) == (changed or type(found) is not type(value))
    assert notice is None or notice.code == "value_converted"


@pytest.mark.parametrize(("kind", "value"), BAD)
def test_a_doubtful_value_is_null_with_the_reason(kind, value):
    found, notice = check_value(FieldSpec("x", kind), value)
    assert found is None and notice.code == "value_refused" and notice.text.startswith("x: ")


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_nothing_is_null_without_a_word(value):
    assert check_value(FieldSpec("x", "number"), value) == (None, None)


def test_an_enum_matches_whatever_the_case_and_width():
    spec = FieldSpec("currency", enum=("CNY", "USD"))
    assert check_value(spec, "usd")[0] == "USD"
    assert check_value(spec, "ＵＳＤ")[0] == "USD"
    assert check_value(spec, "EUR")[0] is None


def test_a_pattern_refuses_what_it_does_not_match():
    spec = FieldSpec("code", pattern="^[0-9]{8}$")
    assert check_value(spec, "03287445") == ("03287445", None)
    assert check_value(spec, "0328744")[1].code == "value_refused"


SCHEMA = {
    "type": "object",
    "required": ["total"],
    "$defs": {"money": {"type": "number", "description": "amount"}},
    "properties": {
        "total": {"$ref": "#/$defs/money"},
        "date": {"type": ["string", "null"], "format": "date"},
        "paid": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "price": {"$ref": "#/$defs/money"}},
            },
        },
    },
}


def test_a_schema_gives_typed_specs_in_its_order():
    specs = field_specs(SCHEMA)
    assert [(s.name, s.type, s.required) for s in specs] == [
        ("total", "number", True),
        ("date", "date", False),
        ("paid", "boolean", False),
        ("items", "array", False),
    ]
    assert specs[0].description == "amount"
    assert [p.type for p in specs[3].items.properties] == ["string", "number"]


def test_nested_values_are_checked_too():
    items = field_specs(SCHEMA)[3]
    found, notice = check_value(items, [{"name": "茶", "price": "12.00"}, {"price": "x", "y": 1}])
    assert found == [{"name": "茶", "price": 12.0}, {"name": None, "price": None}]
    assert "'12.00' read as 12.0" in notice.text and "left out: y" in notice.text


def test_names_alone_are_strings():
    assert field_specs(["a", "b"]) == (FieldSpec("a"), FieldSpec("b"))


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "money"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "number"]}}},
        {"type": "object", "properties": {"a": {"oneOf": []}}},
        {"type": "object", "properties": {"a": {"minimum": 3}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"enum": "x"}}},
        {"type": "object", "properties": {"a": "string"}},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "required": True, "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{}, {}]}}},
        {"type": "object", "properties": {"a": {"anyOf": 3}}},
        {"type": "object", "properties": {"a": {"items": {"$ref": "#/properties/a"}}}},
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused_at_once(bad):
    with pytest.raises(SchemaError) as error:
        field_specs(bad)
    assert isinstance(error.value, TaskError)


@pytest.mark.parametrize("bad", [[], "abc", ["a", "a"], [""], {"properties": {" ": {}}}])
def test_bad_names_are_refused(bad):
    with pytest.raises(TaskError):
        field_specs(bad)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_printed_number_is_read_back(number):
    text = format(number, ",.6f")
    found, _ = check_value(FieldSpec("x", "number"), text)
    assert math.isclose(found, float(text.replace(",", "")))


@given(st.dates())
def test_a_printed_date_is_read_back(day):
    for text in (day.isoformat(), f"{day.year:04}年{day.month}月{day.day}日"):
        assert check_value(FieldSpec("x", "date"), text)[0] == day.isoformat()


@given(
    st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "date"]),
    st.text(max_size=30) | st.floats() | st.integers() | st.booleans() | st.lists(st.text()),
)
def test_any_value_is_read_or_refused(kind, value):
    found, notice = check_value(FieldSpec("x", kind), value)
    if found is None:
        assert notice is not None or not str(value).strip()
