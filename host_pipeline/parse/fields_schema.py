"""What a value of each asked field must look like: from a list of names or from a JSON Schema.

A schema that asks for more than can be checked here is refused at once, not half obeyed. Knows
nothing of pages, boxes or models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from host_pipeline.tasks import TaskError, check_keys

FieldType = Literal["string", "number", "integer", "boolean", "array", "object", "date"]

_ANNOTATIONS = frozenset(
    "$schema $id $comment $defs definitions title description default examples deprecated "
    "readOnly writeOnly additionalProperties".split()
)
_CHECKED = frozenset("type enum const pattern format properties items required $ref anyOf".split())
_MAX_DEPTH = 16  # a $ref may point back at its own parent


class SchemaError(TaskError):
    """The fields' JSON Schema asks for something that is not checked here, or is malformed."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One asked field. `type` "date" is a string in the form YYYY-MM-DD (`format: date`).

    `enum` and `pattern` limit strings; `items` describes an array's elements (None: any),
    `properties` an object's. `required` says that the asker expects it, not that it is there."""

    name: str
    type: FieldType = "string"
    description: str = ""
    enum: tuple[Any, ...] = ()
    pattern: str | None = None
    required: bool = False
    items: FieldSpec | None = None
    properties: tuple[FieldSpec, ...] = ()


def field_specs(fields: Sequence[str] | Mapping[str, Any]) -> tuple[FieldSpec, ...]:
    """The specs of a list of names (all strings) or of a JSON Schema of type object, in order.

    Raises TaskError for bad names, SchemaError for a schema that cannot be checked here."""
    if not isinstance(fields, Mapping):
        check_keys(fields)
        return tuple(FieldSpec(name) for name in fields)
    spec = _spec("", fields, fields, required=False, depth=0)
    if spec.type != "object" or not spec.properties:
        raise SchemaError(
            'a fields schema must be {"type": "object", "properties": {...}} with at least one '
            "property"
        )
    check_keys([s.name for s in spec.properties])
    return spec.properties


def _spec(
    name: str, node: Any, root: Mapping[str, Any], *, required: bool, depth: int
) -> FieldSpec:
    where = f"property {name!r}" if name else "the schema"
    if not isinstance(node, Mapping):
        raise SchemaError(f"{where} must be a JSON object, got {type(node).__name__}")
    if depth > _MAX_DEPTH:
        raise SchemaError(f"{where} is nested deeper than {_MAX_DEPTH} levels (a $ref loop?)")
    node = _resolve(node, root, where)
    unknown = set(node) - _ANNOTATIONS - _CHECKED
    if unknown:
        raise SchemaError(
            f"{where} uses {', '.join(sorted(map(str, unknown)))}, which is not checked here; "
            f"use only {', '.join(sorted(_CHECKED))}"
        )
    wanted = node.get("required", ())
    if not isinstance(wanted, (list, tuple)):
        raise SchemaError(f"{where}: required must be a list of property names")
    return FieldSpec(
        name=name,
        type=_type(node, where),
        description=str(node.get("description") or node.get("title") or ""),
        enum=_enum(node, where),
        pattern=_pattern(node, where),
        required=required,
        items=_spec(name, node["items"], root, required=False, depth=depth + 1)
        if "items" in node
        else None,
        properties=tuple(
            _spec(str(key), child, root, required=key in wanted, depth=depth + 1)
            for key, child in _mapping(node.get("properties", {}), where).items()
        ),
    )


def _resolve(node: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """`node` with a local $ref followed and an `anyOf: [X, null]` read as X."""
    for _ in range(_MAX_DEPTH):
        if "$ref" in node:
            node = {**_follow(str(node["$ref"]), root, where), **_without(node, "$ref")}
        elif "anyOf" in node:
            listed = node["anyOf"] if isinstance(node["anyOf"], (list, tuple)) else ()
            choices = [c for c in listed if c != {"type": "null"}]
            if len(choices) != 1 or not isinstance(choices[0], Mapping):
                raise SchemaError(f"{where}: anyOf may only add null to one other schema")
            node = {**choices[0], **_without(node, "anyOf")}
        else:
            return node
    raise SchemaError(f"{where}: $ref leads in a circle")


def _follow(reference: str, root: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    target: Any = root
    if not reference.startswith("#/"):
        raise SchemaError(f"{where}: $ref {reference!r} must point inside the schema (#/...)")
    for step in reference[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or step not in target:
            raise SchemaError(f"{where}: $ref {reference!r} points at nothing")
        target = target[step]
    return _mapping(target, where)


def _without(node: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in node.items() if k != key}


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SchemaError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def _type(node: Mapping[str, Any], where: str) -> FieldType:
    found = node.get("type")
    if isinstance(found, list):  # ["string", "null"]: null is always allowed here
        kept = [t for t in found if t != "null"]
        found = kept[0] if len(kept) == 1 else found
    if found is None:
        found = "object" if "properties" in node else "array" if "items" in node else "string"
    if found == "string" and node.get("format") == "date":
        return "date"
    if found not in get_args(FieldType) or found == "date":
        raise SchemaError(
            f"{where}: type {found!r} is not one of string, number, integer, boolean, array, "
            "object (each may be joined with null)"
        )
    return cast(FieldType, found)


def _enum(node: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    if "const" in node:
        return (node["const"],)
    values = node.get("enum", ())
    if not isinstance(values, (list, tuple)):
        raise SchemaError(f"{where}: enum must be a list")
    return tuple(v for v in values if v is not None)


def _pattern(node: Mapping[str, Any], where: str) -> str | None:
    pattern = node.get("pattern")
    if pattern is None:
        return None
    try:
        re.compile(str(pattern))
    except re.error as error:
        raise SchemaError(f"{where}: bad regular expression {pattern!r}: {error}") from None
    return str(pattern)
