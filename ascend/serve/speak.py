"""A Result in the words in which the model itself answers a task.

Clients of the chat API parse these. HunyuanOCR's own answer is passed on untouched; the embedded
reader has no such words, so they are made from its lines, tables and fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from host_pipeline.result import Quad
from host_pipeline.tasks import task as task_named

_GRID = 1000  # HunyuanOCR's coordinates are thousandths of the page's sides


def speak(outcome: Mapping[str, Any], raw: bool) -> str:
    """The answer of a page's JSON; `raw` when the model spoke it itself."""
    if raw:
        return str(outcome["raw"])
    form = task_named(outcome["task"]).form
    if form == "spotting":
        return "".join(_spotted(outcome, line) for line in outcome["lines"])
    if form == "spotting_json":
        items = [{"box": _box(outcome, li), "text": li["text"]} for li in outcome["lines"]]
        return json.dumps(items, ensure_ascii=False)
    if form == "html_table":
        return "\n".join(table["html"] for table in outcome["tables"])
    if form == "json":
        fields = {field["name"]: field["value"] for field in outcome["fields"]}
        return json.dumps(fields, ensure_ascii=False)
    return str(outcome["markdown"] if outcome["markdown"] is not None else outcome["text"])


def finish_of(outcome: Mapping[str, Any]) -> str:
    """OpenAI's word for why the answer ended: a cut loop is an answer that is not complete."""
    return "stop" if outcome["finish_reason"] == "stop" else "length"


def _spotted(outcome: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    x0, y0, x1, y1 = _box(outcome, line)
    return f"{line['text']}({x0},{y0}),({x1},{y1})"


def _box(outcome: Mapping[str, Any], line: Mapping[str, Any]) -> list[int]:
    """x0, y0, x1, y1 of the line's quad in thousandths."""
    quad: Quad = line["quad"] or ((0, 0),) * 4
    xs = [x * _GRID / outcome["page_width"] for x, _ in quad]
    ys = [y * _GRID / outcome["page_height"] for _, y in quad]
    edges = (min(xs), min(ys), max(xs), max(ys))
    return [min(_GRID, max(0, round(edge))) for edge in edges]
