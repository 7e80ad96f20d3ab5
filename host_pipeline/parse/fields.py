"""A `fields` answer -> one Field for each asked key: typed, None where it is not on the page."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.fields_schema import FieldSpec
from host_pipeline.parse.json_text import decode_json
from host_pipeline.parse.values import check_value
from host_pipeline.result import Field, Notice

_SEPARATORS = re.compile(r"[\s_\-:：.。]+")


def parse_fields(raw: str, specs: tuple[FieldSpec, ...]) -> Answer:
    """The values of `specs` in the JSON object of `raw`. Keys that were not asked for, values
    cut off by the end of the answer and text around the JSON stand in `unparsed`."""
    decoded = decode_json(raw)
    objects = _objects(decoded.value)
    if not objects:
        notice = Notice("not_json", "the answer holds no JSON object; every field is null")
        return Answer(
            fields=tuple(Field(spec.name) for spec in specs),
            unparsed=(raw.strip(),),
            warnings=(*decoded.notices, notice),
        )
    unparsed = list(decoded.leftovers)
    given = dict(objects[0])
    unparsed += [_dump(extra) for extra in objects[1:]]
    notices = list(decoded.notices)
    if decoded.cut:
        unparsed += _without_last(given, notices)
    fields = []
    for spec in specs:
        key = _key_for(spec.name, given, {other.name for other in specs})
        value = given.pop(key) if key is not None else None
        fields.append(_field(spec, value, notices))
        if key is not None and key != spec.name:
            notices.append(Notice("key_matched", f"{spec.name}: answered as {key!r}"))
    unparsed += [_dump({key: value}) for key, value in given.items()]
    lines = [f"{field.name}: {'' if field.raw is None else field.raw}" for field in fields]
    return Answer(
        fields=tuple(fields),
        text="\n".join(lines),
        unparsed=tuple(text for text in unparsed if text),
        warnings=tuple(notices),
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an answer: itself, or the elements of a list ([{a}, {b}] is merged where
    the keys differ, as some answers give one object for each key)."""
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        return []
    objects = [item for item in value if isinstance(item, dict)]
    merged: dict[str, Any] = {}
    rest = []
    for item in objects:
        if merged.keys() & item.keys():
            rest.append(item)
        else:
            merged.update(item)
    return [merged, *rest] if merged else []


def _without_last(given: dict[str, Any], notices: list[Notice]) -> list[str]:
    """Take out the last value of a cut object: "12" may have been going to be "1234.00"."""
    if not given:
        return []
    key = list(given)[-1]
    notices.append(Notice("value_cut", f"{key}: the answer ended inside its value; left null"))
    return [_dump({key: given.pop(key)})]


def _field(spec: FieldSpec, value: Any, notices: list[Notice]) -> Field:
    found, notice = check_value(spec, value)
    notices += [notice] if notice else []
    raw = value if isinstance(value, str) else None if value is None else _dump(value)
    return Field(spec.name, found, raw or None)


def _key_for(name: str, given: dict[str, Any], asked: set[str]) -> str | None:
    """The answer's key for `name`: the same, or the only unasked one equal but for case, width,
    spaces and punctuation."""
    if name in given:
        return name
    same = [key for key in given if key not in asked and _folded(key) == _folded(name)]
    return same[0] if len(same) == 1 else None


def _folded(key: str) -> str:
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", key)).casefold()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
