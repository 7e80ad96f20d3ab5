"""Layout answers -> regions of the page: lines whose `kind` is the model's label.

Two forms (train_verl/reward/task_scorers of HunyuanOCR 1.5): JSON objects with "layout_type",
"bbox" and perhaps "text", or `text<hy-meta><layout>label</layout><quad>...</quad></hy-meta>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.coordinates import BoxMapper, points_of
from host_pipeline.parse.json_text import decode_items
from host_pipeline.parse.spotting import line_of_item
from host_pipeline.result import Line, Notice

_META = re.compile(
    r"<hy-meta>\s*<layout>(?P<kind>.*?)</layout>\s*"
    r"(?:<(?P<tag>quad|poly)>(?P<points>.*?)</(?P=tag)>)?\s*</hy-meta>",
    re.DOTALL,
)
_JSON = re.compile(r'"(?:layout_type|bbox)"\s*:')


def parse_layout(raw: str, mapper: BoxMapper, parse_markdown: Callable[[str], Answer]) -> Answer:
    """The regions of a layout answer in reading order. Their texts, joined, go through
    `parse_markdown` for `markdown`, `text` and `tables`."""
    lines: list[Line] = []
    unparsed: list[str] = []
    notices: list[Notice] = []
    if "<hy-meta>" in raw:
        _parse_meta(raw, mapper, lines, unparsed)
    elif _JSON.search(raw):
        items, decoded = decode_items(raw)
        for item in items:
            kind = item.pop("layout_type", None)
            line, rest = line_of_item(item, mapper, kind=str(kind or "region"))
            lines += [line] if line else []
            unparsed += [rest] if rest else []
        unparsed += decoded.leftovers
        notices += decoded.notices
    else:  # the model read the page and gave no regions
        notices.append(Notice("no_coordinates", "the answer holds no layout region"))
        answer = parse_markdown(raw)
        return Answer(
            lines=answer.lines,
            text=answer.text,
            tables=answer.tables,
            markdown=answer.markdown,
            unparsed=answer.unparsed,
            warnings=(*answer.warnings, *notices),
        )
    content = parse_markdown("\n\n".join(line.text for line in lines if line.text))
    return Answer(
        lines=(*lines, *content.lines),
        text=content.text,
        tables=content.tables,
        markdown=content.markdown,
        unparsed=tuple(text for text in (*unparsed, *content.unparsed) if text),
        warnings=(*notices, *content.warnings),
    )


def _parse_meta(raw: str, mapper: BoxMapper, lines: list[Line], unparsed: list[str]) -> None:
    position = 0
    for meta in _META.finditer(raw):
        text = raw[position : meta.start()].strip()
        position = meta.end()
        quad = mapper.quad(points_of(_points_value(meta["points"] or "")))
        if quad is None and meta["points"]:
            unparsed.append(meta[0])
        lines.append(Line(text, quad, kind=meta["kind"].strip() or "region"))
    unparsed.append(raw[position:].strip())


def _points_value(text: str) -> object:
    """The points as written: `(x,y),(x,y)` stays text, `[[x,y],...]` becomes lists."""
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text
