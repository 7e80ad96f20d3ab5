"""Results -> plain text, one form feed between pages (as pdftotext and Tesseract do)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from host_pipeline.result import Result


def render_text(results: Iterable[Result]) -> Iterator[str]:
    """One piece for each page, ending in a line break."""
    for index, result in enumerate(results):
        yield ("\f" if index else "") + page_text(result) + "\n"


def page_text(result: Result) -> str:
    """The page's text; fields as `name: value` lines, an empty value for null."""
    if result.fields:
        return "\n".join(f"{f.name}: {value_text(f.value)}" for f in result.fields)
    return result.text


def value_text(value: Any) -> str:
    """A field's value for people: text as it is, the rest as JSON, null as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
