"""Markdown answers: layout coordinates taken out, tables rebuilt, formulas balanced, HTML disarmed.

The rules are those of the vendor's clean-up for `doc_parse` (`normalize_doc_parse_markdown`,
HunyuanOCR 1.5) that lose nothing: points at the end of a line are a region, not text; a caption
stands before its table; displayed formulas are balanced. Its rules that only fit a benchmark
(renumbering, splitting or promoting formulas) are left out. The result is safe in a renderer that
lets HTML through: outside code, whatever looks like a tag is escaped.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from host_pipeline.parse.answer import Answer
from host_pipeline.parse.coordinates import BoxMapper, points_in
from host_pipeline.parse.latex import balance
from host_pipeline.parse.table import (
    pipe_tables,
    rebuild_table,
    table_caption,
    table_rows,
    table_spans,
)
from host_pipeline.result import Line, Notice, Table

_FENCE_OPEN = re.compile(r" {0,3}(`{3,}|~{3,})[^`\n]*")
_MATH = re.compile(r"\$\$.*?\$\$|\\\[.*?\\\]|\$[^$\n]+\$", re.DOTALL)
_REGION = re.compile(r"\([0-9]{1,4},[0-9]{1,4}\)(?:,\([0-9]{1,4},[0-9]{1,4}\))+")
_TAG_LIKE = re.compile(r"<(?=[A-Za-z/!?])")
_SAFE_TAG = re.compile(r"</?(?:sub|sup)>|<br ?/?>", re.IGNORECASE)
_CAPTION = re.compile(r"<caption>.*?</caption>", re.DOTALL)


@dataclass(slots=True)
class _Parts:
    """What is gathered while one answer is read from top to bottom."""

    mapper: BoxMapper
    blocks: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)
    only_regions: bool = True


def parse_markdown(raw: str, mapper: BoxMapper) -> Answer:
    """The Markdown of `raw`, its tables, and the regions (figures, placed lines) as `lines`;
    `text` is the same content without markup."""
    parts = _Parts(mapper)
    for kind, text in split_fences(raw):
        if kind == "code":
            parts.blocks.append(text)
            parts.only_regions = False
        else:
            _read_prose(text, parts)
    markdown = re.sub(r"\n{3,}", "\n\n", "\n".join(parts.blocks)).strip()
    if parts.lines and parts.only_regions:
        message = "the answer holds nothing but regions; ask for plain text instead"
        parts.notices.append(Notice("only_coordinates", message))
    return Answer(
        lines=tuple(parts.lines),
        text=plain_text(markdown),
        tables=tuple(parts.tables) + tuple(Table(t) for t in _pipes(markdown)),
        markdown=markdown,
        unparsed=tuple(parts.unparsed),
        warnings=_merged(parts.notices),
    )


def split_fences(text: str) -> Iterator[tuple[str, str]]:
    """("code", block) and ("prose", block) in order, by CommonMark's rule for fences; a block
    without its closing fence gets one."""
    block: list[str] = []
    fence = ""
    for line in text.splitlines():
        opening = None if fence else _FENCE_OPEN.fullmatch(line)
        if opening:
            if block:
                yield "prose", "\n".join(block)
            fence, block = opening[1], [line]
            continue
        block.append(line)
        bare = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        if fence and indent < 4 and set(bare) == {fence[0]} and len(bare) >= len(fence):
            yield "code", "\n".join(block)
            fence, block = "", []
    if fence:
        yield "code", "\n".join([*block, fence])
    elif block:
        yield "prose", "\n".join(block)


def _read_prose(text: str, parts: _Parts) -> None:
    position = 0
    for start, end in table_spans(text):
        _read_lines(text[position:start], parts)
        _read_table(text[start:end], parts)
        position = end
    _read_lines(text[position:], parts)


def _read_table(markup: str, parts: _Parts) -> None:
    table, notices = rebuild_table(markup)
    parts.notices += notices
    if not table_rows(table) and not table_caption(table):
        return
    parts.only_regions = False
    parts.tables.append(Table(table))
    caption = table_caption(table)
    if caption:
        parts.blocks += ["", escape_tags(caption)]
    # Blank lines around it: in CommonMark a block of HTML ends at the first blank line.
    body = re.sub(r"\n\s*\n", "\n", _CAPTION.sub("", table))
    parts.blocks += ["", body, ""]


def _read_lines(text: str, parts: _Parts) -> None:
    if not text.strip():
        parts.blocks += [""] if text else []
        return
    masked, formulas = _masked(text, parts)
    for line in masked.split("\n"):
        before, regions = _split_regions(line)
        if not regions:
            parts.blocks.append(_unmasked(line, formulas))
            parts.only_regions &= not line.strip()
            continue
        before = _unmasked(before, formulas)
        if before.strip():
            parts.blocks.append(before)
            parts.only_regions = False
        for index, region in enumerate(regions):
            quad = parts.mapper.quad(points_in(region))
            own_text = html.unescape(before.strip()) if index == 0 else ""
            parts.lines.append(Line(own_text, quad, kind="text" if own_text else "figure"))


def _split_regions(line: str) -> tuple[str, list[str]]:
    """The text of `line` before the regions that end it, and those regions."""
    regions: list[str] = []
    end = len(line.rstrip(" \t"))
    for region in reversed(list(_REGION.finditer(line))):
        if region.end() != end:
            break
        regions.insert(0, region[0])
        end = len(line[: region.start()].rstrip(" \t,，"))
    return line[:end], regions


def _masked(text: str, parts: _Parts) -> tuple[str, list[str]]:
    """`text` with each formula replaced by a mark, so that points inside one stay, and with tags
    escaped; the formulas, balanced if displayed."""
    formulas: list[str] = []

    def mask(match: re.Match[str]) -> str:
        formula = match[0]
        if formula.startswith(("$$", "\\[")):
            inner, mended = balance(formula[2:-2])
            parts.notices += [Notice("latex_repaired", m) for m in mended]
            formula = formula[:2] + inner + formula[-2:]
        formulas.append(_TAG_LIKE.sub(r"\\lt ", formula))
        return f"\x00{len(formulas) - 1}\x00"

    return escape_tags(_MATH.sub(mask, text.replace("\x00", ""))), formulas


def _unmasked(line: str, formulas: list[str]) -> str:
    return re.sub("\x00([0-9]+)\x00", lambda m: formulas[int(m[1])], line)


def escape_tags(text: str) -> str:
    """`text` with every `<` that could open a tag written `&lt;`, but for br, sub and sup."""
    return _TAG_LIKE.sub(
        lambda m: "<" if _SAFE_TAG.match(text, m.start()) else "&lt;",
        text,
    )


def plain_text(markdown: str) -> str:
    """`markdown` without its markup: tables as tab-separated rows, no heading or emphasis marks,
    formulas and code as they are."""
    out: list[str] = []
    for kind, block in split_fences(markdown):
        if kind == "code":
            out.append("\n".join(block.split("\n")[1:-1]))
            continue
        position = 0
        for start, end in table_spans(block):
            out.append(_plain_prose(block[position:start]))
            out += ["\t".join(row) for row in table_rows(block[start:end])]
            position = end
        out.append(_plain_prose(block[position:]))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text for text in out if text)).strip()


def _plain_prose(text: str) -> str:
    text = re.sub(r"(?m)^ {0,3}#{1,6}[ \t]+", "", text)
    text = re.sub(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1", r"\2", text)
    text = re.sub(r"<br ?/?>", "\n", text, flags=re.IGNORECASE)
    text = re.sub(r"</?(?:sub|sup)>", "", text, flags=re.IGNORECASE)
    return html.unescape(text).strip("\n")


def _pipes(markdown: str) -> list[str]:
    prose = [text for kind, text in split_fences(markdown) if kind == "prose"]
    return [table for text in prose for table in pipe_tables(text)]


def _merged(notices: list[Notice]) -> tuple[Notice, ...]:
    """One notice for each code, the texts joined."""
    by_code: dict[str, dict[str, None]] = {}
    for notice in notices:
        by_code.setdefault(notice.code, {})[notice.text] = None
    return tuple(Notice(code, "; ".join(texts)) for code, texts in by_code.items())
