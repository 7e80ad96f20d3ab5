"""Windows over a page that is too large for one canvas, and boxes put together across them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tile:
    """A window of the page, in page pixels: columns x0..x1 and rows y0..y1."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True, slots=True, eq=False)
class _Sight:
    """Box `box` of window `window`: its corners in page pixels, and whether an edge cut it."""

    window: int
    box: int
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    cut: bool


def tiles(height: int, width: int, side: int, overlap: int) -> list[Tile]:
    """Windows of at most `side` x `side` page pixels that cover the page, row by row; neighbours
    share at least `overlap` pixels (`overlap` < `side`)."""
    columns, rows = _spans(width, side, overlap), _spans(height, side, overlap)
    return [Tile(x0, y0, x1, y1) for y0, y1 in rows for x0, x1 in columns]


def merge_across(
    quads: Sequence[NDArray[np.float32]], windows: Sequence[Tile], height: int, width: int
) -> list[list[tuple[int, int]]]:
    """Which boxes of which windows are one text, as groups of (window, box), of quads (n, 4, 2) in
    page pixels.

    A box that another window saw whole, or more of, is dropped. The pieces of a text longer than
    the overlap, cut by the facing edges of neighbours, are one group.
    """
    sights = [
        _Sight(
            w, b, quad.min(0), quad.max(0), _cut_by(window, quad.min(0), quad.max(0), height, width)
        )
        for w, (window, found) in enumerate(zip(windows, quads, strict=True))
        for b, quad in enumerate(found)
    ]
    # Whole boxes first, then the larger ones: what is covered by a kept box adds nothing.
    sights.sort(key=lambda s: (s.cut, -float(np.prod(s.high - s.low))))
    groups: list[list[_Sight]] = []
    for sight in sights:
        if any(k.window != sight.window and _covered(sight, k) for group in groups for k in group):
            continue
        touching = [g for g in groups if any(_one_line(sight, k) for k in g)] if sight.cut else []
        groups = [g for g in groups if not any(g is t for t in touching)]
        groups.append([sight, *(k for g in touching for k in g)])
    return [[(s.window, s.box) for s in group] for group in groups]


def _spans(length: int, side: int, overlap: int) -> list[tuple[int, int]]:
    if length <= side:
        return [(0, length)]
    count = -(-(length - overlap) // (side - overlap))
    starts = np.linspace(0, length - side, count).round().astype(int)
    return [(int(s), int(s) + side) for s in starts]


def _cut_by(
    window: Tile, low: NDArray[np.float32], high: NDArray[np.float32], height: int, width: int
) -> bool:
    """Does the box touch an edge of the window that is not an edge of the page?"""
    margin = 3.0
    return bool(
        (window.x0 > 0 and low[0] <= window.x0 + margin)
        or (window.y0 > 0 and low[1] <= window.y0 + margin)
        or (window.x1 < width and high[0] >= window.x1 - margin)
        or (window.y1 < height and high[1] >= window.y1 - margin)
    )


def _covered(sight: _Sight, kept: _Sight) -> bool:
    """Is more than 60 % of the box inside the kept one?"""
    inter = np.clip(np.minimum(sight.high, kept.high) - np.maximum(sight.low, kept.low), 0, None)
    area = max(float((sight.high - sight.low).prod()), 1e-6)
    return bool(inter.prod() > 0.6 * area)


def _one_line(a: _Sight, b: _Sight) -> bool:
    """Do boxes of different windows, of which `a` is cut, meet along the text and share most of
    their extent across it?"""
    if a.window == b.window:
        return False
    inter = np.minimum(a.high, b.high) - np.maximum(a.low, b.low)
    if (inter <= 0).any():
        return False
    share = inter / np.minimum(a.high - a.low, b.high - b.low)
    return bool(share.max() > 0.6)
