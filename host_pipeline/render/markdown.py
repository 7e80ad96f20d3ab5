"""Results -> Markdown, one thematic break between pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from host_pipeline.render.text import value_text
from host_pipeline.result import Result

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")
# A mark at the start of a line that would begin a heading, a list, a quote or a break.
_BLOCK_MARK = re.compile(r"^(#{1,6}(?=\s|$)|[-+](?=\s|$)|:?[=-][=\s-]*:?$)")
_ORDINAL = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")


def render_markdown(results: Iterable[Result]) -> Iterator[str]:
    """One piece for each page, ending in a line break."""
    for index, result in enumerate(results):
        yield ("\n---\n\n" if index else "") + page_markdown(result) + "\n"


def page_markdown(result: Result) -> str:
    """The page's own Markdown; without one, its fields as a table, or its lines as text."""
    if result.markdown is not None:
        return result.markdown
    if result.fields:
        rows = [
            f"| {escape_markdown(f.name)} | {escape_markdown(value_text(f.value))} |"
            for f in result.fields
        ]
        return "\n".join(["| field | value |", "| --- | --- |", *rows])
    lines = [escape_markdown(line) for line in result.text.split("\n")]
    return "  \n".join(lines)


def escape_markdown(text: str) -> str:
    """`text` such that a Markdown renderer shows it as it is (line breaks become spaces)."""
    flat = " ".join(text.splitlines()).strip()  # four leading spaces would make code of it
    flat = _SPECIAL.sub(r"\\\1", flat)
    flat = _BLOCK_MARK.sub(r"\\\1", flat)
    return _ORDINAL.sub(r"\1\\\2", flat)
