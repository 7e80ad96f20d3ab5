"""Tables and paragraphs from the rows of a page: geometry only, no model.

A table here is a run of rows whose cells line up in at least two columns; spans are not guessed.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from host_pipeline.render.markdown import escape_markdown
from host_pipeline.result import Line, Quad, rectangle

Row = Sequence[Line]
Extent = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows of the page: a table (`columns` = x ranges of its columns, page pixels) or
    running text (`columns` empty)."""

    rows: tuple[tuple[Line, ...], ...]
    columns: tuple[tuple[float, float], ...] = ()

    @property
    def is_table(self) -> bool:
        """Does the block have columns?"""
        return bool(self.columns)

    @property
    def quad(self) -> Quad:
        """The upright rectangle around the block, page pixels."""
        return around([line for row in self.rows for line in row])

    def cells(self) -> list[list[str]]:
        """The table's texts by row and column; "" where a row has nothing."""
        table = []
        for row in self.rows:
            cells: list[list[str]] = [[] for _ in self.columns]
            for line in row:
                cells[_column_of(line, self.columns)].append(line.text)
            table.append([" ".join(c) for c in cells])
        return table

    def to_html(self) -> str:
        """The table as `<table>` without attributes; texts escaped."""
        rows = (
            "<tr>" + "".join(f"<td>{html.escape(c, quote=False)}</td>" for c in row) + "</tr>"
            for row in self.cells()
        )
        return "<table>" + "".join(rows) + "</table>"


def page_blocks(rows: Sequence[Row]) -> tuple[Block, ...]:
    """The page's rows (in reading order) as text and tables, every row in exactly one block."""
    blocks: list[Block] = []
    start = 0
    while start < len(rows):
        end = _table_end(rows, start)
        columns = _columns(rows[start:end]) if end - start >= 2 else ()
        if columns and any(_straddles(line, columns) for line in rows[start]):
            end, columns = start + 1, ()  # a row of labels over the table is not its head
        if columns:
            blocks.append(Block(tuple(tuple(r) for r in rows[start:end]), columns))
            start = end
            continue
        end = start + 1
        while end < len(rows) and _follows(rows[end - 1], rows[end]):
            end += 1
        blocks.append(Block(tuple(tuple(r) for r in rows[start:end])))
        start = end
    return tuple(blocks)


def blocks_markdown(blocks: Sequence[Block]) -> str:
    """Markdown with HTML tables, a blank line between blocks, one line of text a row."""
    parts = [
        b.to_html()
        if b.is_table
        else "\n".join(escape_markdown("  ".join(line.text for line in row)) for row in b.rows)
        for b in blocks
    ]
    return "\n\n".join(parts)


def extent(line: Line) -> Extent:
    """The upright x0, y0, x1, y1 around a line's quad, page pixels."""
    assert line.quad is not None  # lines of a detector always have one
    xs, ys = [p[0] for p in line.quad], [p[1] for p in line.quad]
    return min(xs), min(ys), max(xs), max(ys)


def around(lines: Sequence[Line]) -> Quad:
    """The upright rectangle around all of `lines`, page pixels."""
    x0, y0, x1, y1 = zip(*map(extent, lines), strict=True)
    return rectangle(min(x0), min(y0), max(x1), max(y1))


def _table_end(rows: Sequence[Row], start: int) -> int:
    """The row after the run of many-celled rows from `start`. One single-celled row inside (a
    wrapped cell, a section's name) does not end it."""
    end = start
    while end < len(rows):
        if len(rows[end]) >= 2 and (end == start or _near(rows[end - 1], rows[end], 3.0)):
            end += 1
        elif (
            end > start
            and end + 1 < len(rows)
            and len(rows[end + 1]) >= 2
            and _near(rows[end - 1], rows[end], 1.5)
        ):
            end += 1
        else:
            break
    return end


def _columns(rows: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """x ranges between gaps that no row crosses, or no typical row (of the commonest number of
    cells), whichever are more; () when fewer than two hold cells in at least half of the rows."""
    many = [row for row in rows if len(row) >= 2]
    counts = [len(row) for row in many]
    typical = max(set(counts), key=lambda n: (counts.count(n), n))
    columns = max(_gaps([row for row in many if len(row) == typical]), _gaps(many), key=len)
    hits = [0] * len(columns)
    for row in rows:
        for c in {_column_of(line, columns) for line in row}:
            hits[c] += 1
    return columns if sum(h * 2 >= len(rows) for h in hits) >= 2 else ()


def _gaps(rows: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """The x ranges that the rows' lines cover together."""
    merged: list[tuple[float, float]] = []
    for x0, _, x1, _ in sorted(extent(line) for row in rows for line in row):
        if merged and x0 <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], x1))
        else:
            merged.append((x0, x1))
    return tuple(merged)


def _column_of(line: Line, columns: Sequence[tuple[float, float]]) -> int:
    """The column that shares the most with the line, else the nearest one."""
    x0, _, x1, _ = extent(line)
    return max(range(len(columns)), key=lambda c: min(x1, columns[c][1]) - max(x0, columns[c][0]))


def _straddles(line: Line, columns: Sequence[tuple[float, float]]) -> bool:
    """Does a line lie over two columns or more, by a fifth of each?"""
    x0, _, x1, _ = extent(line)
    return sum(min(x1, b) - max(x0, a) > 0.2 * (b - a) for a, b in columns) >= 2


def _follows(above: Row, below: Row) -> bool:
    return len(below) == 1 and len(above) == 1 and _near(above, below, 1.0)


def _near(above: Row, below: Row, lines: float) -> bool:
    """Is the space between two rows under `lines` times their height?"""
    up, down = [extent(line) for line in above], [extent(line) for line in below]
    height = max(e[3] - e[1] for e in (*up, *down))
    return min(e[1] for e in down) - max(e[3] for e in up) < lines * height
