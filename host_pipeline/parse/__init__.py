"""Answers of a model (text) -> the parts of a `Result`; one module for each form of answer.

Parsing never raises, never drops a visible character and never invents one: what has no place
stands in `unparsed`, what was mended in `warnings`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.chart import parse_chart
from host_pipeline.parse.coordinates import BoxMapper, ToPage
from host_pipeline.parse.fields import parse_fields
from host_pipeline.parse.fields_schema import FieldSpec, SchemaError, field_specs
from host_pipeline.parse.latex import parse_latex
from host_pipeline.parse.layout import parse_layout
from host_pipeline.parse.markdown import parse_markdown
from host_pipeline.parse.repetition import trim_repetition
from host_pipeline.parse.spotting import parse_spotting
from host_pipeline.parse.values import check_value
from host_pipeline.result import Field, FinishReason, Line, Notice
from host_pipeline.tasks import Form, Task

__all__ = [
    "Answer",
    "FieldSpec",
    "SchemaError",
    "ToPage",
    "check_value",
    "field_specs",
    "parse_answer",
]

# What HunyuanOCR says of a picture without text, and the variants that its scorer knows.
_NO_TEXT = re.compile(r"(?:图片|图像|图)[中里]?(?:没有|无)(?:任何)?文字[。.]?")

_FINISH_TEXTS = {
    "length": ("answer_cut", "the answer reached its token limit; what follows it is missing"),
    "cancelled": ("answer_cut", "the answer was cancelled; what follows it is missing"),
    "numeric_fault": ("numeric_fault", "the model's numbers broke; the answer ends there"),
}


def parse_answer(
    task: Task,
    raw: str,
    *,
    to_page: ToPage,
    page_size: tuple[int, int] | None = None,
    fields: Sequence[str] | Mapping[str, Any] = (),
    finish_reason: FinishReason = "stop",
) -> Answer:
    """The parts of `raw`, the model's answer to `task`.

    `to_page` maps quad_norm points (N, 2) in 0..1000 to page pixels; with `page_size` (width,
    height) quads end at the page's edge. `fields` are the names or the JSON Schema of a task that
    needs them. Raises TaskError for wrong `fields` only; no answer makes it raise."""
    specs = field_specs(fields) if task.needs_fields else ()
    text, loop = trim_repetition(raw, finish_reason)
    if loop is not None and loop.code == "repetition_trimmed":
        finish_reason = "repetition"
    mapper = BoxMapper(to_page, page_size)
    if not text.strip():
        answer = _nothing(specs, "empty_answer", "the model answered nothing")
    elif _NO_TEXT.fullmatch(text.strip()):
        answer = _nothing(specs, "no_text", "the model found no text in the picture")
    else:
        answer = _PARSERS[task.form](text, mapper, specs)
    warnings = [*answer.warnings, *mapper.notices()]
    warnings += [loop] if loop is not None else []
    if finish_reason in _FINISH_TEXTS:
        warnings.append(Notice(*_FINISH_TEXTS[finish_reason]))
    if answer.unparsed:
        message = f"{len(answer.unparsed)} parts of the answer have no place; see `unparsed`"
        warnings.append(Notice("unparsed", message))
    return dataclasses.replace(answer, warnings=tuple(warnings), finish_reason=finish_reason)


def _nothing(specs: tuple[FieldSpec, ...], code: str, text: str) -> Answer:
    fields = tuple(Field(spec.name) for spec in specs)
    return Answer(fields=fields, warnings=(Notice(code, text),))


def _parse_text(raw: str) -> Answer:
    lines = tuple(Line(text.strip()) for text in raw.splitlines() if text.strip())
    return Answer(lines=lines, text=raw.strip())


def _parse_table(raw: str, mapper: BoxMapper) -> Answer:
    """A table answer; rows that lost their `<table>` are one all the same."""
    if "<table" not in raw.lower() and re.search(r"<t[rdh]\b", raw, re.IGNORECASE):
        raw = f"<table>{raw}"
    answer = parse_markdown(raw, mapper)
    if answer.tables:
        return answer
    notice = Notice("no_table", "the answer holds no table")
    return dataclasses.replace(answer, warnings=(*answer.warnings, notice))


_Parser = Callable[[str, BoxMapper, tuple[FieldSpec, ...]], Answer]

_PARSERS: Mapping[Form, _Parser] = {
    "text": lambda raw, mapper, specs: _parse_text(raw),
    "subtitles": lambda raw, mapper, specs: _parse_text(raw),
    "spotting": lambda raw, mapper, specs: parse_spotting(raw, mapper),
    "spotting_json": lambda raw, mapper, specs: parse_spotting(raw, mapper),
    "layout": lambda raw, mapper, specs: parse_layout(
        raw, mapper, lambda text: parse_markdown(text, mapper)
    ),
    "markdown": lambda raw, mapper, specs: parse_markdown(raw, mapper),
    "html_table": lambda raw, mapper, specs: _parse_table(raw, mapper),
    "chart": lambda raw, mapper, specs: parse_chart(raw, mapper),
    "latex": lambda raw, mapper, specs: parse_latex(raw),
    "json": lambda raw, mapper, specs: parse_fields(raw, specs),
}
