"""Reading order of text lines: rows, columns, vertical text. Geometry only, in page pixels.

Columns are found by recursive X-Y cuts (Nagy and Seth, 1984): a page is cut at a gutter only when
both sides read as running text, so that a table or a receipt stays in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MIN_COLUMN_LINES = 3  # fewer lines on one side of a gutter are a heading or a stray label
_PROSE_ASPECT = 6.0  # median width / height of a line of running text (a cell is shorter)
_PROSE_FILL = 0.55  # median width of a line of running text / width of its column


@dataclass(frozen=True, slots=True)
class _Box:
    """One line after the page's skew is taken out: its index and upright extent."""

    index: int
    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2


def reading_rows(quads: NDArray[np.float32], vertical: Sequence[bool]) -> list[list[int]]:
    """Indices of `quads` (n, 4, 2) in reading order, one list a row of the page.

    `vertical[i]` says that line i is a column of vertical text: columns go from right to left.
    When most lines are vertical the page is read so; a single vertical line is a row of its own.
    """
    if not len(quads):
        return []
    boxes = _level(quads)
    if sum(vertical) * 2 > len(boxes):
        return [[i] for column in _columns(boxes) for i in column]
    return [row for block in _cut(boxes) for row in _rows(block)]


def skew(quads: NDArray[np.float32]) -> float:
    """The lean of the text in radians (positive: lines fall to the right): the median angle of
    the long side of those quads that are at least twice as wide as high."""
    along = (quads[:, 1] + quads[:, 2] - quads[:, 0] - quads[:, 3]) / 2
    across = (quads[:, 3] + quads[:, 2] - quads[:, 0] - quads[:, 1]) / 2
    wide = np.linalg.norm(along, axis=1) > 2 * np.linalg.norm(across, axis=1)
    if not wide.any():
        return 0.0
    return float(np.median(np.arctan2(along[wide, 1], along[wide, 0])))


def _level(quads: NDArray[np.float32]) -> list[_Box]:
    angle = skew(quads)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = quads @ turn
    low, high = points.min(1), points.max(1)
    return [
        _Box(i, *map(float, (*lo, *hi))) for i, (lo, hi) in enumerate(zip(low, high, strict=True))
    ]


def _rows(boxes: list[_Box]) -> list[list[int]]:
    """Boxes whose middle lies inside a row's core belong to it; left to right in a row."""
    rows: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda b: b.middle):
        last = rows[-1] if rows else []
        if last:
            core = float(np.median([b.middle for b in last]))
            height = min(box.height, float(np.median([b.height for b in last])))
            if abs(box.middle - core) <= 0.5 * height and not _stacked(box, last):
                last.append(box)
                continue
        rows.append([box])
    return [[b.index for b in sorted(row, key=lambda b: b.x0)] for row in rows]


def _stacked(box: _Box, row: list[_Box]) -> bool:
    """Does `box` lie over or under a member of the row, rather than beside all of them?"""
    return any(
        min(box.x1, b.x1) - max(box.x0, b.x0) > 0.5 * min(box.x1 - box.x0, b.x1 - b.x0) for b in row
    )


def _columns(boxes: list[_Box]) -> list[list[int]]:
    """Vertical text: columns from right to left, each from top to bottom."""
    columns: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda b: -(b.x0 + b.x1)):
        last = columns[-1] if columns else []
        if last and min(box.x1, last[0].x1) - max(box.x0, last[0].x0) > 0.5 * min(
            box.x1 - box.x0, last[0].x1 - last[0].x0
        ):
            last.append(box)
        else:
            columns.append([box])
    return [[b.index for b in sorted(column, key=lambda b: b.y0)] for column in columns]


def _cut(boxes: list[_Box]) -> list[list[_Box]]:
    """Blocks in reading order: bands of the page from top to bottom, columns in each band."""
    gutter = _gutter(boxes)
    if gutter is None:
        return [boxes]
    spanning = sorted((b for b in boxes if b.x0 < gutter < b.x1), key=lambda b: b.middle)
    blocks: list[list[_Box]] = []
    rest = [b for b in boxes if not b.x0 < gutter < b.x1]
    for wall in [*spanning, None]:
        band = [b for b in rest if wall is None or b.middle < wall.middle]
        rest = [b for b in rest if b not in band]
        for side in ([b for b in band if b.x1 <= gutter], [b for b in band if b.x0 >= gutter]):
            if side:
                blocks.extend(_cut(side))
        if wall is not None:
            blocks.append([wall])
    return blocks


def _gutter(boxes: list[_Box]) -> float | None:
    """The x between two columns of running text, or None. Lines across it (a headline) are
    allowed while the columns hold most of the lines."""
    if len(boxes) < 2 * _MIN_COLUMN_LINES:
        return None
    edges = sorted({b.x1 for b in boxes})
    best: tuple[int, float, float] | None = None
    for x in edges:
        left = [b for b in boxes if b.x1 <= x]
        right = [b for b in boxes if b.x0 > x]
        if min(len(left), len(right)) < _MIN_COLUMN_LINES:
            continue
        across = len(boxes) - len(left) - len(right)
        if across > 0.25 * len(boxes) or not (_is_prose(left) and _is_prose(right)):
            continue
        gap = min(b.x0 for b in right) - x
        if best is None or (across, -gap) < best[:2]:
            best = (across, -gap, x + gap / 2)
    return None if best is None else best[2]


def _is_prose(boxes: list[_Box]) -> bool:
    widths = np.array([b.x1 - b.x0 for b in boxes])
    heights = np.array([b.height for b in boxes])
    column = max(b.x1 for b in boxes) - min(b.x0 for b in boxes)
    return bool(
        np.median(widths / np.maximum(heights, 1)) >= _PROSE_ASPECT
        and np.median(widths) >= _PROSE_FILL * column
    )
