"""What reading one page gives: plain values that turn into JSON and back.

One `Result` is one page. Every coordinate is in pixels of the upright page (x right, y down,
origin at the top-left corner of the first pixel), whatever canvas the model saw.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

SCHEMA_VERSION = "1.0"

Quad = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
"""Four corners in page pixels, clockwise from the text's own top-left corner."""

FinishReason = Literal["stop", "length", "repetition", "cancelled", "numeric_fault"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader of a Result should know; `code` is stable, `text` is for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text. `quad` is None where the model gives no position, `score` (0..1) None
    where it gives no confidence. `kind` names non-text or layout regions ("figure", "title")."""

    text: str
    quad: Quad | None = None
    score: float | None = None
    kind: str = "text"
    vertical: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """The value of one asked key: None means "not on the page", never a guess.

    `value` has the type that the schema asks for (str, int, float, bool, list, dict); `raw` is the
    text it came from; `quad` and `score` say where it was read and how sure (0..1)."""

    name: str
    value: Any = None
    raw: str | None = None
    quad: Quad | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table as sanitised HTML (`<table>` with rowspan/colspan) and, where known, its quad."""

    html: str
    quad: Quad | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """Which weights answered: a name and the SHA-256 digest (first 16 hex digits) of its files."""

    name: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that one page gave for one task.

    `rotation` is in degrees clockwise, from the stored pixels to the upright page of `page_width`
    x `page_height` pixels; `turned` is that part of it which the reader found by looking at the
    text (the rest is what the file's own EXIF or /Rotate says). `raw` is the model's untouched
    answer; what a parser could not place stands in `unparsed`. `emulated` is True when a stand-in
    did the work of an NPU. `fallback_reason` is None unless another engine than the wanted one
    answered."""

    source: str
    page_index: int
    page_count: int
    page_width: int
    page_height: int
    rotation: int
    task: str
    model: Model
    engine: str
    emulated: bool = False
    turned: int = 0
    fallback_reason: str | None = None
    lines: tuple[Line, ...] = ()
    text: str = ""
    fields: tuple[Field, ...] = ()
    tables: tuple[Table, ...] = ()
    markdown: str | None = None
    raw: str = ""
    unparsed: tuple[str, ...] = ()
    finish_reason: FinishReason = "stop"
    warnings: tuple[Notice, ...] = ()
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dict, `schema_version` first; validates against `result_schema()`."""
        return {"schema_version": SCHEMA_VERSION, **_plain(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`. Raises ValueError for another major schema version."""
        version = str(data.get("schema_version"))
        if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
            raise ValueError(
                f"result schema version {version} cannot be read by {SCHEMA_VERSION}; "
                "read it with the release that wrote it"
            )
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in data.items() if k in known}
        values["model"] = Model(**data["model"])
        values["lines"] = tuple(_with_quad(Line, d) for d in data.get("lines", ()))
        values["fields"] = tuple(_with_quad(Field, d) for d in data.get("fields", ()))
        values["tables"] = tuple(_with_quad(Table, d) for d in data.get("tables", ()))
        values["warnings"] = tuple(Notice(**d) for d in data.get("warnings", ()))
        values["unparsed"] = tuple(data.get("unparsed", ()))
        return cls(**values)


def result_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of `Result.to_dict`, as shipped in the package."""
    text = files("host_pipeline").joinpath("result.schema.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def rectangle(x0: float, y0: float, x1: float, y1: float) -> Quad:
    """The upright quad with corners (x0, y0) and (x1, y1), in page pixels."""
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _with_quad(cls: type[Any], data: Mapping[str, Any]) -> Any:
    values = dict(data)
    if values.get("quad") is not None:
        values["quad"] = tuple((float(x), float(y)) for x, y in values["quad"])
    return cls(**values)
