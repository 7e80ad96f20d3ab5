"""Spotting answers -> lines with quads, in each of the four forms that the vendor's scorer reads.

1 `<ref>text</ref><quad>(x1,y1),(x2,y2)</quad>`    3 `text(x1,y1),(x2,y2)`
2 `<quad><pos_x1>...</quad><ref>text</ref>`        4 JSON objects with "box" or "bbox", and "text"

(train_verl/reward/task_scorers/spotting.py of HunyuanOCR 1.5.) Text with parentheses stays whole;
an unfinished last item, and a box without text, stand in `unparsed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.coordinates import (
    POINT,
    RUN,
    BoxMapper,
    Point,
    paired,
    points_in,
    points_of,
)
from host_pipeline.parse.json_text import decode_items
from host_pipeline.result import Line, Notice

_JSON_BOX = re.compile(r'"(?:box|bbox)"\s*:')
_TAG = re.compile(r"<(/?)(ref|quad)>")
_POS = re.compile(r"<pos_(?:[xy]_?)?(-?[0-9]+)>")
_ONLY_MARKS = re.compile(r"[(),\s]*")
_CUT_LENGTH = 40  # characters of half a box; a search from every "(" of a page takes minutes
_CUT_POINT = re.compile(r"\((?:\s*-?[0-9]{1,4}(?:\s*,\s*(?:-?[0-9]{1,4}\)?)?)?)?[\s,(]*\Z")


def parse_spotting(raw: str, mapper: BoxMapper) -> Answer:
    """The lines of a spotting answer, whichever form it has."""
    if _JSON_BOX.search(raw):
        answer = _parse_json(raw, mapper)
        if answer.lines:
            return answer
    if "<ref>" in raw or "<quad>" in raw:
        return _parse_tags(raw, mapper)
    return _parse_points(raw, mapper)


def _parse_points(raw: str, mapper: BoxMapper) -> Answer:
    lines: list[Line] = []
    unparsed: list[str] = []
    position = 0
    for run in RUN.finditer(raw):
        points = points_in(run[0])
        text = raw[position : run.start()]
        position = run.end()
        if len(points) == 3:  # "f(1,2),(10,20),(30,40)": the first point belongs to the text
            box = RUN.search(run[0], next(POINT.finditer(run[0])).end())
            assert box is not None  # three points joined by commas hold two of them
            text += run[0][: box.start()].rstrip().removesuffix(",")
            points = points[1:]
        if _ONLY_MARKS.fullmatch(text):
            unparsed.append((text + run[0]).strip())
        else:
            lines.append(Line(text.strip(), mapper.quad(points)))
    tail = raw[position:].strip()
    if not lines and not unparsed and tail and not _CUT_POINT.search(tail[-_CUT_LENGTH:]):
        return _without_boxes(tail)
    return _answer(lines, [*unparsed, tail])


def _without_boxes(raw: str) -> Answer:
    lines = tuple(Line(text.strip()) for text in raw.splitlines() if text.strip())
    notice = Notice("no_coordinates", "the answer holds text without any position")
    return Answer(lines=lines, text="\n".join(line.text for line in lines), warnings=(notice,))


def _parse_tags(raw: str, mapper: BoxMapper) -> Answer:
    """Forms 1 and 2; the first tag tells whether each text comes before or after its quad."""
    lines: list[Line] = []
    unparsed: list[str] = []
    leading = ""  # the tag name that each pair begins with
    first: _Element | None = None
    for element in _elements(raw):
        leading = leading or element.tag
        if element.tag == leading:
            unparsed += [first.source] if first else []
            first = element
        elif first is None or not element.tag:
            unparsed.append(element.source)
        else:
            text, quad = (first, element) if leading == "ref" else (element, first)
            box = mapper.quad(_tag_points(quad.content))
            if box is None or not text.content.strip():
                unparsed.append(first.source + element.source)
            else:
                lines.append(Line(text.content.strip(), box))
            first = None
    unparsed += [first.source] if first else []
    return _answer(lines, unparsed)


@dataclass(frozen=True, slots=True)
class _Element:
    """`<tag>content</tag>` as it stands in the answer (`source`); tag "" is text outside."""

    tag: str
    content: str
    source: str


def _elements(raw: str) -> Iterator[_Element]:
    """The complete elements of `raw` and the text between them, in one pass."""
    position = 0
    opening: re.Match[str] | None = None
    for mark in _TAG.finditer(raw):
        if not mark[1]:
            opening = mark
        elif opening is not None and mark[2] == opening[2]:
            if raw[position : opening.start()].strip():
                yield _Element("", "", raw[position : opening.start()].strip())
            position = mark.end()
            content = raw[opening.end() : mark.start()]
            yield _Element(mark[2], content, raw[opening.start() : position])
            opening = None
    if raw[position:].strip():
        yield _Element("", "", raw[position:].strip())


def _tag_points(text: str) -> list[Point]:
    numbers = [float(n) for n in _POS.findall(text)]
    return paired(numbers) if numbers else points_in(text)


def _parse_json(raw: str, mapper: BoxMapper) -> Answer:
    items, decoded = decode_items(raw)
    lines: list[Line] = []
    unparsed: list[str] = []
    for item in items:
        line, rest = line_of_item(item, mapper, kind="text")
        lines += [line] if line else []
        unparsed += [rest] if rest else []
    return _answer(lines, [*unparsed, *decoded.leftovers], decoded.notices)


def line_of_item(
    item: dict[str, Any], mapper: BoxMapper, *, kind: str
) -> tuple[Line | None, str | None]:
    """The line of one JSON object with "box" or "bbox", and the JSON of what it does not hold:
    other keys, a box that is none, an object without text."""
    rest = dict(item)
    key = "box" if "box" in rest else "bbox"
    quad = mapper.quad(points_of(rest[key])) if key in rest else None
    if quad is not None:
        del rest[key]
    value = rest.pop("text", "")
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text and kind == "text":
        return None, json.dumps(item, ensure_ascii=False)
    line = Line(text, quad, kind=kind)
    return line, json.dumps(rest, ensure_ascii=False) if rest else None


def _answer(
    lines: Iterable[Line], unparsed: Iterable[str], notices: Iterable[Notice] = ()
) -> Answer:
    found = tuple(lines)
    return Answer(
        lines=found,
        text="\n".join(line.text for line in found),
        unparsed=tuple(text for text in unparsed if text),
        warnings=tuple(notices),
    )
