"""HTML tables of an answer, rebuilt: every tag closed and known, every character kept.

Our own small tokenizer instead of `html.parser`: that one changes between Python releases how it
reads comments, scripts and unfinished tags, and hides their text. Here whatever is not a known
table or inline tag is text, escaped; so `<script>` in a cell is shown and never run.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from host_pipeline.result import Notice

_SECTIONS = frozenset({"thead", "tbody", "tfoot"})
_CELLS = frozenset({"td", "th"})
_INLINE = frozenset({"sub", "sup", "b", "i", "u", "s", "em", "strong"})
_KNOWN = _SECTIONS | _CELLS | _INLINE | {"table", "tr", "caption", "br"}
_DROPPED = frozenset({"html", "body", "p", "div", "span", "font", "center", "colgroup", "col"})
_TAG = re.compile(r"<(/?)([A-Za-z]+)((?:\s[^<>]*)?)/?>")
_TABLE_TAG = re.compile(r"<(/?)(table|td|th)\b[^<>]*>", re.IGNORECASE)
_SPAN = re.compile(r"\b(rowspan|colspan)\s*=\s*[\"']?\s*([0-9]{1,9})", re.IGNORECASE)
MAX_SPAN = 1000  # HTML's own limit of colspan; rowspan may be larger there, never on a page
_MAX_NESTING = 4


@dataclass(slots=True)
class _Builder:
    """Writes well-formed table HTML from any sequence of tags and texts."""

    out: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    repairs: set[str] = field(default_factory=set)

    def start(self, tag: str, attributes: str) -> None:
        if tag == "br":
            self._ensure_cell("a line break outside a cell")
            self.out.append("<br>")
        elif tag in _INLINE:
            self._ensure_cell("formatting outside a cell")
            self._push(tag)
        elif tag == "table":
            self._start_table()
        elif tag == "caption" or tag in _SECTIONS:
            self._ensure_table()
            self._close_to("table")
            self._push(tag)
        elif tag == "tr":
            self._ensure_table()
            self._close_to("table", *_SECTIONS)
            self._push(tag)
        else:
            self._ensure_row()
            self._close_to("tr")
            self._push(tag, self._spans(attributes))

    def end(self, tag: str) -> None:
        """Close `tag` if it is open in the innermost table, else leave it out."""
        since = len(self.open) - 1 - self.open[::-1].index("table") if "table" in self.open else 0
        if tag in self.open[since:]:
            while self.open[-1] != tag:  # HTML lets td, tr and sections go unclosed
                if self.open[-1] in _INLINE | {"caption"} and tag not in _INLINE:
                    self.repairs.add("unclosed tags")
                self._pop()
            self._pop()
        elif tag not in ("br", "table"):
            self.repairs.add("stray closing tags")

    def text(self, text: str) -> None:
        if not text.strip() and not self._in_cell():
            return
        self._ensure_cell("text between cells")
        self.out.append(html.escape(html.unescape(text), quote=False))

    def finish(self) -> str:
        if self.open and self.open != ["table"]:
            self.repairs.add("unclosed tags")
        while self.open:
            self._pop()
        return "".join(self.out)

    def _start_table(self) -> None:
        if not self.open:
            self._push("table")
        elif self._in_cell() and self.open.count("table") < _MAX_NESTING:
            self._push("table")
        else:
            self.repairs.add("a table inside a table, outside any cell")

    def _push(self, tag: str, attributes: str = "") -> None:
        self.open.append(tag)
        self.out.append(f"<{tag}{attributes}>")

    def _pop(self) -> None:
        self.out.append(f"</{self.open.pop()}>")

    def _in_cell(self) -> bool:
        """Whether the innermost structure tag is a cell or a caption."""
        structure = [tag for tag in self.open if tag not in _INLINE]
        return bool(structure) and (structure[-1] in _CELLS or structure[-1] == "caption")

    def _close_to(self, *levels: str) -> None:
        while self.open[-1] not in levels:
            if self.open[-1] not in _CELLS | {"tr"} | _SECTIONS:
                self.repairs.add("unclosed tags")
            self._pop()

    def _ensure_table(self) -> None:
        if "table" not in self.open:
            self.repairs.add("rows outside a table")
            self._push("table")

    def _ensure_row(self) -> None:
        self._ensure_table()
        since = len(self.open) - self.open[::-1].index("table")
        if "tr" not in self.open[since:]:
            self.repairs.add("cells outside a row")
            self._close_to("table", *_SECTIONS)
            self._push("tr")

    def _ensure_cell(self, why: str) -> None:
        if not self._in_cell():
            self.repairs.add(why)
            self._ensure_row()
            self._close_to("tr")
            self._push("td")

    def _spans(self, attributes: str) -> str:
        spans = {}
        for name, digits in _SPAN.findall(attributes):
            wanted = int(digits)
            if not 1 <= wanted <= MAX_SPAN:
                self.repairs.add(f"spans outside 1..{MAX_SPAN}")
            spans[name.lower()] = min(max(wanted, 1), MAX_SPAN)
        return "".join(f' {name}="{n}"' for name, n in sorted(spans.items()) if n > 1)


def rebuild_table(markup: str) -> tuple[str, tuple[Notice, ...]]:
    """`markup` as one `<table>` that holds only table and inline tags, rowspan and colspan, and a
    notice `table_repaired` that names what was mended. "" for markup without any content."""
    builder = _Builder()
    position = 0
    for tag in _TAG.finditer(markup):
        closing, name = tag[1], tag[2].lower()
        if name not in _KNOWN and name not in _DROPPED:
            continue
        builder.text(markup[position : tag.start()])
        position = tag.end()
        if name in _DROPPED:
            builder.repairs.add("page formatting left out")
        elif closing:
            builder.end(name)
        else:
            builder.start(name, tag[3])
    builder.text(markup[position:])
    table = builder.finish()
    if not builder.repairs:
        return table, ()
    return table, (Notice("table_repaired", f"mended: {', '.join(sorted(builder.repairs))}"),)


def table_spans(text: str) -> list[tuple[int, int]]:
    """Where the tables of `text` stand, as (start, end). A table that opens in a cell is part of
    the outer one; one that opens elsewhere ends the table before it, which was cut."""
    spans: list[tuple[int, int]] = []
    start, depth, in_cell = -1, 0, False
    for tag in _TABLE_TAG.finditer(text):
        closing, name = bool(tag[1]), tag[2].lower()
        if name == "table" and not closing:
            if depth and not in_cell:
                spans.append((start, tag.start()))
                depth = 0
            start, depth = (start, depth + 1) if depth else (tag.start(), 1)
            in_cell = False
        elif name == "table" and depth:
            depth -= 1
            in_cell = depth > 0
            if depth == 0:
                spans.append((start, tag.end()))
        else:
            in_cell = not closing
    if depth:
        spans.append((start, len(text)))
    return spans


def table_rows(table: str) -> list[list[str]]:
    """The cells' plain texts of a rebuilt table, row by row; spans are not expanded, a nested
    table's cells stand in their own rows."""
    rows: list[list[str]] = []
    for row in re.split(r"<tr>", table)[1:]:
        cells = re.split(r"<t[dh][^<>]*>", row)[1:]
        rows.append([_cell_text(cell) for cell in cells])
    return [row for row in rows if row]


def table_caption(table: str) -> str:
    """The plain text of a rebuilt table's caption, or ""."""
    found = re.search(r"<caption>(.*?)</caption>", table, re.DOTALL)
    return _cell_text(found[1]) if found else ""


def table_from_rows(rows: Sequence[Sequence[str]], *, header: bool = False) -> str:
    """A `<table>` of plain texts; with `header`, the first row's cells are `<th>`."""
    out = []
    for index, row in enumerate(rows):
        tag = "th" if header and index == 0 else "td"
        cells = "".join(f"<{tag}>{html.escape(cell, quote=False)}</{tag}>" for cell in row)
        out.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(out)}</table>"


_DIVIDER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")


def pipe_tables(markdown: str) -> list[str]:
    """The pipe tables of a Markdown text, as HTML (first row = header)."""
    tables: list[str] = []
    lines = markdown.splitlines()
    index = 1
    while index < len(lines):
        is_divider = "-" in lines[index] and _DIVIDER.fullmatch(lines[index])
        if not is_divider or "|" not in lines[index - 1]:
            index += 1
            continue
        rows = [_pipe_cells(lines[index - 1])]
        index += 1
        while index < len(lines) and "|" in lines[index]:
            rows.append(_pipe_cells(lines[index]))
            index += 1
        tables.append(table_from_rows(rows, header=True))
    return tables


def _pipe_cells(line: str) -> list[str]:
    inner = re.sub(r"^\s*\||(?<!\\)\|\s*$", "", line)
    return [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", inner)]


def _cell_text(cell: str) -> str:
    text = re.sub(r"<br>", " ", cell)
    return " ".join(html.unescape(re.sub(r"</?[a-z]+[^<>]*>", "", text)).split())
