"""The Result: JSON and back, and its schema in step with its dataclasses, in both directions."""

import dataclasses
import json
import typing
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from host_pipeline.result import (
    SCHEMA_VERSION,
    Field,
    Line,
    Model,
    Notice,
    Quad,
    Result,
    Table,
    result_schema,
)

SCHEMA = result_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

NUMBERS = st.floats(-10, 5000, allow_nan=False).map(lambda v: round(v, 2))
QUADS = st.none() | st.tuples(*[st.tuples(NUMBERS, NUMBERS)] * 4)
SCORES = st.none() | st.floats(0, 1)
TEXTS = st.text(max_size=6)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
RESULTS = st.builds(
    Result,
    source=TEXTS,
    page_index=st.integers(0, 9),
    page_count=st.integers(1, 9),
    page_width=st.integers(1, 9999),
    page_height=st.integers(1, 9999),
    rotation=st.sampled_from([0, 90, 180, 270]),
    task=TEXTS,
    model=st.builds(Model, name=TEXTS, digest=st.none() | TEXTS),
    engine=TEXTS,
    emulated=st.booleans(),
    fallback_reason=st.none() | TEXTS,
    lines=st.lists(
        st.builds(Line, TEXTS, QUADS, SCORES, kind=TEXTS, vertical=st.booleans()), max_size=2
    ).map(tuple),
    text=TEXTS,
    fields=st.lists(
        st.builds(Field, TEXTS, JSON_VALUES, st.none() | TEXTS, QUADS, SCORES), max_size=2
    ).map(tuple),
    tables=st.lists(st.builds(Table, TEXTS, QUADS), max_size=2).map(tuple),
    markdown=st.none() | TEXTS,
    raw=TEXTS,
    unparsed=st.lists(TEXTS, max_size=2).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", "repetition", "cancelled", "numeric_fault"]),
    warnings=st.lists(st.builds(Notice, TEXTS, TEXTS), max_size=2).map(tuple),
    timings_ms=st.dictionaries(TEXTS, st.floats(0, 1e6), max_size=2),
    settings=st.dictionaries(TEXTS, JSON_VALUES, max_size=2),
    usage=st.dictionaries(TEXTS, st.integers(0, 9999), max_size=2),
)


def example():
    return Result(
        source="a.png", page_index=0, page_count=1, page_width=10, page_height=20, rotation=0,
        task="text", model=Model("m"), engine="torch",
    )  # fmt: skip


@settings(max_examples=60)
@given(RESULTS)
def test_every_result_fits_the_schema_and_comes_back_from_json(result):
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    VALIDATOR.validate(data)
    assert Result.from_dict(data) == result


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


PAIRS = {
    "Result": (Result, SCHEMA),
    **{
        cls.__name__: (cls, SCHEMA["$defs"][cls.__name__])
        for cls in (Notice, Line, Field, Table, Model)
    },
}


@pytest.mark.parametrize(("cls", "schema"), PAIRS.values(), ids=PAIRS)
def test_schema_and_dataclass_name_the_same_properties(cls, schema):
    names = {f.name for f in dataclasses.fields(cls)}
    if cls is Result:
        names.add("schema_version")
    assert set(schema["properties"]) == set(schema["required"]) == names


@pytest.mark.parametrize(("cls", "schema"), PAIRS.values(), ids=PAIRS)
def test_schema_and_dataclass_give_each_property_the_same_type(cls, schema):
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        stated = schema["properties"][field.name]
        assert kinds_of(stated) == kinds_of_hint(hints[field.name]), field.name


def test_no_definition_is_left_over():
    text = json.dumps(SCHEMA)
    for name in SCHEMA["$defs"]:
        assert f"#/$defs/{name}" in text


def kinds_of(schema):
    """The JSON types of a schema, named as `kinds_of_hint` names those of a Python type."""
    if "$ref" in schema:
        return {schema["$ref"].rpartition("/")[2]}
    if "anyOf" in schema:
        return set().union(*(kinds_of(choice) for choice in schema["anyOf"]))
    if "enum" in schema and schema["type"] == "string":
        return {("one of", *schema["enum"])}
    if schema.get("type") == "array":
        return {("list of", *kinds_of(schema["items"]))}
    if schema.get("type") == "object":
        values = schema["additionalProperties"]
        return {("map of", *({"any"} if values is True else kinds_of(values)))}
    if "type" not in schema:
        return {"any"}
    kinds = schema["type"]
    return set(kinds) if isinstance(kinds, list) else {kinds}


def kinds_of_hint(hint):
    simple = {
        str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
        typing.Any: "any", Quad: "Quad",
    }  # fmt: skip
    if hint in simple:
        return {simple[hint]}
    if dataclasses.is_dataclass(hint):
        return {hint.__name__}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {("one of", *args)}
    if origin is tuple:
        return {("list of", *kinds_of_hint(args[0]))}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {("map of", *kinds_of_hint(args[1]))}
    return set().union(*(kinds_of_hint(arg) for arg in args))


@pytest.mark.parametrize(
    "damage",
    [
        {"page_index": -1},
        {"rotation": 45},
        {"finish_reason": "done"},
        {"schema_version": "2.0"},
        {"lines": [{"text": "a"}]},
        {"model": {"name": "m", "digest": 3}},
        {"warnings": ["text"]},
        {"usage": {"tokens": "many"}},
    ],
)
def test_the_schema_refuses_what_is_no_result(damage):
    assert not VALIDATOR.is_valid({**example().to_dict(), **damage})


def test_the_version_comes_first_and_another_major_one_is_refused():
    data = example().to_dict()
    assert next(iter(data)) == "schema_version" and data["schema_version"] == SCHEMA_VERSION
    with pytest.raises(ValueError, match=r"version 2\.0"):
        Result.from_dict({**data, "schema_version": "2.0"})
    newer = {**data, "schema_version": "1.9", "novelty": 1}
    assert Result.from_dict(newer) == example()
